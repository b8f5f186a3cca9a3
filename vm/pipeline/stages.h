/* stages.h - which units each stage of the pipeline runs, and what crosses between them. */
#ifndef WEFT_STAGES_H
#define WEFT_STAGES_H

#include "vm/compile/compile.h"

typedef struct Stages {
  int n;                 /* pp * virtual */
  int *first;            /* [n + 1]: units first[s] .. first[s+1]-1 */
  int *of_unit;          /* unit -> stage */
} Stages;
/* Tensors that cross a boundary between two stages. */
typedef struct Cross {
  Tid *at;
  int n;
} Cross;

/* What all ops of each unit cost, forward and backward, for one microbatch on one rank. */
double *unit_costs(const Graph *local, int units, Arena *a);
/* requires units and their costs; establishes a stage for each. Problems go to `d`. */
bool stage(const CompileInput *in, const double *cost, Stages *out, Diags *d);
/* stage_balance.c: first[0 .. stages] such that the dearest stage costs least; there are
 * at least as many units as stages. */
void stage_balance(Arena *a, const double *cost, int units, int stages, int *first);

struct Build;
/* requires stages; finds what crosses each boundary */
void stage_edges(struct Build *b);
/* The rank that runs a global stage. */
int stage_rank(const struct Build *b, int stage);
/* The tensors that enter a stage from the one before it (forward) or after it. */
const Cross *entering(const struct Build *b, int stage, bool forward);

#endif
