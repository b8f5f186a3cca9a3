/* nccl_abort.c - the end of a run that has failed: ends the kernels that wait for peers.
 *
 * ncclCommAbort sets a flag that kernels look at while they wait. Those of symmetric
 * windows do not look (NCCL 2.28.9: there is no such flag in device/symmetric and
 * nccl_device), so one whose peer is lost never ends, nor does the abort, nor anything
 * that waits for the GPU. Where there are windows the abort therefore has a time, after
 * which the process exits. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "nccl_int.h"
#include "vm/base/terminal.h"

/* Less than a process has after another one has ended (spawn_ranks.c). */
enum { ABORT_S = 3 };

/* Marks the world as ended; returns the device of the rank that has joined, or NULL. */
static Device *mark_ended(NcclWorld *w, int rank, weft_status code, const char *why) {
  pthread_mutex_lock(&w->lock);
  if (!atomic_load(&w->ended)) {
    w->code = code == WEFT_OK ? WEFT_ERUN : code;
    w->culprit = rank;
    snprintf(w->why, sizeof w->why, "%s", why);
    atomic_store(&w->ended, true);
  }
  Device *d = w->joined ? w->joined->d : NULL;
  pthread_mutex_unlock(&w->lock);
  return d;
}

/* ncclCommAbort ends kernels that wait for peers, but it waits for all graphs that hold
 * operations of the communicator, so captured graphs are released first. A graph that is
 * running ends only when several communicators have been aborted: within a NCCL group all
 * are aborted before any is waited for. The end of that group waits for all of them,
 * though the communicators do not block: NCCL takes a group that destroys one as blocking
 * (ncclAsyncLaunch, from 2.22 on; before that each abort waits by itself). */
static void abort_lines(NcclEndpoint *p) {
  (void)ncclGroupStart();
  for (int i = 0; p && i < p->nline; i++) {
    if (p->line[i].comm) (void)ncclCommAbort(p->line[i].comm);
    p->line[i].comm = NULL;
    p->line[i].window = NULL;
    p->line[i].windows = false;
    p->line[i].registered = NULL;
  }
  (void)ncclGroupEnd();
}

typedef struct Ending {
  NcclEndpoint *p;
  atomic_bool done;
} Ending;

static void *abort_main(void *arg) {
  Ending *end = arg;
  abort_lines(end->p);
  atomic_store(&end->done, true);
  return NULL;
}

/* Also one that is still being made, in which the driver waits for all members. */
static bool has_window(const NcclEndpoint *p) {
  for (int i = 0; p && i < p->nline; i++)
    if (p->line[i].comm && p->line[i].windows) return true;
  return false;
}

/* False: the time is over. Then the thread goes on, and so must `end`. */
static bool abort_in_time(Ending *end) {
  const struct timespec pause = {.tv_nsec = 1000000};
  pthread_t thread;
  if (pthread_create(&thread, NULL, abort_main, end) != 0) {
    abort_lines(end->p);
    return true;
  }
  double until = now_s() + ABORT_S;
  while (!atomic_load(&end->done)) {
    if (now_s() > until) return false;
    nanosleep(&pause, NULL);
  }
  pthread_join(thread, NULL);
  return true;
}

void nccl_abort(World *world, int rank, weft_status code, int exit_code,
                const char *why) {
  NcclWorld *w = world->ctx;
  Device *d = mark_ended(w, rank, code, why);
  if (d && d->vt->keeper) d->vt->keeper->give_up(d);
  pthread_mutex_lock(&w->lock);
  Ending end = {.p = w->joined};
  bool ends = true;
  if (has_window(w->joined))
    ends = abort_in_time(&end);
  else
    abort_lines(w->joined);
  if (!ends) {
    fflush(stdout);
    if (!world->quiet) fprintf(stderr, "weft: %s\n", SHOWN(why));
    fflush(stderr);
    _exit(exit_code);
  }
  pthread_mutex_unlock(&w->lock);
}
