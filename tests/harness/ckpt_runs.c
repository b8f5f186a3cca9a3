/* ckpt_runs.c - see ckpt_runs.h. */
#include "ckpt_runs.h"

#include <check.h>
#include <stdio.h>

#include "scratch.h"
#include "vm/weights/param_gather.h"

static void note(void *ud, bool warning, const char *text) {
  SavedToy *s = ud;
  size_t n = strlen(s->said);
  snprintf(s->said + n, sizeof s->said - n, "%s%s\n", warning ? "!" : "", text);
}

void saved_open(SavedToy *s, const ToyOptions *o, const char *dir, const Ckpt *from) {
  *s = (SavedToy){0};
  weft_status st = toy_compile(&s->t, o, NULL);
  ck_assert_msg(st == WEFT_OK, "%d: %s%s", st, s->t.err.text, toy_diags(&s->t));
  s->t.plan.name = "toy";
  s->t.plan.checkpoint =
      (Checkpointing){.dir = dir, .every = 1, .keep = 2, .async = true};
  s->t.plan.loss_scale.init = 0x1p40; /* the first steps of f16 are skipped */
  RunOptions options = {.world = world_kind("local", NULL), .threads = 1, .saves = true};
  OK(run_open(&s->t.plan, s->t.compiled, &options, &s->run, &trace_err));
  if (from)
    OK(ckpt_load(from, s->run, CKPT_STATES, &trace_err));
  else
    OK(run_init(s->run, &trace_err));
  SaverOptions so = {.plan = &s->t.plan,
                     .plan_text = "a plan",
                     .mesh = "a mesh",
                     .from = from,
                     .end = -1,
                     .say = note,
                     .ud = s};
  OK(saver_open(s->run, &so, &s->saver, &trace_err));
}

void saved_steps(SavedToy *s, int first, int end, double loss[]) {
  StepResult r;
  for (int k = first; k < end; k++) {
    trace_step(s->run, &s->t, k, &r);
    loss[k] = r.loss;
  }
}

void saved_save(SavedToy *s, int step) {
  StepResult r = {.loss = 1};
  OK(saver_step(s->saver, &r, step, 0, &trace_err));
  OK(saver_finish(s->saver, &trace_err));
}

void saved_close(SavedToy *s) {
  saver_close(s->saver);
  run_close(s->run);
  toy_free(&s->t);
}

void saved_run(const ToyOptions *o, const char *dir, int n) {
  SavedToy s;
  double loss[16];
  saved_open(&s, o, dir, NULL);
  for (int k = 0; k < n; k++) {
    saved_steps(&s, k, k + 1, loss);
    if (k + 2 >= n) saved_save(&s, k + 1);
  }
  saved_close(&s);
}

Ckpt *saved_ckpt(const char *dir, int step) {
  Ckpt *c;
  OK(ckpt_open(store_path(scratch_arena, dir, step, false), &c, &trace_err));
  return c;
}
