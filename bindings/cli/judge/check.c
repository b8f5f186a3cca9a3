/* check.c - weft check: loads, compiles, proves and reports a plan. */
#include "bindings/cli/cli.h"
#include "vm/rewrite/fp8_linears.h"
#include "vm/base/plural.h"
#include "vm/session/host_memory.h"

#include <math.h>

typedef struct Checked {
  Job job;
  int expectations;
  JobUnsaid unsaid;
  bool frozen; /* some parameters are */
  JobLearns learns;
} Checked;

/* What the worst rank needs, and what the GPU lacks for it. */
static void print_memory(const Job *j, double lacks) {
  char a[32];
  int rank;
  uint64_t worst = job_worst_memory(j, &rank);
  printf("  memory  %s on the worst rank (pipeline rank %d)",
         format_bytes((double)worst, a), rank);
  if (lacks > 0)
    printf(": %s too much for %s", format_bytes(lacks, a), j->plan.cluster.gpu);
  printf("\n");
  double scores = j->plan.cluster.gpu ? score_bytes(j->compiled) : 0;
  if (scores > worst / 100.0)
    printf("          attention scores are never stored, which others do: %s for each "
           "layer and "
           "microbatch\n",
           format_bytes(scores, a));
}

/* Of the worst rank: what is frozen, what learns, and what that saves. */
static void print_learns(const Checked *c) {
  char a[32], b[32];
  const JobLearns *l = &c->learns;
  const Adapter *of = &c->job.plan.adapter;
  printf("  learns  %s of %s parameters", format_count((double)l->parameters, a),
         format_count((double)params_of_model(c->job.compiled), b));
  if (of->rank) printf(", an adapter of rank %lld", (long long)of->rank);
  printf(": %s %s", of->rank ? "base" : "frozen", format_bytes((double)l->frozen, a));
  printf(", %s %s", of->rank ? "adapter" : "others",
         format_bytes((double)l->learning, a));
  printf(", gradients and states %s", format_bytes((double)l->states, a));
  printf(", activations %s\n", format_bytes((double)l->activations, a));
  if (l->saved)
    printf("          %s less than if all of the model learnt\n",
           format_bytes((double)l->saved, a));
}

/* Bytes of the worst rank for which its GPU has no room; not above 0: it fits, or the
 * plan names no GPU. */
static double lacking(const Job *j) {
  int rank;
  return (double)job_worst_memory(j, &rank) - plan_memory_limit(&j->plan);
}

static void print_summary(const Checked *c) {
  const Job *j = &c->job;
  char mesh[128], a[32], b[32];
  uint64_t second = j->compiled->params_second;
  double lacks = lacking(j);
  const Batch *batch = &j->plan.batch;
  printf("%s: %s\n", j->plan.name, lacks > 0 ? "right, but does not fit its GPUs" : "ok");
  printf("  mesh    %s%s\n", format_mesh_ranks(&j->mesh, mesh),
         job_open_world(j) ? " (the smallest world; none is stated)" : "");
  printf("  model   %s, %s parameters%s%s%s\n",
         lang_architecture(j->lp) ? lang_architecture(j->lp) : "a function of the plan",
         format_count((double)params_of_model(j->compiled), a),
         second ? ", beside a frozen model of " : "",
         second ? format_count((double)second, b) : "", second ? " parameters" : "");
  printf("  step    %lld sequence%s of %lld token%s in %d microbatch%s, %s\n",
         (long long)batch->global, plural(batch->global, "s"), (long long)batch->seq,
         plural(batch->seq, "s"), j->compiled->microbatches,
         plural(j->compiled->microbatches, "es"), j->plan.schedule);
  print_memory(j, lacks);
  if (c->frozen) print_learns(c);
  const Proof *f = &j->compiled->proof;
  printf("  proof   no deadlock: %lld transfer%s and %lld collective%s on %d "
         "communicator%s\n",
         (long long)f->transfers, plural(f->transfers, "s"), (long long)f->collectives,
         plural(f->collectives, "s"), f->communicators, plural(f->communicators, "s"));
  if (j->plan.fp8.recipe)
    printf("  fp8     %s\n", fp8_summary(j->graph, &j->plan, j->arena));
  const char *attention = job_attention(j);
  if (attention) printf("  attention: %s\n", attention);
  for (int i = 0; i < c->unsaid.n; i++)
    printf("%s%s", i ? "; " : "  unsaid  ", c->unsaid.text[i]);
  if (c->unsaid.n) printf("\n");
  if (c->expectations)
    printf("  expect  %s\n",
           c->expectations > 1 ? "all limits are kept" : "the limit is kept");
}

static void json_learns(Json *out, const JobLearns *l) {
  json_open(out, "learns", '{');
  json_int(out, "activation_bytes", (int64_t)l->activations);
  json_int(out, "frozen_bytes", (int64_t)l->frozen);
  json_int(out, "parameter_bytes", (int64_t)l->learning);
  json_int(out, "parameters", (int64_t)l->parameters);
  json_int(out, "saved_bytes", (int64_t)l->saved);
  json_int(out, "state_bytes", (int64_t)l->states);
  json_close(out, '}');
}

static void json_result(Json *out, void *ud) {
  const Checked *c = ud;
  const Job *j = &c->job;
  int rank;
  if (isfinite(plan_memory_limit(&j->plan)))
    json_bool(out, "fits", lacking(j) <= 0);
  else
    json_none(out, "fits");
  if (c->frozen)
    json_learns(out, &c->learns);
  else
    json_none(out, "learns");
  json_int(out, "memory_bytes", (int64_t)job_worst_memory(j, &rank));
  json_open(out, "mesh", '{');
  for (int i = 0; i < AXIS_N; i++)
    json_int(out, axis_name(axis_by_name(i)), j->mesh.size[axis_by_name(i)]);
  json_int(out, "world", j->mesh.world);
  json_close(out, '}');
  json_int(out, "microbatches", j->compiled->microbatches);
  json_str(out, "name", j->plan.name);
  json_int(out, "parameters", (int64_t)params_of_model(j->compiled));
  if (j->compiled->params_second)
    json_int(out, "second_parameters", (int64_t)j->compiled->params_second);
  json_open(out, "proof", '{');
  json_int(out, "collectives", j->compiled->proof.collectives);
  json_int(out, "communicators", j->compiled->proof.communicators);
  json_int(out, "instructions", j->compiled->proof.instructions);
  json_int(out, "transfers", j->compiled->proof.transfers);
  json_close(out, '}');
  json_open(out, "unsaid", '[');
  for (int i = 0; i < c->unsaid.n; i++) json_str(out, NULL, c->unsaid.text[i]);
  json_close(out, ']');
}

static weft_status check(Checked *c, Cli *cli, Arena *arena) {
  Job *j = &c->job;
  TRY(job_start(j, cli, arena, cli->arg[0]));
  TRY(job_mesh(j, 0));
  TRY(job_compile(j));
  job_sizing(j);
  lang_locate(j->lp, &j->d);
  TRY(job_expect(j, &c->expectations));
  TRY(job_unsaid(j, &c->unsaid));
  c->frozen = job_learns(j, &c->learns);
  return job_check_files(j);
}

int verb_check(Cli *cli, Arena *arena) {
  Checked c = {0};
  weft_status st = check(&c, cli, arena);
  if (st == WEFT_OK && !cli->json && !cli->quiet) print_summary(&c);
  return job_end(&c.job, cli, st, json_result, &c);
}
