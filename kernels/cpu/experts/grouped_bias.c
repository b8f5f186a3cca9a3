/* grouped_bias.c - adds the bias of its expert to each row, and its gradient. Of rows
 * that are parts of sums over ranks, the first of these adds it. */
#include "kernels/cpu/kernel.h"

static bool adds_here(const KernelArgs *a) { return !a->attr->cut || a->index == 0; }

/* Items are experts, and what lies behind all of them. */
INLINE void grouped_bias(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t n = last_dim(&a->in[0]), experts = a->in[1].dim[0];
  const int32_t *ends = a->in[2].p;
  bool adds = adds_here(a);
  for (int64_t e = lo; e < hi; e++) {
    int64_t end = e < experts ? ends[e + 1] : a->in[0].dim[0];
    const void *b = at(a->in[1].p, t, MIN(e, experts - 1) * n);
    float with = adds && e < experts, keep = e < experts;
    for (int64_t r = ends[e]; r < end; r++) {
      const void *x = at(a->in[0].p, t, r * n);
      void *y = at(a->out[0].p, t, r * n);
#pragma omp simd
      for (int64_t i = 0; i < n; i++)
        put(y, t, i, keep != 0 ? get(x, t, i) + with * get(b, t, i) : 0);
    }
  }
}
BY_TYPE(grouped_bias, in[0])

void cpu_grouped_bias(Device *dev, const KernelArgs *a) {
  each_part(dev, a, a->in[1].dim[0] + 1, 1, grouped_bias_part);
}

/* Rows are summed in blocks, so that errors grow slowly. */
INLINE void grouped_bias_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 256, BLOCK = 64 };
  int64_t n = last_dim(&a->in[0]);
  const int32_t *ends = a->in[1].p;
  bool adds = adds_here(a);
  for (int64_t e = lo; e < hi; e++)
    for (int64_t c = 0; c < n; c += TILE) {
      int w = (int)MIN(TILE, n - c);
      float total[TILE] = {0};
      for (int64_t r0 = ends[e]; r0 < ends[e + 1] && adds; r0 += BLOCK) {
        float sum[TILE] = {0};
        for (int64_t r = r0; r < MIN(ends[e + 1], r0 + BLOCK); r++) {
          const void *dy = at(a->in[0].p, t, r * n + c);
#pragma omp simd
          for (int i = 0; i < w; i++) sum[i] += get(dy, t, i);
        }
        for (int i = 0; i < w; i++) total[i] += sum[i];
      }
      for (int i = 0; i < w; i++)
        put_gradient(&a->out[0], e * n + c + i, total[i], a->accumulate);
    }
}
BY_TYPE(grouped_bias_dw, in[0])

void cpu_grouped_bias_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, a->out[0].dim[0], 1, grouped_bias_dw_part);
}
