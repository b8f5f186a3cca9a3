/* lion.c - one step of Lion (Chen et al., Symbolic Discovery of Optimization Algorithms,
 * 2023), with decoupled weight decay, in one pass:
 *   g *= clip;  p -= lr (sign(b1 m + (1-b1) g) + decay p);  m = b2 m + (1-b2) g
 * The sign of 0 is 0: padding stays 0. */
#include "step_kernels.h"

/* `t` is the type of the copy, `s` that of m. */
INLINE void lion_of(const KernelArgs *a, int64_t lo, int64_t hi, DType t, DType s) {
  const OpAttr *attr = a->attr;
  const double *scal = a->in[3].p;
  const float *p0 = a->in[0].p, *g = a->in[1].p;
  const void *m0 = a->in[2].p;
  float *p1 = a->out[0].p;
  void *m1 = a->out[1].p, *copy = a->out[2].p;
  bool by_chance = attr->kind != 0;
  uint32_t seed = chance_seed(attr), number = (uint32_t)(uint64_t)scal[SC_STEP];
  Decay d1 = decay_of(attr->beta1), d2 = decay_of(attr->beta2);
  float clip = (float)scal[SC_CLIP], lr = (float)scal[SC_LR];
  float keep = (float)(1.0 - scal[SC_LR] * attr->weight_decay);
  bool copies = copy != p1;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float x = g[i] * clip, m = get(m0, s, i), to = average(m, x, d1);
    float p = p0[i] * keep - (to > 0 ? lr : to < 0 ? -lr : 0);
    m = average(m, x, d2);
    put_state(m1, s, i, m, by_chance, s == DT_F32 ? 0 : chance(x, m, number, seed));
    p1[i] = p;
    if (copies) put(copy, t, i, p);
  }
}

BY_STATE(lion)
BY_TYPE(lion, out[2])

OPTIMIZER_KERNELS(lion)
