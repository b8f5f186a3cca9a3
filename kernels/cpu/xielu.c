/* xielu.c - xIELU (vm/graph/op_xielu.c), its slope, and the gradients of its numbers. */
#include "kernel.h"
#include "vecmath.h"

typedef struct Xielu {
  float p, n, beta, eps;
} Xielu;

INLINE float softplus(float x) { return fmaxf(x, 0) + log1pf(expf(-fabsf(x))); }

INLINE Xielu xielu_of(const KernelArgs *a, DType t) {
  float beta = (float)a->attr->beta;
  return (Xielu){softplus(get(a->in[1].p, t, 0)), beta + softplus(get(a->in[2].p, t, 0)),
                 beta, a->attr->eps};
}

/* exp(x) - 1 - x of x <= 0; near 0 by its series, where the difference has the absolute
 * error of a number near 1. */
INLINE float exp_rest(float x) {
  float s = 1.0f / 40320;
  s = s * x + 1.0f / 5040;
  s = s * x + 1.0f / 720;
  s = s * x + 1.0f / 120;
  s = s * x + 1.0f / 24;
  s = s * x + 1.0f / 6;
  s = s * x + 0.5f;
  return replace_if(x > -0.5f, s * x * x, vexp(x) - 1.0f - x);
}

/* What n is multiplied by. */
INLINE float below_0(float x, float eps) {
  float m = replace_if(x > eps, eps, x);
  return exp_rest(m) + (m - x);
}

INLINE void xielu(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p;
  void *y = a->out[0].p;
  Xielu f = xielu_of(a, t);
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float v = get(x, t, i);
    float low = replace_if(v > 0, 0, v); /* no overflow where it is not used */
    float of = replace_if(v > 0, f.p * v * v, f.n * below_0(low, f.eps));
    put(y, t, i, of + f.beta * v);
  }
}
BY_TYPE(xielu, in[0])

INLINE void xielu_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const void *x = a->in[0].p, *dy = a->in[3].p;
  void *dx = a->out[0].p;
  Xielu f = xielu_of(a, t);
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float v = get(x, t, i);
    float e = replace_if(v > f.eps, 0, vexp(replace_if(v > 0, 0, v)));
    float slope = replace_if(v > 0, 2 * f.p * v, f.n * (e - 1.0f));
    put(dx, t, i, get(dy, t, i) * (slope + f.beta));
  }
}
BY_TYPE(xielu_dx, in[0])

static void elements(Device *dev, const KernelArgs *a, PartFn fn) {
  each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN / 4, fn);
}
void cpu_xielu(Device *dev, const KernelArgs *a) { elements(dev, a, xielu_part); }
void cpu_xielu_dx(Device *dev, const KernelArgs *a) { elements(dev, a, xielu_dx_part); }

/* ---- gradients of the numbers ---- sums of a fixed number of blocks, added in order, so
 * that threads change nothing. Numbers of a block add up in f32 by hundreds. */

static int64_t block_of(const KernelArgs *a) {
  int64_t n = count_of(&a->in[0]);
  return MAX((n + SQNORM_BLOCKS - 1) / SQNORM_BLOCKS, 1024);
}

INLINE void xielu_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { RUN = 256 };
  const void *x = a->in[0].p, *dy = a->in[3].p;
  int64_t n = count_of(&a->in[0]), block = block_of(a);
  double *sum = a->work;
  float eps = a->attr->eps;
  for (int64_t b = lo; b < hi; b++) {
    double above = 0, below = 0;
    for (int64_t i0 = b * block, end = MIN(n, i0 + block); i0 < end; i0 += RUN) {
      float up = 0, down = 0;
#pragma omp simd reduction(+ : up, down)
      for (int64_t i = i0; i < MIN(end, i0 + RUN); i++) {
        float v = get(x, t, i), d = get(dy, t, i);
        up += replace_if(!(v > 0), 0, d * v * v);
        down += replace_if(v > 0, 0, d * below_0(replace_if(v > 0, 0, v), eps));
      }
      above += (double)up;
      below += (double)down;
    }
    sum[2 * b] = above;
    sum[2 * b + 1] = below;
  }
}
BY_TYPE(xielu_dw, in[0])

void cpu_xielu_dw(Device *dev, const KernelArgs *a) {
  int64_t block = block_of(a), blocks = (count_of(&a->in[0]) + block - 1) / block;
  each_part(dev, a, blocks, MAX(1, ELEMENT_GRAIN / block), xielu_dw_part);
  for (int k = 0; k < 2; k++) {
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++) sum += ((double *)a->work)[2 * b + k];
    float at = get(a->in[1 + k].p, a->in[1 + k].dtype, 0);
    put_gradient(&a->out[k], 0, (float)sum * sigmoid(at), a->accumulate);
  }
}
