/* rmsnorm.c - RMSNorm over groups of G elements of a row, also of a sum (add_rmsnorm),
 * and its gradients. A per-head norm (G = head_dim) and a row norm (G = C) are the same
 * loop. */
#include "kernel.h"

/* Elements of a group, of weights w; and where those of group r are, which may be one for
 * all groups. */
INLINE int64_t group_size(const KernelArgs *a, const KTensor *w) {
  return a->attr->head_dim ? a->attr->head_dim : last_dim(w);
}
INLINE const void *weights_of(const KTensor *w, int64_t r, int64_t g, DType t) {
  return at(w->p, t, r * g % last_dim(w));
}

/* Normalizes one group by w + plus; returns its rstd. */
INLINE float norm_group(const void *x, const void *w, float plus, void *y, int64_t g,
                        float eps, DType t) {
  enum { BLOCK = 256 }; /* one after the other, thousands of squares lose digits */
  float sum = 0;
  for (int64_t k = 0; k < g; k += BLOCK) {
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = k; i < MIN(g, k + BLOCK); i++) part += get(x, t, i) * get(x, t, i);
    sum += part;
  }
  float s = 1.0f / sqrtf(sum / (float)g + eps);
#pragma omp simd
  for (int64_t i = 0; i < g; i++) put(y, t, i, get(x, t, i) * s * (get(w, t, i) + plus));
  return s;
}

INLINE void rmsnorm(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t g = group_size(a, &a->in[1]);
  float *rstd = a->out[1].p;
  for (int64_t r = lo; r < hi; r++)
    rstd[r] = norm_group(at(a->in[0].p, t, r * g), weights_of(&a->in[1], r, g, t),
                         attr_weight_plus(a->attr), at(a->out[0].p, t, r * g), g,
                         a->attr->eps, t);
}
BY_TYPE(rmsnorm, in[0])

/* Adds and normalizes while a group of the sum is in the cache. */
INLINE void add_rmsnorm(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t g = last_dim(&a->in[2]);
  float *rstd = a->out[2].p;
  for (int64_t r = lo; r < hi; r++) {
    const void *x = at(a->in[0].p, t, r * g), *b = at(a->in[1].p, t, r * g);
    void *z = at(a->out[0].p, t, r * g);
#pragma omp simd
    for (int64_t i = 0; i < g; i++) put(z, t, i, get(x, t, i) + get(b, t, i));
    rstd[r] = norm_group(z, a->in[2].p, attr_weight_plus(a->attr),
                         at(a->out[1].p, t, r * g), g, a->attr->eps, t);
  }
}
BY_TYPE(add_rmsnorm, in[0])

void cpu_add_rmsnorm(Device *dev, const KernelArgs *a) {
  int64_t g = last_dim(&a->in[2]);
  each_part(dev, a, count_of(&a->in[0]) / g, row_grain(g), add_rmsnorm_part);
}

void cpu_rmsnorm(Device *dev, const KernelArgs *a) {
  int64_t g = group_size(a, &a->in[1]);
  assert(a->in[1].dtype == a->in[0].dtype);
  each_part(dev, a, count_of(&a->in[0]) / g, row_grain(g), rmsnorm_part);
}

/* dx = rstd * (dy*w - xhat * mean(dy*w*xhat)), xhat = x * rstd; plus the operand d, if
 * there is one. dx is the last result. */
INLINE void rmsnorm_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t g = group_size(a, &a->in[1]);
  const float *rstd = a->in[2].p;
  for (int64_t r = lo; r < hi; r++) {
    const void *w = weights_of(&a->in[1], r, g, t);
    const void *x = at(a->in[0].p, t, r * g), *dy = at(a->in[3].p, t, r * g);
    const void *d = a->nin > 4 ? at(a->in[4].p, t, r * g) : NULL;
    void *dx = at(a->out[a->nout - 1].p, t, r * g);
    float s = rstd[r], dot = 0, plus = attr_weight_plus(a->attr);
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < g; i++)
      dot += get(dy, t, i) * (get(w, t, i) + plus) * get(x, t, i);
    float k = dot * s * s * s / (float)g;
    if (d) {
#pragma omp simd
      for (int64_t i = 0; i < g; i++)
        put(dx, t, i,
            get(dy, t, i) * (get(w, t, i) + plus) * s - get(x, t, i) * k + get(d, t, i));
    } else {
#pragma omp simd
      for (int64_t i = 0; i < g; i++)
        put(dx, t, i, get(dy, t, i) * (get(w, t, i) + plus) * s - get(x, t, i) * k);
    }
  }
}
BY_TYPE(rmsnorm_dx, in[0])

void cpu_rmsnorm_dx(Device *dev, const KernelArgs *a) {
  int64_t g = group_size(a, &a->in[1]);
  each_part(dev, a, count_of(&a->in[0]) / g, row_grain(g), rmsnorm_dx_part);
}

/* Threads own columns; sums over blocks of groups as in bias_dw. */
INLINE void rmsnorm_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 256, BLOCK = 64 };
  int64_t g = last_dim(&a->out[0]), n = count_of(&a->in[0]) / g;
  int64_t groups = g / group_size(a, &a->out[0]), each = g / groups;
  const float *rstd = a->in[1].p;
  for (int64_t c = lo; c < hi; c += TILE) {
    int w = (int)MIN(TILE, hi - c);
    float total[TILE] = {0};
    for (int64_t r0 = 0; r0 < n; r0 += BLOCK) {
      float sum[TILE] = {0};
      for (int64_t r = r0; r < MIN(n, r0 + BLOCK); r++) {
        const void *x = at(a->in[0].p, t, r * g + c), *dy = at(a->in[2].p, t, r * g + c);
        if (groups == 1) {
          float s = rstd[r];
#pragma omp simd
          for (int i = 0; i < w; i++) sum[i] += get(dy, t, i) * get(x, t, i) * s;
        } else {
          for (int i = 0; i < w; i++)
            sum[i] += get(dy, t, i) * get(x, t, i) * rstd[r * groups + (c + i) / each];
        }
      }
      for (int i = 0; i < w; i++) total[i] += sum[i];
    }
    for (int i = 0; i < w; i++) put_gradient(&a->out[0], c + i, total[i], a->accumulate);
  }
}
BY_TYPE(rmsnorm_dw, in[0])

void cpu_rmsnorm_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, last_dim(&a->out[0]), COLUMN_GRAIN, rmsnorm_dw_part);
}

/* dw is summed by columns, dx by rows: two passes, as in the separate ops. */
void cpu_rmsnorm_back(Device *dev, const KernelArgs *a) {
  KernelArgs dw = {.in = {a->in[0], a->in[2], a->in[3]},
                   .out = {a->out[0]},
                   .nin = 3,
                   .nout = 1,
                   .attr = a->attr,
                   .accumulate = a->accumulate};
  cpu_rmsnorm_dw(dev, &dw);
  cpu_rmsnorm_dx(dev, a);
}
