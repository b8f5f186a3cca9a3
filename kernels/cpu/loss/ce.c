/* ce.c - cross entropy in steps that work on a slice of the vocabulary: maximum, sum of
 * exponentials, loss, gradient. Columns at or past attr.vocab are padding. */
#include "kernels/cpu/vecmath.h"

enum { IGNORED = -100 };

/* The global column of local column 0. */
static int64_t first_column(const KernelArgs *a) {
  return a->attr->cut ? a->index * last_dim(&a->in[0]) : 0;
}

/* How many local columns are no padding. */
static int64_t columns(const KernelArgs *a) {
  int64_t n = a->attr->vocab - first_column(a);
  return MIN(MAX(n, 0), last_dim(&a->in[0]));
}

/* The maximum of the first n elements of a row. */
INLINE float row_max(const void *l, int64_t n, DType t) {
  float most = -INFINITY;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; i++) most = get(l, t, i) > most ? get(l, t, i) : most;
  return most;
}

/* Sum of exponentials of a row, and the logit of column `label` if that is here. */
INLINE void row_sum(const void *l, int64_t n, bool counts, int64_t label, float most,
                    float *s, DType t) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += vexp(get(l, t, i) - most);
  s[0] = sum;
  s[1] = counts && label >= 0 && label < n ? get(l, t, label) - most : 0;
}

INLINE void ce_max(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t v = last_dim(&a->in[0]), n = columns(a);
  float *m = a->out[0].p;
  for (int64_t r = lo; r < hi; r++) m[r] = row_max(at(a->in[0].p, t, r * v), n, t);
}
BY_TYPE(ce_max, in[0])

INLINE void ce_sum(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t v = last_dim(&a->in[0]), n = columns(a), first = first_column(a);
  const int32_t *labels = a->in[1].p;
  const float *m = a->in[2].p;
  float *s = a->out[0].p;
  for (int64_t r = lo; r < hi; r++)
    row_sum(at(a->in[0].p, t, r * v), n, labels[r] != IGNORED, labels[r] - first, m[r],
            s + 2 * r, t);
}
BY_TYPE(ce_sum, in[0])

/* Maximum and sum while a row is in the cache. */
INLINE void ce_stats(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t v = last_dim(&a->in[0]), n = columns(a), first = first_column(a);
  const int32_t *labels = a->in[1].p;
  float *m = a->out[0].p, *s = a->out[1].p;
  for (int64_t r = lo; r < hi; r++) {
    const void *l = at(a->in[0].p, t, r * v);
    m[r] = row_max(l, n, t);
    row_sum(l, n, labels[r] != IGNORED, labels[r] - first, m[r], s + 2 * r, t);
  }
}
BY_TYPE(ce_stats, in[0])

/* A rank with padding columns only has m = -inf and an empty sum. */
void cpu_ce_shift(Device *dev, const KernelArgs *a) {
  (void)dev;
  const float *s = a->in[0].p, *m = a->in[1].p, *most = a->in[2].p;
  const int32_t *labels = a->in[3].p;
  int64_t first = a->attr->cut ? a->index * (int64_t)a->attr->n : 0;
  int64_t n = MIN(MAX(a->attr->vocab - first, 0), a->attr->n);
  float *to = a->out[0].p;
  for (int64_t r = 0, all = count_of(&a->in[1]); r < all; r++) {
    int64_t label = labels[r] - first;
    bool here = labels[r] != IGNORED && label >= 0 && label < n;
    to[2 * r] = n > 0 ? s[2 * r] * expf(m[r] - most[r]) : 0;
    to[2 * r + 1] = here ? s[2 * r + 1] + (m[r] - most[r]) : 0;
  }
}

INLINE void ce_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t v = last_dim(&a->in[0]), n = columns(a), first = first_column(a);
  const int32_t *labels = a->in[1].p;
  const float *m = a->in[2].p, *s = a->in[3].p;
  const float *gs = a->in[4].p;
  int64_t each = count_of(&a->in[4]) > 1; /* a gradient for each row, or one for all */
  for (int64_t r = lo; r < hi; r++) {
    float g = gs[r * each];
    const void *l = at(a->in[0].p, t, r * v);
    void *dl = at(a->out[0].p, t, r * v);
    if (labels[r] == IGNORED) {
      memset(dl, 0, (size_t)v * (t == DT_F32 ? 4 : 2));
      continue;
    }
    float most = m[r], total = s[2 * r], z = a->attr->z;
    float up = z != 0 ? 1.0f + 2 * z * (most + logf(total)) : 1.0f, k = g / total * up;
    int64_t label = labels[r] - first;
    bool here = label >= 0 && label < n;
    float p = here ? vexp(get(l, t, label) - most) / total * up : 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) put(dl, t, i, vexp(get(l, t, i) - most) * k);
    for (int64_t i = n; i < v; i++) put(dl, t, i, 0);
    if (here) put(dl, t, label, (p - 1.0f) * g);
  }
}
BY_TYPE(ce_dx, in[0])

static void rows(Device *dev, const KernelArgs *a, PartFn fn) {
  each_part(dev, a, rows_of(&a->in[0]), row_grain(4 * last_dim(&a->in[0])), fn);
}
void cpu_ce_max(Device *dev, const KernelArgs *a) { rows(dev, a, ce_max_part); }
void cpu_ce_sum(Device *dev, const KernelArgs *a) { rows(dev, a, ce_sum_part); }
void cpu_ce_stats(Device *dev, const KernelArgs *a) { rows(dev, a, ce_stats_part); }
void cpu_ce_dx(Device *dev, const KernelArgs *a) { rows(dev, a, ce_dx_part); }

/* A sum over rows only: cheap, so one thread adds in order, in f64. */
void cpu_ce_loss(Device *dev, const KernelArgs *a) {
  const float *s = a->in[0].p;
  const int32_t *labels = a->in[1].p;
  double sum = 0, z = a->attr->z;
  const float *m = z != 0 ? a->in[2].p : NULL;
  for (int64_t r = 0, n = count_of(&a->in[1]); r < n; r++) {
    if (labels[r] == IGNORED) continue;
    double total = log(s[2 * r]), all = m ? m[r] + total : 0;
    sum += total - s[2 * r + 1] + z * all * all;
  }
  *(float *)a->out[0].p = (float)sum;
}
