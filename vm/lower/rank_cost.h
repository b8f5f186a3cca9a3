/* rank_cost.h - for each pipeline rank its parameters, work and transfers, and its exact
 * bytes under a schedule, without programs: what a sweep needs of a plan. */
#ifndef WEFT_SHARE_H
#define WEFT_SHARE_H

#include "vm/pipeline/stages.h"
#include "lifetimes.h"

/* Collectives of a step that belong to no microbatch. */
typedef enum {
  MOVE_REDUCE,  /* all-reduces of gradients, */
  MOVE_SCATTER, /* and reduce-scatters of those that are not unsharded for a while */
  MOVE_GATHER,  /* parameters that are stepped in shards and stored whole */
  MOVE_WHOLE    /* for the step of whole matrices, or of their rows and columns */
} StepMoveKind;
typedef struct StepMove {
  StepMoveKind kind;
  AxisSet axes;    /* those of their communicator: experts have others than the rest */
  uint64_t bytes;  /* of all of a kind over these axes, one way */
  uint64_t chunks; /* of reductions: local chunks that write the gradients, one bit each;
                      those of other chunks are moves of their own */
} StepMove;
typedef VEC(StepMove) StepMoves;
void step_move_add(StepMoves *to, StepMove x, Arena *a);

typedef struct RankCost {
  uint64_t fixed;  /* parameters, gradients, state and scalars */
  uint64_t copies; /* ... of these what another rank has too: tied parameters */
  uint64_t temp;   /* workspace, besides the buffers */
  /* at least this many bytes in place of the buffers after the last action */
  uint64_t kept;
  int inputs;       /* number of inputs of a whole step */
  uint64_t stepped; /* elements that the optimizer steps on this rank, with padding */
  StepMoves moves;
  double products; /* flops of the step of whole matrices */
  uint64_t tied;   /* bytes of tied weights that are summed over pp ranks, per step */
  uint64_t sent;   /* bytes to other pipeline ranks, per microbatch */
  UnshardedList unsharded;
  BufferSizes sizes[AREA_N]; /* of buffers with a lifetime */
  UnitWork work[BODIES];     /* per microbatch, all chunks; by Phase */
} RankCost;

typedef struct RankCosts {
  Stages st;
  RankCost *rank; /* [st.ranks] */
} RankCosts;

/* requires stages in out->st. `m` tells which axes have members; `sizes`: of activations.
 */
void rank_costs(const Plan *plan, const Mesh *m, const BufferSizes *sizes, Arena *scratch,
                Arena *a, RankCosts *out);

/* whole_matrices.c: adds what the step of all matrices of a rank moves, and returns its
 * flops; requires the regions of `l`. */
double matrix_cost(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                   Arena *scratch, Arena *a, StepMoves *out);

/* factored_step.c: adds sums over rows and columns. */
void factored_cost(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                   Arena *scratch, Arena *a, StepMoves *out);

/* Lifetimes of the buffers of a rank, by area. */
typedef Lifetimes RankLives[AREA_N];
/* requires the order of sends; establishes those of all ranks. */
RankLives *rank_lives(const RankCosts *c, const Transfers *t, const Strategy *how,
                      Arena *scratch, Arena *a);

typedef struct RankMemory {
  uint64_t bytes; /* of the worst rank; if above the limit, a lower bound */
  int rank;       /* the worst rank */
  bool over;      /* more than the limit */
  /* Of all ranks without any buffer and without copies: the same however layers are cut,
   * but for padding, so that one rank at least has as much. Of a floor only. */
  double mean;
} RankMemory;
/* Exactly Program.arena_bytes of the worst rank for `microbatches` in a step; `l` of each
 * rank, `eval` the same of the program that evaluates, or NULL. */
RankMemory rank_memory(const RankCosts *s, const RankLives *l, const RankLives *eval,
                       int64_t microbatches, uint64_t limit, Arena *scratch);
/* A lower bound of it without lifetimes: of buffers only the frames of the microbatches
 * in flight. `splits`: the schedule has W apart from I somewhere. */
RankMemory rank_memory_floor(const RankCosts *s, const Timeline *when, bool splits,
                             int64_t microbatches, uint64_t limit);

/* ---- step_estimate.c ---- */
typedef struct Estimate {
  double flops;      /* per step, all ranks */
  double recomputed; /* the part of them that is repeated: see Body */
  double tp, cp, ep, dp,
      pp; /* bytes that the busiest rank passes to collectives and transfers per step; dp:
             also those over dp and cp together */
  double ep_even; /* of ep if experts are balanced; ep itself is the maximum */
  double seconds; /* per step; 0 if the plan names no GPU */
  double even; /* of that the work of all microbatches, if all ranks had the same: no cut
                  of the layers and no schedule is faster */
} Estimate;
/* On the real mesh, with the actions of the schedule one after the other, each as long as
 * the work of its stage. `schedule` is that of a step, all its rounds, with so many
 * `microbatches`; `when`: of timeline_run. Without
 * lifetimes (`l` NULL) gathers and copies of unsharded buckets are left out: both bytes
 * and time are lower bounds. */
Estimate estimate(const RankCosts *s, const RankLives *l, const Plan *plan, const Mesh *m,
                  int64_t microbatches, const Schedule *schedule, const Timeline *when,
                  Arena *scratch);

#endif
