/* exactness.h - how exact the CUDA kernels are, run on the CPU, beside those of the CPU.
 */
#ifndef WEFT_TESTS_EXACTNESS_H
#define WEFT_TESTS_EXACTNESS_H

/* `weft-tests --exactness`: prints the worst of the cases of each op: in f32 how far
 * results are, norm-wise, from those in f64; in bf16 by how many roundings elements of
 * the two differ (kernel_roundings). The exit code. */
int exactness(void);

#endif
