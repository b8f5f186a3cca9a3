/* step_kernels.h - what the steps of optimizers share. Operands are p, g, states, scal;
 * results p, states, the copy of p that the forward pass reads, and of NAME_try behind
 * them what p and the states were. step_undo puts that back: a step that is undone leaves
 * no trace. */
#ifndef WEFT_STEP_KERNELS_H
#define WEFT_STEP_KERNELS_H

#include "kernels/cpu/kernel.h"
#include "vm/program/program.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Elements that are stepped at a time: what is not f32 is widened before and rounded
 * behind. */
enum { LINE = 1024 };

/* Writes past the caches: the copy is read only in the next step, and a store through the
 * cache would read its old values first. The pass is bound by memory, so that counts. */
INLINE void write_past(uint16_t *to, const uint16_t *line, int64_t n) {
#ifdef __SSE2__
  enum { EACH = sizeof(__m128i) / sizeof *to };
  for (; n >= EACH && (uintptr_t)to % sizeof(__m128i) == 0; n -= EACH) {
    _mm_stream_si128((__m128i *)to, _mm_load_si128((const __m128i *)line));
    to += EACH, line += EACH;
  }
#endif
  memcpy(to, line, (size_t)n * sizeof *to);
}

/* Other threads see what was written past the caches after this. */
INLINE void stores_end(void) {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

/* What decides how values of 16 bits are rounded: the values themselves, the step and
 * the seed, so that all ranks that hold a parameter round alike, whatever the mesh. */
INLINE uint32_t chance(float g, float m, uint32_t step, uint32_t seed) {
  uint32_t x =
      bits_of_float(m) + bits_of_float(g) * 0x9e3779b9u + (step * 0x85ebca6bu ^ seed);
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

/* ---- lines ---- */

/* A line of parameters and gradients as f32; `to` takes the new values. */
typedef struct Line {
  const float *p, *g;
  float *to;
  int64_t n;
} Line;

typedef struct LineRoom {
  _Alignas(64) float p[LINE], g[LINE], to[LINE];
} LineRoom;

INLINE void widen_line(const KTensor *x, int64_t from, int64_t n, float *to, DType t) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] = get(x->p, t, from + i);
}

/* Elements [from, from + n) as f32: where they are, or in the room. */
INLINE const float *line_of(const KTensor *x, int64_t from, int64_t n, float *room) {
  if (x->dtype == DT_F32) return (const float *)x->p + from;
  WITH_TYPE(x->dtype, widen_line, x, from, n, room)
  return room;
}

INLINE Line line_begin(const KernelArgs *a, int64_t from, int64_t n, LineRoom *room) {
  bool in_place = a->out[0].dtype == DT_F32;
  return (Line){line_of(&a->in[0], from, n, room->p),
                line_of(&a->in[1], from, n, room->g),
                in_place ? (float *)a->out[0].p + from : room->to, n};
}

INLINE void round_line(const float *v, int64_t n, uint16_t *to, DType t) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) put(to, t, i, v[i]);
}

/* What decides how a parameter is rounded: its gradient and what it was. */
static inline void chance_line(const Line *l, uint32_t step, uint32_t seed,
                               uint16_t *to) {
  for (int64_t i = 0; i < l->n; i++)
    to[i] = bf16_by_chance(l->to[i], chance(l->g[i], l->p[i], step, seed));
}

/* Writes the new values to a tensor of 16 bits: the parameters, or the copy of them. */
INLINE void line_write(const Line *l, const KTensor *to, int64_t from, bool by_chance,
                       uint32_t step, uint32_t seed) {
  _Alignas(64) uint16_t line[LINE];
  if (by_chance)
    chance_line(l, step, seed, line);
  else if (to->dtype == DT_BF16)
    round_line(l->to, l->n, line, DT_BF16);
  else
    round_line(l->to, l->n, line, DT_F16);
  write_past(at(to->p, to->dtype, from), line, l->n);
}

/* Rounds the parameters if they are stored in 16 bits, and writes the copy that the
 * forward pass reads if there is one. */
INLINE void line_end(const KernelArgs *a, const Line *l, int64_t from, bool by_chance,
                     uint32_t step, uint32_t seed) {
  const KTensor *p = &a->out[0], *copy = &a->out[a->nin - 2];
  if (p->dtype != DT_F32) line_write(l, p, from, by_chance, step, seed);
  if (copy->p == p->p) return;
  if (copy->dtype == DT_F32)
    memcpy((float *)copy->p + from, l->to, sizeof(float) * (size_t)l->n);
  else if (copy->dtype == p->dtype)
    memcpy(at(copy->p, copy->dtype, from), at(p->p, p->dtype, from),
           (size_t)l->n * sizeof(uint16_t));
  else
    line_write(l, copy, from, false, step, seed);
}

INLINE void put_state(void *p, DType t, int64_t i, float v, bool by_chance, uint32_t r) {
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

/* The seed of chance(), of the 64 bits of the plan's. */
INLINE uint32_t chance_seed(const OpAttr *a) {
  return (uint32_t)(a->seed ^ a->seed >> 32) * 0xc2b2ae35u;
}

INLINE const double *scalars_of(const KernelArgs *a) { return a->in[a->nin - 1].p; }

INLINE void copy_elements(const KTensor *to, const KTensor *from, int64_t lo,
                          int64_t hi) {
  DType t = from->dtype;
  int64_t each = dtype_elements(t), size = dtype_size(t);
  int64_t first = lo / each, end = (hi + each - 1) / each;
  assert(to->dtype == t && lo % each == 0);
  memcpy((char *)to->p + first * size, (char *)from->p + first * size,
         (size_t)((end - first) * size));
}

/* Keeps what a step overwrites, in blocks that stay in the cache between both. */
INLINE void step_keeping(const KernelArgs *a, int64_t lo, int64_t hi,
                         void (*step)(const KernelArgs *a, int64_t lo, int64_t hi)) {
  enum { BLOCK = 4096 };
  int states = a->nin - 3, first = 2 + states; /* operands p, g, states, scal */
  for (int64_t at = lo; at < hi; at += BLOCK) {
    int64_t end = MIN(at + BLOCK, hi);
    for (int k = 0; k <= states; k++)
      copy_elements(&a->out[first + k], &a->in[k ? k + 1 : 0], at, end);
    if (scalars_of(a)[SC_HOLD] == 0) step(a, at, end);
  }
}

/* The kernels of NAME and NAME_try, of name_line(a, from, line, seed, s), which steps a
 * line whose states are of type s, f32 or bf16. */
#define OPTIMIZER_KERNELS(name)                                                          \
  static void name##_part(const KernelArgs *a, int64_t lo, int64_t hi) {                 \
    uint32_t seed = chance_seed(a->attr);                                                \
    uint32_t step = (uint32_t)(uint64_t)scalars_of(a)[SC_STEP];                          \
    LineRoom room;                                                                       \
    for (int64_t from = lo; from < hi; from += LINE) {                                   \
      Line l = line_begin(a, from, MIN(LINE, hi - from), &room);                         \
      assert(a->in[2].dtype == DT_F32 || a->in[2].dtype == DT_BF16);                     \
      if (a->in[2].dtype == DT_F32)                                                      \
        name##_line(a, from, &l, seed, DT_F32);                                          \
      else                                                                               \
        name##_line(a, from, &l, seed, DT_BF16);                                         \
      line_end(a, &l, from, a->attr->kind != 0, step, seed);                             \
    }                                                                                    \
    stores_end();                                                                        \
  }                                                                                      \
  void cpu_##name(Device *dev, const KernelArgs *a) {                                    \
    if (scalars_of(a)[SC_HOLD] == 0)                                                     \
      each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, name##_part);                \
  }                                                                                      \
  static void name##_try_part(const KernelArgs *a, int64_t lo, int64_t hi) {             \
    step_keeping(a, lo, hi, name##_part);                                                \
  }                                                                                      \
  void cpu_##name##_try(Device *dev, const KernelArgs *a) {                              \
    each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, name##_try_part);              \
  }

#endif
