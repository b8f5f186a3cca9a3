/* flat_params.h - the flat parameter buffer of a pp rank.
 *
 * It has what learns first, then what is frozen, which has no place in regions of
 * gradients and states. It has all parameters with weight decay first, then all without,
 * group by group; within these, parameters are grouped by the axes that shard them, then
 * by whether this rank counts them in the norm, then by the axes over which their
 * gradients are partial. Within such a class parameters are in the order in which the
 * backward completes their gradients, last units first, so that a bucket (Block) is
 * contiguous. Norm and optimizer run over whole classes, however many buckets there are,
 * unless a region that is stored whole is stepped in shards. Weights of fused projections
 * are adjacent in this order and never split between buckets.
 *
 * A strategy over data-parallel ranks is three switches per parameter: shard the
 * optimizer state (master weights and moments), the gradients, the parameters that ops
 * read (ZeRO 1, 2, 3). Experts have replicas over ep_shard and are sharded over that. */
#ifndef WEFT_FLAT_PARAMS_H
#define WEFT_FLAT_PARAMS_H

#include "vm/pipeline/stages.h"
#include "vm/storage/memory_plan.h"

/* What the strategy shards, and over which axes. */
typedef struct Cuts {
  struct Flat {
    AxisSet axes; /* 0: not sharded */
    int ways;
  } flat[2]; /* [0]: parameters of experts; [1]: all others */
  const Mesh *mesh;
  bool grads, params;
  OptimizerKind optimizer;
  int64_t persistence; /* parameters with fewer elements are not sharded (stage 3) */
  bool host_state, host_params;
  DType work;   /* of the parameters that ops read */
  bool in_bits; /* states are stored in blocks of codes */
} Cuts;

/* What decides the position of a parameter in the buffer. */
typedef struct FlatParam {
  Stored stored;
  bool shared; /* of experts, replicated over ep_shard */
  struct Flat flat;
  bool grad, work; /* gradient, parameter: stored as shards */
  bool decay, frozen;
  bool matrix;     /* stepped as a whole: it has one state */
  int64_t factors; /* elements of averages of its rows and columns, on this rank; 0: it
                      has states of its own size */
  bool few;        /* its states are in f32, though others are in blocks of codes */
  uint8_t dtype;   /* DType that it is stored in where that is not the plan's to say */
  int32_t group;
  float share;
  AxisSet cut, partial; /* axes that shard it by its style; axes over which its gradient
                           is partial */
  uint64_t chunks;      /* local chunks that use it, one bit each */
  int use;              /* position in the order of first use */
  int unit;             /* the first unit that uses it */
  bool behind; /* adjacent to the parameter before it, with which it is one matrix */
  /* elements of it and of the parameters adjacent to it in that sense */
  int64_t together;
  bool several, tied; /* used by several units; by several pp ranks */
} FlatParam;

static inline bool cut_flat(const struct Flat *f) { return f->ways > 1; }
static inline int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

/* The axes over which the plan's strategy shards optimizer state, gradients or
 * parameters; 0 if it does not or these axes have one rank. */
AxisSet flat_axes(const Plan *plan, const Mesh *m);
Cuts flat_cuts(const Plan *plan, const Mesh *m);
/* At least as many parameters as the rank has. */
int flat_count(const Stages *st, int rank);
/* Collects the parameters of the rank's units in the order of first use; returns their
 * number. */
int flat_collect(const Stages *st, const Cuts *cuts, int rank, FlatParam *row, int *of);
/* For qsort: their order in the buffer. */
int flat_order(const void *x, const void *y);
/* Assigns positions and buckets. Every parameter and every shard begins at an aligned
 * address in each region, and where one has blocks of codes, a block. A bucket has the
 * parameters of one unit if parameters or gradients are sharded, else at most `limit`
 * elements, or one matrix. Returns the elements that this rank steps. */
int64_t flat_fill(Regions *s, int *of, FlatParam *row, int n, DType dtype,
                  const Cuts *cuts, int64_t limit, Arena *a);

#endif
