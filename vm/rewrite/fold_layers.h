/* fold_layers.h - equal layers are compiled once (as scan over layers does in JAX). */
#ifndef WEFT_FOLD_H
#define WEFT_FOLD_H

#include "vm/graph/graph.h"
#include "vm/plan/plan.h"

/* The first use of a parameter. */
typedef struct ParamUse {
  int32_t unit;        /* -1: not used, -2: used in several units */
  int32_t op, operand; /* op: counted from the first one of the unit */
} ParamUse;

typedef struct FoldRun {
  int first, last, left, back;
} FoldRun;

typedef struct Fold {
  const Graph *whole;
  Graph *g;      /* `whole` without the units that repeat another one */
  int *first_op; /* [units + 1] of `whole` */
  ParamUse *use; /* of each parameter of `whole` */
  /* Runs of equal units: units first .. last of `whole`, of which `left` to `back` - 1
   * are left out because they equal the unit before them. */
  VEC(FoldRun) run;
  int *like;         /* unit of `whole` -> unit of `g` that stands for it */
  int *unit, *param; /* unit, parameter of `g` -> of `whole` */
} Fold;

/* requires a finished forward graph; NULL if no unit repeats often enough to save
 * anything. */
Fold *fold_layers(const Graph *g, const Plan *plan, Arena *a);

#endif
