/* place.h - what dimensions of tensors mean, and how ranks share them out: tags, the axes
 * that cut them, and placements. Functions are in graph_names.c. */
#ifndef WEFT_PLACE_H
#define WEFT_PLACE_H

#include "vm/base/base.h"
#include "vm/mesh/mesh.h"

/* What a dimension means. vm/mesh/axes.def says which axis may cut which tag. */
typedef enum {
  TAG_NONE,
  TAG_BATCH,
  TAG_SEQ,
  TAG_HIDDEN,
  TAG_HEAD,
  TAG_KV_HEAD,
  TAG_FFN,
  TAG_VOCAB,
  TAG_HEAD_DIM,
  TAG_POSITION,
  TAG_TOKEN,  /* batch and seq as one */
  TAG_RAGGED, /* rows of all experts, how many of each the data says */
  TAG_EXPERT,
  TAG_GROUP, /* heads with a state, in groups */
  TAG_N
} DimTag;
const char *tag_name(DimTag t); /* "batch", "seq", ... */
int tag_parse(const char *s);   /* -1 if unknown */

typedef struct Dim {
  int64_t size;  /* global (logical) size */
  int64_t local; /* size on one rank; shard() sets it, before: = size */
  uint8_t tag;
  uint8_t parts; /* a cut takes slice r of each of `parts` equal parts (packed qkv) */
  int32_t unit;  /* a cut is a multiple of this (head_dim for heads) */
} Dim;

/* Axes that placements speak of. Communication maps them to mesh axes. */
typedef enum {
#define SHARD(id, name, factors, tags) AX_##id,
#include "vm/mesh/axes.def"
  AX_N
} ShardAxis;
AxisSet ax_mesh(ShardAxis a);       /* AX_DP -> dp_replicate + dp_shard, ... */
AxisSet ax_set_mesh(uint32_t axes); /* of a set of ShardAxis bits; joined */
/* Whether both are parts of one factor: what changes alike over them is one change. */
bool ax_of_one_factor(ShardAxis a, ShardAxis b);
bool ax_expert(ShardAxis a);      /* of the expert mesh */
const char *ax_name(ShardAxis a); /* "dp", "cp", "tp" */
bool ax_may_cut(ShardAxis a, DimTag t);

/* >= 0: S(d). PL_OWN: each rank has rows of its own tokens, of the experts of all. */
enum { PL_R = -1, PL_P = -2, PL_MAX = -3, PL_OWN = -4 };
typedef struct Place {
  int8_t on[AX_N];
} Place;
bool place_eq(Place a, Place b);
Place place_whole(void); /* R on every axis */
/* The mesh axes that cut something: of them the placement is S. */
AxisSet place_cuts(Place p);
/* The mesh axes over which it is a part of a sum. */
AxisSet place_partial(Place p);
/* The cuts of dimension `dim`, outermost first: the axes of the next one, from number *x
 * on, 0 at the end. Parts of one factor that cut alike are one. */
AxisSet place_next_cut(Place p, int dim, int *x);
/* The axes that cut dimension `dim`. */
AxisSet place_dim_cuts(Place p, int dim);
/* Whether an axis cuts dimension `dim`. */
bool place_cuts_dim(Place p, int dim);
/* Elements of a dimension of `size` that each rank holds: the axes, n[] large, cut one
 * after the other, and what does not divide is padded each time. */
int64_t place_local(Place p, int dim, int64_t size, const int n[AX_N]);
enum { PLACE_STR = 64 };
/* "dp:S(0) cp:R tp:R", or, of one that is cut there, over the expert mesh. */
const char *place_str(Place p, char buf[PLACE_STR]);

#endif
