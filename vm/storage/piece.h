/* piece.h - what one rank holds of a parameter, and where that is in the whole parameter.
 *
 * Cuts of dimensions give every rank a box of equal size; a flat cut of the region then
 * takes a contiguous part of the box's elements in their order. Example: a (8, 4) weight
 * with tp=2 on dim 0 and dp_shard=2 flat: rank (dp 1, tp 0) has box rows 0..3,
 * elements 8..15 of it. */
#ifndef WEFT_PIECE_H
#define WEFT_PIECE_H

#include "region.h"

/* A dimension is `parts` equal parts of `size`; of each the rank has elements [first,
 * first + slice), and those past `valid` are padding, which is zero. */
typedef struct PieceDim {
  int64_t parts, size, first, slice, valid;
} PieceDim;

typedef struct Piece {
  const Region *region;
  int64_t at, count; /* elements [at, at + count) of the region here */
  int64_t from;      /* the first of them among the elements of the box */
  int ndim;
  PieceDim dim[MAX_DIM];
} Piece;
/* What `rank` has of a parameter in a region of `s`; nothing (count 0) is possible. */
Piece piece_make(const Mesh *m, const CompiledParam *p, const Regions *s,
                 const Stored *at, const Region *r, int rank);
/* Elements of its box: what a rank holds where no region cuts it flat. */
int64_t piece_box(const Mesh *m, const CompiledParam *p);
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
/* Of the ranks that hold copies of a piece, the first one on the owning pp rank. */
bool piece_gives(const Mesh *m, const CompiledParam *p, const Region *r, int rank);

/* A piece is a row of spans: n elements from `local` of the piece on are those from
 * `global` of the parameter on; then so many of padding. Either may be none. */
typedef struct Span {
  int64_t local, global, n, padding;
} Span;
int64_t piece_spans(const Piece *p);
Span piece_span(const Piece *p, int64_t i);
/* Span `i` and those after it that are as long: each begins so far behind the one before,
 * here and in the parameter. */
typedef struct SpanRun {
  Span first;
  int64_t count, local, global;
} SpanRun;
SpanRun piece_run(const Piece *p, int64_t i);
/* What a piece has of elements [from, to) of the parameter, as a piece. Stretches that
 * follow each other to its end leave nothing out: padding goes with what is before it. */
Piece piece_within(const Piece *p, int64_t from, int64_t to);

/* Between a whole parameter and a piece, p->count elements. */
void piece_cut(const Piece *p, const float *global, float *local);
void piece_paste(const Piece *p, const float *local, float *global);
/* L2 norm of the difference between a piece and its place in the whole, whose values are
 * rounded to `t`. */
double piece_distance(const Piece *p, DType t, const float *local, const float *global);

#endif
