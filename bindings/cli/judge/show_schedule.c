/* show_schedule.c - weft show schedule: timeline, figures, SVG, and the actions in
 * PyTorch's notation. */
#include "bindings/schedule/schedule_csv.h"
#include "bindings/cli/cli.h"

#include "vm/pipeline/schedule.h"
#include "vm/base/plural.h"

/* ---- the table ---- */

/* The actions of a schedule that cannot run. */
static void add_lists(const Schedule *s, Text *out) {
  enum { SHOWN = 48 };
  char buf[ACTION_TEXT];
  for (int r = 0; r < s->ranks; r++) {
    text_printf(out, "%4d ", r);
    for (int i = 0; i < s->n[r] && i < SHOWN; i++) {
      schedule_action_text(s, r, &s->list[r][i], buf);
      text_printf(out, " %s", buf);
    }
    if (s->n[r] > SHOWN) text_printf(out, " ... %d more", s->n[r] - SHOWN);
    text_add(out, "\n");
  }
}

/* ---- the view ---- */

/* Compiles with diagnostics of its own. After WEFT_EPLAN or WEFT_ELIMIT `why` has the
 * reason. */
static weft_status compile_aside(Job *j, weft_error *why) {
  Diags before = j->d;
  j->d = (Diags){.arena = j->arena};
  weft_status st = job_compile(j);
  if (st != WEFT_OK && !j->d.errors)
    *why = j->e;
  else if (st != WEFT_OK)
    report_first(&j->d, why);
  for (int i = 0; st == WEFT_OK && i < j->d.list.n; i++)
    *VEC_PUSH(j->arena, before.list) = j->d.list.at[i], before.warnings++;
  j->d = before;
  return st;
}

/* A schedule can be shown for a plan that does not compile: the first error is then given
 * as the reason why transfer sizes are not known. */
static weft_status find_traffic(ScheduleView *v) {
  Job *j = v->job;
  weft_error why = NO_ERROR;
  weft_status st = j->compiled ? WEFT_OK : compile_aside(j, &why);
  if (st == WEFT_OK) {
    v->traffic = traffic(j->compiled, j->arena);
    return WEFT_OK;
  }
  if (st != WEFT_EPLAN && st != WEFT_ELIMIT) return st;
  err_clear(&j->e);
  v->unknown =
      arena_printf(j->arena, "%s%s%s", why.file, why.file[0] ? ": " : "", why.text);
  return WEFT_OK;
}

weft_status schedule_view(ScheduleView *v, Job *j, const Cli *cli) {
  *v = (ScheduleView){.job = j,
                      .width = cli->width >= 0 ? (int)cli->width : columns_of(stdout),
                      .colour = colour_wanted(stdout)};
  if (!j->schedule.list) TRY(job_schedule(j));
  if (!schedule_check(&j->schedule, &j->d)) {
    lang_locate(j->lp, &j->d);
    return WEFT_EPLAN;
  }
  v->step = job_step_schedule(j, j->arena);
  TRY(timeline_run(&v->step, TIMELINE_UNIT, j->arena, &v->timeline, &j->e));
  v->runs = true;
  return cli->csv ? WEFT_OK : find_traffic(v);
}

/* Number of ranks of the mesh with the same pp coordinate. */
static int copies(const ScheduleView *v) {
  return v->job->mesh.world / v->job->schedule.ranks;
}

void schedule_text(const ScheduleView *v, Text *out) {
  const Schedule *s = v->runs ? &v->step : &v->job->schedule;
  text_printf(out, "schedule: %s, %d pipeline rank%s", s->name, s->ranks,
              plural(s->ranks, "s"));
  if (s->virtual_stages > 1) text_printf(out, " of %d chunks", s->virtual_stages);
  text_printf(out, ", %d microbatch%s", s->microbatches, plural(s->microbatches, "es"));
  if (v->job->plan.batch.rounds > 1)
    text_printf(out, v->runs ? " in %lld rounds" : ", %lld times a step",
                (long long)v->job->plan.batch.rounds);
  if (!v->runs) {
    text_add(out, "; it cannot run\n");
    add_lists(s, out);
    return;
  }
  text_add(out, "; F = I = W = 1 unit of time\n");
  timeline_text(s, &v->timeline, v->width, v->colour, out);
  timeline_figures(&v->timeline, v->traffic, copies(v), out);
  if (v->traffic && placed_any(v->job->compiled))
    placed_text(v->job->compiled, v->job->arena, out);
  if (v->unknown)
    text_printf(out,
                "bytes between stages are not known: the plan does not compile: %s\n",
                v->unknown);
}

void schedule_json(const ScheduleView *v, Json *out) {
  const Schedule *s = &v->step;
  uint64_t total = 0;
  char buf[ACTION_TEXT];
  json_open(out, "schedule", '{');
  json_open(out, "actions", '[');
  for (int r = 0; r < s->ranks; r++) {
    json_open(out, NULL, '[');
    for (int i = 0; i < s->n[r]; i++) {
      schedule_action_text(s, r, &s->list[r][i], buf);
      json_str(out, NULL, buf);
    }
    json_close(out, ']');
  }
  json_close(out, ']');
  timeline_json_shares(&v->timeline, out);
  json_int(out, "microbatches", s->microbatches);
  json_str(out, "name", s->name);
  if (v->traffic && placed_any(v->job->compiled))
    placed_json(v->job->compiled, v->job->arena, out);
  timeline_json_ranks(s, &v->timeline, v->traffic, out);
  for (int r = 0; v->traffic && r < s->ranks; r++)
    total += v->traffic[r].sent * (uint64_t)copies(v);
  if (v->traffic)
    json_int(out, "total_bytes_sent", (int64_t)total);
  else
    json_none(out, "total_bytes_sent");
  if (v->unknown) json_str(out, "unknown", v->unknown);
  json_int(out, "virtual", s->virtual_stages);
  json_close(out, '}');
}

weft_status schedule_picture(const ScheduleView *v, const char *path, weft_error *e) {
  Text out = {0};
  timeline_svg(&v->step, &v->timeline, false, &out);
  return file_write_text(NULL, path, &out, e);
}
