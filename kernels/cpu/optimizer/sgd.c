/* sgd.c - one step of SGD with momentum, as torch.optim.SGD takes it, in one pass:
 *   g = clip g + decay p;  m = momentum m + (1 - dampening) g, but in the first step g
 *   p -= lr (g + momentum m) with nesterov, else lr m
 * Without momentum m is g, and sgd_plain has no m. */
#include "step_kernels.h"

/* `s` is the type of m. */
INLINE void sgd_line(const KernelArgs *a, int64_t from, const Line *l, uint32_t seed,
                     DType s) {
  const OpAttr *attr = a->attr;
  const double *scal = a->in[3].p;
  const void *m0 = at(a->in[2].p, s, from);
  void *m1 = at(a->out[1].p, s, from);
  const float *p0 = l->p, *g = l->g;
  float *p1 = l->to;
  bool by_chance = attr->kind != 0, ahead = attr->nesterov != 0;
  uint32_t number = (uint32_t)(uint64_t)scal[SC_STEP];
  bool whole = attr->momentum == 0 || number == 1;
  float keep = (float)attr->momentum, add = whole ? 1 : (float)(1 - attr->dampening);
  float clip = (float)scal[SC_CLIP], lr = (float)attr_lr(attr, scal[SC_LR]);
  float decay = (float)attr->weight_decay;
#pragma omp simd
  for (int64_t i = 0; i < l->n; i++) {
    float x = g[i] * clip + decay * p0[i];
    float m = keep * get(m0, s, i) + add * x;
    float p = p0[i] - lr * (ahead ? x + keep * m : m);
    put_state(m1, s, i, m, by_chance, s == DT_F32 ? 0 : chance(x, m, number, seed));
    p1[i] = p;
  }
}

OPTIMIZER_KERNELS(sgd)

INLINE void sgd_plain_line(const KernelArgs *a, const Line *l) {
  const double *scal = scalars_of(a);
  float clip = (float)scal[SC_CLIP], lr = (float)attr_lr(a->attr, scal[SC_LR]);
  float decay = (float)a->attr->weight_decay;
#pragma omp simd
  for (int64_t i = 0; i < l->n; i++)
    l->to[i] = l->p[i] - lr * (l->g[i] * clip + decay * l->p[i]);
}

static void sgd_plain_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  uint32_t step = (uint32_t)(uint64_t)scalars_of(a)[SC_STEP];
  LineRoom room;
  for (int64_t from = lo; from < hi; from += LINE) {
    Line l = line_begin(a, from, MIN(LINE, hi - from), &room);
    sgd_plain_line(a, &l);
    line_end(a, &l, from, a->attr->kind != 0, step, chance_seed(a->attr));
  }
  stores_end();
}

void cpu_sgd_plain(Device *dev, const KernelArgs *a) {
  if (scalars_of(a)[SC_HOLD] == 0)
    each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, sgd_plain_part);
}
