/* plan_bits.h - what two steps of a plan give, to the bit. */
#ifndef WEFT_TESTS_PLAN_BITS_H
#define WEFT_TESTS_PLAN_BITS_H

#include "vm/base/base.h"

typedef struct PlanBits {
  double loss[2], norm[2];
  float *param; /* all of them, one after the other */
  int64_t n;
} PlanBits;

/* Of the plan in this file with `n` settings, on virtual ranks. */
void plan_bits(Arena *a, const char *path, const char *const *set, int n, PlanBits *out);
/* The plan of a text with the first n settings, and with the first more of them, gives
 * the same bits. */
void plan_bits_same(Arena *a, const char *text, const char *const *set, int n, int more);

#endif
