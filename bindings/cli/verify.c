/* verify.c - weft verify: a small version of the plan, on one rank and on all of them. */
#include "cli.h"

typedef struct Comparison {
  Job many, one;
  LangShrunk shrunk;
  VerifyReport report;
  double tolerance;
} Comparison;

/* The same logical microbatches on one rank: micro * dp sequences each, in f32, with
 * neither stages nor cuts. */
static weft_status make_one(Comparison *c) {
  Job *many = &c->many, *one = &c->one;
  *one = *many;
  Plan *p = &one->plan;
  p->mesh = (MeshSpec){.world = 1};
  p->batch.micro *= mesh_size(&many->mesh, AXES_DP);
  p->dtype = DT_F32;
  p->strategy.kind = STRATEGY_ZERO;
  p->strategy.sequence_parallel = false;
  p->pp = (PpPlan){.virtual_stages = 1};
  p->schedule = "gpipe";
  if (!mesh_resolve(&p->mesh, 1, &one->mesh, &one->d)) return WEFT_EPLAN;
  TRY(job_graph(one));
  TRY(lang_schedule_named(one->lp, p->schedule, &one->mesh, one->microbatches,
                          &one->schedule, &one->d, &one->e));
  CompileInput in = {.plan = p,
                     .mesh = &one->mesh,
                     .graph = one->graph,
                     .schedule = &one->schedule,
                     .arena = one->arena};
  return compile(&in, &one->compiled, &one->d, &one->e);
}

static weft_status compare(Comparison *c, const Cli *cli) {
  Job *j = &c->many;
  int ranks = cli->ranks > 0 ? (int)MIN(cli->ranks, 1024) : 32;
  int steps = cli->steps > 0 ? (int)MIN(cli->steps, 1000000) : 2;
  TRY(lang_shrink(j->lp, ranks, &j->plan, &c->shrunk, &j->d, &j->e));
  TRY(job_mesh(j, j->plan.mesh.world));
  TRY(job_compile(j));
  weft_status st = make_one(c);
  if (st != WEFT_OK) {
    /* The one-rank job has a copy of the list; its additions are to be reported. */
    j->d = c->one.d;
    j->e = c->one.e;
    return st;
  }
  c->tolerance = cli->tolerance > 0        ? cli->tolerance
                 : j->plan.dtype == DT_F32 ? 1e-5
                                           : 2e-2;
  TRY(verify(&j->plan, j->compiled, &c->one.plan, c->one.compiled, steps, c->tolerance,
             cli->stop, &c->report, &j->e));
  if (c->report.ok) return WEFT_OK;
  return err_set(&j->e, WEFT_EPLAN, "%s (tolerance %g)", c->report.first_bad,
                 c->tolerance);
}

static void print_shrunk(const Comparison *c) {
  if (!c->shrunk.n) return;
  fputs("made smaller, so not covered:", stdout);
  for (int i = 0; i < c->shrunk.n; i++)
    printf("%s %s", i ? "," : "", c->shrunk.what[i]);
  fputs("\n", stdout);
}

static void print_report(const Comparison *c) {
  const VerifyReport *r = &c->report;
  char mesh[96];
  printf("%s: %s on %s against one rank, %d steps, %d tensors\n", c->many.plan.name,
         c->many.plan.schedule, format_mesh(&c->many.mesh, mesh), r->steps, r->tensors);
  printf("  largest relative differences: loss %.1e, gradient norm %.1e, gradient %.1e, "
         "parameter %.1e\n",
         r->loss, r->grad_norm, r->grad, r->param);
  if (r->worst[0]) printf("  worst tensor: %s\n", r->worst);
  printf("  %s (tolerance %g)\n", r->ok ? "the same" : "DIFFERENT", c->tolerance);
}

static void json_result(Json *out, void *ud) {
  const Comparison *c = ud;
  const VerifyReport *r = &c->report;
  json_open(out, "differences", '{');
  json_num(out, "gradient", r->grad);
  json_num(out, "gradient_norm", r->grad_norm);
  json_num(out, "loss", r->loss);
  json_num(out, "parameter", r->param);
  json_close(out, '}');
  json_open(out, "not_covered", '[');
  for (int i = 0; i < c->shrunk.n; i++)
    json_str(out, NULL, c->shrunk.what[i]);
  json_close(out, ']');
  json_int(out, "ranks", c->many.mesh.world);
  json_int(out, "steps", r->steps);
  json_int(out, "tensors", r->tensors);
  json_num(out, "tolerance", c->tolerance);
  json_str(out, "worst", r->worst);
}

int verb_verify(Cli *cli, Arena *arena) {
  Comparison c = {.tolerance = 0};
  Job *j = &c.many;
  weft_status st = job_load(j, cli, arena, cli->arg[0]);
  if (st == WEFT_OK) st = compare(&c, cli);
  if (!cli->json && j->lp) print_shrunk(&c);
  if (!cli->json && c.report.steps > 0) print_report(&c);
  fflush(stdout);
  return job_end(j, st, json_result, &c);
}
