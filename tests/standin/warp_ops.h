/* warp_ops.h - a warp does one of the instructions of kernels/cuda/mma.cuh in the
 * emulator, with the lanes' registers filled and read by the formulas of the PTX ISA
 * (9.2). */
#ifndef WEFT_TESTS_WARP_OPS_H
#define WEFT_TESTS_WARP_OPS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* d = c + a b: a(16, 16) and b(16, 8) of whole numbers up to 256, c and d(16, 8). */
void warp_multiply(const float *a, const float *b, const float *c, float *d);
/* Four matrices of 8 x 8 that lie one after the other; got(4, 8, 8) as lanes have them.
 * `skew`: bytes by which the last lane's address is too large. */
void warp_load(const uint16_t *from, uint16_t *got, bool turned, int skew);
/* What the lanes see in shared memory of 32 words that each of them copies one of, those
 * with odd numbers zeros: after a barrier without waiting, and after waiting. */
void warp_copy(const uint32_t *from, uint32_t *before, uint32_t *after);
/* One lane does not wait for what it copies. */
void warp_forget(const uint32_t *from);

#ifdef __cplusplus
}
#endif

#endif
