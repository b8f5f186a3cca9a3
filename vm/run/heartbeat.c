/* heartbeat.c - this process as the supervisor (vm/comm/supervisor/supervisor.h) sees it:
 * the state of its rank, reported several times a second, and what it does when the run
 * has ended for all. */
#include "run_int.h"

static void here(void *ud, RankNote *out) {
  const Run *r = ud;
  *out = stall_note(&r->worker[0]);
}

static double limit(void *ud) { return stall_patience(ud); }

static bool stuck(void *ud, const RankSeen *rank, char *why, size_t size) {
  Run *r = ud;
  return stall_found(&r->dog, r, rank, why, size);
}

static void others(void *ud, const RankSeen *rank, int culprit, Text *out) {
  stall_others(ud, rank, culprit, out);
}

/* Wakes every wait of this process; a communication library whose waits cannot be woken
 * ends the process. */
static void end(void *ud, int culprit, weft_status code, const char *why, bool speaks) {
  Run *r = ud;
  weft_error e = NO_ERROR;
  err_set(&e, code, "%s", why);
  e.rank = culprit;
  pthread_mutex_lock(&r->lock);
  r->over = true;
  r->verdict = e;
  pthread_mutex_unlock(&r->lock);
  if (r->reported_elsewhere) *r->reported_elsewhere = !speaks;
  r->world.quiet = !speaks;
  world_abort(&r->world, -1, code, why);
}

weft_status job_supervise(Worker *w, void *arg, weft_error *e) {
  Run *r = w->run;
  SupervisorHost host = {.ud = r,
                         .here = here,
                         .limit = limit,
                         .stuck = stuck,
                         .others = others,
                         .end = end};
  r->dog = (StallDetector){.seen = now_s()};
  if (!r->world.net) {
    TRY(world_has_addresses(&r->world, &r->net, r->settings.host, e));
    r->world.net = &r->net;
  }
  TRY(supervisor_start(&r->control, &r->alloc, r->world.net, &host, e));
  world_watched(&r->world);
  return WEFT_OK;
}
