/* stages.h - which units each pipeline stage runs, on which rank, which tensors cross
 * between stages, and which ranks hold a parameter. */
#ifndef WEFT_STAGES_H
#define WEFT_STAGES_H

#include "schedule.h"
#include "vm/code/units.h"

/* Tensors that cross the boundary between two stages: indices into Units.edge. */
typedef struct Cross {
  int32_t *at;
  int n;
} Cross;

/* The pp ranks that hold a parameter, ascending; the first one owns it. */
typedef struct Holders {
  int *pp, npp;
} Holders;

typedef struct Stages {
  const Units *u;
  int n, ranks, chunks; /* n = ranks * chunks; chunks: of each rank */
  int *first;           /* [n + 1]: units first[s] .. first[s+1]-1 */
  int *of_unit;         /* unit -> stage */
  int *rank, *chunk;    /* the rank and chunk of each stage: see schedule_where */
  int *at;              /* [rank * chunks + chunk]: the stage there */
  Cross *fwd, *bwd;     /* of the boundary between stages s and s + 1 */
  Holders *holders;     /* of each parameter */
} Stages;

/* requires units; establishes a stage for each. Of `shape` only ranks, virtual_stages and
 * v_placement are read. Problems become diagnostics in `d`. */
bool stages(const Units *u, const PpPlan *pp, const Schedule *shape, Arena *a,
            Stages *out, Diags *d);
/* microbatch_order.c: whether each stage with units that add up something over a step
 * runs the forwards of microbatches in their order; the first that does not is told. */
bool microbatches_in_order(const Stages *st, const Schedule *s, Diags *d);
/* stage_balance.c: first[0 .. stages] such that the most expensive stage is as cheap as
 * possible; there are at least as many units as stages. */
void stage_balance(Arena *a, const double *cost, int units, int stages, int *first);

static inline int unit_rank(const Stages *st, int unit) {
  return st->rank[st->of_unit[unit]];
}
static inline int stage_at(const Stages *st, int rank, int chunk) {
  return st->at[rank * st->chunks + chunk];
}
/* The tensors that enter a stage from the one before it (forward) or after it; NULL if
 * there is none. */
const Cross *entering(const Stages *st, int stage, bool forward);

#endif
