/* factored_places.h - which elements of a shard are where in which matrix: what the
 * factored_* ops of all devices go by. C++, too.
 *
 * A parameter is M matrices behind each other from element `first` of a block on, of each
 * of which the rank has one piece (matrix_places.h); of the block it has `n` elements
 * from `base` on. */
#ifndef WEFT_FACTORED_PLACES_H
#define WEFT_FACTORED_PLACES_H

#include "matrix_places.h"

typedef struct FactoredPlaces {
  MatrixPlaces at; /* of the first matrix; `box` is unused */
  int64_t matrices, rows, cols;
  int64_t here;    /* rows of a piece */
  int64_t base, n; /* of the rank's shard */
  int64_t piece;
} FactoredPlaces;

/* With rows 0: all elements of a parameter are one row, of which the rank has `row`. */
PLACES FactoredPlaces factored_places(int64_t matrices, int64_t rows, int64_t cols,
                                      int64_t row, int cut, int parts, int pieces,
                                      int piece, int64_t first, int64_t n, int shard) {
  FactoredPlaces f;
  int64_t high = rows ? rows : 1;
  f.at = matrix_places(high, cols, cut, parts, rows ? pieces : 1, 0, first);
  if (!rows) f.at.cols = row;
  f.matrices = matrices, f.rows = high, f.cols = cols;
  f.here = piece_rows(&f.at, high);
  f.base = n * shard, f.n = n, f.piece = rows ? piece : 0;
  return f;
}

/* A run of elements of one row of the rank's piece. */
typedef struct RowRun {
  int64_t matrix, row; /* the row in the whole matrix, -1: padding */
  int64_t from, n;     /* elements of the shard; n 0: none are in it */
  int64_t first;       /* column in the piece of the first of them */
} RowRun;

PLACES RowRun factored_row(const FactoredPlaces *f, int64_t k) {
  RowRun r;
  int64_t i = k % f->here, j = 0, begin = f->at.first + k * f->at.cols;
  int64_t end = begin + f->at.cols, top = f->base + f->n;
  int64_t lo = begin > f->base ? begin : f->base, hi = end < top ? end : top;
  r.matrix = k / f->here;
  r.row = matrix_element(&f->at, f->piece, &i, &j) || f->at.cut ? i : -1;
  r.from = lo - f->base, r.first = lo - begin;
  r.n = hi > lo ? hi - lo : 0;
  return r;
}

/* The column in the whole matrix of one in the piece; -1: padding. */
PLACES int64_t factored_col(const FactoredPlaces *f, int64_t j) {
  int64_t i = 0;
  if (!f->at.cut) return j;
  return matrix_element(&f->at, f->piece, &i, &j) ? j : -1;
}

#endif
