/* sequence.h - which tokens of a sequence each cp rank has. Inputs, labels, positions,
 * documents and attention masks all use this map.
 *
 * A sequence of T tokens is cut into n runs, and rank r has run r; with `zigzag` into 2n
 * runs, and rank r has runs r and 2n-1-r: causal attention is then equal work on all of
 * them. */
#ifndef WEFT_SEQUENCE_H
#define WEFT_SEQUENCE_H

#include <stdint.h>

#include "vm/base/base.h"

#ifdef __CUDACC__
#define SEQ_FN static inline __host__ __device__
#else
#define SEQ_FN static inline
#endif

typedef struct SeqPiece {
  int64_t run;      /* tokens of a run */
  int runs;         /* 1 or 2 */
  int64_t first[2]; /* position of the first token of each */
} SeqPiece;

/* What rank r of n has; n divides T, with zigzag twice n. */
static inline SeqPiece seq_piece(int64_t T, int n, int r, bool zigzag) {
  int64_t run = zigzag ? T / (2 * n) : T / n;
  SeqPiece p = {run, zigzag ? 2 : 1, {r * run, (2 * n - 1 - r) * run}};
  return p;
}
static inline SeqPiece seq_whole(int64_t T) { return seq_piece(T, 1, 0, false); }
/* The position of local place i. */
static inline int64_t seq_at(const SeqPiece *p, int64_t i) {
  return p->first[i / p->run] + i % p->run;
}
/* The tokens of a row that are here. */
static inline void seq_take(const SeqPiece *p, const int32_t *row, int32_t *to) {
  for (int k = 0; k < p->runs; k++)
    memcpy(to + k * p->run, row + p->first[k], (size_t)p->run * sizeof *to);
}

/* ---- windows ---- a query sees the last `window` tokens up to itself */

/* Pairs (u, v) of numbers below n with u - v < x. */
static inline int64_t seq_pairs_below(int64_t n, int64_t x) {
  int64_t less = n - 1 + x, rest = n - x;
  if (x <= 0) return less > 0 ? less * (less + 1) / 2 : 0;
  return rest > 0 ? n * n - rest * (rest + 1) / 2 : n * n;
}
/* Pairs of a query and a key that it sees, where each of n ranks has its queries and the
 * keys of the rank `step` before it; summed over the ranks. With one rank: of the whole
 * sequence. */
static inline int64_t seq_pairs(int64_t T, int n, int step, bool zigzag, int64_t window) {
  int64_t sum = 0;
  for (int r = 0; r < n; r++) {
    SeqPiece q = seq_piece(T, n, r, zigzag),
             k = seq_piece(T, n, (r - step + n) % n, zigzag);
    for (int i = 0; i < q.runs; i++)
      for (int j = 0; j < k.runs; j++) {
        int64_t apart = q.first[i] - k.first[j];
        sum += seq_pairs_below(q.run, window - apart) - seq_pairs_below(q.run, -apart);
      }
  }
  return sum;
}

/* ---- documents ---- each of those that share a sequence is cut by itself, with zigzag:
 * of 2n slots, with T / 2n places each, rank r has r and 2n-1-r, as it has runs of a
 * sequence that is one document. Slot c has of positions [a, b) of a document the c-th
 * chunk, at its places [seq_place(a), seq_place(b)): lengths differ by one at most, and
 * whatever lengths documents have, slots are full. Rows of a tensor then stand in the
 * order of slots. */

SEQ_FN int64_t seq_place(int64_t x, int slots, int c) { return (x + c) / slots; }
/* The sum of seq_place(x) of the slots before c. */
SEQ_FN int64_t seq_before(int64_t x, int slots, int c) {
  int64_t more = x % slots + c - slots;
  return x / slots * c + (more > 0 ? more : 0);
}
/* The position that has place i of slot c, of a document that begins at a and ends at b.
 */
SEQ_FN int64_t seq_in_document(int64_t a, int64_t b, int slots, int c, int64_t i) {
  return a + seq_before(b, slots, c) - seq_before(a, slots, c) + i -
         seq_place(a, slots, c);
}

typedef struct SeqToken {
  int64_t at, start; /* position, and that of the first token of its document */
} SeqToken;

/* What stands in row y of T in the order of slots. `starts[y]` is the start of its
 * document; position x is in the same document as place x / slots of slot slots-1 - x %
 * slots. */
SEQ_FN SeqToken seq_token(const int32_t *starts, int64_t T, int slots, int64_t y) {
  int64_t length = T / slots, i = y % length, lo, hi = T;
  int c = (int)(y / length);
  int32_t a = starts[y];
  lo = slots * (i + 1) - c; /* behind a position of the document */
  while (lo < hi) {
    int64_t x = lo + (hi - lo) / 2;
    if (starts[(slots - 1 - x % slots) * length + x / slots] > a)
      hi = x;
    else
      lo = x + 1;
  }
  SeqToken t = {seq_in_document(a, lo, slots, c, i), a};
  return t;
}

#endif
