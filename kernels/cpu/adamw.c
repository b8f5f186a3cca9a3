/* adamw.c - one optimizer step with decoupled weight decay, in one pass:
 *   g *= clip; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
 *   p -= lr * ((m / bc1) / (sqrt(v / bc2) + eps) + decay * p)
 * 1-b, lr/bc1 and 1-lr*decay are made in f64: that of an f32 near 1 has few digits left.
 * Where m is 0 there is no step, whatever eps is: padding stays 0. The fourth result is
 * the copy of p that the forward pass reads. adamw_try keeps what it overwrites and
 * adamw_undo puts it back: a step that is undone leaves no trace. */
#include "kernel.h"
#include "vm/program/program.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Elements of the copy that are gathered before they are written. */
enum { LINE = 1024 };

/* Writes past the caches: the copy is read only in the next step, and a store through the
 * cache would read its old values first. The pass is bound by memory, so that counts. */
static void write_past(uint16_t *to, const uint16_t *line, int64_t n) {
#ifdef __SSE2__
  enum { EACH = sizeof(__m128i) / sizeof *to };
  for (; n >= EACH && (uintptr_t)to % sizeof(__m128i) == 0; n -= EACH) {
    _mm_stream_si128((__m128i *)to, _mm_load_si128((const __m128i *)line));
    to += EACH, line += EACH;
  }
#endif
  memcpy(to, line, (size_t)n * sizeof *to);
}

/* What decides how moments of 16 bits are rounded: the values themselves, the step and
 * the seed, so that all ranks that hold a parameter round alike, whatever the mesh. */
INLINE uint32_t chance(float g, float m, uint32_t step, uint32_t seed) {
  uint32_t x =
      bits_of_float(m) + bits_of_float(g) * 0x9e3779b9u + (step * 0x85ebca6bu ^ seed);
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

INLINE void put_moment(void *p, DType t, int64_t i, float v, bool by_chance, uint32_t r) {
  if (t == DT_BF16 && by_chance)
    ((bf16 *)p)[i] = bf16_by_chance(v, r);
  else
    put(p, t, i, v);
}

/* The factors of an average and of what comes new to it. */
typedef struct Decay {
  float keep, add;
} Decay;

INLINE Decay decay_of(double beta) { return (Decay){(float)beta, (float)(1 - beta)}; }

/* From the nearer of both: without an average (beta 0) it is x to the bit. */
INLINE float average(float old, float x, Decay d) {
  return d.add < 0.5f ? old + d.add * (x - old) : x + d.keep * (old - x);
}

/* `t` is the type of the copy, `s` that of the moments. */
INLINE void adamw_of(const KernelArgs *a, int64_t lo, int64_t hi, DType t, DType s) {
  const OpAttr *attr = a->attr;
  const double *scal = a->in[4].p;
  const float *p0 = a->in[0].p, *g = a->in[1].p;
  const void *m0 = a->in[2].p, *v0 = a->in[3].p;
  float *p1 = a->out[0].p;
  void *m1 = a->out[1].p, *v1 = a->out[2].p;
  bool by_chance = attr->kind != 0;
  uint32_t seed = (uint32_t)(attr->seed ^ attr->seed >> 32) * 0xc2b2ae35u;
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
      put_moment(m1, s, i, m, by_chance, r);
      put_moment(v1, s, i, v, by_chance, r >> 16);
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

INLINE void adamw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  assert(a->in[2].dtype == DT_F32 || a->in[2].dtype == DT_BF16);
  if (a->in[2].dtype == DT_F32)
    adamw_of(a, lo, hi, t, DT_F32);
  else
    adamw_of(a, lo, hi, t, DT_BF16);
}
BY_TYPE(adamw, out[3])

void cpu_adamw(Device *dev, const KernelArgs *a) {
  const double *scal = a->in[4].p;
  if (scal[SC_HOLD] != 0) return;
  each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, adamw_part);
}

/* In blocks that stay in the cache between the copy and the step. */
static void adamw_try_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  static const int kept[] = {0, 2, 3}; /* operands p, m, v */
  enum { BLOCK = 4096 };
  const double *scal = a->in[4].p;
  for (int64_t at = lo; at < hi; at += BLOCK) {
    int64_t end = MIN(at + BLOCK, hi);
    for (int k = 0; k < LEN(kept); k++)
      memcpy((float *)a->out[4 + k].p + at, (const float *)a->in[kept[k]].p + at,
             sizeof(float) * (size_t)(end - at));
    if (scal[SC_HOLD] == 0) adamw_part(a, at, end);
  }
}

void cpu_adamw_try(Device *dev, const KernelArgs *a) {
  each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, adamw_try_part);
}

INLINE void adamw_undo(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const float *p = a->in[0].p;
  void *copy = a->out[3].p;
  for (int k = 0; k < 3; k++)
    memcpy((float *)a->out[k].p + lo, (const float *)a->in[k].p + lo,
           sizeof(float) * (size_t)(hi - lo));
  if (copy == a->out[0].p) return;
  for (int64_t i = lo; i < hi; i++) put(copy, t, i, p[i]);
}
BY_TYPE(adamw_undo, out[3])

void cpu_adamw_undo(Device *dev, const KernelArgs *a) {
  const double *scal = a->in[3].p;
  if (scal[SC_UNDO] == 0) return;
  each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, adamw_undo_part);
}
