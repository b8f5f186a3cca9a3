/* dora.c - the norms that features of a linear with an adapter have, features divided by
 * them and times their magnitude, and the gradient of these. */
#include "kernel.h"

/* Columns of a row of w + scale * b @ a at a time. */
enum { NORM_TILE = 256 };

/* Rows [lo, hi) of the weight as (O,I), whichever way it lies. Tiles add up in f64, so
 * that the rounding does not grow with their number. */
INLINE void feature_sqnorms(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *w = a->in[0].p, *down = a->in[1].p, *up = a->in[2].p;
  int64_t rank = a->in[1].dim[0], I = a->in[1].dim[1], O = a->in[2].dim[0];
  int64_t row = a->attr->layout ? 1 : I, column = a->attr->layout ? O : 1;
  for (int64_t o = lo; o < hi; o++) {
    double sum = 0;
    for (int64_t i0 = 0; i0 < I; i0 += NORM_TILE) {
      int n = (int)MIN(NORM_TILE, I - i0);
      float v[NORM_TILE] = {0}, part = 0;
      for (int64_t r = 0; r < rank; r++) {
        float by = a->attr->scale * get(up, t, o * rank + r);
        const void *from = at(down, t, r * I + i0);
#pragma omp simd
        for (int i = 0; i < n; i++) v[i] += by * get(from, t, i);
      }
      for (int i = 0; i < n; i++) v[i] += get(w, t, o * row + (i0 + i) * column);
#pragma omp simd reduction(+ : part)
      for (int i = 0; i < n; i++) part += v[i] * v[i];
      sum += part;
    }
    ((float *)a->out[0].p)[o] = (float)sum;
  }
}
BY_TYPE(feature_sqnorms, in[0])

void cpu_feature_sqnorms(Device *dev, const KernelArgs *a) {
  each_part(dev, a, a->in[2].dim[0], row_grain(a->in[1].dim[1]), feature_sqnorms_part);
}

INLINE void feature_scale(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t n = last_dim(&a->in[0]);
  const void *m = a->in[1].p;
  const float *norm2 = a->in[2].p;
  for (int64_t r = lo; r < hi; r++) {
    const void *x = at(a->in[0].p, t, r * n);
    void *y = at(a->out[0].p, t, r * n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      put(y, t, i, get(x, t, i) * (get(m, t, i) / sqrtf(norm2[i])));
  }
}
BY_TYPE(feature_scale, in[0])

void cpu_feature_scale(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->in[0], feature_scale_part);
}

/* Sums in blocks of rows as bias_dw. */
INLINE void feature_scale_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 256, ROWS = 64 };
  int64_t rows = rows_of(&a->in[0]), n = last_dim(&a->in[0]);
  const float *norm2 = a->in[1].p;
  for (int64_t c = lo; c < hi; c += TILE) {
    int w = (int)MIN(TILE, hi - c);
    float total[TILE] = {0};
    for (int64_t r0 = 0; r0 < rows; r0 += ROWS) {
      float sum[TILE] = {0};
      for (int64_t r = r0; r < MIN(rows, r0 + ROWS); r++) {
        const void *x = at(a->in[0].p, t, r * n + c), *dy = at(a->in[2].p, t, r * n + c);
#pragma omp simd
        for (int i = 0; i < w; i++) sum[i] += get(x, t, i) * get(dy, t, i);
      }
      for (int i = 0; i < w; i++) total[i] += sum[i];
    }
    for (int i = 0; i < w; i++)
      put_gradient(&a->out[0], c + i, total[i] / sqrtf(norm2[c + i]), a->accumulate);
  }
}
BY_TYPE(feature_scale_dw, in[0])

void cpu_feature_scale_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, last_dim(&a->in[0]), COLUMN_GRAIN, feature_scale_dw_part);
}
