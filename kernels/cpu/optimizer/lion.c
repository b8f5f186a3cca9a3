/* lion.c - one step of Lion (Chen et al., Symbolic Discovery of Optimization Algorithms,
 * 2023), with decoupled weight decay, in one pass:
 *   g *= clip;  p -= lr (sign(b1 m + (1-b1) g) + decay p);  m = b2 m + (1-b2) g
 * The sign of 0 is 0: padding stays 0. */
#include "step_kernels.h"

/* `s` is the type of m. */
INLINE void lion_line(const KernelArgs *a, int64_t from, const Line *l, uint32_t seed,
                      DType s) {
  const OpAttr *attr = a->attr;
  const double *scal = a->in[3].p;
  const void *m0 = at(a->in[2].p, s, from);
  void *m1 = at(a->out[1].p, s, from);
  const float *p0 = l->p, *g = l->g;
  float *p1 = l->to;
  bool by_chance = attr->kind != 0;
  uint32_t number = (uint32_t)(uint64_t)scal[SC_STEP];
  Decay d1 = decay_of(attr->beta1), d2 = decay_of(attr->beta2);
  float clip = (float)scal[SC_CLIP], lr = (float)attr_lr(attr, scal[SC_LR]);
  float keep = (float)(1.0 - attr_lr(attr, scal[SC_LR]) * attr->weight_decay);
#pragma omp simd
  for (int64_t i = 0; i < l->n; i++) {
    float x = g[i] * clip, m = get(m0, s, i), to = average(m, x, d1);
    float p = p0[i] * keep - (to > 0 ? lr : to < 0 ? -lr : 0);
    if (isnan(to)) p = to; /* not in the sum above, which is rounded once */
    m = average(m, x, d2);
    put_state(m1, s, i, m, by_chance, s == DT_F32 ? 0 : chance(x, m, number, seed));
    p1[i] = p;
  }
}

OPTIMIZER_KERNELS(lion)
