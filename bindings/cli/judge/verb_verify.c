/* verb_verify.c - weft verify: a shrunk plan on one rank and on all of them, compared. */
#include "bindings/cli/cli.h"
#include "vm/session/verify.h"
#include "vm/base/plural.h"

typedef struct Comparison {
  Job job;
  JobVerify v;
} Comparison;

static void print_shrunk(const LangShrunk *s) {
  if (!s->n) return;
  fputs("made smaller, so not covered:", stdout);
  for (int i = 0; i < s->n; i++) printf("%s %s", i ? "," : "", s->what[i]);
  fputs("\n", stdout);
}

static void print_report(const Comparison *c) {
  const VerifyReport *r = &c->v.report;
  char mesh[96];
  printf("%s: %s on %s against one rank, %d step%s, %d tensor%s\n", c->job.plan.name,
         c->job.plan.schedule, mesh_text(&c->job.mesh, mesh), r->steps,
         plural(r->steps, "s"), r->tensors, plural(r->tensors, "s"));
  printf("  largest relative differences: loss %.1e, gradient norm %.1e, gradient %.1e, "
         "parameter %.1e\n",
         r->loss, r->grad_norm, r->grad, r->param);
  if (r->worst[0]) printf("  worst tensor: %s\n", r->worst);
  if (r->not_captured[0]) printf("  steps were launched op by op: %s\n", r->not_captured);
  for (int i = 0; i < RUN_WARNINGS && r->warning[i][0]; i++)
    printf("  %s\n", r->warning[i]);
  if (r->ok && r->first_bad[0]) printf("  beyond the tolerance: %s\n", r->first_bad);
  printf("  %s (tolerance %g)\n", r->ok ? "the same" : "DIFFERENT", c->v.tolerance);
}

static void json_result(Json *out, void *ud) {
  const Comparison *c = ud;
  const VerifyReport *r = &c->v.report;
  json_open(out, "differences", '{');
  json_num(out, "gradient", r->grad);
  json_num(out, "gradient_norm", r->grad_norm);
  json_num(out, "loss", r->loss);
  json_num(out, "parameter", r->param);
  json_close(out, '}');
  json_open(out, "not_covered", '[');
  for (int i = 0; i < c->v.shrunk.n; i++) json_str(out, NULL, c->v.shrunk.what[i]);
  json_close(out, ']');
  json_int(out, "ranks", c->job.mesh.world);
  json_str(out, "rounding", r->ok ? r->first_bad : "");
  json_int(out, "steps", r->steps);
  json_int(out, "tensors", r->tensors);
  json_num(out, "tolerance", c->v.tolerance);
  json_str(out, "worst", r->worst);
}

int verb_verify(Cli *cli, Arena *arena) {
  Comparison c = {.v = {.ranks = (int)MIN(MAX(cli->ranks, 0), 1024),
                        .steps = (int)MIN(MAX(cli->steps, 0), 1000000),
                        .tolerance = cli->tolerance,
                        .stop = cli->stop}};
  Job *j = &c.job;
  weft_status st = job_start(j, cli, arena, cli->arg[0]);
  if (st == WEFT_OK) st = job_verify(j, &c.v);
  if (!cli->json) print_shrunk(&c.v.shrunk);
  if (!cli->json && c.v.report.steps > 0) print_report(&c);
  fflush(stdout);
  return job_end(j, cli, st, json_result, &c);
}
