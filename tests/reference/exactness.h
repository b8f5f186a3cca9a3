/* exactness.h - measures the rounding errors of the CUDA kernels, run on the CPU, and of
 * the CPU kernels. */
#ifndef WEFT_TESTS_EXACTNESS_H
#define WEFT_TESTS_EXACTNESS_H

/* `weft-tests --exactness`: prints the worst case of each op: in f32 the norm-wise
 * distance of results from f64; in bf16 by how many roundings elements of the two differ
 * (kernel_roundings). Returns the exit code. */
int exactness(void);

#endif
