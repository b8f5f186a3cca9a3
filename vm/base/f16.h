/* f16.h - IEEE half precision: 5 bits of exponent, 10 of mantissa. Conversions have no
 * branches, so that loops over them become vectors, and give the same bits on any CPU. */
#ifndef WEFT_F16_H
#define WEFT_F16_H

#include "bf16.h"

#define F16_INLINE static inline __attribute__((always_inline))

typedef uint16_t f16;

/* Exact. The bits of a half, moved to those of a float, are its value times 2^-112, also
 * if it is subnormal; infinity and NaN get their exponent separately. */
F16_INLINE float f16_to_f32(f16 x) {
  uint32_t u = (uint32_t)(x & 0x7fff) << 13, sign = (uint32_t)(x & 0x8000) << 16;
  uint32_t finite = bits_of_float(float_of_bits(u) * 0x1p112f);
  return float_of_bits(((x & 0x7c00) == 0x7c00 ? u | 0x7f800000 : finite) | sign);
}

/* Rounds to nearest, ties to even; 65520 and above are infinite, a NaN stays a NaN. A
 * subnormal half counts units of 2^-24, which is what a float at 0.5 has in its last bit.
 */
F16_INLINE f16 f16_from_f32(float f) {
  uint32_t u = bits_of_float(f), sign = u >> 16 & 0x8000;
  u &= 0x7fffffff;
  uint32_t normal = (u - (112u << 23) + 0xfff + (u >> 13 & 1)) >> 13;
  uint32_t tiny = bits_of_float(float_of_bits(u) + 0.5f) - 0x3f000000;
  uint32_t large = u > 0x7f800000 ? 0x7e00 : 0x7c00;
  uint32_t h = u < 0x38800000 ? tiny : u < 0x477ff000 ? normal : large;
  return (f16)(h | sign);
}

#undef F16_INLINE

#endif
