/* verify_rounding.h - what rounding alone makes of the numbers that verify compares.
 *
 * Ranks add up in another order, so each number differs by what rounding makes of it: of
 * most little, of one of which next to nothing is left where much cancels, or that
 * depends on such, more than any tolerance for all of them. How much, one rank tells by
 * itself: in 16 bits by its distance from f32, in f32 by that from itself with weights
 * that differ in the last bit. */
#ifndef WEFT_VERIFY_ROUNDING_H
#define WEFT_VERIFY_ROUNDING_H

#include "verify.h"

/* Relative differences. Two roundings of a number are one distribution, of which each
 * side draws once: a figure that is no more than ROUNDS_AS_FAR times one drawn is of it.
 * More than ROUNDS_MOST tolerances is never taken for rounding. */
enum { ROUNDS_AS_FAR = 4, ROUNDS_MOST = 10 };
typedef struct VerifyRounding {
  double loss, grad_norm, param; /* largest of all steps */
  double *grad;                  /* of each parameter: its gradient and states */
} VerifyRounding;

/* Sets out, whose `grad` has an element for each parameter, to how far one rank, `alone`,
 * is from `one`. If `shakes`, each step of `alone` starts from weights that differ in the
 * last bit. */
weft_status verify_rounding(const Plan *plan, const Compiled *alone, const Plan *plan_one,
                            const Compiled *one, int steps, double tolerance, bool shakes,
                            const RunOptions *options, VerifyRounding *out,
                            weft_error *e);

/* As verify(), but that a number which rounds by more than the tolerance has one of its
 * own. */
weft_status verify_within(const Plan *plan, const Compiled *many, const Plan *plan_one,
                          const Compiled *one, int steps, double tolerance,
                          const VerifyRounding *own, const RunOptions *options,
                          VerifyReport *out, weft_error *e);

#endif
