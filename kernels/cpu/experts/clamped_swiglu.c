/* clamped_swiglu.c - the gate of gpt-oss over neighbours (g, u) of a row, and its
 * gradient: a clamped element has none. */
#include "kernels/cpu/vecmath.h"

INLINE void clamped_swiglu(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p;
  void *y = a->out[0].p;
  float most = a->attr->limit, alpha = a->attr->scale;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float g = get(x, t, 2 * i), u = get(x, t, 2 * i + 1);
    g = g > most ? most : g;
    u = u > most ? most : u < -most ? -most : u;
    put(y, t, i, g * sigmoid(alpha * g) * (u + 1.0f));
  }
}
BY_TYPE(clamped_swiglu, in[0])

INLINE void clamped_swiglu_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p, *dy = a->in[1].p;
  void *dx = a->out[0].p;
  float most = a->attr->limit, alpha = a->attr->scale;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float x0 = get(x, t, 2 * i), x1 = get(x, t, 2 * i + 1), d = get(dy, t, i);
    float g = x0 > most ? most : x0, u = x1 > most ? most : x1 < -most ? -most : x1;
    float s = sigmoid(alpha * g), slope = s * (1.0f + alpha * g * (1.0f - s));
    put(dx, t, 2 * i, x0 > most ? 0 : d * (u + 1.0f) * slope);
    put(dx, t, 2 * i + 1, x1 > most || x1 < -most ? 0 : d * g * s);
  }
}
BY_TYPE(clamped_swiglu_dx, in[0])

void cpu_clamped_swiglu(Device *dev, const KernelArgs *a) {
  each_part(dev, a, count_of(&a->out[0]), ELEMENT_GRAIN / 4, clamped_swiglu_part);
}

void cpu_clamped_swiglu_dx(Device *dev, const KernelArgs *a) {
  each_part(dev, a, count_of(&a->in[1]), ELEMENT_GRAIN / 4, clamped_swiglu_dx_part);
}
