/* learning_rate.c - the learning rate of a step. Cosine, linear, polynomial and
 * inverse_sqrt are as Transformers' schedulers of these names (optimization.py) from the
 * end of the warmup on; what wsd falls along is as Megatron's --lr-wsd-decay-style. The
 * first step is not wasted on a rate of 0: step k of the warmup has (k + 1) / warmup of
 * max. */
#include <math.h>

#include "plan.h"

/* What is nearly a whole number is that one: 0.1 of 30 steps are 3. */
static int64_t part_of(double part, int64_t n) {
  return (int64_t)ceil(part * (double)n * (1 - 1e-12));
}

static int64_t timescale_of(const LrSchedule *lr) {
  enum { WITHOUT_WARMUP = 10000 };
  if (lr->timescale) return lr->timescale;
  return lr->warmup ? lr->warmup : WITHOUT_WARMUP;
}

LrSchedule lr_resolved(const Plan *p) {
  LrSchedule lr = p->opt.lr;
  if (!lr.steps) lr.steps = p->steps;
  if (lr.min_ratio > 0) lr.min = lr.max * lr.min_ratio;
  if (lr.warmup_ratio > 0) lr.warmup = part_of(lr.warmup_ratio, lr.steps);
  double step = (double)p->batch.global * (double)p->batch.seq;
  if (lr.warmup_tokens > 0 && step > 0)
    lr.warmup = (int64_t)ceil((double)lr.warmup_tokens / step);
  if (lr.decay_ratio > 0) lr.decay = part_of(lr.decay_ratio, lr.steps);
  lr.timescale = timescale_of(&lr);
  return lr;
}

/* What is left of max - min, where `t` of the fall is over. */
static double left_of(LrFall fall, double t) {
  switch (fall) {
  case LR_FALL_LINEAR: return 1 - t;
  case LR_FALL_COSINE: return 0.5 * (1 + cos(3.14159265358979323846 * t));
  case LR_FALL_EXPONENTIAL: return 2 * pow(0.5, t) - 1;
  case LR_FALL_MINUS_SQRT: return 1 - sqrt(t);
  }
  return 0;
}

static double fallen(const LrSchedule *lr, int64_t from, int64_t step, LrFall fall) {
  if (lr->steps <= 0 || step < from) return lr->max;
  if (step >= lr->steps) return lr->min;
  double t = (double)(step - from) / (double)(lr->steps - from);
  double left = lr->kind == LR_POLYNOMIAL ? pow(1 - t, lr->power) : left_of(fall, t);
  return lr->min + (lr->max - lr->min) * left;
}

static double inverse_sqrt(const LrSchedule *lr, int64_t step) {
  int64_t scale = timescale_of(lr);
  double at = (double)(step - lr->warmup + scale) / (double)scale;
  return fmax(lr->min, lr->max / sqrt(at));
}

double lr_at(const LrSchedule *lr, int64_t step) {
  if (step < lr->warmup) return lr->max * (double)(step + 1) / (double)lr->warmup;
  switch (lr->kind) {
  case LR_CONSTANT: return lr->max;
  case LR_COSINE: return fallen(lr, lr->warmup, step, LR_FALL_COSINE);
  case LR_LINEAR:
  case LR_POLYNOMIAL: return fallen(lr, lr->warmup, step, LR_FALL_LINEAR);
  case LR_INVERSE_SQRT: return inverse_sqrt(lr, step);
  case LR_WSD: return fallen(lr, MAX(lr->steps - lr->decay, lr->warmup), step, lr->fall);
  }
  return lr->max;
}
