/* region.h - where the parameters of a pp rank live, as a value.
 *
 * All parameters of a pp rank form one flat buffer, the *row* (Megatron: param-and-grad
 * buffer; FSDP1: FlatParameter). Each kind of state (the copy that ops read, master
 * weights, gradients, optimizer states) is a *region*: elements [first, first + whole) of
 * the row in one dtype, at one offset of the arena. Ranks that differ in anything but pp
 * have equal regions; the part of a parameter that a rank holds in one is a Piece
 * (piece.h).
 *
 * The row is cut into *blocks* (buckets): parameters that are gathered, reduced and
 * stepped together. A region is replicated, or cut flat over some axes: each block into
 * equal shards, one per rank, with padding where needed. A rank's shards are contiguous
 * in the region, so neighbouring parameters with the same treatment are one range there
 * too. A parameter lies in at most one region of each kind, and so does a block.
 *
 * A region of *factors* has in the place of matrices the averages of their rows and their
 * columns (Adafactor). They are of whole matrices, so all ranks that have parts of these
 * hold them: only experts are cut. */
#ifndef WEFT_REGION_H
#define WEFT_REGION_H

#include "vm/graph/graph.h"

typedef enum {
#define REGION(id, name, class) REGION_##id,
#include "region.def"
  REGION_N
} RegionKind;
/* The region of state k of the optimizer, from 0 on. */
static inline RegionKind region_state(int k) { return (RegionKind)(REGION_STATE1 + k); }
extern const char *const region_name[REGION_N];  /* "work", ... */
extern const char *const region_class[REGION_N]; /* "parameters", ... */

/* One logical parameter, for loading, gathering and checkpoints. */
typedef struct CompiledParam {
  const char *name;
  const char *like; /* see Param */
  int ndim;
  int64_t dim[MAX_DIM];   /* global */
  uint8_t parts[MAX_DIM]; /* see Dim.parts */
  Place place;            /* how its dimensions are sharded, before any flat cut */
  uint8_t init;           /* InitKind */
  float std, share;
  bool decay, frozen; /* frozen: it has a value and nothing else */
  bool matrix;        /* stepped as a whole: of layers alone, with two dimensions or, of
                       * experts, three */
  int64_t factors;    /* elements of the averages of rows and columns that are its state,
                       * of each expert; 0: it has an element for each of its own */
  int32_t group;
  uint8_t adapter, quant; /* these, share, decay, group, */
  double alpha;           /* alpha and saved: see Param */
  bool saved;
  int npp; /* pp ranks that hold it */
  int *pp; /* ascending; the first one owns it */
} CompiledParam;
int64_t param_count(const CompiledParam *p); /* global elements */
/* Elements of a state of the optimizer. */
int64_t param_state_count(const CompiledParam *p);
/* Elements of the model's weight that it is, whatever it is stored in: twice as many as
 * bytes of codes; scales are none. */
int64_t param_weights(const CompiledParam *p);

/* A parameter in the row: elements [at, at + count), the local shape. */
typedef struct Stored {
  int32_t param; /* Compiled.param */
  int32_t block; /* Regions.block */
  bool owner; /* counts in the norm and is gathered from here (tied weights: one owner) */
  int64_t at, count;
  int64_t factors; /* where its averages begin in a region of factors */
} Stored;

/* Elements [first, first + whole) of the row, including the padding behind the last of
 * the parameters param[at] .. param[at + n - 1]. */
typedef struct Block {
  int64_t first, whole;
  int at, n;
} Block;

typedef struct Region {
  uint8_t kind;         /* RegionKind */
  uint8_t dtype;        /* DType */
  bool spread;          /* flat, but stored whole: shards lie at their places, and the
                         * rest is undefined after the step */
  bool factors;         /* of the matrices of its range; never flat */
  AxisSet flat;         /* axes over which blocks are cut; 0: replicated */
  int ways;             /* number of shards; 1: replicated */
  int64_t first, whole; /* in the row: from the start of a block to the end of one */
  int64_t count; /* elements on each rank: whole, whole / ways, or those of factors */
  uint64_t off;  /* in the arena, or in the host arena: see HOST_BASE */
} Region;

/* Offsets from here on are in the rank's host arena, which holds what is offloaded. */
#define HOST_BASE ((uint64_t)1 << 60)
static inline bool on_host(uint64_t off) { return off >= HOST_BASE; }

typedef struct Regions {
  Stored *param; /* in the order of the row */
  int nparam;
  Block *block; /* of the whole row, in its order */
  int nblock;
  Region *region;
  int nregion;
} Regions;

/* This pp rank's entry of a parameter, or NULL. */
const Stored *regions_param(const Regions *s, int param);
/* The region of this kind that holds a parameter, or NULL. */
const Region *regions_find(const Regions *s, RegionKind kind, const Stored *p);
/* The region with the value that the optimizer steps: master, or work where there is no
 * master. */
const Region *regions_value(const Regions *s, const Stored *p);
uint64_t region_bytes(const Region *r);
/* Bytes of its first n elements. */
uint64_t region_span(const Region *r, int64_t n);
/* The type in which checkpoints have its elements: its own, or f32 for blocks, which
 * another mesh may cut elsewhere. */
static inline DType region_saved(const Region *r) {
  return dtype_elements((DType)r->dtype) > 1 ? DT_F32 : (DType)r->dtype;
}
/* Offset in the arena of element `at` of the row; the region is stored whole. */
uint64_t region_at(const Region *r, int64_t at);

/* Neighbouring parameters of the row with the same treatment, including the padding
 * between them. If cut, it consists of whole blocks and means a rank's shards of them. */
typedef struct Stretch {
  int first, n;      /* in Regions.param */
  int64_t at, count; /* elements of the row */
  AxisSet flat;      /* as in Region */
  int ways;
} Stretch;
typedef bool (*Alike)(const CompiledParam *all, const Stored *a, const Stored *b);
/* The stretch after *r, which is {0} at the start; false at the end. Its parameters lie
 * in the same regions of these kinds (a set of 1 << RegionKind). If one of the regions is
 * flat the stretch is cut, and is one block unless all keep shards adjacent. */
bool regions_stretch(const Regions *s, const CompiledParam *all, unsigned kinds,
                     Alike alike, Stretch *r);
/* A block as a stretch, cut like the region `cut`, or whole if that is NULL. */
Stretch regions_block(const Regions *s, int block, const Region *cut);

/* The part of a region that a rank works on: `n` items (see DT_Q8) at `off`, or, with
 * `shard`, at the rank's shard over these axes from `off` on: see Operand.shard. */
typedef struct Extent {
  uint64_t off;
  int64_t n;
  AxisSet shard;
} Extent;
Extent region_extent(const Region *r, const Stretch *s);

#endif
