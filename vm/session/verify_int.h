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
  const struct VerifyRounding *own; /* NULL, or what rounding makes of single numbers */
  struct VerifyRounding *measured;  /* NULL, or to be set to that */
  bool shakes;                      /* the weights of `many` differ in the last bit */
  Orthogonal orthogonal;            /* of optimizers that step whole matrices */
  VerifyReport *out;
} Verify;

/* ---- verify.c ---- */
/* Runs and compares with what `v` asks for: plan, c, tolerance, own, measured, shakes and
 * out are set. */
weft_status verify_runs(Verify *v, const Plan *plan_one, const Compiled *one, int steps,
                        const RunOptions *options, weft_error *e);

/* ---- verify_rounding.c ---- */
/* The tolerance of a number that belongs to this figure of the report, of a parameter or
 * -1. */
double tolerance_of(const Verify *v, const double *figure, int param);
/* Records how far a gradient or state of a parameter is from itself. */
void measure(Verify *v, int param, double difference);
/* Changes the last bit of the weights of `many`. */
weft_status shake_weights(Verify *v, int64_t step, weft_error *e);

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
