/* row_loss.c - numbers of f32 for tokens, sequences and pairs of them, and elementwise
 * ops for losses. All of them are small beside logits. */
#include "kernels/cpu/kernel.h"

enum { IGNORED = -100 };

/* ---- tokens ---- */

void cpu_ce_losses(Device *dev, const KernelArgs *a) {
  (void)dev;
  const float *s = a->in[0].p;
  const int32_t *labels = a->in[1].p;
  float *y = a->out[0].p;
  for (int64_t r = 0, n = count_of(&a->in[1]); r < n; r++)
    y[r] =
        labels[r] == IGNORED ? 0 : (float)(log((double)s[2 * r]) - (double)s[2 * r + 1]);
}

void cpu_label_mask(Device *dev, const KernelArgs *a) {
  (void)dev;
  const int32_t *labels = a->in[0].p;
  float *y = a->out[0].p;
  for (int64_t r = 0, n = count_of(&a->in[0]); r < n; r++) y[r] = labels[r] != IGNORED;
}

/* ---- sums ---- in order, in f64 */

static float sum_of(const float *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i];
  return (float)sum;
}

void cpu_row_sums(Device *dev, const KernelArgs *a) {
  (void)dev;
  const float *x = a->in[0].p;
  float *y = a->out[0].p;
  int64_t T = last_dim(&a->in[0]);
  for (int64_t r = 0, n = count_of(&a->out[0]); r < n; r++) y[r] = sum_of(x + r * T, T);
}

void cpu_sum_all(Device *dev, const KernelArgs *a) {
  (void)dev;
  *(float *)a->out[0].p = sum_of(a->in[0].p, count_of(&a->in[0]));
}

void cpu_spread(Device *dev, const KernelArgs *a) {
  (void)dev;
  const float *dy = a->in[0].p;
  float *dx = a->out[0].p;
  int64_t n = count_of(&a->out[0]), each = n / count_of(&a->in[0]);
  for (int64_t i = 0; i < n; i++) dx[i] = dy[i / each];
}

/* ---- pairs ---- */

void cpu_split_pairs(Device *dev, const KernelArgs *a) {
  (void)dev;
  const float *x = a->in[0].p;
  float *first = a->out[0].p, *second = a->out[1].p;
  for (int64_t i = 0, n = count_of(&a->out[0]); i < n; i++)
    first[i] = x[2 * i], second[i] = x[2 * i + 1];
}

void cpu_join_pairs(Device *dev, const KernelArgs *a) {
  (void)dev;
  const float *first = a->in[0].p, *second = a->in[1].p;
  float *x = a->out[0].p;
  for (int64_t i = 0, n = count_of(&a->in[0]); i < n; i++)
    x[2 * i] = first[i], x[2 * i + 1] = second[i];
}

/* ---- elements ---- */

INLINE void div_each(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  for (int64_t i = lo; i < hi; i++) {
    float b = get(a->in[1].p, t, i);
    put(a->out[0].p, t, i, b == 0 ? 0 : get(a->in[0].p, t, i) / b);
  }
}
BY_TYPE(div_each, out[0])

INLINE void div_db(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  for (int64_t i = lo; i < hi; i++) {
    float b = get(a->in[0].p, t, i);
    float v = get(a->in[1].p, t, i) * get(a->in[2].p, t, i);
    put(a->out[0].p, t, i, b == 0 ? 0 : -v / b);
  }
}
BY_TYPE(div_db, out[0])

INLINE void offset(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  float by = a->attr->scale;
  for (int64_t i = lo; i < hi; i++) put(a->out[0].p, t, i, get(a->in[0].p, t, i) + by);
}
BY_TYPE(offset, out[0])

INLINE void exp_each(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  for (int64_t i = lo; i < hi; i++) put(a->out[0].p, t, i, expf(get(a->in[0].p, t, i)));
}
BY_TYPE(exp_each, out[0])

/* Of large |x| neither overflows nor loses what is left of 1. */
INLINE void log_sigmoid(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  for (int64_t i = lo; i < hi; i++) {
    float x = get(a->in[0].p, t, i), low = x < 0 ? x : 0;
    put(a->out[0].p, t, i, low - log1pf(expf(-fabsf(x))));
  }
}
BY_TYPE(log_sigmoid, out[0])

INLINE void log_sigmoid_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  for (int64_t i = lo; i < hi; i++)
    put(a->out[0].p, t, i, get(a->in[1].p, t, i) / (1 + expf(get(a->in[0].p, t, i))));
}
BY_TYPE(log_sigmoid_dx, out[0])

static void elements(Device *dev, const KernelArgs *a, PartFn fn) {
  each_part(dev, a, count_of(&a->out[0]), ELEMENT_GRAIN, fn);
}
void cpu_divide(Device *dev, const KernelArgs *a) { elements(dev, a, div_each_part); }
void cpu_divide_db(Device *dev, const KernelArgs *a) { elements(dev, a, div_db_part); }
void cpu_offset(Device *dev, const KernelArgs *a) { elements(dev, a, offset_part); }
void cpu_exponential(Device *dev, const KernelArgs *a) {
  elements(dev, a, exp_each_part);
}
void cpu_log_sigmoid(Device *dev, const KernelArgs *a) {
  elements(dev, a, log_sigmoid_part);
}
void cpu_log_sigmoid_dx(Device *dev, const KernelArgs *a) {
  elements(dev, a, log_sigmoid_dx_part);
}
