/* rewrite.c - replaces ops in a graph; see rewrite.h. */
#include "rewrite.h"

static void find_readers(Rewriter *r) {
  const Graph *g = r->g;
  int n = 0, *fill = NEW_N(g->arena, int, g->t.n);
  r->first = NEW_N(g->arena, int, g->t.n + 1);
  for (int i = 0; i < g->op.n; n += g->op.at[i++].nin)
    for (int k = 0; k < g->op.at[i].nin; k++) r->first[g->op.at[i].in[k] + 1]++;
  for (int t = 0; t < g->t.n; t++) r->first[t + 1] += r->first[t];
  r->reader = NEW_N(g->arena, int, n);
  for (int i = 0; i < g->op.n; i++)
    for (int k = 0; k < g->op.at[i].nin; k++) {
      Tid t = g->op.at[i].in[k];
      r->reader[r->first[t] + fill[t]++] = i;
    }
}

Rewriter rewrite_begin(Graph *g) {
  Rewriter r = {.g = g, .gone = NEW_N(g->arena, bool, g->op.n)};
  find_readers(&r);
  return r;
}

void rewrite_op(Rewriter *r, Oid at, Oid like, NewOp x) {
  Graph *g = r->g;
  Op op = g->op.at[like];
  assert(x.nin + x.nout <= KERNEL_OPERANDS);
  op.code = (uint16_t)x.code;
  op.nin = (int16_t)x.nin, op.nout = (uint8_t)x.nout;
  op.in = arena_copy(g->arena, x.in, sizeof *x.in * (size_t)x.nin);
  op.out = arena_copy(g->arena, x.out, sizeof *x.out * (size_t)x.nout);
  op.phase = g->op.at[at].phase;
  memset(op.role, ROLE_NONE, sizeof op.role);
  for (int k = 0; k < x.nout; k++) g->t.at[x.out[k]].producer = at;
  g->op.at[at] = op;
  r->gone[at] = false;
}

/* Removes replaced ops from the graph. */
void rewrite_end(Rewriter *r) {
  Graph *g = r->g;
  int n = 0;
  for (int i = 0; i < g->op.n; i++) {
    if (r->gone[i]) continue;
    g->op.at[n] = g->op.at[i];
    for (int k = 0; k < g->op.at[n].nout; k++) g->t.at[g->op.at[n].out[k]].producer = n;
    n++;
  }
  g->op.n = n;
}

/* ---- without a Rewriter ---- */

bool rewrite_live(const Op *op, bool keep, bool *live) {
  for (int k = 0; k < op->nout; k++) keep |= live[op->out[k]];
  for (int k = 0; k < op->nin && keep; k++) live[op->in[k]] = true;
  return keep;
}

void rewrite_remove(Graph *g, int first, const bool *keep) {
  int n = first;
  for (int i = first; i < g->op.n; i++) {
    const Op op = g->op.at[i];
    for (int k = 0; k < op.nout; k++) g->t.at[op.out[k]].producer = keep[i] ? n : -1;
    if (keep[i]) g->op.at[n++] = op;
  }
  g->op.n = n;
}

Oid rewrite_copy(Graph *g, const Op *from, const Tid *now) {
  Oid id = g->op.n;
  Op *op = VEC_PUSH(g->arena, g->op);
  *op = *from;
  op->in = arena_copy(g->arena, from->in, sizeof *op->in * (size_t)op->nin);
  for (int k = 0; k < op->nin; k++) op->in[k] = now[op->in[k]];
  for (int k = 0; k < op->nout; k++) g->t.at[op->out[k]].producer = id;
  return id;
}

weft_status rewrite_all(Graph *g, WriteOp *write, void *ud, weft_error *e) {
  const Op *from = g->op.at;
  int n = g->op.n, unit = g->open_unit;
  g->op.at = NULL, g->op.n = g->op.cap = 0;
  for (int i = 0; i < n; i++) {
    bool begins = i == 0 || g->open_unit != from[i].unit;
    g->open_unit = from[i].unit;
    TRY(write(ud, i, &from[i], begins, e));
  }
  g->open_unit = unit;
  g->forward_ops = g->op.n;
  return WEFT_OK;
}
