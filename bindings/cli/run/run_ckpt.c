/* run_ckpt.c - resuming from checkpoints, saving at steps and on a signal; see
 * run_ckpt.h. */
#include "run_ckpt.h"

#include <signal.h>
#include <stdio.h>

#include "bindings/runs/resume.h"
#include "bindings/cli/data/export_options.h"
#include "vm/weights/snapshot.h"

/* ---- messages ---- */

static void say(void *ud, bool warning, const char *text) {
  RunCkpt *r = ud;
  if (!r->first || (!warning && r->cli->quiet)) return;
  if (warning) {
    r->warn(r->ud, text);
  } else {
    r->make_room(r->ud);
    report_error("%s", text);
  }
}

/* ---- resuming ---- */

static weft_status fill(void *ud, Run *run, weft_error *e) {
  const RunCkpt *r = ud;
  return ckpt_load(r->from, run, CKPT_STATES, e);
}

static void skip(void *ud, const char *name, const weft_error *why) {
  char text[1400];
  snprintf(text, sizeof text,
           "the checkpoint %s is incomplete or damaged and is skipped: %s: %s", name,
           why->file, why->text);
  say(ud, true, text);
}

/* --resume auto: the newest checkpoint; without one the run starts at step 0. */
static weft_status find_newest(RunCkpt *r) {
  Job *j = r->job;
  const char *dir = j->plan.checkpoint.dir;
  if (!dir)
    return err_set(&j->e, WEFT_EUSAGE,
                   "--resume auto needs a plan with checkpoint = { dir = ... }; --resume "
                   "DIR names a folder");
  TRY(store_newest(j->arena, dir, skip, r, &r->from, &j->e));
  if (!r->from) say(r, false, "there is no checkpoint yet: the run starts at step 0");
  return WEFT_OK;
}

/* The checkpoint that --resume names. */
static weft_status find(RunCkpt *r) {
  Job *j = r->job;
  const char *path;
  bool none;
  if (str_eq(r->cli->resume, "auto")) return find_newest(r);
  TRY(store_find(j->arena, r->cli->resume, &path, &none, &j->e));
  return ckpt_open(path, &r->from, &j->e);
}

static weft_status check(RunCkpt *r) {
  Text notes = {0};
  TRY(ckpt_fits(r->from, r->job->compiled, CKPT_STATES, &r->job->e));
  weft_status st = resume_check(r->from, r->fact, r->nfact, &notes, &r->job->e);
  for (char *s = notes.s, *end; st == WEFT_OK && s && (end = strchr(s, '\n'));
       s = end + 1)
    *end = 0, say(r, true, s);
  text_free(&notes);
  return st;
}

weft_status run_ckpt_find(RunCkpt *r, Session *s, JobFacts *f) {
  Job *j = r->job;
  f->resumed = "no checkpoint";
  if (r->cli->resume) TRY(find(r));
  if (r->from)
    f->resumed = arena_printf(j->arena, "step %lld, %s", (long long)r->from->m.step,
                              r->from->m.id);
  TRY(job_facts(j, f, &j->e));
  TRY(resume_facts(j, f, &r->fact, &r->nfact, &j->e));
  if (!r->from) return WEFT_OK;
  TRY(check(r));
  s->step = r->from->m.step;
  char forgotten[200];
  s->best = resume_best(r->from, r->fact, r->nfact, forgotten);
  if (*forgotten) say(r, true, forgotten);
  s->fill = fill;
  s->fill_from = r;
  return WEFT_OK;
}

/* ---- writing ---- */

/* Writes the weights of save_consolidated; called by the thread that has written the
 * checkpoint. */
static weft_status weights(void *ud, const char *ckpt, const Dir *in, const char *name,
                           weft_error *e) {
  const RunCkpt *r = ud;
  return export_ckpt(&r->weights, r->job->compiled, ckpt, in, name, e);
}

weft_status run_ckpt_begin(RunCkpt *r, Session *s, int64_t end) {
  Job *j = r->job;
  const Checkpointing *how = &j->plan.checkpoint;
  char mesh[96];
  r->run = s->run, r->end = end;
  if (r->from) {
    int64_t step = r->from->m.step;
    const char *rest = step == end ? ", the last one: nothing is left to train" : "";
    if (step > end)
      rest =
          arena_printf(j->arena, ", after the last one, %lld: nothing is left to train",
                       (long long)end);
    say(r, false,
        arena_printf(j->arena, "resumes from step %lld (%s)%s", (long long)step,
                     r->from->m.id, rest));
  }
  if (!how->dir) return WEFT_OK;
  TRY(file_read(NULL, r->cli->arg[0], FILE_CODE_MAX, &r->plan_text, &r->plan_bytes,
                &j->e));
  SaverOptions o = {.plan = &j->plan,
                    .plan_text = r->plan_text,
                    .mesh = arena_str(j->arena, mesh_text(&j->mesh, mesh)),
                    .fact = r->fact,
                    .nfact = r->nfact,
                    .from = r->from,
                    .end = end,
                    .weights = weights,
                    .say = say,
                    .ud = r};
  ExportHow as;
  TRY(export_options(r->cli, false, &as, &j->e));
  if (how->consolidated) TRY(export_files(&r->weights, j, &as, s->weights, &j->e));
  TRY(saver_open(s->run, &o, &r->saver, &j->e));
  r->cli->heed(SIGTERM);
  r->cli->heed(SIGUSR1);
  r->cli->heed(SIGHUP); /* the terminal is closed */
  return WEFT_OK;
}

static void fold_signal(void *mine, const void *other, size_t n) {
  int *a = mine;
  const int *b = other;
  if (!*a) *a = *b;
}

weft_status run_ckpt_step(RunCkpt *r, const StepResult *step, int64_t next) {
  if (!r->saver) {
    int signal = *r->cli->stop;
    TRY(run_combine(r->run, &signal, sizeof signal, fold_signal, &r->job->e));
    if (signal && next < r->end && !step->stops) r->stop = signal;
    return WEFT_OK;
  }
  return saver_step(r->saver, step, next, *r->cli->stop, &r->job->e);
}

const StopFlag *run_ckpt_stop(const RunCkpt *r) {
  return r->saver ? saver_stop(r->saver) : &r->stop;
}

/* Waits for the last save; true if there is none that has failed. One that was lost, or
 * cut off by the end of a process, is what the run ends with: "interrupted" would say
 * that the state is there. */
static bool finish(RunCkpt *r, weft_status *st) {
  weft_error why = NO_ERROR;
  weft_status saved = saver_finish(r->saver, &why);
  if (saved == WEFT_OK) r->lost = (saved = saver_lost(r->saver, &why)) != WEFT_OK;
  if (saved == WEFT_OK) return true;
  r->job->e = why;
  *st = saved;
  return false;
}

/* After a signal the saver's flag is set before the save is finished, so only the error
 * says that the run has ended after a step, and with its state saved. */
weft_status run_ckpt_end(RunCkpt *r, weft_status st) {
  int signal = *run_ckpt_stop(r);
  bool cut = st == WEFT_EINTR && signal;
  if (r->saver && (st == WEFT_OK || cut) && !finish(r, &st)) cut = false;
  if (cut) r->signal = signal;
  saver_close(r->saver);
  ckpt_close(r->from);
  export_end(&r->weights);
  if (r->plan_text) mem_free(NULL, r->plan_text, r->plan_bytes + 1);
  r->saver = NULL, r->from = NULL, r->plan_text = NULL;
  return st;
}
