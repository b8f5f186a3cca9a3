/* optimizer.c - see optimizer.h. */
#include "optimizer.h"

#include <math.h>

/* ---- what a step takes from an element ---- */

static double adamw_changes(const Optimizer *o, double lr, double t, const Element *e,
                            bool *either) {
  double m = e->after[0] / (1 - pow(o->beta1, t)),
         v = e->after[1] / (1 - pow(o->beta2, t));
  if (e->after[0] == 0) return 0;
  return lr * m / (sqrt(v) + o->eps);
}

static double sgd_changes(const Optimizer *o, double lr, double t, const Element *e,
                          bool *either) {
  if (o->nesterov) return lr * (e->grad + o->momentum * e->after[0]);
  return lr * e->after[0];
}

/* Decay is in the gradient, and depends on the parameter alone. */
static double plain_changes(const Optimizer *o, double lr, double t, const Element *e,
                            bool *either) {
  return lr * e->grad;
}

/* Where both parts of the average cancel, rounding decides. */
static double lion_changes(const Optimizer *o, double lr, double t, const Element *e,
                           bool *either) {
  double old = o->beta1 * e->before[0], x = (1 - o->beta1) * e->grad, to = old + x;
  if (fabs(to) <= 1e-5 * (fabs(old) + fabs(x))) *either = true;
  return to > 0 ? lr : to < 0 ? -lr : 0;
}

/* ---- the table ---- */

const OptimizerInfo optimizer_info[OPTIMIZER_N] = {
#define OPTIMIZER(ID, name_, states_, flops_, changes_, formula)                         \
  [OPTIMIZER_##ID].name = #name_, [OPTIMIZER_##ID].step = OP_##name_,                    \
  [OPTIMIZER_##ID].attempt = OP_##name_##_try, [OPTIMIZER_##ID].states = states_,        \
  [OPTIMIZER_##ID].flops = flops_, [OPTIMIZER_##ID].changes = changes_,
#define STATE(ID, name_, number, saved_, title_, power_, before_)                        \
  [OPTIMIZER_##ID].state[number - 1] = {saved_, title_, power_, before_},
#define MATRICES(ID, name_, rest_, states_, flops_, changes_)                            \
  [OPTIMIZER_##ID].name = #name_, [OPTIMIZER_##ID].matrices = true,                      \
  [OPTIMIZER_##ID].step = OP_##rest_, [OPTIMIZER_##ID].attempt = OP_##rest_##_try,       \
  [OPTIMIZER_##ID].states = states_, [OPTIMIZER_##ID].flops = flops_,                    \
  [OPTIMIZER_##ID].changes = changes_,
#define FACTORED(ID, name_, flops_)                                                      \
  [OPTIMIZER_##ID].name = #name_, [OPTIMIZER_##ID].factored = true,                      \
  [OPTIMIZER_##ID].step = OP_factored_step, [OPTIMIZER_##ID].attempt = -1,               \
  [OPTIMIZER_##ID].states = 1, [OPTIMIZER_##ID].flops = flops_,
#define WITHOUT(ID, name_, OF, title_, plain, flops_, changes_, formula)                 \
  [OPTIMIZER_##ID].name = #name_, [OPTIMIZER_##ID].step = OP_##name_,                    \
  [OPTIMIZER_##ID].title = title_, [OPTIMIZER_##ID].attempt = -1,                        \
  [OPTIMIZER_##ID].flops = flops_, [OPTIMIZER_##ID].changes = changes_,
#define KEEPS(ID, number, saved_, title_, power_, before_)                               \
  [OPTIMIZER_##ID].state[number - 1] = {saved_, title_, power_, before_},
#include "optimizers.def"
};

OptimizerKind optimizer_kind(const Optimizer *o) {
#define WITHOUT(ID, name, OF, title, plain, flops, changes, formula)                     \
  if (o->kind == OPTIMIZER_##OF && (plain)) return OPTIMIZER_##ID;
#include "optimizers.def"
  return o->kind;
}

int optimizer_parse(const char *name) {
  for (int i = 0; i < OPTIMIZER_N; i++)
    if (str_eq(optimizer_info[i].name, name)) return i;
  return -1;
}

void optimizer_begin(Optimizer *o, OptimizerKind kind) {
  *o = (Optimizer){.kind = kind, .lr = o->lr};
#define DEFAULT(ID, name, value)                                                         \
  if (kind == OPTIMIZER_##ID) o->name = value;
#include "optimizers.def"
}

double optimizer_bytes(const Plan *p) {
  const OptimizerInfo *o = optimizer_row(&p->opt);
  int states = o->states;
  int copy = p->master == p->dtype ? 0 : dtype_size(p->dtype);
  if (o->factored) return 4 * dtype_size(p->grad) + 3 * dtype_size(p->master) + copy;
  return 2 * dtype_size(p->grad) + 2 * dtype_size(p->master) +
         2.0 * states * dtype_size(p->opt.state) / dtype_elements(p->opt.state) + copy;
}

double plan_lr_factor(const Plan *p, int group, bool matrix) {
  double factor = group ? p->group[group - 1].lr : 1;
  bool apart = optimizer_row(&p->opt)->matrices && !matrix;
  return apart ? factor * p->opt.adamw_lr_ratio : factor;
}

const double *optimizer_ns(const Optimizer *o, int64_t step) {
  return o->ns[o->ns_rows > 1 ? step : 0];
}

double optimizer_adjusts(const Optimizer *o, int64_t rows, int64_t cols) {
  double a = (double)rows, b = (double)cols;
  switch (o->adjust_lr) {
  case ADJUST_ORIGINAL: return sqrt(fmax(1, a / b));
  case ADJUST_MATCH_RMS_ADAMW: return 0.2 * sqrt(fmax(a, b));
  case ADJUST_SPECTRAL: return sqrt(a / b);
  }
  return 1;
}

OpAttr optimizer_attr(const Optimizer *o) {
  OpAttr a = {.eps = (float)o->eps, .kind = o->stochastic};
#define NUMBER(name) a.name = o->name;
#define SWITCH(name) a.name = o->name;
#define ATTRIBUTE(ID, name, value)                                                       \
  if (o->kind == OPTIMIZER_##ID) a.name = value;
#include "optimizers.def"
  return a;
}
