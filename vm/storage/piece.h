/* piece.h - what one rank holds of a parameter, and where in the whole that is.
 *
 * Sharded dimensions give every rank a box of equal size; a flat cut of the region then
 * takes a contiguous range of the box's elements. Example: a (8, 4) weight with tp=2 on
 * dim 0 and dp_shard=2 flat: rank (dp 1, tp 0) has box rows 0..3, elements 8..15. */
#ifndef WEFT_PIECE_H
#define WEFT_PIECE_H

#include "region.h"

/* A dimension is `parts` equal parts of `size`; of each part the rank has elements
 * [first, first + slice). Those past `valid` are padding, which is zero. */
typedef struct PieceDim {
  int64_t parts, size, first, slice, valid;
} PieceDim;

typedef struct Piece {
  const Region *region;
  int64_t at, count; /* elements [at, at + count) of the region on this rank */
  int64_t from;      /* index in the box of the first of them */
  int ndim;
  PieceDim dim[MAX_DIM];
} Piece;
/* The piece of a parameter that `rank` has in a region of `s`; may be empty (count 0). */
Piece piece_make(const Mesh *m, const CompiledParam *p, const Regions *s,
                 const Stored *at, const Region *r, int rank);
/* Elements of the box: what a rank holds in regions without a flat cut. */
int64_t piece_box(const Mesh *m, const CompiledParam *p);
/* Those of a piece's box, with padding. */
int64_t piece_padded(const Piece *p);
/* Whether the boxes of two pieces of a parameter are seen to have no element in common: a
 * dimension that is cut into as many parts has others, or none. */
bool piece_disjoint(const Piece *a, const Piece *b);
/* Elements [first, first + n) of a piece, as a piece. */
static inline Piece piece_part(const Piece *p, int64_t first, int64_t n) {
  Piece part = *p;
  part.at += first;
  part.from += first;
  part.count = n;
  return part;
}
/* The axes whose ranks hold different pieces; the others hold copies. */
AxisSet piece_axes(const CompiledParam *p, const Region *r);
/* True for one of the ranks with copies of a piece: the first on the owning pp rank. */
bool piece_gives(const Mesh *m, const CompiledParam *p, const Region *r, int rank);

/* A piece is a sequence of spans: n elements, from `local` of the piece and `global` of
 * the parameter on, then `padding` elements of it. Either may be 0. */
typedef struct Span {
  int64_t local, global, n, padding;
} Span;
int64_t piece_spans(const Piece *p);
Span piece_span(const Piece *p, int64_t i);
/* Span `i` and the following ones of equal length, with the distance from each to the
 * next, here and in the parameter. */
typedef struct SpanRun {
  Span first;
  int64_t count, local, global;
} SpanRun;
SpanRun piece_run(const Piece *p, int64_t i);
/* The part of a piece within elements [from, to) of the parameter, as a piece.
 * Consecutive stretches cover all of it: padding goes with what is before it. */
Piece piece_within(const Piece *p, int64_t from, int64_t to);

/* Copies p->count elements between a whole parameter and a piece. */
void piece_cut(const Piece *p, const float *global, float *local);
void piece_paste(const Piece *p, const float *local, float *global);
/* L2 norm of the difference between a piece and its place in the whole, whose values are
 * rounded to `t`. */
double piece_distance(const Piece *p, DType t, const float *local, const float *global);

#endif
