/* fp8_codes.h - values of the two 8-bit floats (vm/base/fp8.h) as the codes that
 * libraries store. */
#ifndef WEFT_TESTS_FP8_CODES_H
#define WEFT_TESTS_FP8_CODES_H

#include "vm/base/fp8.h"

/* The code of a value that fp8_round gave. */
static inline uint8_t fp8_code(Fp8Type t, float f) {
  const int fraction = t == FP8_E4M3 ? 3 : 2, bias = t == FP8_E4M3 ? 7 : 15;
  uint32_t u = bits_of_float(f), sign = u >> 31 << 7, x = u & 0x7fffffffu;
  if (x > 0x7f800000u) return (uint8_t)(sign | 0x7f);
  int e = (int)(x >> 23) - 127 + bias;
  if (e >= 1)
    return (uint8_t)(sign | ((uint32_t)e << fraction) |
                     ((x & 0x7fffff) >> (23 - fraction)));
  return (uint8_t)(sign | (uint32_t)ldexpf(float_of_bits(x), fraction + bias - 1));
}

/* And back. */
static inline float fp8_value(Fp8Type t, uint8_t code) {
  const int fraction = t == FP8_E4M3 ? 3 : 2, bias = t == FP8_E4M3 ? 7 : 15;
  int e = (code & 0x7f) >> fraction, m = code & ((1 << fraction) - 1);
  float sign = code & 0x80 ? -1.0f : 1.0f;
  if (t == FP8_E4M3 ? (code & 0x7f) == 0x7f : e == 31)
    return t == FP8_E5M2 && m == 0 ? sign * INFINITY : NAN;
  if (e == 0) return sign * ldexpf((float)m, 1 - bias - fraction);
  return sign * ldexpf((float)(m + (1 << fraction)), e - bias - fraction);
}

#endif
