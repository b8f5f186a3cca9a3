/* sequence.h - which tokens of a sequence the ranks of cp have: the one map for what is
 * read, labels, positions, documents and who sees whom.
 *
 * A sequence of T tokens is cut into n runs, and rank r has run r; with `zigzag` into 2n
 * runs, and rank r has runs r and 2n-1-r: then causal attention is the same work on all of
 * them. */
#ifndef WEFT_SEQUENCE_H
#define WEFT_SEQUENCE_H

#include <stdint.h>

#include "vm/base/base.h"

typedef struct SeqPiece {
  int64_t run;           /* tokens of a run */
  int runs;              /* 1 or 2 */
  int64_t first[2];      /* position of the first token of each */
} SeqPiece;

/* What rank r of n has; n divides T, with zigzag twice n. */
static inline SeqPiece seq_piece(int64_t T, int n, int r, bool zigzag) {
  int64_t run = zigzag ? T / (2 * n) : T / n;
  SeqPiece p = {run, zigzag ? 2 : 1, {r * run, (2 * n - 1 - r) * run}};
  return p;
}
static inline SeqPiece seq_whole(int64_t T) {
  return seq_piece(T, 1, 0, false);
}
/* The position of local place i. */
static inline int64_t seq_at(const SeqPiece *p, int64_t i) {
  return p->first[i / p->run] + i % p->run;
}
/* The tokens of a row that are here. */
static inline void seq_take(const SeqPiece *p, const int32_t *row, int32_t *to) {
  for (int k = 0; k < p->runs; k++)
    memcpy(to + k * p->run, row + p->first[k], (size_t)p->run * sizeof *to);
}

#endif
