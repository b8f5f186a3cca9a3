/* arena_layout.h - the static part of a pp rank's arena: parameters, state, inputs,
 * scalars. */
#ifndef WEFT_LAYOUT_H
#define WEFT_LAYOUT_H

#include "vm/storage/offsets.h"
#include "vm/pipeline/stages.h"

/* A block whose gradients are partial. They are summed over sum[0], and where that leaves
 * a part of a sum over sum[1], too (0: it does not). */
typedef struct Bucket {
  int block; /* in Layout.regions */
  AxisSet sum[2];
  bool scattered;  /* what SCATTER left is summed, once it is complete; if anything */
  uint64_t chunks; /* local chunks that write them, a bit each */
  int first, n;    /* in Layout.regions.param */
} Bucket;
/* Sums in another type than that of gradients go through places of their own. */
enum { WIRES = 2 };
typedef struct Layout {
  Regions regions;
  int *of; /* Compiled.param -> index in regions.param, -1 */
  VEC(Bucket) bucket;
  DType reduce; /* in which gradients are summed over data-parallel ranks */
  uint64_t wire[WIRES], wire_bytes; /* for sums of buckets in that type, if not f32 */
  int group;                        /* plan_reshard_group */
  AxisSet group_axes;               /* over these axes */
  uint64_t input[IN_N];
  uint64_t scalars, seed;
  uint64_t work, work_bytes; /* scratch of what a rank does once a step */
  bool offloads;             /* state lies on the host, where the optimizer runs: */
  uint64_t host_scalars;     /* there it has the scalars, */
  uint64_t host_grad;        /* the gradients of a run, */
  uint64_t host_work;        /* and the parameters that come of it, on their way back */
  uint64_t host_end;         /* bytes of the host's arena */
  uint64_t end;              /* activations begin here */
  uint64_t kept; /* bytes from `end` on that the optimizer keeps to undo a step,
                    once the activations are dead */
} Layout;
/* Axes over which ranks have different data, in sums of gradients. */
enum { AXES_OF_DATA = AXES_DP_CP | AXIS_BIT(AXIS_EP_SHARD) };
/* The axes over which the plan's strategy cuts state, gradients or parameters flat; 0 if
 * it does not or they have one rank. */
AxisSet flat_axes(const Plan *plan, const Mesh *m);
/* The axes of a group of plan_reshard_group. */
AxisSet group_axes(const Mesh *m);
/* Regions lie in `keep`, the rest in `scratch`. */
void layout(const Stages *st, const Plan *plan, const Mesh *m, int rank, int microbatches,
            Arena *keep, Arena *scratch, Layout *l);
/* Whether weights that ops see as one matrix (UnitCode.joined) are one in every region;
 * names two that are not. */
weft_status layout_check(const Stages *st, int rank, const Layout *l, weft_error *e);
/* The type in which sum 0 or 1 of a bucket is made. */
DType bucket_type(const Layout *l, const Bucket *b, int step);
/* What a rank gives to that sum, and what it needs of it: the same, or its shard. */
typedef struct BucketSum {
  Stretch from, to;
} BucketSum;
BucketSum bucket_extent(const Layout *l, const Bucket *b, int step);
/* Where a parameter of the rank begins in its region of this kind. */
uint64_t layout_at(const Layout *l, RegionKind kind, int param);
/* post_validation.c: the bytes that it keeps from the end of the static part on. */
uint64_t post_validation_bytes(const Optimizer *o, const Regions *s);
/* The inputs that a rank reads, 1 << InputKind, and the bytes of each for a step. */
uint64_t inputs_of(const Stages *st, int rank);
uint64_t input_bytes(int64_t microbatches, int64_t micro, int64_t tokens);
/* The workspace of a rank. */
uint64_t temp_of(const Stages *st, int rank);

#endif
