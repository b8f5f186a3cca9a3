/* calibrate.h - measures the kernels and collectives of compiled programs on the device
 * and the world at hand: rows of a cost table (vm/sim/cost_table.h).
 *
 * Kernels are timed in steps of the plan, which its ranks run at once, each without the
 * others; where these are too long or too large, and on a GPU, by turns, on as many ranks
 * at once as there are cores for, since they share these and the memory. Each row is the
 * mean of several runs after a warm-up, of which single pauses are left out. Where a rank
 * is one thread, its processor time is measured: the clock shares the cores itself, and
 * what else the machine does is no part of a row. */
#ifndef WEFT_CALIBRATE_H
#define WEFT_CALIBRATE_H

#include "vm/sim/cost_table.h"

/* What programs need and a table lacks. */
typedef struct WantedKernel {
  const Compiled *c;
  const Program *p;
  const Instr *in;
  const char *shape;
  const EvenList *even; /* rows of experts in the program's buffers: all get the same */
} WantedKernel;

typedef struct WantedMove {
  CollKind kind;
  DType dtype;
  RedOp red;
  int ranks, by;
  uint64_t bytes; /* as the clock counts them */
} WantedMove;

typedef struct Wanted {
  VEC(WantedKernel) kernel;
  VEC(WantedMove) move;
  int left_out; /* kernels that work on memory of the host */
} Wanted;
/* Adds what one step of these programs needs beyond the table. */
void wanted_add(Wanted *w, const Compiled *c, const CostTable *have, Arena *a);

typedef struct Bench {
  const DeviceKind *kind;
  const DeviceVtable *device;
  int threads, ranks; /* of each rank; that run at once */
  double seconds;     /* of samples for each row */
  double f32, bf16;   /* flop/s of a rank in large products; 0: not known yet */
  bool processor;     /* the processor time of threads is measured, not the clock's */
  const StopFlag *stop;
} Bench;
int bench_cores(void); /* of this process */
double bench_now(const Bench *b);
/* The device of programs, and how many of `ranks` run at once. */
weft_status bench_open(Bench *b, const DeviceKind *kind, int threads, int ranks,
                       weft_error *e);

/* ---- step_timing.c ---- */
/* How many ranks of this plan run steps at once; 0 where these are too long or too large
 * here. */
int ranks_in_steps(const Bench *b, const Compiled *c);
/* Where they are not, its kernels are timed in them: seconds[n], NAN of those that no
 * rank ran that tells. */
weft_status time_in_steps(const Bench *b, const WantedKernel *list, int n,
                          double *seconds, weft_error *e);

/* ---- kernel_timing.c ---- */
/* How many of these kernels, from the first on, are measured together: those of a plan
 * whose steps fit, else as many as have room beside each other. */
int kernels_together(const Bench *b, const WantedKernel *list, int n);
/* seconds[n], in steps of their plan, or by turns. */
weft_status time_kernels(const Bench *b, const WantedKernel *list, int n, double *seconds,
                         weft_error *e);
/* flop/s of a large product, bytes/s of a large copy, of one rank while all run. */
weft_status time_product(const Bench *b, DType t, double *rate, weft_error *e);
weft_status time_copy(const Bench *b, double *rate, weft_error *e);
/* ---- move_threads.c ---- */
weft_status time_move(const Bench *b, const WantedMove *w, double *seconds,
                      weft_error *e);
/* ---- move_processes.c ---- */
/* All processes of a world call it; those but rank 0 without a list. `done` is called on
 * rank 0. No row of the list has more ranks than the world. */
struct World;
typedef weft_status MoveDone(void *ud, const WantedMove *w, double seconds,
                             weft_error *e);
weft_status time_moves(const Bench *b, struct World *w, WantedMove *list, int n,
                       MoveDone *done, void *ud, Arena *a, weft_error *e);

/* ---- samples.c ---- */
enum { SAMPLES_MOST = 1024 };
typedef struct Samples {
  double *at; /* [SAMPLES_MOST] */
  int n;
} Samples;
double median_of(double *x, int n); /* sorts them */
/* Calls fn(ud, i, samples[kinds]) on n threads at once. seconds[kinds]: the means of what
 * they saw, but no sample counts for more than three times the median of its thread. A
 * kind that a thread has not seen is an error with `all`; NAN if none has. */
typedef weft_status TimedFn(void *ud, int i, Samples *out, weft_error *e);
weft_status mean_of_threads(int n, int kinds, TimedFn *fn, void *ud, bool all,
                            double *seconds, weft_error *e);

#endif
