/* adamw.c - one step of AdamW, with decoupled weight decay, in one pass:
 *   g *= clip; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
 *   p -= lr * ((m / bc1) / (sqrt(v / bc2) + eps) + decay * p)
 * 1-b, lr/bc1 and 1-lr*decay are made in f64: that of an f32 near 1 has few digits left.
 * Where m is 0 there is no step, whatever eps is: padding stays 0. */
#include "step_kernels.h"

/* `t` is the type of the copy, `s` that of the moments. */
INLINE void adamw_of(const KernelArgs *a, int64_t lo, int64_t hi, DType t, DType s) {
  const OpAttr *attr = a->attr;
  const double *scal = a->in[4].p;
  const float *p0 = a->in[0].p, *g = a->in[1].p;
  const void *m0 = a->in[2].p, *v0 = a->in[3].p;
  float *p1 = a->out[0].p;
  void *m1 = a->out[1].p, *v1 = a->out[2].p;
  bool by_chance = attr->kind != 0;
  uint32_t seed = chance_seed(attr);
  uint32_t number = (uint32_t)(uint64_t)scal[SC_STEP];
  void *copy = a->out[3].p;
  Decay d1 = decay_of(attr->beta1), d2 = decay_of(attr->beta2);
  float clip = (float)scal[SC_CLIP], eps = attr->eps;
  float step = (float)(scal[SC_LR] / scal[SC_BC1]);
  float root = (float)(1.0 / sqrt(scal[SC_BC2]));
  float keep = (float)(1.0 - scal[SC_LR] * attr->weight_decay);
  bool copies = copy != p1;
  for (int64_t from = lo; from < hi; from += LINE) {
    _Alignas(64) uint16_t line[LINE];
    int64_t to = MIN(from + LINE, hi);
#pragma omp simd
    for (int64_t i = from; i < to; i++) {
      float x = g[i] * clip;
      float m = get(m0, s, i), v = get(v0, s, i);
      m = average(m, x, d1);
      v = average(v, x * x, d2);
      float by = step * m / (sqrtf(v) * root + eps);
      float p = p0[i] * keep - (m == 0 ? 0 : by);
      uint32_t r = s == DT_F32 ? 0 : chance(x, m, number, seed);
      put_state(m1, s, i, m, by_chance, r);
      put_state(v1, s, i, v, by_chance, r >> 16);
      p1[i] = p;
      if (t != DT_F32)
        line[i - from] = half_of(t, p);
      else if (copies)
        put(copy, t, i, p);
    }
    if (t != DT_F32) write_past(at(copy, t, from), line, to - from);
  }
#ifdef __SSE2__
  _mm_sfence(); /* other threads see the copy after this kernel's barrier */
#endif
}

BY_STATE(adamw)
BY_TYPE(adamw, out[3])

OPTIMIZER_KERNELS(adamw)
