/* adamw_8bit.c - one step of AdamW whose averages are blocks of codes of 8 bits, equal to
 * bitsandbytes' CPU kernels to the bit, if roots are rounded correctly:
 *   g *= clip; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
 *   p = p (1 - lr decay) - lr / bc1 m / (sqrt(v) / sqrt(bc2) + eps)
 * of small parameters, whose averages are f32, with eps sqrt(bc2) and the rest outside.
 * Sums are fused where PyTorch fuses them, and nowhere else: a product is in an array
 * before it is added to, as this folder is compiled to fuse all that it can.
 *
 * A 0 in a block becomes a code that is not 0, so 0 is kept where p and g are: padding
 * stays 0. */
#include "step_kernels.h"

#include "vm/base/dynamic8.h"

enum { BLOCK = DYNAMIC8_BLOCK };

typedef struct Rates {
  float clip, keep, b1, b2, add1, add2, eps, root, by;
} Rates;

/* All scalars are made in f64, as Python does. */
static Rates rates_of(const KernelArgs *a, bool in_bits) {
  const OpAttr *attr = a->attr;
  const double *scal = scalars_of(a);
  double lr = attr_lr(attr, scal[SC_LR]), root = sqrt(scal[SC_BC2]), eps = attr->epsilon;
  Rates r = {.clip = (float)scal[SC_CLIP],
             .keep = (float)(1.0 - lr * attr->weight_decay),
             .b1 = (float)attr->beta1,
             .b2 = (float)attr->beta2,
             .add1 = (float)(1.0 - attr->beta1),
             .add2 = (float)(1.0 - attr->beta2),
             .eps = (float)(in_bits ? eps : eps * root),
             .root = (float)root,
             .by = (float)(in_bits ? -lr / scal[SC_BC1] : -lr * root / scal[SC_BC1])};
  return r;
}

static void averages(const Rates *r, const float *x, int64_t n, float *m, float *v) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    m[i] = fmaf(x[i], r->add1, m[i] * r->b1);
    v[i] = fmaf(x[i] * r->add2, x[i], v[i] * r->b2);
  }
}

/* The parameter, with the decay, without what is stepped. */
static void decayed(const Rates *r, const Line *l, int64_t n, float *x, float *p) {
  for (int64_t i = 0; i < n; i++) {
    x[i] = l->g[i] * r->clip;
    p[i] = l->p[i] * r->keep;
  }
}

static void step_block(const Rates *r, const Line *l, const Dynamic8Map map[2],
                       const Dynamic8 *from[2], Dynamic8 *to[2]) {
  float x[BLOCK], m[BLOCK], v[BLOCK], p[BLOCK], by[BLOCK];
  float *state[] = {m, v};
  for (int k = 0; k < 2; k++) dynamic8_unpack(&map[k], from[k], 0, (int)l->n, state[k]);
  decayed(r, l, l->n, x, p);
  averages(r, x, l->n, m, v);
  for (int64_t i = 0; i < l->n; i++) {
    float root = sqrtf(v[i]) / r->root;
    by[i] = r->by * m[i] / (root + r->eps);
  }
  for (int64_t i = 0; i < l->n; i++)
    l->to[i] = l->p[i] == 0 && x[i] == 0 ? 0 : p[i] + by[i];
  for (int k = 0; k < 2; k++) dynamic8_pack(&map[k], state[k], (int)l->n, to[k]);
}

/* Its states are f32. */
static void step_wide(const Rates *r, const Line *l, const float *const from[2],
                      float *const to[2]) {
  float x[BLOCK], p[BLOCK];
  for (int k = 0; k < 2; k++) memmove(to[k], from[k], (size_t)l->n * sizeof(float));
  decayed(r, l, l->n, x, p);
  averages(r, x, l->n, to[0], to[1]);
  for (int64_t i = 0; i < l->n; i++)
    l->to[i] = fmaf(to[0][i] / (sqrtf(to[1][i]) + r->eps), r->by, p[i]);
}

static void adamw_8bit_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  DType t = a->in[2].dtype;
  bool in_bits = dtype_elements(t) > 1;
  assert(in_bits ? t == DT_Q8 && a->in[3].dtype == DT_UQ8 : t == DT_F32);
  Rates r = rates_of(a, in_bits);
  Dynamic8Map map[2];
  for (int k = 0; k < 2; k++) dynamic8_map(k == 0, &map[k]);
  LineRoom room;
  for (int64_t at = lo; at < hi; at += BLOCK) {
    Line l = line_begin(a, at, MIN(BLOCK, hi - at), &room);
    if (in_bits) {
      const Dynamic8 *from[2];
      Dynamic8 *to[2];
      for (int k = 0; k < 2; k++) {
        from[k] = (const Dynamic8 *)a->in[2 + k].p + at / BLOCK;
        to[k] = (Dynamic8 *)a->out[1 + k].p + at / BLOCK;
      }
      step_block(&r, &l, map, from, to);
    } else {
      const float *from[2];
      float *to[2];
      for (int k = 0; k < 2; k++) {
        from[k] = (const float *)a->in[2 + k].p + at;
        to[k] = (float *)a->out[1 + k].p + at;
      }
      step_wide(&r, &l, from, to);
    }
    line_end(a, &l, at, false, 0, 0);
  }
  stores_end();
}

void cpu_adamw_8bit(Device *dev, const KernelArgs *a) {
  if (scalars_of(a)[SC_HOLD] == 0)
    each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, adamw_8bit_part);
}

static void adamw_8bit_try_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  step_keeping(a, lo, hi, adamw_8bit_part);
}

void cpu_adamw_8bit_try(Device *dev, const KernelArgs *a) {
  each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, adamw_8bit_try_part);
}
