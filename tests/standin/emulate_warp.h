/* emulate_warp.h - the functions of kernels/cuda/mma.cuh on the CPU. What the lanes of a
 * warp bring is laid out and computed at once, when the last of them has come. */
#ifndef WEFT_TESTS_EMULATE_WARP_H
#define WEFT_TESTS_EMULATE_WARP_H

#include "emulate.h"

namespace emulate {
void mma_bf16(float *c, const uint32_t *a, const uint32_t *b);
void load_matrices(uint32_t *r, const void *row, bool turned);
void copy_begin(void *to, const void *from, int bytes, bool is);
void copies_wait();
void copies_commit();
void copies_wait_but(size_t last);
/* A store to shared memory has been made that another proxy may not see yet. */
void wrote(const void *to, size_t bytes);
} // namespace emulate

static inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                            uint32_t b1) {
  uint32_t b[2] = {b0, b1};
  emulate::mma_bf16(c, a, b);
}
static inline void load_matrices(uint32_t (&r)[4], const void *row) {
  emulate::load_matrices(r, row, false);
}
static inline void load_turned(uint32_t (&r)[4], const void *row) {
  emulate::load_matrices(r, row, true);
}
template <int BYTES> static inline void copy_begin(void *to, const void *from, bool is) {
  emulate::copy_begin(to, from, BYTES, is);
}
static inline void copies_wait() { emulate::copies_wait(); }
static inline void copies_commit() { emulate::copies_commit(); }
template <int LAST> static inline void copies_wait_but() {
  emulate::copies_wait_but(LAST);
}
template <typename T> static inline void put_shared(T *to, T x) {
  *to = x;
  emulate::wrote(to, sizeof x);
}
static inline float exp2_of(float x) { return exp2f(x); }
static inline uint32_t pair_of(float first, float second) {
  return (uint32_t)__float2bfloat16_rn(second).bits << 16 |
         __float2bfloat16_rn(first).bits;
}

#endif
