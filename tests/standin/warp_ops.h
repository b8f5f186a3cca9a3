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

/* ---- kernels/cuda/wgmma.cuh ---- */
/* d(64, n) = c + a b with a(64, 16), b(16, n) of whole numbers up to 256. `registers`: a
 * is in registers and rows of b, k, have n = 64 or 128 columns in shared memory; else
 * both are in shared memory by rows of k, n = 64, from column `k0` of 64 on. `c` NULL: 0.
 */
void group_multiply(const float *a, const float *b, const float *c, float *d, int n,
                    bool registers, int k0);
/* What a thread sees of a sum of 16 ones: before it waits, and after. */
void group_waits(float *before, float *after);
/* One of these mistakes, each of which ends the process. */
enum GroupMistake {
  GROUP_NO_MISTAKE,
  GROUP_UNSEEN_STORE,
  GROUP_UNSEEN_COPY,
  GROUP_FENCE_BEHIND_BARRIER,
  GROUP_OTHER_FENCES,
  GROUP_REGISTERS_TOUCHED,
  GROUP_SUMS_TOUCHED,
  GROUP_SHARED_TOUCHED,
  GROUP_COPY_BEGUN,
  GROUP_NOT_BEGUN,
  GROUP_NOT_BEGUN_AGAIN,
  GROUP_HELD_BEHIND_FENCE,
  GROUP_NOT_WAITED,
  GROUP_THREE_WARPS,
  GROUP_ONE_AT_BARRIER,
  GROUP_NOT_ALIGNED,
  GROUP_OTHER_SWIZZLE,
  GROUP_ODD_BITS,
  GROUP_OTHER_OPERANDS,
  GROUP_OUTSIDE,
  GROUP_MISTAKES
};
void group_errs(int mistake);

#ifdef __cplusplus
}
#endif

#endif
