/* vecmath.h - exp and friends as plain expressions, so that loops over them vectorise.
 * No tables, no branches, no calls; relative error of exp below 2e-7. */
#ifndef WEFT_VECMATH_H
#define WEFT_VECMATH_H

#include "kernel.h"

/* c where `wanted`, else x; with bit operations, because a hoisted branch would keep the
 * loop from vectorizing. A NaN is kept, as comparisons with it are false. */
INLINE float replace_if(bool wanted, float c, float x) {
  uint32_t mask = -(uint32_t)wanted;
  return float_of_bits((bits_of_float(x) & ~mask) | (bits_of_float(c) & mask));
}

/* 2^n times the exponential of the rest: x = n ln 2 + r, |r| <= ln(2)/2. The power of two
 * is applied in two steps so that results below the smallest normal number and at the
 * upper end come out right. exp(-inf) = 0, NaN stays NaN. */
INLINE float vexp(float x) {
  const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
  float c = replace_if(x < -104.0f, -104.0f, x);
  c = replace_if(c > 89.0f, 89.0f, c);
  float t = c * 1.44269504f + magic;
  int32_t n = (int32_t)(bits_of_float(t) - bits_of_float(magic));
  float k = t - magic;
  float r = c - k * 0.693145752f; /* exact: ln 2 cut to 15 bits */
  r = r - k * 1.42860682e-6f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  int32_t half = n >> 1;
  float s1 = float_of_bits((uint32_t)(half + 127) << 23);
  float s2 = float_of_bits((uint32_t)(n - half + 127) << 23);
  return p * s1 * s2;
}

/* Phi(x), the normal distribution function, through erfc(z) = exp(-z^2) t p(t) with
 * t = 1/(1 + 0.38 z) and z = |x|/sqrt(2); p interpolates at Chebyshev nodes on 0..10 and
 * is good to 3e-8. The lower tail keeps its relative precision. */
INLINE float normal_cdf(float x) {
  float z = fabsf(x);
  float t = 1.0f / (1.0f + 0.268700577f * z);
  float p = 0.05963026279818711f;
  p = p * t - 0.26559230851352295f;
  p = p * t + 0.3708773964455275f;
  p = p * t - 0.16967497163790035f;
  p = p * t + 0.23582038548991358f;
  p = p * t + 0.13613750178362513f;
  p = p * t + 0.20455815267846644f;
  p = p * t + 0.21382721083725748f;
  p = p * t + 0.21441639039879498f;
  float tail = 0.5f * p * t * vexp(-0.5f * z * z);
  return x < 0 ? tail : 1.0f - tail;
}

/* Near 0 by its series, as the quotient has the absolute error of a number near 1. */
INLINE float vtanh(float x) {
  float y = x * x, p = 62.0f / 2835;
  p = p * y - 17.0f / 315;
  p = p * y + 2.0f / 15;
  p = p * y - 1.0f / 3;
  return replace_if(fabsf(x) < 0.25f, x + x * y * p, 1.0f - 2.0f / (vexp(2 * x) + 1.0f));
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + vexp(-x)); }

#endif
