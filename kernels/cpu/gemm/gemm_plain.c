/* gemm_plain.c - products in plain C, through tiles that are packed as f32 on the stack.
 * Threads own blocks of the result; sums run in one order. */
#include "gemm.h"
#include "kernels/cpu/tile.h"

enum { BM = 64, BN = 128, BK = 128 };

typedef struct Product {
  const GemmShape *s;
  const void *a, *b;
  void *c;
  bool accumulate;
  int64_t across; /* blocks along n */
} Product;

/* Copies x[r0.. +rows][c0.. +cols] of a matrix with `ld` elements per row (or of its
 * transpose) to dst, with rows of `width`; columns up to a whole vector are zero. */
INLINE void pack_tile(float *dst, int width, const void *x, DType t, bool turned,
                      int64_t ld, int64_t r0, int rows, int64_t c0, int cols) {
  for (int i = 0; i < rows; i++) {
    float *row = dst + i * width;
    if (turned) {
      for (int j = 0; j < cols; j++) row[j] = get(x, t, (c0 + j) * ld + r0 + i);
    } else {
      const void *src = at(x, t, (r0 + i) * ld + c0);
#pragma omp simd
      for (int j = 0; j < cols; j++) row[j] = get(src, t, j);
    }
    for (int j = cols; j < whole_lanes(cols); j++) row[j] = 0;
  }
}

INLINE void block(const Product *p, int64_t r0, int64_t c0, DType t) {
  float a[BM * BK], b[BK * BN], c[BM * BN];
  const GemmShape *s = p->s;
  int m = (int)MIN(BM, s->m - r0), n = (int)MIN(BN, s->n - c0);
  if (s->k == 0) memset(c, 0, sizeof c);
  for (int64_t k0 = 0; k0 < s->k; k0 += BK) {
    int k = (int)MIN(BK, s->k - k0);
    pack_tile(a, BK, p->a, t, s->ta, s->ta ? s->m : s->k, r0, m, k0, k);
    pack_tile(b, BN, p->b, t, s->tb, s->tb ? s->k : s->n, k0, k, c0, n);
    tile_mul(m, n, k, (Strided){a, BK, 1}, b, BN, c, BN, k0 > 0);
  }
  for (int i = 0; i < m; i++) {
    int64_t at0 = (r0 + i) * s->n + c0;
    for (int j = 0; j < n; j++) {
      float old = p->accumulate ? get(p->c, s->out, at0 + j) : 0;
      put(p->c, s->out, at0 + j, c[i * BN + j] + old);
    }
  }
}

static void blocks(const KernelArgs *a, int64_t lo, int64_t hi) {
  const Product *p = a->state;
  for (int64_t i = lo; i < hi; i++) {
    int64_t r0 = i / p->across * BM, c0 = i % p->across * BN;
    WITH_TYPE(p->s->in, block, p, r0, c0)
  }
}

void gemm_plain(const GemmShape *s, int threads, const void *a, const void *b, void *c,
                bool accumulate) {
  Product p = {s, a, b, c, accumulate, (s->n + BN - 1) / BN};
  Device dev = {.threads = threads};
  KernelArgs part = {.state = &p};
  int64_t work = MIN(BM, s->m) * MIN(BN, s->n) * s->k;
  each_part(&dev, &part, (s->m + BM - 1) / BM * p.across,
            MAX(1, (1 << 16) / MAX(work, 1)), blocks);
}
