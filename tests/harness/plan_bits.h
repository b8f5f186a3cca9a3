/* plan_bits.h - the bits of a plan's results after two steps. */
#ifndef WEFT_TESTS_PLAN_BITS_H
#define WEFT_TESTS_PLAN_BITS_H

#include "vm/base/base.h"

typedef struct PlanBits {
  double loss[2], norm[2];
  float *param; /* all parameters, concatenated */
  int64_t n;
} PlanBits;

/* Runs the plan of this file with `n` settings, on virtual ranks. */
void plan_bits(Arena *a, const char *path, const char *const *set, int n, PlanBits *out);
/* Checks that a plan with the first n settings, and with `more` of them, gives the same
 * bits. */
void plan_bits_same(Arena *a, const char *text, const char *const *set, int n, int more);
/* The same, or with `rounds` losses within 1e-6 and norms within 1e-5: whether the bits
 * were the same. */
bool plan_bits_agree(Arena *a, const char *text, const char *const *set, int n, int more,
                     bool rounds);

#endif
