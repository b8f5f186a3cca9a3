/* optimizer.h - the rows of optimizers.def as data. */
#ifndef WEFT_OPTIMIZER_H
#define WEFT_OPTIMIZER_H

#include "plan.h"

/* An element before and after a step, as verify sees it: the gradient times the clip
 * factor, and the states; `before` as far as the rows ask for it. */
typedef struct Element {
  double grad, before[OPTIMIZER_STATES], after[OPTIMIZER_STATES];
} Element;
/* What step number t (from 1) takes from an element, but for decay, which only depends on
 * the parameter. *either: it may as well be its opposite, as rounding decides. */
typedef double OptimizerChanges(const Optimizer *o, double lr, double t, const Element *e,
                                bool *either);

typedef struct OptimizerInfo {
  const char *name;
  const char *title; /* as messages call it behind "weft."; NULL: the name */
  int step, attempt; /* OpCodes: NAME, NAME_try, or -1 */
  int states;
  bool
      matrices; /* those of layers take a step of their own, with the first state alone */
  bool factored; /* the state of a matrix is averages of its rows and columns */
  double flops;
  OptimizerChanges *changes; /* NULL: what it takes depends on the whole parameter */
  struct {
    const char *saved, *title;
    int power;
    bool before;
  } state[OPTIMIZER_STATES];
} OptimizerInfo;
extern const OptimizerInfo optimizer_info[OPTIMIZER_N];

/* The row of what the plan asks for: a plan names SGD, without momentum it is SGD_PLAIN.
 */
OptimizerKind optimizer_kind(const Optimizer *o);
static inline const OptimizerInfo *optimizer_row(const Optimizer *o) {
  return &optimizer_info[optimizer_kind(o)];
}
/* States of a parameter. `matrix`: of a layer, see CompiledParam. */
static inline int optimizer_states(int kind, bool matrix) {
  return matrix && optimizer_info[kind].matrices ? 1 : optimizer_info[kind].states;
}
static inline const char *optimizer_title(int kind) {
  return optimizer_info[kind].title ? optimizer_info[kind].title
                                    : optimizer_info[kind].name;
}
/* -1 if there is none of this name. */
int optimizer_parse(const char *name);
/* An optimizer of this kind: its own defaults, the rest 0. The learning rate stays. */
void optimizer_begin(Optimizer *o, OptimizerKind kind);
/* Bytes that a step of an element reads and writes: the gradient twice (norm, step), the
 * value and the states, the copy in the compute type where there are master weights; of
 * averages of rows and columns nothing, but the gradient and the value again for these.
 */
double optimizer_bytes(const Plan *p);
/* The coefficients of a step of Newton-Schulz, from 0 on. */
const double *optimizer_ns(const Optimizer *o, int64_t step);
/* What the step of a matrix (rows, cols) multiplies the learning rate by. */
double optimizer_adjusts(const Optimizer *o, int64_t rows, int64_t cols);
/* The attributes of its step op but for seed and decay. */
OpAttr optimizer_attr(const Optimizer *o);

#endif
