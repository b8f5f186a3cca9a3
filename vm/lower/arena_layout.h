/* arena_layout.h - the static part of a pp rank's arena: parameters, gradients, optimizer
 * state, inputs, scalars. */
#ifndef WEFT_LAYOUT_H
#define WEFT_LAYOUT_H

#include "vm/storage/memory_plan.h"
#include "vm/pipeline/stages.h"

/* A gradient bucket: a Block whose gradients are partial. They are reduced over sum[0]
 * and, if they are partial over more axes, then over sum[1] (0: they are not). */
typedef struct Bucket {
  int block; /* index in Layout.regions */
  AxisSet sum[2];
  bool scattered;  /* gradients are reduce-scattered by unshard(); sum[] has what is left
                      after the last SCATTER */
  uint64_t chunks; /* local chunks that write them, one bit each */
  int first, n;    /* index in Layout.regions.param */
} Bucket;
/* Reductions in another type than that of gradients go through these buffers. */
enum { WIRES = 2 };
typedef struct Layout {
  Regions regions;
  int *of; /* Compiled.param -> index in regions.param, -1 */
  VEC(Bucket) bucket;
  DType reduce; /* see layout_reduce */
  bool *counts; /* of each block: routers' biases, whose gradients are counts */
  uint64_t wire[WIRES], wire_bytes; /* offsets and size of these buffers */
  int group;          /* plan_reshard_group: ranks that share an unsharded copy */
  AxisSet group_axes; /* the axes of such a group */
  uint64_t input[IN_N];
  uint64_t scalars, seed;
  uint64_t *sums_of; /* of each unit: what it adds up over a step, all together */
  uint64_t sums_at, sums_bytes;
  uint64_t work, work_bytes; /* scratch of the optimizer step */
  bool offloads; /* optimizer state is on the host, where the optimizer runs; then in the
                    host arena: */
  uint64_t host_scalars; /* copy of the scalars */
  uint64_t host_grad;    /* gradients of a range */
  uint64_t host_work;    /* new parameters of a range, copied back from there */
  uint64_t host_end;     /* bytes of the host arena */
  uint64_t end;          /* activations begin here */
  uint64_t kept; /* bytes from `end` on that the optimizer uses when activations are dead:
                    to undo a step (post_validation.c), or */
  uint64_t matrices; /* for whole matrices (matrix_step.c), or */
  uint64_t sums;     /* for sums over rows and columns (factored_step.c) */
} Layout;
/* Axes whose ranks have different data, in reductions of gradients. */
enum { AXES_OF_DATA = AXES_DP_CP | AXIS_BIT(AXIS_EP_SHARD) };
/* The axes of a group of plan_reshard_group ranks. */
AxisSet group_axes(const Mesh *m);
/* Regions are allocated in `keep`, the rest in `scratch`. */
void layout(const Stages *st, const Plan *plan, const Mesh *m, int rank, int microbatches,
            Arena *keep, Arena *scratch, Layout *l);
/* Checks that weights which ops read as one matrix (UnitCode.joined) are adjacent in
 * every region; the error names two that are not. */
weft_status layout_check(const Stages *st, int rank, const Layout *l, weft_error *e);
/* The type in which gradients of a block are reduced over data-parallel ranks. */
DType layout_reduce(const Layout *l, int block);
/* The region of the gradients of a block. */
const Region *layout_gradients(const Layout *l, int block);
/* The type in which reduction 0 or 1 of a bucket is made. */
DType bucket_type(const Layout *l, const Bucket *b, int step);
/* The gradients that a rank contributes to that reduction, and the result that it needs:
 * the same range, or its shard. */
typedef struct BucketSum {
  Stretch from, to;
} BucketSum;
BucketSum bucket_extent(const Layout *l, const Bucket *b, int step);
/* The offset of a parameter in its region of this kind. */
uint64_t layout_at(const Layout *l, RegionKind kind, int param);
/* post_validation.c: bytes from the end of the static part on that it uses. */
uint64_t post_validation_bytes(const Plan *p, const Regions *s);
/* matrix_step.c: the same, for whole matrices; requires the regions of `l`. */
uint64_t matrix_bytes(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                      Arena *scratch);
/* factored_step.c: the same, for sums over rows and columns. */
uint64_t factored_bytes(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                        Arena *scratch);
/* An error for a matrix that is cut in a way that is not put together. */
weft_status matrix_check(const Mesh *m, const Units *u, const Layout *l, weft_error *e);
weft_status factored_check(const Plan *plan, const Mesh *m, const Units *u,
                           const Layout *l, weft_error *e);
/* The inputs that a rank reads, as bits 1 << InputKind; and the bytes of an input for a
 * step. */
uint64_t inputs_of(const Stages *st, int rank);
uint64_t input_bytes(int64_t microbatches, int64_t micro, int64_t tokens);
/* The workspace of a rank. */
uint64_t temp_of(const Stages *st, int rank);

#endif
