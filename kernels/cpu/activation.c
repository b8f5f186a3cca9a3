/* activation.c - gelu, silu, relu, soft_cap, silu_mul and their gradients, element by
 * element; swiglu is silu_mul of the halves of a row. */
#include "vecmath.h"

/* tanh approximation: gelu(x) = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
INLINE float gelu_tanh(float x) {
  float u2 = 1.595769122f * (x + 0.044715f * x * x * x);
  return x * sigmoid(u2);
}

INLINE float gelu_tanh_grad(float x) {
  float u2 = 1.595769122f * (x + 0.044715f * x * x * x);
  float du2 = 1.595769122f * (1.0f + 3 * 0.044715f * x * x);
  float s = sigmoid(u2);
  return s + x * s * (1.0f - s) * du2;
}

/* The exact form: x * Phi(x), its derivative Phi(x) + x * phi(x). */
INLINE float gelu_erf(float x) { return x * normal_cdf(x); }

INLINE float gelu_erf_grad(float x) {
  return normal_cdf(x) + x * 0.3989422804f * vexp(-0.5f * x * x);
}

INLINE void gelu(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p;
  void *y = a->out[0].p;
  if (a->attr->kind == 0) {
#pragma omp simd
    for (int64_t i = lo; i < hi; i++) put(y, t, i, gelu_tanh(get(x, t, i)));
  } else {
#pragma omp simd
    for (int64_t i = lo; i < hi; i++) put(y, t, i, gelu_erf(get(x, t, i)));
  }
}
BY_TYPE(gelu, in[0])

INLINE void gelu_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p, *dy = a->in[1].p;
  void *dx = a->out[0].p;
  if (a->attr->kind == 0) {
#pragma omp simd
    for (int64_t i = lo; i < hi; i++)
      put(dx, t, i, get(dy, t, i) * gelu_tanh_grad(get(x, t, i)));
  } else {
#pragma omp simd
    for (int64_t i = lo; i < hi; i++)
      put(dx, t, i, get(dy, t, i) * gelu_erf_grad(get(x, t, i)));
  }
}
BY_TYPE(gelu_dx, in[0])

INLINE float silu_grad(float x, float s) { return s * (1.0f + x * (1.0f - s)); }

INLINE void silu(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p;
  void *y = a->out[0].p;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float v = get(x, t, i);
    put(y, t, i, v * sigmoid(v));
  }
}
BY_TYPE(silu, in[0])

INLINE void silu_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p, *dy = a->in[1].p;
  void *dx = a->out[0].p;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float v = get(x, t, i);
    put(dx, t, i, get(dy, t, i) * silu_grad(v, sigmoid(v)));
  }
}
BY_TYPE(silu_dx, in[0])

/* Propagates NaN, so that it is found where it arose. */
INLINE void relu(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p;
  void *y = a->out[0].p;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float v = get(x, t, i);
    put(y, t, i, v < 0 ? 0 : v);
  }
}
BY_TYPE(relu, in[0])

INLINE void relu_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p, *dy = a->in[1].p;
  void *dx = a->out[0].p;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float g = get(dy, t, i);
    put(dx, t, i, get(x, t, i) > 0 ? g : 0);
  }
}
BY_TYPE(relu_dx, in[0])

/* Lets NaN through. */
INLINE void clamp(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p;
  void *y = a->out[0].p;
  float most = a->attr->limit;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float v = get(x, t, i), low = v < -most ? -most : v;
    put(y, t, i, low > most ? most : low);
  }
}
BY_TYPE(clamp, in[0])

INLINE void clamp_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p, *dy = a->in[1].p;
  void *dx = a->out[0].p;
  float most = a->attr->limit;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float g = get(dy, t, i);
    put(dx, t, i, fabsf(get(x, t, i)) <= most ? g : 0);
  }
}
BY_TYPE(clamp_dx, in[0])

INLINE void soft_cap(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p;
  void *y = a->out[0].p;
  float cap = a->attr->soft_cap;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) put(y, t, i, cap * vtanh(get(x, t, i) / cap));
}
BY_TYPE(soft_cap, in[0])

/* dx = dy * (1 - (y / cap)^2) */
INLINE void soft_cap_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *y = a->in[0].p, *dy = a->in[1].p;
  void *dx = a->out[0].p;
  float by = 1 / a->attr->soft_cap;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float v = get(y, t, i) * by;
    put(dx, t, i, get(dy, t, i) * (1.0f - v * v));
  }
}
BY_TYPE(soft_cap_dx, in[0])

/* Elements [lo, hi) of y. */
INLINE void gated(const void *g, const void *u, void *y, int64_t lo, int64_t hi,
                  DType t) {
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float v = get(g, t, i);
    put(y, t, i, v * sigmoid(v) * get(u, t, i));
  }
}

INLINE void silu_mul(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  gated(a->in[0].p, a->in[1].p, a->out[0].p, lo, hi, t);
}
BY_TYPE(silu_mul, in[0])

INLINE void swiglu(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t c = last_dim(&a->out[0]);
  for (int64_t r = lo; r < hi; r++) {
    const void *u = at(a->in[0].p, t, 2 * c * r);
    gated(at(u, t, c), u, at(a->out[0].p, t, c * r), 0, c, t);
  }
}
BY_TYPE(swiglu, in[0])

INLINE void gated_dx(const void *g, const void *u, const void *dy, void *dg, void *du,
                     int64_t lo, int64_t hi, DType t) {
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float v = get(g, t, i), w = get(u, t, i), d = get(dy, t, i), s = sigmoid(v);
    put(dg, t, i, d * w * silu_grad(v, s));
    put(du, t, i, d * v * s);
  }
}

INLINE void silu_mul_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  gated_dx(a->in[0].p, a->in[1].p, a->in[2].p, a->out[0].p, a->out[1].p, lo, hi, t);
}
BY_TYPE(silu_mul_dx, in[0])

INLINE void swiglu_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t c = last_dim(&a->in[1]);
  for (int64_t r = lo; r < hi; r++) {
    const void *u = at(a->in[0].p, t, 2 * c * r), *dy = at(a->in[1].p, t, c * r);
    void *du = at(a->out[0].p, t, 2 * c * r);
    gated_dx(at(u, t, c), u, dy, at(du, t, c), du, 0, c, t);
  }
}
BY_TYPE(swiglu_dx, in[0])

static void elements(Device *dev, const KernelArgs *a, PartFn fn) {
  each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN / 4, fn);
}
void cpu_gelu(Device *dev, const KernelArgs *a) { elements(dev, a, gelu_part); }
void cpu_gelu_dx(Device *dev, const KernelArgs *a) { elements(dev, a, gelu_dx_part); }
void cpu_silu(Device *dev, const KernelArgs *a) { elements(dev, a, silu_part); }
void cpu_silu_dx(Device *dev, const KernelArgs *a) { elements(dev, a, silu_dx_part); }
void cpu_relu(Device *dev, const KernelArgs *a) { elements(dev, a, relu_part); }
void cpu_relu_dx(Device *dev, const KernelArgs *a) { elements(dev, a, relu_dx_part); }
void cpu_clamp(Device *dev, const KernelArgs *a) { elements(dev, a, clamp_part); }
void cpu_clamp_dx(Device *dev, const KernelArgs *a) { elements(dev, a, clamp_dx_part); }
void cpu_soft_cap(Device *dev, const KernelArgs *a) { elements(dev, a, soft_cap_part); }
void cpu_soft_cap_dx(Device *dev, const KernelArgs *a) {
  elements(dev, a, soft_cap_dx_part);
}
void cpu_silu_mul(Device *dev, const KernelArgs *a) { elements(dev, a, silu_mul_part); }
void cpu_silu_mul_dx(Device *dev, const KernelArgs *a) {
  elements(dev, a, silu_mul_dx_part);
}

static void halves(Device *dev, const KernelArgs *a, PartFn fn) {
  each_row(dev, a, &a->in[0], fn);
}
void cpu_swiglu(Device *dev, const KernelArgs *a) { halves(dev, a, swiglu_part); }
void cpu_swiglu_dx(Device *dev, const KernelArgs *a) { halves(dev, a, swiglu_dx_part); }

/* ---- gate: a number for each row, or for each head of it ---- */

static int64_t gated_width(const KernelArgs *a) {
  return count_of(&a->in[0]) / count_of(&a->in[1]);
}

INLINE float opened(int kind, float s) {
  return kind ? fmaxf(s, 0) + log1pf(expf(-fabsf(s))) : sigmoid(s);
}

INLINE float opened_slope(int kind, float s) {
  float y = sigmoid(s);
  return kind ? y : y * (1.0f - y);
}

INLINE void gate(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t n = gated_width(a);
  for (int64_t r = lo; r < hi; r++) {
    const void *x = at(a->in[0].p, t, r * n);
    void *y = at(a->out[0].p, t, r * n);
    float by = opened(a->attr->kind, get(a->in[1].p, t, r));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) put(y, t, i, get(x, t, i) * by);
  }
}
BY_TYPE(gate, in[0])

INLINE void gate_ds(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t n = gated_width(a);
  for (int64_t r = lo; r < hi; r++) {
    const void *x = at(a->in[0].p, t, r * n), *dy = at(a->in[2].p, t, r * n);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += get(x, t, i) * get(dy, t, i);
    put(a->out[0].p, t, r, sum * opened_slope(a->attr->kind, get(a->in[1].p, t, r)));
  }
}
BY_TYPE(gate_ds, in[0])

static void of_numbers(Device *dev, const KernelArgs *a, PartFn part) {
  each_part(dev, a, count_of(&a->in[1]), row_grain(gated_width(a)), part);
}

void cpu_gate(Device *dev, const KernelArgs *a) { of_numbers(dev, a, gate_part); }
void cpu_gate_ds(Device *dev, const KernelArgs *a) { of_numbers(dev, a, gate_ds_part); }
