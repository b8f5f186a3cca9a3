/* kernel_values.c - see kernel_values.h. */
#include "kernel_values.h"

#include <math.h>

#include "vm/base/f16.h"

int64_t kernel_count(const KTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
  return n;
}

size_t kernel_bytes(const KTensor *t) {
  return (size_t)kernel_count(t) * (size_t)dtype_size(t->dtype);
}

KTensor kernel_tensor(const Value *x) {
  KTensor t = {.dtype = x->type, .ndim = x->ndim};
  memcpy(t.dim, x->dim, sizeof t.dim);
  return t;
}

void kernel_put(const Value *x, void *p) {
  KTensor t = kernel_tensor(x);
  int64_t n = kernel_count(&t);
  for (int64_t i = 0; i < n; i++) {
    if (x->type == DT_F32) ((float *)p)[i] = (float)x->v[i];
    if (x->type == DT_BF16) ((bf16 *)p)[i] = bf16_from_f32((float)x->v[i]);
    if (x->type == DT_F16) ((f16 *)p)[i] = f16_from_f32((float)x->v[i]);
    if (x->type == DT_F64) ((double *)p)[i] = x->v[i];
    if (x->type == DT_I32) ((int32_t *)p)[i] = (int32_t)x->v[i];
    if (x->type == DT_U8) ((uint8_t *)p)[i] = (uint8_t)x->v[i];
  }
}

double kernel_element(const void *p, DType t, int64_t i) {
  if (t == DT_F32) return ((const float *)p)[i];
  if (t == DT_BF16) return bf16_to_f32(((const bf16 *)p)[i]);
  if (t == DT_F16) return f16_to_f32(((const f16 *)p)[i]);
  if (t == DT_F64) return ((const double *)p)[i];
  if (t == DT_U8) return ((const uint8_t *)p)[i];
  return ((const int32_t *)p)[i];
}

double kernel_limit(DType type) {
  return type == DT_BF16 ? 4e-3 : type == DT_F16 ? 5e-4 : 1e-6;
}

double kernel_gpu_limit(const Problem *p, DType type) {
  const double fewer_bits = 2e-4;
  bool fp8 =
      p->op == OP_linear_fp8 || p->op == OP_linear_fp8_dx || p->op == OP_linear_fp8_dw;
  return fp8 ? fmax(fewer_bits, kernel_limit(type)) : kernel_limit(type);
}

KernelDifference kernel_difference(const KTensor *t, DType type, const double *want,
                                   double nothing, bool nan_too) {
  return kernel_compare(t, kernel_limit(type), want, nothing, nan_too);
}

KernelDifference kernel_compare(const KTensor *t, double limit, const double *want,
                                double nothing, bool nan_too) {
  double diff = 0, norm = 0, worst = 0, largest = 0;
  KernelDifference d = {.odd = -1, .limit = limit};
  for (int64_t j = 0, n = kernel_count(t); j < n; j++) {
    double got = kernel_element(t->p, t->dtype, j);
    bool same = got == want[j] || (nan_too && isnan(got) && isnan(want[j]));
    if (isfinite(want[j])) {
      norm += want[j] * want[j];
      largest = fmax(largest, fabs(want[j]));
    }
    if (same) continue; /* also for infinities */
    if (!isfinite(got) || !isfinite(want[j])) {
      if (d.odd < 0) d.odd = j;
      continue;
    }
    diff += (got - want[j]) * (got - want[j]);
    worst = fmax(worst, fabs(got - want[j]));
  }
  bool none = largest < 1e-12 && worst <= nothing;
  d.norm = none || diff == 0 ? 0 : sqrt(diff / norm);
  d.element = none || worst == 0 ? 0 : worst / largest;
  d.ok = d.odd < 0 && d.norm <= d.limit && d.element <= 4 * d.limit;
  return d;
}

/* The spacing of bf16 numbers around x. */
static double unit_at(double x) {
  int e;
  frexp(fmax(fabs(x), 0x1p-126), &e);
  return ldexp(1, e - 8);
}

double kernel_roundings(const KTensor *a, const KTensor *b) {
  double sum = 0, most = 0;
  int64_t n = kernel_count(a);
  for (int64_t i = 0; i < n; i++) {
    double y = kernel_element(b->p, b->dtype, i);
    if (isfinite(y)) sum += y * y / (double)n;
  }
  for (int64_t i = 0; i < n; i++) {
    double x = kernel_element(a->p, a->dtype, i), y = kernel_element(b->p, b->dtype, i);
    if (x == y || (isnan(x) && isnan(y))) continue;
    double diff = fabs(x - y) - 1e-6 * sqrt(sum);
    most = fmax(most, isfinite(diff) ? diff / unit_at(fmax(fabs(x), fabs(y))) : INFINITY);
  }
  return most;
}

bool kernel_coarse(const Problem *p, int result) {
  (void)result;
  return p->op == OP_linear_ce_stats || p->op == OP_linear_ce_back ||
         p->op == OP_linear_ce_dx || p->op == OP_linear_ce_dw;
}

/* Attention in bf16 sums products of probabilities that are rounded to bf16. */
bool kernel_cuda_coarse(const Problem *p, int result) {
  if (kernel_coarse(p, result)) return true;
  bool forward = p->op == OP_attention || p->op == OP_attention_part;
  bool back = p->op == OP_attention_dx || p->op == OP_attention_part_dx;
  return back || (forward && result == 0);
}

/* For a single token the difference in dq cancels up to rounding. */
double kernel_nothing(const Problem *p) {
  bool cancels = p->op == OP_attention_dx || p->op == OP_attention_part_dx;
  return cancels ? 1e-6 : 0;
}
