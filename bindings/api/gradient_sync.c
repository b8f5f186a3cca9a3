/* gradient_sync.c - whether gradients that are reduced once a step are what makes a plan
 * too large for its GPUs: the plan is compiled again with a reduction in each backward.
 */
#include "job.h"

typedef struct Other {
  Job job; /* its arena is its own */
  bool compiled;
} Other;

static void compile_other(void *ud) {
  Other *o = ud;
  Job *j = &o->job;
  if (job_graph(j) != WEFT_OK || job_schedule(j) != WEFT_OK) return;
  CompileInput in = {.plan = &j->plan,
                     .mesh = &j->mesh,
                     .graph = j->graph,
                     .schedule = &j->schedule,
                     .evaluates = j->evaluates,
                     .device = j->device,
                     .arena = j->arena};
  o->compiled = compile(&in, &j->compiled, &j->d, &j->e) == WEFT_OK;
}

/* The field under the name that the strategy has for it. */
static const char *field_of(const Plan *p) {
  return p->strategy.kind == STRATEGY_FSDP2 ? "strategy.defer_fsdp_grad_sync"
                                            : "strategy.defer_grad_sync";
}

void job_gradient_sync(Job *j, double room) {
  int pp, shards = j->mesh.size[AXIS_DP_SHARD] * j->mesh.size[AXIS_CP];
  if (!j->plan.strategy.defer_grad_sync || shards == 1 || j->microbatches == 1) return;
  Arena *arena = arena_new(NULL);
  if (!arena) return;
  Other o = {.job = *j};
  o.job.arena = arena;
  o.job.d = (Diags){.arena = arena};
  o.job.dump = NULL;
  o.job.dumped = (Text){0};
  o.job.plan.strategy.defer_grad_sync = false;
  bool quiet = lang_quiet(j->lp, true); /* the model's function has printed already */
  bool whole = arena_try(arena, compile_other, &o) && o.compiled;
  lang_quiet(j->lp, quiet);
  double less = whole ? (double)job_worst_memory(&o.job, &pp) : room + 1;
  arena_free(arena);
  if (less > room) return;
  diag_warn(&j->d, "gradient-sync", field_of(&j->plan),
            "gradients are kept unsharded until the step ends; with false they are "
            "reduced in each backward, and a rank needs %.1f GiB, which fits",
            less / (1 << 30));
}
