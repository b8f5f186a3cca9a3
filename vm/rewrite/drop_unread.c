/* drop_unread.c - see drop_unread.h.
 *
 * A kernel may have more results than something learns from: attention gives the
 * gradients of queries, keys and values also where an adapter is on the queries alone.
 * Over cp those of keys and values then travel around a ring unread; and a
 * message that no op waits for would arrive in memory that another tensor has by then. */
#include "drop_unread.h"

static bool moves(int code) {
  return code == OP_acc || code == OP_slice ||
         (code >= OP_all_reduce && code <= OP_shift);
}

static bool is_gradient(const Graph *logical, const Tensor *t) {
  return t->grad_of >= 0 && logical->t.at[t->grad_of].kind == T_PARAM;
}

/* Readers are later in the list, so one pass from the end suffices. */
void drop_unread(const Graph *logical, Graph *g) {
  bool *read = NEW_N(g->arena, bool, g->t.n), *keep = NEW_N(g->arena, bool, g->op.n);
  int n = 0;
  for (int i = g->op.n - 1; i >= 0; i--) {
    const Op *op = &g->op.at[i];
    keep[i] = op->phase == PH_F || !moves(op->code);
    for (int k = 0; k < op->nout; k++)
      keep[i] |= read[op->out[k]] || is_gradient(logical, &g->t.at[op->out[k]]);
    for (int k = 0; k < op->nin && keep[i]; k++) read[op->in[k]] = true;
  }
  for (int i = 0; i < g->op.n; i++) {
    const Op op = g->op.at[i];
    for (int k = 0; k < op.nout; k++) g->t.at[op.out[k]].producer = keep[i] ? n : -1;
    if (keep[i]) g->op.at[n++] = op;
  }
  g->op.n = n;
}
