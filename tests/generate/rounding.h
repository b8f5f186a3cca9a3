/* rounding.h - how much a plan's model makes of the last bit of its weights. */
#ifndef WEFT_TEST_ROUNDING_H
#define WEFT_TEST_ROUNDING_H

#include "vm/session/verify.h"

/* Relative differences, of gradients norm-wise the largest of a parameter: of those that
 * are not next to nothing beside the whole, and `named` of one alone. */
typedef struct Rounding {
  double loss, grad, named, grad_norm;
} Rounding;

/* Takes each of the first `steps` steps of the plan's one-rank twin from its weights and
 * from others that are no farther from them than half a unit of the last place and the
 * rounding of that, and compares the two. `name`: a parameter, or NULL. `report` says why
 * if that cannot be done. */
weft_status plan_rounding(const char *plan, const char *name, int steps, Rounding *out,
                          Text *report);

/* What the number formats of the plan make of `steps` steps: those of one rank that has
 * them, against its twin, which has f32. `data` is added to the plan's seed. */
weft_status plan_alone(const char *plan, uint64_t data, int steps, VerifyReport *out,
                       Text *report);

#endif
