/* fp8.h - the two 8-bit floats: e4m3 (4 bits of exponent, 3 of fraction, no infinity, at
 * most 448) and e5m2 (5 and 2, at most 57344), as PyTorch's float8_e4m3fn and
 * float8_e5m2.
 *
 * Values are rounded to nearest, ties to even, after what is larger than the largest was
 * cut to it (saturated); a NaN stays one. Ops compute with the rounded values as f32,
 * which hold both types exactly. */
#ifndef WEFT_FP8_H
#define WEFT_FP8_H

#include <math.h>

#include "bf16.h"

#define FP8_INLINE static inline __attribute__((always_inline))

typedef enum { FP8_E4M3, FP8_E5M2 } Fp8Type;

FP8_INLINE float fp8_max(Fp8Type t) { return t == FP8_E4M3 ? 448.0f : 57344.0f; }

/* The value of the type that is nearest to f, as f32. Below the smallest normal one
 * values are multiples of the smallest, which adding and taking away a large power of two
 * leaves. Without a branch, so that loops over it become vectors. */
FP8_INLINE float fp8_round(Fp8Type t, float f) {
  const uint32_t shift = t == FP8_E4M3 ? 20 : 21; /* bits of f32's fraction that go */
  const float least = t == FP8_E4M3 ? 0x1p-6f : 0x1p-14f;
  const float steps = t == FP8_E4M3 ? 0x1p14f : 0x1p7f;
  uint32_t u = bits_of_float(f), sign = u & 0x80000000u;
  float x = float_of_bits(u ^ sign), most = fp8_max(t);
  float cut = x > most ? most : x;
  uint32_t v = bits_of_float(cut);
  v = (v + ((1u << (shift - 1)) - 1) + ((v >> shift) & 1)) >> shift << shift;
  float near = cut < least ? (cut + steps) - steps : float_of_bits(v);
  uint32_t r = (u ^ sign) > 0x7f800000u ? 0x7fc00000u : bits_of_float(near);
  return float_of_bits(r | sign);
}

/* What a tensor, or a row or a column of one, is multiplied by before it is rounded: its
 * largest magnitude becomes the type's, as torchao has it (amax_to_scale). With `power`
 * rounded down to a power of two. */
FP8_INLINE float fp8_scale(Fp8Type t, float amax, int power) {
  const double least = 1e-12;
  double a = amax;
  float s = (float)((double)fp8_max(t) / (a > least ? a : least));
  return power ? float_of_bits(bits_of_float(s) & 0x7f800000u) : s;
}

/* Microscaling: blocks of so many elements have one power of two, of 8 bits (e8m0). */
enum { MX_BLOCK = 32 };

/* The power of two that a block with this largest magnitude is divided by: the smallest
 * with which nothing saturates, as NVIDIA's libraries have it (torchao: RCEIL). */
FP8_INLINE float mx_scale(Fp8Type t, float amax) {
  uint32_t u = bits_of_float(amax / fp8_max(t));
  uint32_t e = (u >> 23) + ((u & 0x7fffff) != 0);
  if (u >= 0x7f800000u) return NAN;
  return e == 0 ? 0x1p-127f : float_of_bits(e << 23);
}

#undef FP8_INLINE

#endif
