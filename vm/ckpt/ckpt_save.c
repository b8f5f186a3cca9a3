/* ckpt_save.c - see ckpt_save.h. A save has two phases: every process writes its files,
 * then the first one writes the manifest. While the folder is not this run's there is one
 * before them, in which the first process takes it: nobody writes to another run's. */
#include "ckpt_save_int.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vm/base/c_locale.h"

void saver_say(const Saver *s, bool warning, const char *fmt, ...) {
  char text[1400];
  va_list ap;
  if (run_rank(s->run) != 0) return;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  s->o.say(s->o.ud, warning, text);
}

/* What all processes know after exchange(). */
typedef struct News {
  int signal;    /* the highest signal that any of them received */
  int busy;      /* threads that are still writing */
  int good;      /* no finished thread has failed */
  char why[WHY]; /* else: the reason, of the lowest rank with one */
} News;

static void fold_news(void *mine, const void *other, size_t n) {
  News *a = mine;
  const News *b = other;
  a->signal = MAX(a->signal, b->signal);
  a->busy |= b->busy;
  if (a->good && !b->good) memcpy(a->why, b->why, sizeof a->why);
  a->good &= b->good;
}

/* ---- the thread ---- */

static weft_status write_files(Saver *s) {
  if (s->dir.fd < 0) TRY(store_open(&s->o.plan->checkpoint, &s->dir, &s->e));
  TRY(store_make(&s->disk, &s->dir, s->m.step, &s->into, &s->e));
  int first = run_rank(s->run);
  for (int i = 0; i < run_local(s->run); i++)
    TRY(shard_write(&s->disk, &s->into, s->m.id, s->c, first + i,
                    run_snapshot_at(s->run, i), &s->file[first + i], &s->e));
  return WEFT_OK;
}

static bool wants_weights(const Saver *s) {
  Consolidated when = s->o.plan->checkpoint.consolidated;
  return s->o.weights && (when == CONSOLIDATED_EVERY ||
                          (when == CONSOLIDATED_FINAL && s->m.step == s->o.end));
}

/* Exports weights from the files just written. The checkpoint stays if it fails. */
static void write_weights(Saver *s) {
  char from[PATH_MAX], to[STORE_NAME];
  snprintf(from, sizeof from, "%s/step-%08lld", s->o.plan->checkpoint.dir,
           (long long)s->m.step);
  store_drop_weights(&s->dir, s->m.step);
  (void)s->o.weights(s->o.ud, from, &s->dir, store_weights(to, s->m.step), &s->weights);
}

/* The folder is this run's own, so what is in it is looked at once. */
static weft_status take_time(Saver *s) {
  if (s->last < 0) TRY(store_last(&s->dir, &s->last, &s->e));
  s->m.saved_at = s->last = store_time(s->last);
  return WEFT_OK;
}

static weft_status write_manifest(Saver *s) {
  TRY(take_time(s));
  TRY(store_commit(&s->disk, &s->dir, &s->into, &s->m, s->c, &s->e));
  store_point(&s->disk, &s->dir, s->m.step, &s->latest);
  if (wants_weights(s)) write_weights(s);
  /* A better one that could not be written does not take its place. */
  if (s->m.best.step == s->m.step) s->best = s->m.step;
  int64_t best = s->o.plan->checkpoint.keep_best ? s->best : 0;
  (void)store_prune(&s->dir, s->o.plan->checkpoint.keep, best, &s->old);
  return WEFT_OK;
}

/* What this process has to do in the phase. */
static weft_status take_part(Saver *s) {
  bool first = run_rank(s->run) == 0, alone = run_is_alone(s->run);
  if (s->phase == PHASE_FOLDER) return first ? saver_take_folder(s, &s->e) : WEFT_OK;
  if (s->phase == PHASE_FILES) TRY(write_files(s));
  bool commits = alone || (s->phase == PHASE_MANIFEST && first);
  return commits ? write_manifest(s) : WEFT_OK;
}

/* Runs at low priority, behind the threads of the steps. */
static void *save_main(void *ud) {
  Saver *s = ud;
  c_locale_take();
  setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
  s->st = take_part(s);
  atomic_store(&s->done, true);
  return NULL;
}

/* Blocks all signals: they belong to the thread that runs the steps. */
static void start_phase(Saver *s, SavePhase p) {
  sigset_t all, old;
  s->phase = p;
  s->st = WEFT_OK;
  err_clear(&s->e);
  err_clear(&s->latest);
  err_clear(&s->weights);
  err_clear(&s->old);
  atomic_store(&s->done, false);
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  s->has_thread = pthread_create(&s->thread, NULL, save_main, s) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (!s->has_thread) {
    s->st = err_set(&s->e, WEFT_ELIMIT, "the thread that writes it could not be started");
    atomic_store(&s->done, true);
  }
}

static void join(Saver *s) {
  if (s->has_thread) pthread_join(s->thread, NULL);
  s->has_thread = false;
}

/* ---- phases ---- */

static void fold_files(void *mine, const void *other, size_t n) {
  CkptFile *a = mine;
  const CkptFile *b = other;
  for (size_t i = 0; i < n / sizeof *a; i++)
    if (!a[i].bytes) a[i] = b[i];
}

/* Closes the temporary folder, and removes it if it has not become a checkpoint: where it
 * is not known to be that of all, each process its own. */
static void leave_folder(Saver *s, bool remove) {
  bool own = run_rank(s->run) == 0 || (!s->shared && s->into.fd >= 0);
  if (remove && own && s->dir.fd >= 0) store_drop(&s->dir, s->m.step);
  dir_close(&s->into);
}

/* True if the run ends with the save in progress. */
static bool ends(const Saver *s) {
  return s->stop || s->settles || s->m.step == s->o.end;
}

static void end_save(Saver *s, const News *news) {
  s->phase = PHASE_NONE;
  leave_folder(s, !news->good);
  s->lost = !news->good;
  if (s->lost) {
    memcpy(s->why, news->why, sizeof s->why);
    saver_say(s, true, "the checkpoint of step %lld was not written: %s%s",
              (long long)s->m.step, news->why, ends(s) ? "" : "; the run goes on");
  } else {
    saver_say(s, false, "checkpoint of step %lld in %s (%.1f s)", (long long)s->m.step,
              s->o.plan->checkpoint.dir, now_s() - s->begun);
  }
  if (s->latest.code)
    saver_say(s, true,
              "the checkpoint of step %lld is there, but \"%s\" does not name it: %s: %s",
              (long long)s->m.step, LATEST_NAME, s->latest.file, s->latest.text);
  if (s->weights.code)
    saver_say(s, true,
              "the weights of step %lld were not written beside its checkpoint: %s: %s",
              (long long)s->m.step, s->weights.file, s->weights.text);
  if (s->old.code)
    saver_say(s, true,
              "checkpoints before that of step %lld were not all removed: %s: %s",
              (long long)s->m.step, s->old.file, s->old.text);
}

/* Called when all processes have finished a phase. */
static weft_status next_phase(Saver *s, const News *news, weft_error *e) {
  join(s);
  if (news->good && s->phase == PHASE_FOLDER) {
    s->taken = true;
    start_phase(s, PHASE_FILES);
    return WEFT_OK;
  }
  if (news->good && s->phase == PHASE_FILES && !run_is_alone(s->run)) {
    TRY(run_combine(s->run, s->file, (size_t)s->c->mesh.world * sizeof *s->file,
                    fold_files, e));
    start_phase(s, PHASE_MANIFEST);
    return WEFT_OK;
  }
  end_save(s, news);
  return WEFT_OK;
}

/* Exchanges News between all processes; starts the save's next phase when one is over. */
static weft_status exchange(Saver *s, int *signal, weft_error *e) {
  News n = {.signal = *signal, .good = true};
  if (s->phase != PHASE_NONE) {
    n.busy = !atomic_load(&s->done);
    if (!n.busy) n.good = s->st == WEFT_OK;
    if (!n.good) /* the thread may be filling `e` until it is done */
      snprintf(n.why, sizeof n.why, "%s%s%s", s->e.file, s->e.file[0] ? ": " : "",
               s->e.text);
  }
  TRY(run_combine(s->run, &n, sizeof n, fold_news, e));
  *signal = n.signal;
  return s->phase != PHASE_NONE && !n.busy ? next_phase(s, &n, e) : WEFT_OK;
}

/* On rank 0, where a signal ends the run: its checkpoint has been committed. */
static bool is_there(const Saver *s) {
  return s->stop && s->phase == PHASE_MANIFEST && run_rank(s->run) == 0 &&
         s->st == WEFT_OK;
}

/* A process that does not live to hear of the checkpoint takes nothing from it. */
weft_status saver_finish(Saver *s, weft_error *e) {
  int signal = 0;
  while (s->phase != PHASE_NONE) {
    join(s);
    weft_status st = exchange(s, &signal, e);
    if (st != WEFT_OK && !is_there(s)) return st;
    if (st == WEFT_OK) continue;
    err_clear(e);
    end_save(s, &(News){.good = true});
  }
  return WEFT_OK;
}

/* The run ends with an error of all processes. That is what it reports, also where the
 * save fails because one of them is gone. */
static void settle(void *ud) {
  Saver *s = ud;
  weft_error why = NO_ERROR;
  s->settles = true;
  if (saver_finish(s, &why) != WEFT_OK)
    saver_say(s, true, "the checkpoint of step %lld was not written: %s",
              (long long)s->m.step, why.text);
}

/* ---- a save ---- */

static void describe(Saver *s, const StepResult *r, int64_t next) {
  const Plan *p = s->o.plan;
  uint64_t id = checksum(s->run_id, sizeof s->run_id) + (uint64_t)next;
  checksum_text(checksum(&id, sizeof id), s->m.id);
  LrSchedule lr = lr_resolved(p);
  s->m.step = next;
  s->m.samples = next * p->batch.global;
  s->m.lr = lr_at(&lr, next);
  s->m.scaler = run_scaler(s->run);
  s->m.best = r->best;
  memset(s->file, 0, (size_t)s->c->mesh.world * sizeof *s->file);
}

/* Waits for the checkpoint before, and says so if it took time that one can read. */
static weft_status wait_for_last(Saver *s, int64_t next, weft_error *e) {
  double start = now_s(), least = 0.05;
  TRY(saver_finish(s, e));
  double waited = now_s() - start;
  if (waited >= least)
    saver_say(s, true,
              "step %lld waited %.1f s for the checkpoint of step %lld to be written",
              (long long)next, waited, (long long)s->m.step);
  return WEFT_OK;
}

static weft_status begin(Saver *s, const StepResult *r, int64_t next, weft_error *e) {
  double start = now_s();
  if (s->phase != PHASE_NONE) TRY(wait_for_last(s, next, e));
  describe(s, r, next);
  if (run_copies_agree(s->run)) TRY(run_check_replicas(s->run, e));
  TRY(run_snapshot(s->run, e));
  s->paused += now_s() - start;
  s->saved = next;
  s->begun = now_s();
  start_phase(s, s->taken ? PHASE_FILES : PHASE_FOLDER);
  return WEFT_OK;
}

/* A step with a loss that is not finite is not saved. */
static bool due(const Saver *s, const StepResult *r, int64_t next, int signal) {
  int64_t every = s->o.plan->checkpoint.every;
  bool best = s->o.plan->checkpoint.keep_best && r->best.step == next;
  if (!isfinite(r->loss) || next == s->saved) return false;
  return signal || best || next == s->o.end || (every && next % every == 0);
}

weft_status saver_step(Saver *s, const StepResult *r, int64_t next, int signal,
                       weft_error *e) {
  TRY(exchange(s, &signal, e));
  if (r->stops) { /* a thread that still saves reads the end */
    TRY(saver_finish(s, e));
    s->o.end = next;
  }
  if (due(s, r, next, signal)) {
    TRY(begin(s, r, next, e));
    if (!s->o.plan->checkpoint.async && !signal) TRY(saver_finish(s, e));
  }
  bool last = next == s->o.end; /* nothing is left that the signal could cut short */
  if (signal && !last) s->stop = signal;
  return signal || last ? saver_finish(s, e) : WEFT_OK;
}

weft_status saver_now(Saver *s, int64_t next, const BestEval *best, weft_error *e) {
  StepResult r = {.best = *best};
  TRY(begin(s, &r, next, e));
  TRY(saver_finish(s, e));
  if (!s->lost) return WEFT_OK;
  return err_set(e, WEFT_EFILE, "the checkpoint of step %lld was not written: %s",
                 (long long)next, s->why);
}

void saver_facts(Saver *s, const RunFact *fact, int n) {
  s->m.fact = fact, s->m.nfact = n;
}

const StopFlag *saver_stop(const Saver *s) { return &s->stop; }

weft_status saver_lost(const Saver *s, weft_error *e) {
  if (!s->lost) return WEFT_OK;
  return err_set(
      e, WEFT_ERUN,
      "the last checkpoint, of step %lld, was not written: %s; the state after "
      "that step is lost",
      (long long)s->m.step, s->why);
}

bool saver_writes(const Saver *s) {
  return s->phase != PHASE_NONE && !atomic_load(&s->done);
}

double saver_paused(const Saver *s) { return s->paused; }

RankFile *saver_disk(Saver *s) { return &s->disk; }

/* ---- opening ---- */

weft_status saver_open(Run *r, const SaverOptions *o, Saver **out, weft_error *e) {
  *out = NULL;
  Saver *s = mem_new(NULL, sizeof *s);
  if (!s || !(s->arena = arena_new(NULL))) {
    mem_free(NULL, s, sizeof *s);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  s->run = r;
  s->o = *o;
  s->c = run_compiled(r);
  s->dir = s->into = DIR_CLOSED;
  s->saved = o->from ? o->from->m.step : -1;
  s->best = o->from ? o->from->m.best.step : 0;
  s->last = -1;
  if (setjmp(*arena_guard(s->arena))) {
    saver_close(s);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  weft_status st = saver_begin(s, e);
  if (st == WEFT_OK) {
    run_before_end(r, settle, s);
    *out = s;
  } else {
    saver_close(s);
  }
  return st;
}

void saver_close(Saver *s) {
  if (!s) return;
  run_before_end(s->run, NULL, NULL);
  join(s);
  leave_folder(s, s->phase != PHASE_NONE);
  dir_close(&s->dir);
  arena_free(s->arena);
  mem_free(NULL, s, sizeof *s);
}
