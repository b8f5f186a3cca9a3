/* layernorm.c - layernorm over rows and its gradients; stats: (mean, rstd) of a row. And
 * rows less their mean. */
#include "kernel.h"

INLINE void layernorm(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t n = last_dim(&a->in[0]);
  const void *w = a->in[1].p, *b = a->in[2].p;
  float *stats = a->out[1].p, plus = attr_weight_plus(a->attr);
  for (int64_t r = lo; r < hi; r++) {
    const void *x = at(a->in[0].p, t, r * n);
    void *y = at(a->out[0].p, t, r * n);
    float sum = 0, var = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += get(x, t, i);
    float mean = sum / (float)n;
#pragma omp simd reduction(+ : var)
    for (int64_t i = 0; i < n; i++) {
      float d = get(x, t, i) - mean;
      var += d * d;
    }
    float rstd = 1.0f / sqrtf(var / (float)n + a->attr->eps);
    stats[2 * r] = mean;
    stats[2 * r + 1] = rstd;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      put(y, t, i, (get(x, t, i) - mean) * rstd * (get(w, t, i) + plus) + get(b, t, i));
  }
}
BY_TYPE(layernorm, in[0])

void cpu_layernorm(Device *dev, const KernelArgs *a) {
  assert(a->in[1].dtype == a->in[0].dtype && a->in[2].dtype == a->in[0].dtype);
  each_row(dev, a, &a->in[0], layernorm_part);
}

/* dx = rstd * (dy*w - mean(dy*w) - xhat * mean(dy*w*xhat)), xhat = (x - mean) * rstd. */
INLINE void layernorm_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t n = last_dim(&a->in[0]);
  const void *w = a->in[1].p;
  const float *stats = a->in[2].p;
  for (int64_t r = lo; r < hi; r++) {
    const void *x = at(a->in[0].p, t, r * n), *dy = at(a->in[3].p, t, r * n);
    void *dx = at(a->out[0].p, t, r * n);
    float mean = stats[2 * r], rstd = stats[2 * r + 1], sum = 0, dot = 0;
    float plus = attr_weight_plus(a->attr);
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < n; i++) {
      float d = get(dy, t, i) * (get(w, t, i) + plus);
      sum += d;
      dot += d * ((get(x, t, i) - mean) * rstd);
    }
    sum /= (float)n;
    dot /= (float)n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
      float d = get(dy, t, i) * (get(w, t, i) + plus);
      put(dx, t, i, (d - sum - (get(x, t, i) - mean) * rstd * dot) * rstd);
    }
  }
}
BY_TYPE(layernorm_dx, in[0])

void cpu_layernorm_dx(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->in[0], layernorm_dx_part);
}

/* Threads own columns; sums in blocks of rows as in bias_dw. */
INLINE void layernorm_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 256, BLOCK = 64 };
  int64_t rows = rows_of(&a->in[0]), n = last_dim(&a->in[0]);
  const float *stats = a->in[1].p;
  for (int64_t c = lo; c < hi; c += TILE) {
    int w = (int)MIN(TILE, hi - c);
    float tw[TILE] = {0}, tb[TILE] = {0};
    for (int64_t r0 = 0; r0 < rows; r0 += BLOCK) {
      float sw[TILE] = {0}, sb[TILE] = {0};
      for (int64_t r = r0; r < MIN(rows, r0 + BLOCK); r++) {
        const void *x = at(a->in[0].p, t, r * n + c), *dy = at(a->in[2].p, t, r * n + c);
        float mean = stats[2 * r], rstd = stats[2 * r + 1];
#pragma omp simd
        for (int i = 0; i < w; i++) {
          float d = get(dy, t, i);
          sw[i] += d * ((get(x, t, i) - mean) * rstd);
          sb[i] += d;
        }
      }
      for (int i = 0; i < w; i++) tw[i] += sw[i], tb[i] += sb[i];
    }
    for (int i = 0; i < w; i++) {
      put_gradient(&a->out[0], c + i, tw[i], a->accumulate);
      put_gradient(&a->out[1], c + i, tb[i], a->accumulate);
    }
  }
}
BY_TYPE(layernorm_dw, in[0])

void cpu_layernorm_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, last_dim(&a->in[0]), COLUMN_GRAIN, layernorm_dw_part);
}

INLINE void center(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t n = last_dim(&a->in[0]);
  for (int64_t r = lo; r < hi; r++) {
    const void *x = at(a->in[0].p, t, r * n);
    void *y = at(a->out[0].p, t, r * n);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += get(x, t, i);
    float mean = sum / (float)n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) put(y, t, i, get(x, t, i) - mean);
  }
}
BY_TYPE(center, in[0])

void cpu_center(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->in[0], center_part);
}
