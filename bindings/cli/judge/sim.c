/* sim.c - weft sim: a step of a plan on the clock. */
#include "sim_job.h"

#include "bindings/api/api.h"
#include "bindings/schema/schema.h"
#include "vm/draw/timeline_draw.h"
#include "vm/io/file.h"
#include "vm/sim/sim_timeline.h"
#include "vm/sim/sim_trace.h"
#include "vm/sim/trace_compare.h"
#include "vm/base/plural.h"

typedef struct Simulated {
  struct weft_plan plan; /* only its job is set */
  const char *skew;      /* of the command line, or NULL */
  bool compares;
  Compared compared;
} Simulated;

static weft_status write_trace(const Job *j, const char *path, weft_error *e) {
  Text out = {0};
  weft_status st = sim_trace(j->compiled, &j->plan, j->costs, j->arena, &out, e);
  if (st == WEFT_OK) return file_write_text(NULL, path, &out, e);
  text_free(&out);
  return st;
}

static weft_status write_picture(const Job *j, const char *path, weft_error *e) {
  Text out = {0};
  Schedule s;
  Timeline t;
  TRY(sim_timeline(j->compiled, &j->plan, j->costs, j->arena, &s, &t, e));
  timeline_svg(&s, &t, false, &out);
  return file_write_text(NULL, path, &out, e);
}

static weft_status compare(Simulated *s, const char *path) {
  Job *j = &s->plan.job;
  CostSource source = {&j->plan.cluster, sheet_rates(RATES_USUAL), j->costs};
  s->compares = true;
  return trace_compare(j->compiled, &source, path, j->arena, &s->compared, &j->e);
}

static void print_compared(const Compared *c) {
  enum { SHOWN = 20 };
  printf(
      "\nkernels of a step on all ranks, in ms, as measured in %d step%s and predicted:\n"
      "  %-18s %5s %8s %10s %10s %10s  %s\n",
      c->steps, plural(c->steps, "s"), "op", "type", "count", "measured", "predicted",
      "difference", "by");
  for (int i = 0; i < MIN(c->n, SHOWN); i++) {
    const ComparedOp *o = &c->op[i];
    printf("  %-18s %5s %8lld %10.3f %10.3f %+10.3f  %s\n", op_info[o->op].name,
           dtype_name(o->dtype), (long long)o->count, o->measured * 1e3,
           o->predicted * 1e3, (o->measured - o->predicted) * 1e3,
           cost_from_name[o->from]);
  }
  if (c->n > SHOWN) printf("  and %d more\n", c->n - SHOWN);
  printf("  %-33s %10.3f %10.3f %+10.3f\n", "all", c->measured * 1e3, c->predicted * 1e3,
         (c->measured - c->predicted) * 1e3);
}

static void json_compared(Json *out, const Compared *c) {
  json_open(out, "compare", '[');
  for (int i = 0; i < c->n; i++) {
    const ComparedOp *o = &c->op[i];
    json_open(out, NULL, '{');
    json_str(out, "by", cost_from_name[o->from]);
    json_int(out, "count", o->count);
    json_str(out, "dtype", dtype_name(o->dtype));
    json_num(out, "measured", o->measured);
    json_str(out, "op", op_info[o->op].name);
    json_num(out, "predicted", o->predicted);
    json_close(out, '}');
  }
  json_close(out, ']');
}

static weft_status show_sim(Simulated *s, Text *text, Json *out) {
  weft_error *e = &s->plan.job.e;
  if (s->skew) return show_skewed(&s->plan, s->skew, text, out, e);
  return show_report(&s->plan, "sim", -1, text, out, e);
}

static weft_status print_sim(Simulated *s) {
  Text out = {0};
  weft_status st = show_sim(s, &out, NULL);
  if (st == WEFT_OK) print_text(stdout, &out);
  if (st == WEFT_OK && s->compares) print_compared(&s->compared);
  text_free(&out);
  return st;
}

static void json_result(Json *out, void *ud) {
  Simulated *s = ud;
  if (s->compares) json_compared(out, &s->compared);
  show_sim(s, NULL, out); /* what fails is in the job's error, which job_end finds */
}

/* Asks for all figures that the clock needs and the plan has not: a copy of the plan gets
 * each, so that the next one shows. */
static weft_status ask_figures(Job *j) {
  Plan p = j->plan;
  const char *why, *lacks, *before = "";
  if (j->costs && !p.cluster.gpu) return WEFT_OK;
  while ((lacks = sim_lacks(&p, &j->mesh, &why)) && !str_eq(lacks, before)) {
    bool gpu = strncmp(lacks, "cluster.gpu.", 12) == 0;
    const char *key = strrchr(lacks, '.');
    const Field *f = key ? schema_find(gpu ? "gpu" : "network", key + 1) : NULL;
    diag_error(&j->d, "required", lacks, "%s", why);
    if (f) field_set(j->arena, f, &p, 1);
    before = lacks;
  }
  if (!j->d.errors) return WEFT_OK;
  lang_locate(j->lp, &j->d);
  return WEFT_EPLAN;
}

/* The figures that the clock needs are asked for before the work is done. */
weft_status sim_job(Job *j, const Cli *cli, const char *plan) {
  TRY(job_start(j, cli, j->arena, plan));
  TRY(job_mesh(j, 0));
  if (cli->calibration) TRY(job_costs(j, cli->calibration, j->arena, &j->e));
  TRY(ask_figures(j));
  TRY(job_compile(j));
  job_costs_machine(j);
  SimOptions slow = {.rates = sheet_rates(RATES_WORSE), .table = j->costs};
  TRY(sim_check(j->compiled, &j->plan, &slow, j->arena, &j->e));
  if (cli->trace) TRY(write_trace(j, cli->trace, &j->e));
  return cli->svg ? write_picture(j, cli->svg, &j->e) : WEFT_OK;
}

/* Skew is a part of the figures only. */
static weft_status check_skew(const Cli *cli, weft_error *e) {
  const char *other = cli->trace     ? "--trace"
                      : cli->svg     ? "--svg"
                      : cli->compare ? "--compare"
                      : cli->diff    ? "--diff"
                                     : NULL;
  if (!cli->skew || !other) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE, "--skew changes the figures alone: leave %s out", other);
}

/* What is wrong with the fields is told before the object is begun. */
static weft_status read_skew(Simulated *s) {
  Text out = {0};
  weft_status st = show_sim(s, &out, NULL);
  text_free(&out);
  return st;
}

int verb_sim(Cli *cli, Arena *arena) {
  Simulated s = {.plan.job = {.arena = arena, .d = {.arena = arena}}, .skew = cli->skew};
  Job *j = &s.plan.job;
  weft_status wrong = check_skew(cli, &j->e);
  if (wrong != WEFT_OK) return job_end(j, cli, wrong, json_result, &s);
  if (cli->diff) return sim_diff(cli, arena);
  weft_status st = sim_job(j, cli, cli->arg[0]);
  if (st == WEFT_OK && cli->compare) st = compare(&s, cli->compare);
  if (st == WEFT_OK && !cli->json) st = print_sim(&s);
  if (st == WEFT_OK && cli->json && s.skew) st = read_skew(&s);
  return job_end(j, cli, st, json_result, &s);
}
