/* sweep_exact.c - what bounds leave out of some rows: all of their bytes, and whole
 * programs on the clock. Rows that will be asked for are made ahead, by all threads; what
 * is found does not depend on who makes it. */
#include <stdatomic.h>
#include <stdlib.h>

#include "sweep.h"
#include "vm/base/c_locale.h"

/* ---- one row ---- */

static void make_whole(Sweep *s, Judge *j, ExactRow *x) {
  int choice[SWEEP_AXES];
  bool floor = j->floor;
  sweep_choice(s, s->todo[x->i], choice);
  j->floor = false;
  x->st[EXACT_WHOLE] = judge_point(j, choice, s->naxis, &x->row, &x->why[EXACT_WHOLE]);
  j->floor = floor;
  x->e[EXACT_WHOLE] = j->e;
  x->is_whole = true;
}

typedef struct Clocking {
  ExactRow *x;
  Job *j;
  weft_status st;
} Clocking;

static void run_clock(void *ud) {
  Clocking *c = ud;
  c->st = sim_figures(c->j, &(SimStack){ATTENTION_FUSED}, c->x->arena, &c->x->figures,
                      &c->j->e);
}

static weft_status clock_job(void *ud, Job *j) {
  Clocking *c = ud;
  c->j = j;
  TRY(job_mesh(j, 0));
  TRY(job_compile(j));
  if (arena_try(c->x->arena, run_clock, c)) return c->st;
  return err_set(&j->e, WEFT_ENOMEM, "out of memory for the clock");
}

static void make_clocked(Sweep *s, Judge *j, ExactRow *x) {
  Clocking c = {.x = x};
  err_clear(&x->e[EXACT_CLOCK]);
  x->st[EXACT_CLOCK] =
      sweep_job(s, j, x->i, clock_job, &c, &x->why[EXACT_CLOCK], &x->e[EXACT_CLOCK]);
  x->is_clocked = true;
}

const ExactRow *sweep_exact(Sweep *s, int64_t i, SweepExact what, ExactRow *own) {
  for (int k = 0; k < s->nexact; k++) {
    const ExactRow *x = &s->exact[k];
    if (x->i == i && (what == EXACT_WHOLE ? x->is_whole : x->is_clocked)) return x;
  }
  own->i = i;
  if (what == EXACT_WHOLE)
    make_whole(s, &s->judge[0], own);
  else
    make_clocked(s, &s->judge[0], own);
  return own;
}

/* ---- several ---- */

typedef struct Ahead {
  Sweep *s;
  bool whole, clock;
  const StopFlag *stop;
  _Atomic int next;
} Ahead;

typedef struct AheadThread {
  Ahead *a;
  Judge *j;
} AheadThread;

static bool is_stopped(const Ahead *a) { return a->stop && *a->stop; }

static void *make_rows(void *ud) {
  AheadThread *t = ud;
  Ahead *a = t->a;
  for (int k; !is_stopped(a) && (k = a->next++) < a->s->nexact;) {
    ExactRow *x = &a->s->exact[k];
    if (a->whole) make_whole(a->s, t->j, x);
    bool fits = !a->whole || (x->st[EXACT_WHOLE] == WEFT_OK && x->row.state == POINT_OK);
    if (a->clock && fits && !is_stopped(a)) make_clocked(a->s, t->j, x);
  }
  return NULL;
}

static void *run_thread(void *ud) {
  c_locale_take();
  return make_rows(ud);
}

void sweep_forget(Sweep *s) {
  for (int k = 0; k < s->nexact; k++) arena_free(s->exact[k].arena);
  free(s->exact);
  s->exact = NULL;
  s->nexact = 0;
}

static weft_status make_places(Sweep *s, const int64_t *list, int n, weft_error *e) {
  sweep_forget(s);
  s->exact = calloc((size_t)n + 1, sizeof *s->exact);
  for (; s->exact && s->nexact < n; s->nexact++) {
    ExactRow *x = &s->exact[s->nexact];
    x->i = list[s->nexact];
    if (!(x->arena = arena_new(NULL))) break;
  }
  if (s->nexact == n) return WEFT_OK;
  sweep_forget(s);
  return err_set(e, WEFT_ENOMEM, "out of memory in a sweep");
}

weft_status sweep_ahead(Sweep *s, const int64_t *list, int n, bool whole, bool clock,
                        const StopFlag *stop, weft_error *e) {
  Ahead a = {.s = s, .whole = whole, .clock = clock, .stop = stop};
  int nthread = MIN(s->nthread, n), started = 0;
  if (nthread < 2) return WEFT_OK;
  TRY(make_places(s, list, n, e));
  AheadThread *t = calloc((size_t)nthread, sizeof *t);
  pthread_t *thread = calloc((size_t)nthread, sizeof *thread);
  bool made = t && thread;
  for (int i = 0; made && i < nthread; i++) t[i] = (AheadThread){&a, &s->judge[i]};
  /* Fewer threads do the same work. */
  while (made && started + 1 < nthread &&
         pthread_create(&thread[started], NULL, run_thread, &t[started + 1]) == 0)
    started++;
  if (made) make_rows(&t[0]);
  for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
  free(t);
  free(thread);
  return made ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory in a sweep");
}
