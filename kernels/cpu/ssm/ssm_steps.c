/* ssm_steps.c - the steps of heads with a state, and how much of it a step leaves: d, and
 * a = -exp(A) d; their gradients. A step at a limit has none. */
#include "kernels/cpu/kernel.h"

INLINE float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

/* Of element i, of a row of h heads. A NaN is at no limit. */
INLINE float step_of(const KernelArgs *a, int64_t i, int64_t h, DType t, float *slope) {
  float z = get(a->in[0].p, t, i) + get(a->in[1].p, t, i % h), d = softplus(z);
  float most = a->attr->limit, least = a->attr->eps;
  *slope = 1 / (1 + expf(-z));
  bool below = d < least, above = most != 0 && d > most;
  if (below || above) *slope = 0;
  return below ? least : above ? most : d;
}

INLINE void ssm_steps(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t h = last_dim(&a->in[0]);
  float slope, *d = a->out[0].p, *left = a->out[1].p;
  for (int64_t i = lo; i < hi; i++) {
    d[i] = step_of(a, i, h, t, &slope);
    left[i] = -expf(get(a->in[2].p, t, i % h)) * d[i];
  }
}
BY_TYPE(ssm_steps, in[0])

void cpu_ssm_steps(Device *dev, const KernelArgs *a) {
  each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, ssm_steps_part);
}

INLINE void ssm_steps_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t h = last_dim(&a->in[0]);
  const float *dd = a->in[3].p, *da = a->in[4].p;
  float slope;
  for (int64_t i = lo; i < hi; i++) {
    step_of(a, i, h, t, &slope);
    put(a->out[0].p, t, i, (dd[i] - expf(get(a->in[2].p, t, i % h)) * da[i]) * slope);
  }
}
BY_TYPE(ssm_steps_dx, in[0])

void cpu_ssm_steps_dx(Device *dev, const KernelArgs *a) {
  each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, ssm_steps_dx_part);
}

/* Threads own heads; sums over blocks of rows, of which then the sum. */
INLINE void ssm_steps_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { BLOCK = 64 };
  int64_t h = last_dim(&a->in[0]), n = rows_of(&a->in[0]);
  const float *dd = a->in[3].p, *da = a->in[4].p;
  for (int64_t c = lo; c < hi; c++) {
    float A = -expf(get(a->in[2].p, t, c)), db = 0, dA = 0, slope;
    for (int64_t r0 = 0; r0 < n; r0 += BLOCK) {
      float of_b = 0, of_A = 0;
      for (int64_t r = r0; r < MIN(n, r0 + BLOCK); r++) {
        int64_t i = r * h + c;
        float d = step_of(a, i, h, t, &slope);
        of_b += (dd[i] + A * da[i]) * slope;
        of_A += A * d * da[i];
      }
      db += of_b, dA += of_A;
    }
    put_gradient(&a->out[0], c, db, a->accumulate);
    put_gradient(&a->out[1], c, dA, a->accumulate);
  }
}
BY_TYPE(ssm_steps_dw, in[0])

void cpu_ssm_steps_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, last_dim(&a->in[0]), 1, ssm_steps_dw_part);
}
