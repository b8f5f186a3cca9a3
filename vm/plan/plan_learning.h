/* plan_learning.h - a plan's optimizer, its learning rate and the scale of its loss. */
#ifndef WEFT_PLAN_LEARNING_H
#define WEFT_PLAN_LEARNING_H

#include "vm/graph/graph.h"

typedef enum {
#define LR(ID, name) LR_##ID,
#include "lr.def"
} LrKind;
/* How wsd falls, as a part t of that is over: 1 - t, a half cosine, 2 * 0.5^t - 1, and
 * 1 - sqrt(t). */
typedef enum {
  LR_FALL_LINEAR,
  LR_FALL_COSINE,
  LR_FALL_EXPONENTIAL,
  LR_FALL_MINUS_SQRT
} LrFall;
typedef struct LrSchedule {
  LrKind kind;
  LrFall fall;
  double max, min;
  double power; /* polynomial */
  int64_t warmup, steps, decay, timescale;
  /* Instead of min, warmup and decay: a part of max, a part of steps, tokens. */
  double min_ratio, warmup_ratio, decay_ratio;
  int64_t warmup_tokens;
} LrSchedule;
struct Plan;
/* That of a plan with steps in the place of parts and tokens; steps 0 is train.steps. */
LrSchedule lr_resolved(const struct Plan *p);
/* lr at step k (from 0): max*(k+1)/warmup, then from max to min; of one that is resolved.
 */
double lr_at(const LrSchedule *lr, int64_t step);

typedef enum {
#define OPTIMIZER(ID, name, states, flops, changes, formula) OPTIMIZER_##ID,
#define MATRICES(ID, name, rest, states, flops, changes)     OPTIMIZER_##ID,
#define FACTORED(ID, name, flops)                            OPTIMIZER_##ID,
#define WITHOUT(ID, n, OF, title, plain, flops, changes, f)  OPTIMIZER_##ID,
#include "optimizers.def"
  OPTIMIZER_N
} OptimizerKind;
/* What the learning rate of a matrix (A, B) is multiplied by: sqrt(max(1, A / B)), 0.2
 * sqrt(max(A, B)), sqrt(A / B). */
typedef enum { ADJUST_ORIGINAL, ADJUST_MATCH_RMS_ADAMW, ADJUST_SPECTRAL } AdjustLr;
enum { NS_ROWS = 16 };         /* steps of an iteration with coefficients of their own */
enum { OPTIMIZER_STATES = 2 }; /* of one, at most; as many regions hold them */
typedef struct Optimizer {
  OptimizerKind kind; /* as the plan names it; see optimizer_kind */
  LrSchedule lr;
#define NUMBER(name) double name;
#define SWITCH(name) bool name;
#include "optimizers.def"
  double eps, weight_decay, clip; /* clip 0: none */
  bool decay_vectors;             /* what has one dimension decays, too */
  DType state; /* of its states: f32 or bf16; DT_Q8: 8 bits in blocks, see state_type */
  bool stochastic;      /* those in bf16 are rounded by chance */
  bool post_validation; /* steps before the check, see vm/lower/post_validation.c */
  /* Of one that steps whole matrices, see vm/lower/matrix_step.c: steps of Newton-Schulz,
   * their coefficients, one row for all of them or one for each (optimizer_ns), the least
   * norm that a matrix is divided by. */
  int64_t ns_steps;
  double ns[NS_ROWS][3], ns_eps;
  int ns_rows;
  double adamw_lr_ratio; /* of all that is no matrix, to the learning rate */
  AdjustLr adjust_lr;
} Optimizer;

/* How f16 training scales its loss; see vm/run/loss_scaler.h. */
typedef struct LossScale {
  double init, growth, backoff, min;
  int64_t interval;   /* steps without an overflow before it grows */
  int64_t hysteresis; /* overflows before it shrinks */
} LossScale;

#endif
