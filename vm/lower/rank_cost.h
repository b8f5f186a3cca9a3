/* rank_cost.h - what each pipeline rank holds, computes and sends, and its exact bytes
 * under a schedule, without programs: what a sweep needs of a plan. */
#ifndef WEFT_SHARE_H
#define WEFT_SHARE_H

#include "vm/pipeline/stages.h"
#include "lifetimes.h"

typedef struct RankCost {
  uint64_t fixed;   /* parameters, gradients, state and scalars */
  uint64_t temp;    /* workspace, beside the buffers */
  uint64_t kept;    /* at least so many bytes in their place after the last one */
  int inputs;       /* how many inputs of a whole step it keeps */
  uint64_t stepped; /* elements that the optimizer steps here, with padding */
  /* Bytes, once a step: of gradients that are reduced, or scattered, over dp, and over tp
   * (where both, over each); of parameters that are gathered over dp; and of those that
   * other pipeline ranks hold, too. */
  uint64_t reduced, scattered, reduced_tp, gathered, tied;
  uint64_t sent; /* bytes to other pipeline ranks, per microbatch */
  UnshardedList held;
  BufferSizes sizes[AREA_N]; /* of what lives for a while */
  UnitWork work[BODIES];     /* of one microbatch, all chunks; by Phase */
} RankCost;

typedef struct RankCosts {
  Stages st;
  RankCost *rank; /* [st.ranks] */
} RankCosts;

/* requires stages in out->st. `m` tells which axes have members; `sizes`: of activations.
 */
void rank_costs(const Plan *plan, const Mesh *m, const BufferSizes *sizes, Arena *scratch,
                Arena *a, RankCosts *out);

/* Lifetimes of the buffers of a rank, by area. */
typedef Lifetimes RankLives[AREA_N];
/* requires the order of sends; establishes those of all ranks. */
RankLives *rank_lives(const RankCosts *c, const Transfers *t, const Strategy *how,
                      Arena *scratch, Arena *a);

typedef struct RankMemory {
  uint64_t bytes; /* of the worst rank; a lower bound if over the limit */
  int rank;       /* which that is */
  bool over;      /* more than the limit */
} RankMemory;
/* Exactly Program.arena_bytes of the worst rank for `microbatches` in a step; `l` of each
 * rank, `eval` the same of the program that evaluates, or NULL. */
RankMemory rank_memory(const RankCosts *s, const RankLives *l, const RankLives *eval,
                       int64_t microbatches, uint64_t limit, Arena *scratch);
/* Looks at what is there without any buffer: over, or nothing known. */
RankMemory rank_memory_floor(const RankCosts *s, int64_t microbatches, uint64_t limit);

/* ---- step_estimate.c ---- */
typedef struct Estimate {
  double flops;              /* of a step, all ranks */
  double recomputed;         /* of those, what recompute adds */
  double tp, cp, ep, dp, pp; /* bytes that the busiest rank gives to operations of a step;
                            dp: what is summed or gathered over dp and cp together, too */
  double
      ep_even; /* of ep, if all experts get the same; ep is the most that there can be */
  double seconds; /* of a step; 0 without the figures of a GPU */
} Estimate;
/* On the real mesh, with the idle share that the schedule has in units. */
Estimate estimate(const RankCosts *s, const RankLives *l, const Plan *plan, const Mesh *m,
                  int64_t microbatches, double bubble);

#endif
