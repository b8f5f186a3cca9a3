/* run_jobs.c - jobs of the workers of a process: run_all runs one on all of them and
 * waits until the last one has finished, and meanwhile handles Ctrl-C and the stall
 * detector. */
#include "run_int.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "vm/base/c_locale.h"

/* Records a failure of a job. Only the first one is kept; those of other ranks are
 * consequences. */
static void job_failed(Run *r, const weft_error *why) {
  pthread_mutex_lock(&r->lock);
  if (!r->failed) r->first = *why;
  r->failed = true;
  pthread_mutex_unlock(&r->lock);
}

const char *error_told(const weft_error *e, char out[ERROR_TOLD]) {
  if (!e->file[0])
    snprintf(out, ERROR_TOLD, "%s", e->text);
  else if (!e->line)
    snprintf(out, ERROR_TOLD, "%s: %s", e->file, e->text);
  else
    snprintf(out, ERROR_TOLD, "%s:%d: %s", e->file, e->line, e->text);
  return out;
}

typedef struct Watched {
  Job job;
  void *arg;
} Watched;

static weft_status watched_job(Worker *w, void *arg, weft_error *e) {
  const Watched *j = arg;
  weft_status st = j->job(w, j->arg, e);
  if (st == WEFT_OK) return WEFT_OK;
  if (e->rank < 0) e->rank = w->rank;
  /* No rank waits for one that failed. Processes agree on the reason that is reported
   * first. */
  char told[ERROR_TOLD];
  error_told(e, told);
  if (w->run->control) supervisor_fail(w->run->control, e->rank, e->code, told);
  job_failed(w->run, e);
  step_turns(&w->run->end, STEP_ENDED);
  world_abort(&w->run->world, w->rank, e->code, told);
  return st;
}

static void *worker_main(void *p) {
  Worker *w = p;
  Run *r = w->run;
  uint64_t seen = 0;
  c_locale_take();
  pthread_mutex_lock(&r->lock);
  for (;;) {
    while (r->generation == seen && !r->quit) pthread_cond_wait(&r->go, &r->lock);
    if (r->generation == seen) break;
    seen = r->generation;
    Job job = r->job;
    void *arg = r->arg;
    pthread_mutex_unlock(&r->lock);
    weft_error why = NO_ERROR;
    if (job(w, arg, &why) != WEFT_OK) {
      if (why.rank < 0) why.rank = w->rank;
      job_failed(r, &why);
    }
    pthread_mutex_lock(&r->lock);
    if (--r->busy == 0) pthread_cond_signal(&r->done);
  }
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

const char *run_part(const Run *r, char out[RUN_PART]) {
  long long step = r->step;
  const char *part = r->evaluates ? "the evaluation" : "";
  if (step < 0) return r->evaluates ? part : "no step";
  snprintf(out, RUN_PART, "%s%sstep %lld", part, *part ? " after " : "", step);
  return out;
}

/* Aborts the current step from the thread that called run_all. */
static void abort_run(Run *r, weft_status code, const char *what) {
  weft_error e = NO_ERROR;
  char why[900], part[RUN_PART];
  if (r->step < 0 && !r->evaluates)
    snprintf(why, sizeof why, "%s", what);
  else if (code == WEFT_EINTR)
    snprintf(why, sizeof why, "%s in %s", what, run_part(r, part));
  else
    snprintf(why, sizeof why, "%s: %s", run_part(r, part), what);
  err_set(&e, code, "%s", why);
  job_failed(r, &e);
  step_turns(&r->end, STEP_ENDED);
  world_abort(&r->world, -1, code, why);
}

/* Polls for Ctrl-C, failures of other processes and stalls; called every tenth of a
 * second while a job that communicates runs, without the lock. */
static void poll_run(Run *r, StallDetector *dog, bool *ended) {
  char why[800];
  weft_error side = NO_ERROR;
  if (*ended) return;
  *ended = true;
  bool asked = run_asked(r);
  if (asked && step_ends(&r->end))
    abort_run(r, WEFT_EINTR, "interrupted");
  else if (world_poll(&r->world, &side) != WEFT_OK)
    abort_run(r, side.code, side.text);
  else if (!r->control && stall_found(dog, r, NULL, why, sizeof why))
    abort_run(r, asked ? WEFT_EINTR : WEFT_ERUN, asked ? "interrupted" : why);
  else
    *ended = false;
}

static void wait_done(Run *r, bool watched) {
  StallDetector dog = {.seen = now_s()};
  bool ended = false;
  while (r->busy) {
    if (!watched) {
      pthread_cond_wait(&r->done, &r->lock);
      continue;
    }
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += 100000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    if (pthread_cond_timedwait(&r->done, &r->lock, &t) != ETIMEDOUT) continue;
    pthread_mutex_unlock(&r->lock);
    poll_run(r, &dog, &ended);
    pthread_mutex_lock(&r->lock);
  }
}

/* Below this many elements a copy takes less time than waking a worker thread. */
enum { SHORT_JOB = 1 << 14 };

weft_status run_each(Run *r, Job job, void *arg, int64_t elements, weft_error *e) {
  bool here = r->c->device->host && r->world.size == r->world.here;
  if (!here || elements > SHORT_JOB) return run_all(r, job, arg, false, e);
  weft_error why = NO_ERROR;
  for (int i = 0; i < r->nworker && why.code == WEFT_OK; i++)
    if (job(&r->worker[i], arg, &why) != WEFT_OK && why.rank < 0)
      why.rank = r->worker[i].rank;
  if (why.code != WEFT_OK && e && e->code == WEFT_OK) *e = why;
  return why.code;
}

weft_status run_all(Run *r, Job job, void *arg, bool watched, weft_error *e) {
  Watched inner = {job, arg};
  pthread_mutex_lock(&r->lock);
  err_clear(&r->first);
  r->failed = false;
  r->job = watched ? watched_job : job;
  r->arg = watched ? &inner : arg;
  r->busy = r->nworker;
  r->end.phase = watched ? STEP_OPEN : STEP_NONE;
  r->generation++;
  pthread_cond_broadcast(&r->go);
  wait_done(r, watched);
  bool failed = r->failed || r->over;
  weft_error first = r->over ? r->verdict : r->first;
  pthread_mutex_unlock(&r->lock);
  bool updates = r->end.phase == STEP_UPDATES;
  r->end.phase = STEP_NONE;
  if (!failed) return WEFT_OK;
  if (watched) r->dead = true;
  r->torn |= updates;
  if (e && e->code == WEFT_OK) *e = first;
  return first.code;
}

/* Blocks signals in worker threads: they are for the program that embeds weft. */
static int start_thread(Worker *w) {
  sigset_t block, old;
  sigemptyset(&block);
  sigaddset(&block, SIGINT);
  sigaddset(&block, SIGTERM);
  sigaddset(&block, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &block, &old);
  int failed = pthread_create(&w->thread, NULL, worker_main, w);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  w->has_thread = !failed;
  return failed;
}

weft_status run_start_workers(Run *r, int n, weft_error *e) {
  r->worker = mem_new(&r->alloc, (size_t)n * sizeof *r->worker);
  if (!r->worker) return err_set(e, WEFT_ENOMEM, "out of memory");
  r->nworker = n;
  for (int i = 0; i < n; i++) r->worker[i] = (Worker){.run = r, .rank = i};
  for (int i = 0; i < n; i++)
    if (start_thread(&r->worker[i]))
      return err_set(e, WEFT_ELIMIT, "cannot start thread %d of %d virtual ranks", i, n);
  return WEFT_OK;
}
