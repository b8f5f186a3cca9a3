/* sweep.h - weft.grid and weft.sweep: many plans judged, the best ones found. The script
 * side: reading options, calling back, threads, files, results. sweep_point.h judges. */
#ifndef WEFT_SWEEP_H
#define WEFT_SWEEP_H

#include <pthread.h>

#include "bindings/script/script.h"
#include "sweep_point.h"

/* ---- sweep_grid.c ---- */
typedef struct SweepAxis {
  const char *path;  /* "mesh.tp" */
  const char *field; /* the same for all spellings of a path */
  const char *name;  /* "tp", or the path where that could be another thing */
  int n;
  const char **text; /* each value, for people and files */
} SweepAxis;
typedef struct SweepGrid {
  SweepAxis *axis;
  int n;
  int64_t points;
} SweepGrid;
/* weft.grid { { "mesh.tp", 1, 2, 4 }, ... } */
int sweep_grid_make(lua_State *L);
/* Reads the list of axes at idx; raises. `fields`: they must be fields of a plan. */
void sweep_grid_read(lua_State *L, int idx, bool fields, Arena *a, SweepGrid *g);
/* The numbers of the values of a point: the last axis runs fastest. */
void sweep_grid_choice(const SweepGrid *g, int64_t point, int *choice);
/* Sets the fields of a point in the table on top; `idx`: the list of axes. */
void sweep_grid_fields(lua_State *L, const SweepGrid *g, int idx, int64_t point);

/* ---- what a sweep is ---- */
typedef struct SweepReason {
  PointReason why; /* of the first point */
  int64_t count, first;
} SweepReason;

enum { SWEEP_REASONS = 256 };
typedef struct Sweep {
  Arena *arena;
  SweepGrid grid;
  int64_t *todo, ntodo; /* points that `where` lets pass */
  PointRow *row;        /* [ntodo]; a row is written before it is ready */
  _Atomic bool *ready;
  double *score, *measured; /* [ntodo]; NAN: none */
  PointReason **why;        /* [ntodo] of illegal points, for files; or NULL */
  int64_t *best, nbest;     /* indices of rows by score */
  SweepReason reason[SWEEP_REASONS];
  int nreason;
  int64_t nlegal, nillegal, nmemory, ndropped, nresumed;
  const char *column; /* that is the score, or NULL: a function */
  uint64_t limit;
  bool interrupted;
  double seconds;
  const char *csv, *jsonl, *resume;
  uint64_t key; /* of the plan and the grid: what may be resumed */
  SweepCaches caches;
  /* threads */
  Judge *judge;
  pthread_t *thread;
  int nthread, nstarted;
  _Atomic int64_t next; /* index of todo that no thread has taken */
  _Atomic int stop;
  _Atomic int64_t done;
  pthread_mutex_t lock; /* reasons and the error */
  weft_status st;
  weft_error e;
  struct SweepFile *file;
} Sweep;

/* ---- sweep_api.c ---- */
int sweep_make(lua_State *L); /* weft.sweep { ... } */

/* ---- sweep_run.c ---- */
/* Counts row i, which is complete, and lets others see it. */
void sweep_note(Sweep *s, int64_t i, const PointReason *why);
/* Starts threads on s->judge[1..]; the caller's own work is sweep_work on judge[0]. */
void sweep_start(Sweep *s);
/* Judges what is left for at most so many seconds; false when nothing is left. */
bool sweep_work(Sweep *s, Judge *j, double seconds);
/* Waits for all threads. */
void sweep_join(Sweep *s);

/* ---- sweep_row.c: columns ---- */
enum { SWEEP_COLUMNS = 11 };
extern const char *const sweep_columns[SWEEP_COLUMNS];
/* NAN where a row has no such figure. */
double sweep_value(const Sweep *s, int64_t i, int column);
int sweep_column(const char *name); /* -1: there is none */
void sweep_push_row(lua_State *L, const Sweep *s, int axes, int64_t i);

/* ---- sweep_table.c: what people and programs read ---- */
void sweep_table(const Sweep *s, int64_t most, Text *out);
void sweep_reasons(const Sweep *s, Text *out);
void sweep_csv(const Sweep *s, Text *out);

/* ---- sweep_file.c: rows as lines of JSON, written as they come ---- */
/* Opens s->jsonl or takes up s->resume, whose rows are filled in. */
weft_status sweep_file_open(Sweep *s, weft_error *e);
/* Writes rows that are done, in order. */
weft_status sweep_file_add(Sweep *s, weft_error *e);
weft_status sweep_file_close(Sweep *s, weft_error *e);

/* ---- sweep_measure.c ---- */
/* Trains the best rows for so many steps, made small, on virtual ranks. */
weft_status sweep_measure(Sweep *s, int64_t rows, int steps, const StopFlag *stop,
                          weft_error *e);

#endif
