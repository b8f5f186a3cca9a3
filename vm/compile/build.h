/* build.h - what the passes of compile.c have made so far. */
#ifndef WEFT_BUILD_H
#define WEFT_BUILD_H

#include "units.h"
#include "vm/pipeline/transfers.h"
#include "vm/storage/layout.h"

typedef struct Build {
  const CompileInput *in;
  Arena *arena;
  Arena *scratch;        /* of one pp rank: emptied before the next */
  Diags *d;
  Sharded sh;
  double *cost;          /* of each unit: unit_costs */
  UnitCode *unit;
  Stages st;
  Cross *fwd, *bwd;      /* of the boundary between stages s and s + 1 */
  VEC(CommDesc) comm;
  int in_handles;        /* handles of all bodies: main ones come after */
  int microbatches;      /* of the whole step: schedule's x rounds */
  Timeline when;         /* when the schedule's actions run, if all take one unit */
  Sends *sends;          /* of each pp rank: to the rank after it, then to the one before */
  /* [stage * microbatches + mb]: number of the first item that the forward and the
   * backward of a stage receive. */
  int32_t *arrives[2];
  bool late_reduce;      /* a warning about REDUCE_GRAD was given */
} Build;

/* Fills c->param and c->params_total; requires stages. */
void describe_params(Build *b, Compiled *c);
/* The communicator over these axes (npp = 0) or these pp ranks; -1 if it has one member. */
int comm_for(Build *b, AxisSet axes, const int *pp, int npp);

#endif
