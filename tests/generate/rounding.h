/* rounding.h - how much a plan's model makes of the last bit of its weights. */
#ifndef WEFT_TEST_ROUNDING_H
#define WEFT_TEST_ROUNDING_H

#include "vm/base/base.h"

/* Relative differences, of gradients norm-wise the largest of a parameter. */
typedef struct Rounding {
  double loss, grad, grad_norm;
} Rounding;

/* Takes the first step of the plan's one-rank twin from its initial weights and from
 * others that are no farther from them than half a unit of the last place and the
 * rounding of that, and compares the two. `report` says why if that cannot be done. */
weft_status plan_rounding(const char *plan, Rounding *out, Text *report);

#endif
