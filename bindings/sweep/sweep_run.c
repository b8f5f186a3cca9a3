/* sweep_run.c - the threads of a sweep. Each takes the next few points until none are
 * left; a row belongs to the thread that took its point until it is marked as done. */
#include "sweep.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "vm/base/c_locale.h"

enum { TAKE = 8 };

/* Reasons are equal if code and field are: texts have the numbers of each point. */
static void add_reason(Sweep *s, int64_t i, const PointReason *why) {
  int k = 0;
  while (k < s->nreason && (strcmp(s->reason[k].why.code, why->code) != 0 ||
                            strcmp(s->reason[k].why.path, why->path) != 0))
    k++;
  if (k == SWEEP_REASONS) k--;
  SweepReason *r = &s->reason[k];
  if (k == s->nreason) {
    s->nreason++;
    *r = (SweepReason){.why = *why, .first = i};
  }
  if (i < r->first) r->why = *why, r->first = i;
  r->count++;
}

static void keep_reason(Sweep *s, int64_t i, const PointReason *why) {
  s->why[i] = malloc(sizeof *why);
  if (s->why[i]) *s->why[i] = *why;
}

void sweep_note(Sweep *s, int64_t i, const PointReason *why) {
  PointState state = s->row[i].state;
  pthread_mutex_lock(&s->lock);
  if (state == POINT_OK) s->nlegal++;
  if (state == POINT_MEMORY) s->nmemory++;
  if (state == POINT_ILLEGAL) {
    s->nillegal++;
    add_reason(s, i, why);
    keep_reason(s, i, why);
  }
  pthread_mutex_unlock(&s->lock);
  s->ready[i] = true;
  s->done++;
}

void sweep_fail(Sweep *s, const Judge *j, weft_status st) {
  pthread_mutex_lock(&s->lock);
  if (s->st == WEFT_OK) s->st = st, s->e = j->e;
  pthread_mutex_unlock(&s->lock);
  s->stop = 1;
}

/* One point; a result that a file had is kept. */
static void judge_one(Sweep *s, Judge *j, int64_t i) {
  int choice[SWEEP_AXES];
  PointRow row;
  PointReason why;
  if (s->ready[i]) return;
  sweep_choice(s, s->todo[i], choice);
  weft_status st = judge_point(j, choice, s->naxis, &row, &why);
  if (st == WEFT_EINTR)
    s->stop = 1;
  else if (st != WEFT_OK)
    sweep_fail(s, j, st);
  if (st != WEFT_OK) return;
  s->row[i] = row;
  sweep_note(s, i, &why);
}

bool sweep_work(Sweep *s, Judge *j, double seconds) {
  double end = now_s() + seconds;
  do {
    int64_t first = atomic_fetch_add(&s->next, TAKE);
    if (first >= s->upto) return false;
    for (int64_t i = first; i < MIN(first + TAKE, s->upto) && !s->stop; i++)
      judge_one(s, j, i);
  } while (!s->stop && now_s() < end);
  return !s->stop;
}

typedef struct Worker {
  Sweep *s;
  Judge *j;
} Worker;

static void *run_thread(void *ud) {
  Worker *w = ud;
  c_locale_take();
  if (w->s->given) {
    sweep_work_given(w->s, w->j, true);
    return NULL;
  }
  while (sweep_work(w->s, w->j, 3600)) {
  }
  return NULL;
}

void sweep_start(Sweep *s) {
  Worker *w = NEW_N(s->arena, Worker, s->nthread);
  s->thread = NEW_N(s->arena, pthread_t, s->nthread);
  for (int i = 1; i < s->nthread; i++) {
    w[i] = (Worker){s, &s->judge[i]};
    /* Fewer threads do the same work. */
    if (pthread_create(&s->thread[s->nstarted], NULL, run_thread, &w[i]) != 0) return;
    s->nstarted++;
  }
}

void sweep_join(Sweep *s) {
  for (int i = 0; i < s->nstarted; i++) pthread_join(s->thread[i], NULL);
  s->nstarted = 0;
}
