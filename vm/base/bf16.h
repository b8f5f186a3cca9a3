/* bf16.h - bfloat16, the upper half of an f32: conversions, rounding to nearest even. */
#ifndef WEFT_BF16_H
#define WEFT_BF16_H

#include <stdint.h>

#define BF16_INLINE static inline __attribute__((always_inline))

typedef uint16_t bf16;

BF16_INLINE float float_of_bits(uint32_t u) {
  union {
    uint32_t u;
    float f;
  } v = {.u = u};
  return v.f;
}

BF16_INLINE uint32_t bits_of_float(float f) {
  union {
    float f;
    uint32_t u;
  } v = {.f = f};
  return v.u;
}

BF16_INLINE float bf16_to_f32(bf16 x) { return float_of_bits((uint32_t)x << 16); }

/* Rounds to nearest, ties to even; a NaN stays a (quiet) NaN. Without a branch, so that
 * loops over it become vectors. */
BF16_INLINE bf16 bf16_from_f32(float f) {
  uint32_t u = bits_of_float(f);
  uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return (bf16)((u & 0x7fffffff) > 0x7f800000 ? (u >> 16) | 0x40 : rounded);
}

/* Stochastic rounding: up or down with a probability that makes the mean exact. `random`
 * has 16 uniform bits. */
BF16_INLINE bf16 bf16_by_chance(float f, uint32_t random) {
  uint32_t u = bits_of_float(f), up = (u + (random & 0xffff)) >> 16;
  return (u & 0x7f800000) == 0x7f800000 ? bf16_from_f32(f) : (bf16)up;
}

#undef BF16_INLINE

#endif
