/* verify.h - the same steps on the ranks of a mesh and on one rank, compared. */
#ifndef WEFT_VERIFY_H
#define WEFT_VERIFY_H

#include "vm/run/run.h"

typedef struct VerifyReport {
  int steps, tensors;
  double loss, grad_norm, grad, param; /* worst relative differences */
  char worst[160];                     /* the tensor with the worst one */
  bool ok;
  char first_bad[256]; /* "step 0: gradient of X differs by 3e-2" */
  char not_kept[512];  /* see run_not_captured; "": nothing */
} VerifyReport;
/* Runs `steps` steps of `many` with these options (NULL: the usual ones) and of `one`
 * (mesh of one rank, f32, the same logical microbatches) and compares. Tolerance is on
 * norm-wise differences. A difference is no error here: it is out->ok and
 * out->first_bad, on the process of rank 0. */
weft_status verify(const Plan *plan, const Compiled *many, const Plan *plan_one,
                   const Compiled *one, int steps, double tolerance,
                   const RunOptions *options, VerifyReport *out, weft_error *e);

#endif
