/* watch.c - the processes of a run watch each other (vm/comm/control.h): what this one
 * says of its rank, and what happens when the run has ended for all. */
#include "run_int.h"

static void here(void *ud, ControlNote *out) {
  const Run *r = ud;
  *out = watchdog_note(&r->worker[0]);
}

static double limit(void *ud) {
  return watchdog_patience(ud);
}

static bool stuck(void *ud, const ControlRank *rank, char *why, size_t size) {
  Run *r = ud;
  return watchdog_stuck(&r->dog, r, rank, why, size);
}

static void others(void *ud, const ControlRank *rank, int culprit, Text *out) {
  watchdog_others(ud, rank, culprit, out);
}

/* What waits is woken; a library whose waits cannot be, ends the process. */
static void end(void *ud, int culprit, weft_status code, const char *why, bool speaks) {
  Run *r = ud;
  weft_error e = {.rank = -1};
  err_set(&e, code, "%s", why);
  e.rank = culprit;
  pthread_mutex_lock(&r->lock);
  r->over = true;
  r->verdict = e;
  pthread_mutex_unlock(&r->lock);
  if (r->told) *r->told = !speaks;
  r->world.quiet = !speaks;
  world_abort(&r->world, -1, code, why);
}

weft_status job_watch(Worker *w, void *arg, weft_error *e) {
  Run *r = w->run;
  ControlHost host = {.ud = r,
                      .here = here,
                      .limit = limit,
                      .stuck = stuck,
                      .others = others,
                      .end = end};
  r->dog = (Watchdog){.seen = now_s()};
  if (!r->world.net) {
    TRY(world_doors(&r->world, &r->net, e));
    r->world.net = &r->net;
  }
  TRY(control_start(&r->control, &r->alloc, r->world.net, &host, e));
  world_watched(&r->world);
  return WEFT_OK;
}
