/* front.h - the units of a plan after the passes before the pipeline: what they keep, run
 * and send on one rank, without their code. Plans that differ only in their stages, their
 * schedule and the number of microbatches share it. */
#ifndef WEFT_FRONT_H
#define WEFT_FRONT_H

#include "build.h"

/* What one call of a unit's body does. */
typedef struct UnitWork {
  double flops;
  double seconds;             /* of its kernels, by the roofline of the cluster's GPU */
  double bytes[AX_N][COLL_N]; /* that collectives work on, the larger side */
  int count[AX_N][COLL_N];
} UnitWork;

typedef struct Front {
  Arena *arena;
  Build b; /* st, fwd, bwd, sends, microbatches: not set */
  CompileInput in;
  Plan plan;
  Mesh mesh;
  UnitWork (*work)[3]; /* [unit][phase F, I, W] */
  int *group, nwhat;   /* Interval.what -> number of its size, -1: no bytes */
  uint64_t *size;      /* by that number: aligned bytes */
  int nsize;
  double widest; /* elements of the largest tensor but parameters, for each sequence */
} Front;

/* Runs the passes on a finished logical graph in `scratch` and keeps the result in `a`;
 * of `in` nothing is kept. Axes of the mesh but pp are those of the plan, except that any
 * dp above 1 may be given as 2: a rank has the same bytes and does the same work. */
weft_status front_new(const CompileInput *in, Arena *scratch, Arena *a, Front **out,
                      Diags *d, weft_error *e);
/* The same text for fronts whose buffers live equally long on equal stages and schedules
 * and have equal sizes where the others have, whatever these sizes are. */
void front_shape(const Front *f, Text *out);

#endif
