/* drop_unread.c - leaves out what a sharded backward moves although no op reads it.
 *
 * A kernel may have more results than something learns from: attention gives the
 * gradients of queries, keys and values also where an adapter is on the queries alone.
 * Over cp those of keys and values then travel around a ring unread; and a
 * message that no op waits for would arrive in memory that another tensor has by then. */
#include "rewrite_passes.h"

#include "rewrite.h"

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
  for (int i = g->op.n - 1; i >= 0; i--) {
    const Op *op = &g->op.at[i];
    bool needed = op->phase == PH_F || !moves(op->code);
    for (int k = 0; k < op->nout; k++)
      needed |= is_gradient(logical, &g->t.at[op->out[k]]);
    keep[i] = rewrite_live(op, needed, read);
  }
  rewrite_remove(g, 0, keep);
}
