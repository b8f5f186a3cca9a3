/* fused_projections_int.h - shared by fused_projections.c (finds products and their
 * weights) and fused_projection_ops.c (writes the fused ops). */
#ifndef WEFT_JOIN_INT_H
#define WEFT_JOIN_INT_H

#include "rewrite_passes.h"
#include "rewrite.h"

typedef struct Join {
  Rewriter r;
  const Graph *logical;
  Sharded *sh;
  int64_t persistence;
  bool in_bits;  /* states of the optimizer are in blocks of codes */
  Oid *gradient; /* of each parameter: the op that computes its gradient, */
} Join;
enum { NOBODY = -1, SEVERAL = -2 }; /* no op, or several */

static inline const Op *op_at(const Join *j, Oid i) { return &j->r.g->op.at[i]; }

static inline Tensor *tensor_at(const Join *j, Tid t) { return &j->r.g->t.at[t]; }

/* The tensor of a parameter. */
static inline Tid stored(const Join *j, int param) {
  return j->sh->local[j->logical->param.at[param].tensor];
}

/* The parameter that is the weight (out, in) of a product, or -1. */
int fused_weight(const Join *j, const Op *op);

/* ---- fused_projection_ops.c ---- */
/* A value with these parts concatenated along the last dimension. */
Tid fused_values(Join *j, const Tid *part, int n);
/* Writes one product for those of w; returns its result: theirs concatenated, the last
 * one first. */
Tid fused_products(Join *j, Joined *w, const Oid *product);

/* The gradients of fused products: for each the op for its rows, whose results add up in
 * `sum` or a part of it, and the op for its weight. */
typedef struct Backward {
  Oid dx[JOINED_MOST], dw[JOINED_MOST], sum;
} Backward;
/* Whether these ops, and no others, read dy[k] of each product. */
bool fused_backward(const Join *j, const Joined *w, const Tid *dy, Backward *out);
/* Writes one op for the gradients of rows and one for those of weights; both read dy. */
void write_fused_backward(Join *j, Joined *w, const Backward *b, Tid dy);

#endif
