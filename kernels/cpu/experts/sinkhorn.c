/* sinkhorn.c - factors of experts by Sinkhorn's iterations, and their sum with logits. An
 * iteration is one pass over the rows: the factor of a row makes its sum 1 / rows, and
 * goes into the sums of columns, whose factors make these 1 / experts. */
#include "kernels/cpu/vecmath.h"

/* The sums of the columns of exp(l), each row with a factor of its own. */
static void column_sums(const float *l, int64_t rows, int64_t n, const double *by,
                        double *sum) {
  float x[EXPERTS_MAX];
  memset(sum, 0, (size_t)n * sizeof *sum);
  for (int64_t r = 0; r < rows; r++) {
    double all = 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = vexp(l[r * n + i]);
    for (int64_t i = 0; i < n; i++) all += by[i] * (double)x[i];
    double factor = 1 / ((double)rows * (all + SINKHORN_EPS));
    for (int64_t i = 0; i < n; i++) sum[i] += factor * (double)x[i];
  }
}

/* Of each group of sequences. */
static void sinkhorn_groups(const KernelArgs *a, int64_t lo, int64_t hi) {
  int64_t n = last_dim(&a->in[0]), rows = rows_of(&a->in[0]) / rows_of(&a->out[0]);
  for (int64_t g = lo; g < hi; g++) {
    const float *l = (const float *)a->in[0].p + g * rows * n;
    float *out = (float *)a->out[0].p + g * n;
    double by[EXPERTS_MAX], sum[EXPERTS_MAX], moved = INFINITY;
    for (int64_t i = 0; i < n; i++) by[i] = 1;
    for (int step = 0; step < SINKHORN_MOST && moved > SINKHORN_TOLERANCE; step++) {
      column_sums(l, rows, n, by, sum);
      moved = 0;
      for (int64_t i = 0; i < n; i++) {
        double next = 1 / ((double)n * (sum[i] + SINKHORN_EPS));
        moved += fabs(next - by[i]) / (double)n;
        by[i] = next;
      }
    }
    for (int64_t i = 0; i < n; i++) out[i] = (float)log(by[i]);
  }
}

void cpu_sinkhorn(Device *dev, const KernelArgs *a) {
  if (a->attr->n == 0)
    memset(a->out[0].p, 0, (size_t)count_of(&a->out[0]) * sizeof(float));
  else
    each_part(dev, a, rows_of(&a->out[0]), 1, sinkhorn_groups);
}

static void sequence_bias_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  int64_t n = last_dim(&a->in[0]), rows = rows_of(&a->in[0]) / rows_of(&a->in[1]);
  const float *l = a->in[0].p, *b = a->in[1].p;
  float *y = a->out[0].p;
  for (int64_t r = lo; r < hi; r++)
    for (int64_t i = 0; i < n; i++) y[r * n + i] = l[r * n + i] + b[r / rows * n + i];
}

void cpu_sequence_bias(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->in[0], sequence_bias_rows);
}
