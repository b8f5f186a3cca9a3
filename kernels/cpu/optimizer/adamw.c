/* adamw.c - one step of AdamW, with decoupled weight decay, in one pass:
 *   g *= clip; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
 *   p -= lr * ((m / bc1) / (sqrt(v / bc2) + eps) + decay * p)
 * 1-b, lr/bc1 and 1-lr*decay are made in f64: that of an f32 near 1 has few digits left.
 * Where m is 0 there is no step, whatever eps is: padding stays 0.
 *
 * Adam has the decay in the gradient: g = g clip + decay p, and none beside the step. */
#include "step_kernels.h"

/* `s` is the type of the moments, `coupled`: the decay is of the gradient. */
INLINE void moments_line(const KernelArgs *a, int64_t from, const Line *l, uint32_t seed,
                         DType s, bool coupled) {
  const OpAttr *attr = a->attr;
  const double *scal = a->in[4].p;
  const void *m0 = at(a->in[2].p, s, from), *v0 = at(a->in[3].p, s, from);
  void *m1 = at(a->out[1].p, s, from), *v1 = at(a->out[2].p, s, from);
  const float *p0 = l->p, *g = l->g;
  float *p1 = l->to;
  bool by_chance = attr->kind != 0;
  uint32_t number = (uint32_t)(uint64_t)scal[SC_STEP];
  Decay d1 = decay_of(attr->beta1), d2 = decay_of(attr->beta2);
  double lr = attr_lr(attr, scal[SC_LR]);
  float clip = (float)scal[SC_CLIP], eps = attr->eps;
  float step = (float)(lr / scal[SC_BC1]);
  float root = (float)(1.0 / sqrt(scal[SC_BC2]));
  float keep = (float)(1.0 - lr * attr->weight_decay);
  float decay = (float)attr->weight_decay;
#pragma omp simd
  for (int64_t i = 0; i < l->n; i++) {
    float x = coupled ? g[i] * clip + decay * p0[i] : g[i] * clip;
    float m = get(m0, s, i), v = get(v0, s, i);
    m = average(m, x, d1);
    v = average(v, x * x, d2);
    float by = step * m / (sqrtf(v) * root + eps);
    float p = (coupled ? p0[i] : p0[i] * keep) - (m == 0 ? 0 : by);
    uint32_t r = s == DT_F32 ? 0 : chance(x, m, number, seed);
    put_state(m1, s, i, m, by_chance, r);
    put_state(v1, s, i, v, by_chance, r >> 16);
    p1[i] = p;
  }
}

INLINE void adamw_line(const KernelArgs *a, int64_t from, const Line *l, uint32_t seed,
                       DType s) {
  moments_line(a, from, l, seed, s, false);
}
OPTIMIZER_KERNELS(adamw)

INLINE void adam_line(const KernelArgs *a, int64_t from, const Line *l, uint32_t seed,
                      DType s) {
  moments_line(a, from, l, seed, s, true);
}
OPTIMIZER_KERNELS(adam)
