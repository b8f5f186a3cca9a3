/* step_clock.h - a step of a compiled plan on the clock: how long it takes on the plan's
 * machines, and where the time goes.
 *
 * The programs run on the abstract machine in the order of time. One representative per
 * pipeline rank stands for the ranks that run the same program, so all of these are as
 * fast as each other, and experts get as many rows as each other, but for SimSkew. */
#ifndef WEFT_STEP_CLOCK_H
#define WEFT_STEP_CLOCK_H

#include "step_cost.h"
#include "vm/plan/plan.h"

typedef enum { SIM_TP, SIM_CP, SIM_EP, SIM_DP, SIM_PP, SIM_AXES } SimAxis;
extern const char *const sim_axis_name[SIM_AXES];

/* Seconds of a pipeline rank, which add up to the step. */
typedef struct SimRank {
  double kernels[WORK_N];   /* of the compute queue, by class, with what transfers beside
                               them cost */
  double exposed[SIM_AXES]; /* it stood still while a transfer ran that it waited for */
  double shared;            /* all of that took longer as ranks share cores */
  double bubble;            /* it stood still for other pipeline ranks, or was done */
} SimRank;

/* What a pipeline rank waited for. */
typedef struct SimWait {
  int pp;
  SimAxis axis;
  const char *what; /* "layers.*.mlp.down_proj"; "" for transfers between stages */
  double seconds;
  int64_t count;
} SimWait;

/* What an op, or a kind of transfer, costs in all, and how that is known. */
typedef struct SimOp {
  const char *name; /* "linear_dw"; "all_reduce" */
  int op;           /* OpCode; or -1 - CollKind */
  DType dtype;
  int64_t count; /* in a step on one rank of each pp rank */
  double seconds[COST_FROM_N];
} SimOp;

/* A tick is a picosecond. What all pipeline ranks do in a step is 26 days at most, so
 * that no sum of ticks leaves 63 bits, with four times as many for what waits. */
#define SIM_TICKS 1e12
#define SIM_DAYS  26.0

/* Ranks that are not alike; 0: they are. */
typedef struct SimSkew {
  double slow; /* kernels of one rank take so many times as long, and all that run the */
  int pp;      /* program of this pipeline rank wait for it */
  double experts; /* rows of the experts of the busiest rank, over the mean */
} SimSkew;

typedef struct SimOptions {
  SheetRates rates;
  const CostTable *table; /* measured times, or NULL */
  /* A rank begins the next step when it has done its own work of this one: no sum over
   * pipeline ranks stands between steps, as where Zero Bubble's post-validation looks at
   * the norm beside the next step. The step is then the longest time from the first to
   * the last work of a rank. */
  bool steps_overlap;
  bool sends_block; /* ranks stand still for what they send to other pipeline ranks, */
  bool tp_blocks;   /* and inside units for collectives of tp */
  SimSkew skew;
  /* NULL, or as in RunCosts */
  void (*ran)(void *ud, int pp, const Instr *in, int64_t from, int64_t to);
  void (*waited)(void *ud, int pp, const RankWait *w);
  void *ud;
} SimOptions;

typedef struct SimReport {
  double seconds;
  double flops, recomputed; /* of all ranks; recomputed: of those */
  double peak;              /* flop/s of all GPUs in the compute type */
  int64_t tokens;
  int ranks, npp;
  SimRank *rank; /* [npp] */
  SimWait *wait; /* the longest first */
  int nwait;
  SimOp *op; /* what takes longest first */
  int nop;
  double from[COST_FROM_N]; /* sums over `op` */
} SimReport;

/* The field of the plan that the clock needs and that is missing, and why; NULL: none. */
const char *sim_lacks(const Plan *plan, const Mesh *m, const char **why);
/* WEFT_EPLAN names such a field, or says that a step is longer than SIM_DAYS. */
weft_status sim_check(const Compiled *c, const Plan *plan, const SimOptions *o, Arena *a,
                      weft_error *e);
/* requires that, or gives its error */
weft_status simulate(const Compiled *c, const Plan *plan, const SimOptions *o, Arena *a,
                     SimReport *out, weft_error *e);

#endif
