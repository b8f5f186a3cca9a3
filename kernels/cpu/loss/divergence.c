/* divergence.c - divergences of the softmax of two rows of logits, on a slice of the
 * vocabulary, and the gradient of the first row. Columns from attr.vocab on are padding.
 *
 * With r = (1 - beta) p + beta q, log(p / r) and log(q / r) are -log1p of what the other
 * adds, so that nothing cancels where p and q are nearly the same:
 *   log(p / r) = -log1p(beta (q / p - 1)),  log(q / r) = -log1p((1 - beta) (p / q - 1)).
 */
#include "kernels/cpu/kernel.h"

enum { IGNORED = -100 };

/* One row: what is to be taken off logits for their log-probabilities. */
typedef struct Row {
  double x, y, beta;
} Row;

static Row row_at(const KernelArgs *a, int64_t r) {
  const float *mx = a->in[3].p, *sx = a->in[4].p, *my = a->in[5].p, *sy = a->in[6].p;
  return (Row){mx[r] + log((double)sx[2 * r]), my[r] + log((double)sy[2 * r]),
               a->attr->beta};
}

/* log(p / r) and log(q / r) of the log-probabilities lp and lq. */
INLINE double log_p_to_r(double lp, double lq, double beta) {
  return beta == 1 ? lp - lq : -log1p(beta * expm1(lq - lp));
}
INLINE double log_q_to_r(double lp, double lq, double beta) {
  return beta == 0 ? lq - lp : -log1p((1 - beta) * expm1(lp - lq));
}

/* What a probability adds to a divergence: nothing if it is 0, or the ratio 1. */
INLINE double term(double probability, double log_ratio) {
  return probability == 0 ? 0 : probability * log_ratio;
}

static int64_t columns(const KernelArgs *a) {
  int64_t v = last_dim(&a->in[0]), first = a->attr->cut ? a->index * v : 0;
  return MIN(MAX(a->attr->vocab - first, 0), v);
}

INLINE void sums(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t v = last_dim(&a->in[0]), n = columns(a);
  const int32_t *labels = a->in[2].p;
  float *d = a->out[0].p;
  for (int64_t r = lo; r < hi; r++) {
    Row row = row_at(a, r);
    const void *x = at(a->in[0].p, t, r * v), *y = at(a->in[1].p, t, r * v);
    double beta = row.beta, wp = beta == 1 ? 1 : 1 - beta, wq = beta == 0 ? 1 : beta;
    double of_p = 0, of_q = 0;
    for (int64_t i = 0; i < n && labels[r] != IGNORED; i++) {
      double lp = get(x, t, i) - row.x, lq = get(y, t, i) - row.y;
      of_p += beta == 0 ? 0 : term(exp(lp), log_p_to_r(lp, lq, beta));
      of_q += beta == 1 ? 0 : term(exp(lq), log_q_to_r(lp, lq, beta));
    }
    d[2 * r] = (float)(wp * of_p + wq * of_q);
    d[2 * r + 1] = (float)of_p;
  }
}
BY_TYPE(sums, in[0])

/* KL(q|p): p - q. Else the weight of KL(p|r) times p (log(p / r) - KL(p|r)). */
INLINE void dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t v = last_dim(&a->in[0]), n = columns(a);
  const int32_t *labels = a->in[2].p;
  const float *d = a->in[7].p, *g = a->in[8].p;
  for (int64_t r = lo; r < hi; r++) {
    Row row = row_at(a, r);
    const void *x = at(a->in[0].p, t, r * v), *y = at(a->in[1].p, t, r * v);
    void *to = at(a->out[0].p, t, r * v);
    double beta = row.beta, w = beta == 1 ? 1 : 1 - beta;
    int64_t here = labels[r] == IGNORED ? 0 : n;
    for (int64_t i = 0; i < here; i++) {
      double lp = get(x, t, i) - row.x, lq = get(y, t, i) - row.y, p = exp(lp);
      double by = beta == 0
                      ? p - exp(lq)
                      : w * term(p, log_p_to_r(lp, lq, beta) - (double)d[2 * r + 1]);
      put(to, t, i, (float)(by * g[r]));
    }
    for (int64_t i = here; i < v; i++) put(to, t, i, 0);
  }
}
BY_TYPE(dx, in[0])

static void rows(Device *dev, const KernelArgs *a, PartFn fn) {
  each_part(dev, a, rows_of(&a->in[0]), row_grain(16 * last_dim(&a->in[0])), fn);
}
void cpu_divergence_sums(Device *dev, const KernelArgs *a) { rows(dev, a, sums_part); }
void cpu_divergence_dx(Device *dev, const KernelArgs *a) { rows(dev, a, dx_part); }

void cpu_divergence_rows(Device *dev, const KernelArgs *a) {
  (void)dev;
  const float *d = a->in[0].p;
  float *y = a->out[0].p;
  for (int64_t r = 0, n = count_of(&a->out[0]); r < n; r++) y[r] = d[2 * r];
}
