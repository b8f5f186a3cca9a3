/* sim.c - weft sim: a step of a plan on the clock. */
#include "bindings/cli/cli.h"

#include "bindings/api/api.h"
#include "bindings/calibration/job_costs.h"
#include "vm/draw/timeline_draw.h"
#include "vm/io/file.h"
#include "vm/sim/sim_timeline.h"
#include "vm/sim/sim_trace.h"

typedef struct Simulated {
  struct weft_plan plan; /* only its job is set */
} Simulated;

/* Takes the text. */
static weft_status write_text(Text *out, const char *path, weft_error *e) {
  FilePart part = {out->s, out->n};
  weft_status st = out->oom ? err_set(e, WEFT_ENOMEM, "out of memory")
                            : file_write(NULL, path, &part, 1, e);
  text_free(out);
  return st;
}

static weft_status write_trace(const Job *j, const char *path, weft_error *e) {
  Text out = {0};
  weft_status st = sim_trace(j->compiled, &j->plan, j->costs, j->arena, &out, e);
  if (st == WEFT_OK) return write_text(&out, path, e);
  text_free(&out);
  return st;
}

static weft_status write_picture(const Job *j, const char *path, weft_error *e) {
  Text out = {0};
  Schedule s;
  Timeline t;
  TRY(sim_timeline(j->compiled, &j->plan, j->costs, j->arena, &s, &t, e));
  timeline_svg(&s, &t, false, &out);
  return write_text(&out, path, e);
}

static weft_status print_sim(Simulated *s) {
  Text out = {0};
  weft_status st = show_report(&s->plan, "sim", -1, &out, NULL, &s->plan.job.e);
  if (st == WEFT_OK) print_text(stdout, &out);
  text_free(&out);
  return st;
}

static void json_result(Json *out, void *ud) {
  Simulated *s = ud;
  if (show_report(&s->plan, "sim", -1, NULL, out, &s->plan.job.e) != WEFT_OK)
    json_none(out, "sim");
}

/* The figures that the clock needs are asked for before the work is done. */
static weft_status sim_job(Job *j, const Cli *cli, const char *plan) {
  TRY(job_start(j, cli, j->arena, plan));
  TRY(job_mesh(j, 0));
  if (cli->calibration) TRY(job_costs(j, cli->calibration, j->arena, &j->e));
  const char *why, *lacks = sim_lacks(&j->plan, &j->mesh, &why);
  if (lacks) diag_error(&j->d, "required", lacks, "%s", why);
  if (lacks) lang_locate(j->lp, &j->d);
  if (lacks) return WEFT_EPLAN;
  TRY(job_compile(j));
  if (cli->trace) TRY(write_trace(j, cli->trace, &j->e));
  return cli->svg ? write_picture(j, cli->svg, &j->e) : WEFT_OK;
}

int verb_sim(Cli *cli, Arena *arena) {
  Simulated s = {.plan.job = {.arena = arena, .d = {.arena = arena}}};
  Job *j = &s.plan.job;
  weft_status st = sim_job(j, cli, cli->arg[0]);
  if (st == WEFT_OK && !cli->json) st = print_sim(&s);
  return job_end(j, cli, st, json_result, &s);
}
