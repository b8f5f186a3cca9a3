/* verify_int.h - what the files of verify share. */
#ifndef WEFT_VERIFY_INT_H
#define WEFT_VERIFY_INT_H

#include "orthogonal.h"
#include "verify.h"

typedef struct Norms {
  double diff, ref; /* L2 norms: of many - one, and of one */
} Norms;

/* Indices of the buffers that are compared, each for `many`, then for `one`. */
enum { B_PARAM = 0, B_GRAD = 2, B_STATE = 4, BUFS = B_STATE + 2 * OPTIMIZER_STATES };

typedef struct Verify {
  const weft_alloc *alloc;
  const Plan *plan;
  const Compiled *c; /* of `many` */
  /* The row of the one that keeps fewer states: SGD's post-validation, which one rank
   * does not have, keeps one that is not needed. */
  const OptimizerInfo *optimizer;
  Run *many, *one;
  int *layer;       /* [nparam] index of the first parameter in the same layer */
  Norms *norm;      /* [nparam] */
  float *buf[BUFS]; /* each of the size of the largest parameter */
  int64_t largest;  /* elements */
  /* Parameters and states before the step, for optimizers whose row `changes` asks for
   * them. */
  float *before[OPTIMIZER_STATES];
  float *value; /* of parameters before the step, where it depends on the whole of each */
  int32_t *tokens, *labels;
  int64_t ids; /* of a step */
  int64_t vocab;
  double tolerance, worst;
  Orthogonal orthogonal; /* of optimizers that step whole matrices */
  VerifyReport *out;
} Verify;

/* ---- verify_data.c ---- */
/* Fills a step with random ids; some labels are ignored. */
void make_tokens(Verify *v, int64_t step);

/* ---- verify_explain.c ---- */
/* Subtracts from the parameter of `many`, in its buffer, the differences that follow from
 * those of gradients and states in theirs. `first`: its first element among those of all
 * parameters. *norm: the L2 norm of the change of `one`; *bound: that of the difference
 * that rounding may make besides. */
weft_status explain_param(Verify *v, const StepResult *many, const StepResult *one,
                          int param, int64_t first, double *norm, double *bound,
                          weft_error *e);

#endif
