/* arith.c - add, mul, scale, acc and cast: sums and products of equal shapes. */
#include "kernel.h"

INLINE void add(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p, *z = a->in[1].p;
  void *y = a->out[0].p;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) put(y, t, i, get(x, t, i) + get(z, t, i));
}
BY_TYPE(add, out[0])

INLINE void mul(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p, *z = a->in[1].p;
  void *y = a->out[0].p;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) put(y, t, i, get(x, t, i) * get(z, t, i));
}
BY_TYPE(mul, out[0])

INLINE void scale(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p;
  void *y = a->out[0].p;
  float s = a->attr->scale;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) put(y, t, i, get(x, t, i) * s);
}
BY_TYPE(scale, out[0])

/* Adds tile by tile in f32, so that bf16 operands are rounded once, at the end. */
INLINE void acc(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 512 };
  float sum[TILE];
  for (int64_t i = lo; i < hi; i += TILE) {
    int n = (int)MIN(TILE, hi - i);
#pragma omp simd
    for (int j = 0; j < n; j++) sum[j] = get(a->in[0].p, t, i + j);
    for (int k = 1; k < a->nin; k++) {
      const void *x = a->in[k].p;
#pragma omp simd
      for (int j = 0; j < n; j++) sum[j] += get(x, t, i + j);
    }
    void *y = a->out[0].p;
#pragma omp simd
    for (int j = 0; j < n; j++) put(y, t, i + j, sum[j]);
  }
}
BY_TYPE(acc, out[0])

/* With attr.cut, to a partial sum: only the first rank keeps a replicated value. */
INLINE void cast(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p;
  void *y = a->out[0].p;
  DType to = a->out[0].dtype;
  bool here = !a->attr->cut || a->index == 0;
  if (a->accumulate) {
#pragma omp simd
    for (int64_t i = lo; i < hi; i++)
      put(y, to, i, get(y, to, i) + (here ? get(x, t, i) : 0));
  } else {
#pragma omp simd
    for (int64_t i = lo; i < hi; i++) put(y, to, i, here ? get(x, t, i) : 0);
  }
}
BY_TYPE(cast, in[0])

static void elements(Device *dev, const KernelArgs *a, PartFn fn) {
  each_part(dev, a, count_of(&a->out[0]), ELEMENT_GRAIN, fn);
}
void cpu_add(Device *dev, const KernelArgs *a) { elements(dev, a, add_part); }
void cpu_mul(Device *dev, const KernelArgs *a) { elements(dev, a, mul_part); }
void cpu_scale(Device *dev, const KernelArgs *a) { elements(dev, a, scale_part); }
void cpu_acc(Device *dev, const KernelArgs *a) { elements(dev, a, acc_part); }
void cpu_cast(Device *dev, const KernelArgs *a) { elements(dev, a, cast_part); }
