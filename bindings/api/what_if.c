/* what_if.c - the plan of a job with another setting: compiled once more, for what advice
 * says of it. */
#include "job.h"
#include "vm/sim/step_clock.h"

typedef struct Other {
  Job job; /* its arena is its own */
  WhatIf *out;
} Other;

double job_step_seconds(const Job *j, Arena *a) {
  const char *why;
  SimReport r;
  weft_error e = NO_ERROR;
  SimOptions o = {.rates = sheet_rates(RATES_USUAL), .table = j->costs};
  if (sim_lacks(&j->plan, &j->mesh, &why)) return 0;
  return simulate(j->compiled, &j->plan, &o, a, &r, &e) == WEFT_OK ? r.seconds : 0;
}

static void compile_other(void *ud) {
  Other *o = ud;
  Job *j = &o->job;
  int pp;
  if (job_graph(j) != WEFT_OK || job_schedule(j) != WEFT_OK) return;
  CompileInput in = {.plan = &j->plan,
                     .mesh = &j->mesh,
                     .graph = j->graph,
                     .schedule = &j->schedule,
                     .evaluates = j->evaluates,
                     .device = j->device,
                     .arena = j->arena};
  if (compile(&in, &j->compiled, &j->d, &j->e) != WEFT_OK) return;
  o->out->memory = (double)job_worst_memory(j, &pp);
  o->out->seconds = o->out->timed ? job_step_seconds(j, j->arena) : 0;
  o->out->compiles = true;
}

void job_what_if(const Job *j, void (*change)(Job *), bool timed, WhatIf *out) {
  *out = (WhatIf){.timed = timed};
  Arena *arena = arena_new(NULL);
  if (!arena) return;
  Other o = {.job = *j, .out = out};
  o.job.arena = arena;
  o.job.d = (Diags){.arena = arena};
  o.job.e = (weft_error)NO_ERROR;
  o.job.dump = NULL;
  o.job.dumped = (Text){0};
  change(&o.job);
  bool quiet = lang_quiet(j->lp, true); /* the model's function has printed already */
  if (!arena_try(arena, compile_other, &o)) out->compiles = false;
  lang_quiet(j->lp, quiet);
  arena_free(arena);
}
