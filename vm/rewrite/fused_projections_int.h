/* fused_projections_int.h - shared by fused_projections.c (finds products and their
 * weights) and fused_projection_ops.c (writes the fused ops). */
#ifndef WEFT_JOIN_INT_H
#define WEFT_JOIN_INT_H

#include "fused_projections.h"
#include "rewrite.h"

typedef struct Join {
  Rewriter r;
  const Graph *logical;
  Sharded *sh;
  int64_t persistence;
  Oid *gradient; /* of each parameter: the op that makes its gradient, */
} Join;
enum { NOBODY = -1, SEVERAL = -2 }; /* or one of these */

static inline const Op *op_at(const Join *j, Oid i) { return &j->r.g->op.at[i]; }

static inline Tensor *tensor_at(const Join *j, Tid t) { return &j->r.g->t.at[t]; }

/* The tensor of a parameter. */
static inline Tid stored(const Join *j, int param) {
  return j->sh->local[j->logical->param.at[param].tensor];
}

/* The parameter that a product of rows and a weight (out, in) reads as it is, or -1. */
int fused_weight(const Join *j, const Op *op);

/* ---- fused_projection_ops.c ---- */
/* A value of these side by side, the last dimension of all. */
Tid fused_values(Join *j, const Tid *part, int n);
/* Writes one product for those of w; returns its result, theirs side by side, the last
 * one first. */
Tid fused_products(Join *j, Joined *w, const Oid *product);

/* The gradients of products: of each that of its rows, whose sum is `sum`, or a part of
 * it, and that of its weight. */
typedef struct Backward {
  Oid dx[JOINED_MOST], dw[JOINED_MOST], sum;
} Backward;
/* Whether dy[k] of each product ends in those, and nowhere else. */
bool fused_backward(const Join *j, const Joined *w, const Tid *dy, Backward *out);
/* Writes one op for those of rows, one for those of weights; both read dy. */
void write_fused_backward(Join *j, Joined *w, const Backward *b, Tid dy);

#endif
