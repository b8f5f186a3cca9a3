/* multiples.h - common divisors, and what a size that is no multiple of another may be
 * instead. */
#ifndef WEFT_MULTIPLES_H
#define WEFT_MULTIPLES_H

#include "base.h"

/* The greatest common divisor; of a number and 0 the number. */
static inline int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

/* "nearest: 16 or 24": the multiples of `unit` on both sides of n, which is none. */
static inline const char *nearest_multiples(Arena *a, int64_t n, int64_t unit) {
  int64_t below = n / unit * unit, above = below + unit;
  if (below == 0) return arena_printf(a, "nearest: %lld", (long long)above);
  return arena_printf(a, "nearest: %lld or %lld", (long long)below, (long long)above);
}

#endif
