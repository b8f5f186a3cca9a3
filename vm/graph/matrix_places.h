/* matrix_places.h - where the elements of a matrix are in the pieces of it that ranks
 * have: what matrix_take and matrix_put of all devices go by. C++, too. */
#ifndef WEFT_MATRIX_PLACES_H
#define WEFT_MATRIX_PLACES_H

#include <stdint.h>

#ifdef __CUDACC__
#define PLACES __host__ __device__ static inline
#else
#define PLACES static inline
#endif

/* A matrix (rows, cols), cut into `pieces` along dimension `cut` of it: of each of
 * `parts` equal parts every piece has a run of equal length, the last ones with padding.
 */
typedef struct MatrixPlaces {
  int64_t first, box; /* element of a box where its piece begins; elements of a box */
  int64_t run, part;  /* of a part: what a piece has of it, all of it */
  int64_t cols;       /* of a piece */
  int pieces, parts, cut;
} MatrixPlaces;

PLACES MatrixPlaces matrix_places(int64_t rows, int64_t cols, int cut, int parts,
                                  int pieces, int64_t box, int64_t first) {
  MatrixPlaces p;
  p.first = first, p.box = box;
  p.pieces = pieces, p.cut = cut, p.parts = pieces > 1 && parts > 1 ? parts : 1;
  p.part = (cut ? cols : rows) / p.parts;
  p.run = (p.part + pieces - 1) / pieces;
  p.cols = cut ? p.run * p.parts : cols;
  return p;
}

/* Rows and columns of a piece. */
PLACES int64_t piece_rows(const MatrixPlaces *p, int64_t rows) {
  return p->cut ? rows : p->run * p->parts;
}

/* The element of the boxes, one behind the other, that has element (i, j). */
PLACES int64_t matrix_place(const MatrixPlaces *p, int64_t i, int64_t j) {
  int64_t *at = p->cut ? &j : &i, part = *at / p->part, in = *at % p->part;
  int64_t piece = in / p->run;
  *at = part * p->run + in % p->run;
  return piece * p->box + p->first + i * p->cols + j;
}

/* Element (i, j) of piece `piece` in the matrix: false if it is padding. */
PLACES int matrix_element(const MatrixPlaces *p, int64_t piece, int64_t *i, int64_t *j) {
  int64_t at = p->cut ? *j : *i, in = piece * p->run + at % p->run;
  at = at / p->run * p->part + in;
  *i = p->cut ? *i : at; /* no pointer to one of them: GPUs have none to registers */
  *j = p->cut ? at : *j;
  return in < p->part;
}

#endif
