/* bias.c - add_bias and its gradient. */
#include "kernel.h"

INLINE void add_bias(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t n = last_dim(&a->in[0]);
  const void *b = a->in[1].p;
  for (int64_t r = lo; r < hi; r++) {
    const void *x = at(a->in[0].p, t, r * n);
    void *y = at(a->out[0].p, t, r * n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) put(y, t, i, get(x, t, i) + get(b, t, i));
  }
}
BY_TYPE(add_bias, in[0])

/* Logits of a router are f32 in any compute type. */
INLINE void add_to_logits(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t n = last_dim(&a->in[0]);
  const float *x = a->in[0].p;
  float *y = a->out[0].p;
  for (int64_t r = lo; r < hi; r++)
    for (int64_t i = 0; i < n; i++) y[r * n + i] = x[r * n + i] + get(a->in[1].p, t, i);
}
BY_TYPE(add_to_logits, in[1])

void cpu_add_bias(Device *dev, const KernelArgs *a) {
  if (a->in[0].dtype != a->in[1].dtype) {
    each_row(dev, a, &a->in[0], add_to_logits_part);
    return;
  }
  each_row(dev, a, &a->in[0], add_bias_part);
}

/* Sums the columns [lo, hi): in blocks of rows, whose sums are then added, so that the
 * rounding error grows with the square root of the number of rows at most. */
INLINE void bias_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 256, BLOCK = 64 };
  int64_t rows = rows_of(&a->in[0]), n = last_dim(&a->in[0]);
  for (int64_t c = lo; c < hi; c += TILE) {
    int w = (int)MIN(TILE, hi - c);
    float total[TILE] = {0};
    for (int64_t r0 = 0; r0 < rows; r0 += BLOCK) {
      float sum[TILE] = {0};
      for (int64_t r = r0; r < MIN(rows, r0 + BLOCK); r++) {
        const void *dy = at(a->in[0].p, t, r * n + c);
#pragma omp simd
        for (int i = 0; i < w; i++) sum[i] += get(dy, t, i);
      }
      for (int i = 0; i < w; i++) total[i] += sum[i];
    }
    for (int i = 0; i < w; i++) put_gradient(&a->out[0], c + i, total[i], a->accumulate);
  }
}
BY_TYPE(bias_dw, in[0])

void cpu_bias_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, last_dim(&a->in[0]), COLUMN_GRAIN, bias_dw_part);
}
