/* emulate_wgmma.h - the functions of kernels/cuda/wgmma.cuh on the CPU. A product is
 * computed when all 128 threads of its warpgroup have come; its sums are no numbers, and
 * come to their registers, when a thread waits for them. */
#ifndef WEFT_TESTS_EMULATE_WGMMA_H
#define WEFT_TESTS_EMULATE_WGMMA_H

#include "emulate_warp.h"

namespace emulate {
/* c(64, 8 * tiles) = or, with `add`, += a b, k = 16. `a_regs`, or the descriptor `a`; of
 * b rows are columns of the result, or with `turned` k. */
void wgmma(float *c, int tiles, const uint32_t *a_regs, uint64_t a, uint64_t b,
           bool turned, bool add);
void wgmma_fence();
void touched(); /* registers that products see */
void wgmma_commit();
void wgmma_wait(size_t last);
void fence_proxy();
/* Of this thread, when it ends. */
void products_are_waited_for();
/* Refuses a copy or store to what a product reads that was not waited for. */
void no_product_reads(const void *to, size_t bytes);
} // namespace emulate

/* Registers that were touched are fenced before the next product. */
template <int N> static inline void hold(float (&c)[N][4]) {
  (void)c;
  emulate::touched();
}
template <int N> static inline void hold(uint32_t (&a)[N][4]) {
  (void)a;
  emulate::touched();
}

static inline unsigned shared_address(const void *p) { return emulate::address_of(p); }
static inline void products_see_writes() { emulate::fence_proxy(); }
static inline void products_begin() { emulate::wgmma_fence(); }
static inline void products_commit() { emulate::wgmma_commit(); }
template <int LAST> static inline void products_wait_but() { emulate::wgmma_wait(LAST); }

template <bool ADD>
static inline void product_of_rows(float (&c)[8][4], uint64_t a, uint64_t b) {
  emulate::wgmma(c[0], 8, nullptr, a, b, false, ADD);
}
template <int N>
static inline void add_columns(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b) {
  static_assert(N == 8 || N == 16, "as for the GPU");
  emulate::wgmma(c[0], N, a, 0, b, true, true);
}

#endif
