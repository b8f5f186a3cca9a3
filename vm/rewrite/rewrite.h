/* rewrite.h - for passes that fuse ops: the readers of a tensor, and writing an op over
 * another. Replaced ops have no results any more and are removed at the end. For others:
 * leaving out ops, and writing all of them again. */
#ifndef WEFT_REWRITE_H
#define WEFT_REWRITE_H

#include "vm/graph/graph.h"

/* Readers are those of the original graph: tensors added by the pass have none. */
typedef struct Rewriter {
  Graph *g;
  int *first, *reader; /* ops that read tensor t: reader[first[t] .. first[t + 1] - 1] */
  bool *gone;          /* of each op: it was replaced */
} Rewriter;

Rewriter rewrite_begin(Graph *g);
void rewrite_end(Rewriter *r);

static inline int readers_of(const Rewriter *r, Tid t) {
  return r->first[t + 1] - r->first[t];
}

/* Whether the tensor is computed before op `at`. */
static inline bool is_known(const Rewriter *r, Tid t, Oid at) {
  return r->g->t.at[t].producer < at;
}

/* A new op in the place of op `at`, with these operands and results; attributes, name and
 * position in the model are copied from op `like`. */
typedef struct NewOp {
  int code, nin, nout;
  Tid in[KERNEL_OPERANDS], out[KERNEL_OPERANDS];
} NewOp;
void rewrite_op(Rewriter *r, Oid at, Oid like, NewOp x);

/* ---- without a Rewriter ---- */

/* Whether an op stays, in a walk from the last one to the first: if it is kept anyway, or
 * makes what is live. What it reads is live then. */
bool rewrite_live(const Op *op, bool keep, bool *live);
/* Removes the ops from `first` on that are not kept. */
void rewrite_remove(Graph *g, int first, const bool *keep);

/* Writes a forward graph again: `write` gets each op i, and whether it is the first one
 * of its unit, and copies it (rewrite_copy) with what shall be before and behind it. */
typedef weft_status WriteOp(void *ud, int i, const Op *from, bool begins, weft_error *e);
weft_status rewrite_all(Graph *g, WriteOp *write, void *ud, weft_error *e);
/* A copy of an op, behind those that are written so far, that reads now[t] for t. */
Oid rewrite_copy(Graph *g, const Op *from, const Tid *now);

#endif
