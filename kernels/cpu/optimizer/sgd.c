/* sgd.c - one step of SGD with momentum, as torch.optim.SGD takes it, in one pass:
 *   g = clip g + decay p;  m = momentum m + (1 - dampening) g, but in the first step g
 *   p -= lr (g + momentum m) with nesterov, else lr m
 * Without momentum m is g. */
#include "step_kernels.h"

/* `t` is the type of the copy, `s` that of m. */
INLINE void sgd_of(const KernelArgs *a, int64_t lo, int64_t hi, DType t, DType s) {
  const OpAttr *attr = a->attr;
  const double *scal = a->in[3].p;
  const float *p0 = a->in[0].p, *g = a->in[1].p;
  const void *m0 = a->in[2].p;
  float *p1 = a->out[0].p;
  void *m1 = a->out[1].p, *copy = a->out[2].p;
  bool by_chance = attr->kind != 0, ahead = attr->nesterov != 0;
  uint32_t seed = chance_seed(attr), number = (uint32_t)(uint64_t)scal[SC_STEP];
  bool whole = attr->momentum == 0 || number == 1;
  float keep = (float)attr->momentum, add = whole ? 1 : (float)(1 - attr->dampening);
  float clip = (float)scal[SC_CLIP], lr = (float)scal[SC_LR];
  float decay = (float)attr->weight_decay;
  bool copies = copy != p1;
#pragma omp simd
  for (int64_t i = lo; i < hi; i++) {
    float x = g[i] * clip + decay * p0[i];
    float m = keep * get(m0, s, i) + add * x;
    float p = p0[i] - lr * (ahead ? x + keep * m : m);
    put_state(m1, s, i, m, by_chance, s == DT_F32 ? 0 : chance(x, m, number, seed));
    p1[i] = p;
    if (copies) put(copy, t, i, p);
  }
}

BY_STATE(sgd)
BY_TYPE(sgd, out[2])

OPTIMIZER_KERNELS(sgd)
