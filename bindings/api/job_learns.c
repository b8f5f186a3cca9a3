/* job_learns.c - what a plan with frozen parameters keeps for those that learn and for
 * the others, and what it saves: the same plan is compiled again with nothing frozen. */
#include "job.h"

#include "vm/compile/compile.h"

/* ---- sizes of the worst rank ---- */

static void add_classes(const MemClass *at, int n, JobLearns *out) {
  static const struct Sum {
    const char *name;
    size_t at;
  } sum[] = {{"frozen parameters", offsetof(JobLearns, frozen)},
             {"parameters", offsetof(JobLearns, learning)},
             {"master weights", offsetof(JobLearns, states)},
             {"gradients", offsetof(JobLearns, states)},
             {"optimizer state", offsetof(JobLearns, states)},
             {"activations", offsetof(JobLearns, activations)}};
  for (int i = 0; i < n; i++)
    for (int k = 0; k < LEN(sum); k++)
      if (str_eq(at[i].name, sum[k].name))
        *(uint64_t *)((char *)out + sum[k].at) += at[i].bytes;
}

/* ---- without it ---- */

/* All of the model learns. What the loss compares with is a copy then. */
static void unfreeze(Plan *p) {
  p->freeze = (Patterns){0};
  p->adapter = (Adapter){0};
  p->group = NULL;
  p->ngroup = 0;
  if (p->loss.second == SECOND_BASE) p->loss.second = SECOND_COPY;
}

typedef struct Whole {
  const Job *of;
  Job job;
  weft_status st;
} Whole;

static void compile_whole(void *ud) {
  Whole *w = ud;
  Job *j = &w->job;
  w->st = job_graph(j);
  CompileInput in = {.plan = &j->plan,
                     .mesh = &j->mesh,
                     .graph = j->graph,
                     .schedule = &j->schedule,
                     .device = j->device,
                     .arena = j->arena};
  if (w->st == WEFT_OK) w->st = compile(&in, &j->compiled, &j->d, &j->e);
}

/* Bytes of the worst rank if all of the model learns; 0: such a plan does not compile. */
static uint64_t whole_memory(const Job *j) {
  int pp;
  uint64_t bytes = 0;
  Arena *arena = arena_new(NULL);
  Whole w = {.of = j, .job = *j};
  if (!arena) return 0;
  w.job.arena = arena;
  w.job.d = (Diags){.arena = arena};
  w.job.dump = NULL;
  unfreeze(&w.job.plan);
  if (arena_try(arena, compile_whole, &w) && w.st == WEFT_OK)
    bytes = job_worst_memory(&w.job, &pp);
  arena_free(arena);
  return bytes;
}

bool job_learns(const Job *j, JobLearns *out) {
  int pp;
  *out = (JobLearns){0};
  if (!j->plan.adapter.rank && !j->plan.freeze.n) return false;
  uint64_t own = job_worst_memory(j, &pp), whole = whole_memory(j);
  const Program *p = &j->compiled->prog[pp];
  add_classes(p->mem, p->nmem, out);
  add_classes(p->host, p->nhost, out);
  for (int i = 0; i < j->compiled->nparam; i++)
    if (!j->compiled->param[i].frozen)
      out->parameters += (uint64_t)param_weights(&j->compiled->param[i]);
  out->saved = whole > own ? whole - own : 0;
  return true;
}
