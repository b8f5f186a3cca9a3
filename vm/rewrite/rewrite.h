/* rewrite.h - for passes that fuse ops: the readers of a tensor, and writing an op over
 * another one. Replaced ops have no results any more and leave the graph at the end. */
#ifndef WEFT_REWRITE_H
#define WEFT_REWRITE_H

#include "vm/graph/graph.h"

/* Readers are those of the graph as it was given: of tensors that a pass adds nothing is
 * known. */
typedef struct Rewriter {
  Graph *g;
  int *first, *reader; /* ops that read tensor t: reader[first[t] .. first[t + 1] - 1] */
  bool *gone;          /* of each op */
} Rewriter;

Rewriter rewrite_begin(Graph *g);
void rewrite_end(Rewriter *r);

static inline int readers_of(const Rewriter *r, Tid t) {
  return r->first[t + 1] - r->first[t];
}

/* Whether it is there before op `at` runs, whatever is written. */
static inline bool is_known(const Rewriter *r, Tid t, Oid at) {
  return r->g->t.at[t].producer < at;
}

/* An op in the place of `at`, which it is told what to read and make; attributes, name
 * and place in the model are those of `like`. */
typedef struct NewOp {
  int code, nin, nout;
  Tid in[6], out[3];
} NewOp;
void rewrite_op(Rewriter *r, Oid at, Oid like, NewOp x);

#endif
