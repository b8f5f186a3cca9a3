/* gradient_sync.c - whether gradients that are reduced once a step are what makes a plan
 * too large for its GPUs: the plan is compiled again with a reduction in each backward.
 */
#include "job.h"

/* The field under the name that the strategy has for it. */
static const char *field_of(const Plan *p) {
  return p->strategy.kind == STRATEGY_FSDP2 ? "strategy.defer_fsdp_grad_sync"
                                            : "strategy.defer_grad_sync";
}

static void reduce_at_once(Job *j) { j->plan.strategy.defer_grad_sync = false; }

void job_gradient_sync(Job *j, double room) {
  int shards = j->mesh.size[AXIS_DP_SHARD] * j->mesh.size[AXIS_CP];
  WhatIf less;
  if (!j->plan.strategy.defer_grad_sync || shards == 1 || j->microbatches == 1) return;
  job_what_if(j, reduce_at_once, false, &less);
  if (!less.compiles || less.memory > room) return;
  diag_warn(&j->d, "gradient-sync", field_of(&j->plan),
            "gradients are kept unsharded until the step ends; with false they are "
            "reduced in each backward, and a rank needs %.1f GiB, which fits",
            less.memory / (1 << 30));
}
