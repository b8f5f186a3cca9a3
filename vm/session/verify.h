/* verify.h - compares a few training steps on a mesh with the same steps on one rank. */
#ifndef WEFT_VERIFY_H
#define WEFT_VERIFY_H

#include "vm/run/run.h"

typedef struct VerifyReport {
  int steps, tensors;
  double loss, grad_norm, grad, param; /* largest relative differences */
  char worst[160];                     /* the tensor with the largest one */
  bool ok;
  char first_bad[512];             /* "step 0: gradient of X differs by 3e-2" */
  char not_captured[512];          /* see run_not_captured; "": no such reason */
  char warning[RUN_WARNINGS][420]; /* see run_warning; "": no more */
} VerifyReport;
/* Runs `steps` steps of `many`, with run options (NULL: defaults), and of `one` (a mesh
 * of one rank, f32, the same logical microbatches), and compares L2 norms with the
 * tolerance. A difference is not an error: out->ok and out->first_bad report it, on the
 * process of rank 0. */
weft_status verify(const Plan *plan, const Compiled *many, const Plan *plan_one,
                   const Compiled *one, int steps, double tolerance,
                   const RunOptions *options, VerifyReport *out, weft_error *e);

#endif
