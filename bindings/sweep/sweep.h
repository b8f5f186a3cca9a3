/* sweep.h - weft.grid and weft.sweep: points of a grid judged by the compiler.
 * stdlib/sweep is the script side: options, callbacks, scores, files, results. Here are
 * the threads that judge (sweep_point.h) and their rows. */
#ifndef WEFT_SWEEP_H
#define WEFT_SWEEP_H

#include <pthread.h>
#include <stdio.h>

#include "bindings/api/job.h"
#include "bindings/object/sim_figures.h"
#include "bindings/script/script.h"
#include "sweep_point.h"

typedef struct SweepReason {
  PointReason why; /* of the first point */
  int64_t count, first;
} SweepReason;

/* A plan that a function of the script has given, until a thread judges it. */
typedef struct GivenPlan {
  int64_t i;
  LangPlan *lp;
  Arena *arena;
} GivenPlan;

/* A row judged exactly, and its program on the clock. */
typedef struct ExactRow {
  int64_t i;
  bool is_whole, is_clocked; /* what is known */
  PointRow row;              /* whole */
  SimFigures figures;        /* clocked; in the arena */
  PointReason why[2];        /* by SweepExact: of WEFT_EPLAN, of an illegal point */
  weft_status st[2];
  weft_error e[2];
  Arena *arena;
} ExactRow;
typedef enum { EXACT_WHOLE, EXACT_CLOCK } SweepExact;

enum { SWEEP_WAITING = 64 };
enum { SWEEP_REASONS = 256, SWEEP_AXES = 32, SWEEP_POINTS = 10 * 1000 * 1000 };
typedef struct Sweep {
  Arena *arena;
  int size[SWEEP_AXES], naxis; /* values of each axis */
  int64_t *todo, ntodo;        /* points that `where` lets pass, in order */
  PointRow *row;               /* [ntodo]; a row is written before it is ready */
  _Atomic bool *ready;
  PointReason **why; /* [ntodo] of illegal points */
  SweepReason reason[SWEEP_REASONS];
  int nreason;
  int64_t nlegal, nillegal, nmemory;
  uint64_t limit;
  bool interrupted;
  SweepCaches caches;
  FileEnd file; /* where rows go; closed: nowhere */
  /* threads */
  Judge *judge;
  pthread_t *thread;
  int nthread, nstarted;
  int64_t upto;         /* points from here on wait for another start */
  _Atomic int64_t next; /* index of todo that no thread has taken */
  _Atomic int stop;
  _Atomic int64_t done;
  bool given; /* plans come one by one: */
  GivenPlan waiting[SWEEP_WAITING];
  int nwaiting;
  bool all_given;       /* no more of them come */
  pthread_cond_t more;  /* one waits, or there are no more */
  pthread_mutex_t lock; /* reasons, the error and what waits */
  ExactRow *exact;      /* of sweep_ahead */
  int nexact;
  weft_status st;
  weft_error e;
} Sweep;

/* The numbers of the values of a point, from 0: the last axis runs fastest. */
void sweep_choice(const Sweep *s, int64_t point, int *choice);

/* ---- sweep_api.c ---- */
int sweep_make(lua_State *L);      /* weft.sweep { ... } */
int sweep_best(lua_State *L);      /* weft.best { ... } */
int sweep_grid_make(lua_State *L); /* weft.grid { { "mesh.tp", 1, 2, 4 }, ... } */
/* Gives the library of a state what stdlib/sweep works with. */
void sweep_open(lua_State *L);

/* ---- sweep_object.c ---- */
/* The table of core.points: what judges, as an object of the library. */
int sweep_points(lua_State *L);
Sweep *sweep_at(lua_State *L, int idx);
/* The number of a row. */
int64_t sweep_index(lua_State *L, const Sweep *s, int idx);
/* After Ctrl-C: ends all threads; what they did stands. */
void sweep_cut(lua_State *L, Sweep *s);

/* ---- sweep_rows.c ---- */
/* points:row(i): nothing if it is not done; else its state, figures, and the reason of an
 * illegal one. */
int sweep_row(lua_State *L);
/* points:put(i, state, figures [, code, path, text]): a row that was judged before. */
int sweep_put(lua_State *L);
/* points:counts(): how many of which kind, and why. */
int sweep_counts(lua_State *L);
void sweep_push_why(lua_State *L, const PointReason *w);

/* ---- sweep_given.c ---- */
/* A plan for a judge, in the arena: of the file, object or table at idx, or a copy. */
weft_status sweep_load_plan(lua_State *L, int idx, const LangPlan *copy, Arena *a,
                            LangPlan **lp, Diags *d, weft_error *e);
/* points:judge(i, plan, text, code, path): a point whose plan a function of the script
 * has given; nil: the others say why there is none. It is loaded here, since functions go
 * along with it, and judged by the first thread that is free, or here if too many wait.
 */
int sweep_judge(lua_State *L);
/* Judges those that wait until none is left; `wait`: and none comes any more. */
void sweep_work_given(Sweep *s, Judge *j, bool wait);
/* No more come; threads that wait for one go on. */
void sweep_end_given(Sweep *s);
/* Those that nobody has judged. */
void sweep_free_given(Sweep *s);

/* ---- sweep_run.c ---- */
/* Counts row i, which is complete, and lets others see it. */
void sweep_note(Sweep *s, int64_t i, const PointReason *why);
/* What ends the sweep. */
void sweep_fail(Sweep *s, const Judge *j, weft_status st);
/* Starts threads on s->judge[1..]; the caller's own work is sweep_work on judge[0]. */
void sweep_start(Sweep *s);
/* Judges what is left for at most so many seconds; false when nothing is left. */
bool sweep_work(Sweep *s, Judge *j, double seconds);
/* Waits for all threads. */
void sweep_join(Sweep *s);

/* ---- sweep_job.c ---- */
/* Calls `act` with a job whose plan is that of row i, loaded by this judge and checked;
 * its arena is freed afterwards. A plan that is wrong, or an `act` that says so:
 * WEFT_EPLAN and `why`. */
typedef weft_status SweepAct(void *ud, Job *j);
weft_status sweep_job(Sweep *s, Judge *judge, int64_t i, SweepAct *act, void *ud,
                      PointReason *why, weft_error *e);

/* ---- sweep_exact.c ---- */
/* Row i exactly where rows are bounds, or compiled and on the clock: as sweep_ahead found
 * it, or made now, in `own`, whose arena the caller has made. */
const ExactRow *sweep_exact(Sweep *s, int64_t i, SweepExact what, ExactRow *own);
/* Makes these rows by all threads, for later calls of sweep_exact; those of the last call
 * are forgotten. Nothing if there is one thread. Ends early when `stop` is set. */
weft_status sweep_ahead(Sweep *s, const int64_t *list, int n, bool whole, bool clock,
                        const StopFlag *stop, weft_error *e);
void sweep_forget(Sweep *s);

/* ---- sweep_measure.c ---- */
/* Trains the plan of row i for so many steps, made small, on virtual ranks. NAN: no step
 * could be timed. */
weft_status sweep_measure(Sweep *s, int64_t i, int steps, const StopFlag *stop,
                          double *rate, weft_error *e);

#endif
