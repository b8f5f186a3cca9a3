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

/* Elements of the copy that are gathered before they are written. */
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

/* What decides how states of 16 bits are rounded: the values themselves, the step and
 * the seed, so that all ranks that hold a parameter round alike, whatever the mesh. */
INLINE uint32_t chance(float g, float m, uint32_t step, uint32_t seed) {
  uint32_t x =
      bits_of_float(m) + bits_of_float(g) * 0x9e3779b9u + (step * 0x85ebca6bu ^ seed);
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
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

/* Keeps what a step overwrites, in blocks that stay in the cache between both. */
INLINE void step_keeping(const KernelArgs *a, int64_t lo, int64_t hi,
                         void (*step)(const KernelArgs *a, int64_t lo, int64_t hi)) {
  enum { BLOCK = 4096 };
  int states = a->nin - 3, first = 2 + states; /* operands p, g, states, scal */
  for (int64_t at = lo; at < hi; at += BLOCK) {
    int64_t end = MIN(at + BLOCK, hi);
    for (int k = 0; k <= states; k++)
      memcpy((float *)a->out[first + k].p + at,
             (const float *)a->in[k ? k + 1 : 0].p + at,
             sizeof(float) * (size_t)(end - at));
    if (scalars_of(a)[SC_HOLD] == 0) step(a, at, end);
  }
}

/* NAME(a, lo, hi, t), of NAME_of with the type of the states, f32 or bf16, behind t. */
#define BY_STATE(name)                                                                   \
  INLINE void name(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {               \
    assert(a->in[2].dtype == DT_F32 || a->in[2].dtype == DT_BF16);                       \
    if (a->in[2].dtype == DT_F32)                                                        \
      name##_of(a, lo, hi, t, DT_F32);                                                   \
    else                                                                                 \
      name##_of(a, lo, hi, t, DT_BF16);                                                  \
  }

/* The kernels of NAME and NAME_try, of the function NAME_part that steps a part. */
#define OPTIMIZER_KERNELS(name)                                                          \
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
