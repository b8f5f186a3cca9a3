/* recompute.c - activations that are not kept: in each unit, the marked forward ops that
 * its backward needs are written again before it, on the sharded graph, so that the
 * copies have placements and collectives like the originals and give the same bits.
 *
 * What is kept follows by itself: a tensor that only copies read again is no operand of
 * the backward any more and so has no place in a frame. Copies are in I, and what W needs
 * of them waits for it like everything else that I makes; in a unit without I they are in
 * W. An all_gather of the forward is not kept for the backward, so that it runs again
 * where a copy reads its result. Ops that decide something by chance or by choice, when
 * there are any, must not be marked. */
#include "recompute.h"

typedef struct Again {
  Graph *g;
  bool share;
  Tid *to;            /* tensor -> its copy, or the gathered one to take instead; -1 */
  bool *need;         /* of each op: runs again */
  int *first, *next;  /* needed ops by unit, -1 */
  bool *has_i, *done; /* of each unit */
  VEC(Op) out;
} Again;

/* The op of this op's unit that makes its operand k and runs again for it, or -1. */
static Oid maker(const Graph *g, const Op *op, int k) {
  const Tensor *t = &g->t.at[op->in[k]];
  if (t->producer < 0 || t->unit != op->unit) return -1;
  const Op *m = &g->op.at[t->producer];
  bool gather = op->phase == PH_F && m->code == OP_all_gather;
  return m->phase == PH_F && (m->again || gather) ? t->producer : -1;
}

/* Consumers come later in the list, so one pass from the end sees them first. */
static bool find_needed(Again *a) {
  const Graph *g = a->g;
  bool any = false;
  for (int i = g->op.n - 1; i >= 0; i--) {
    const Op *op = &g->op.at[i];
    a->has_i[op->unit] |= op->phase == PH_I;
    if (op->phase == PH_F && !a->need[i]) continue;
    for (int k = 0; k < op->nin; k++) {
      Oid m = maker(g, op, k);
      if (m >= 0) a->need[m] = any = true;
    }
    if (op->phase == PH_F) a->next[i] = a->first[op->unit], a->first[op->unit] = i;
  }
  return any;
}

/* ---- writing ---- */

static void push(Again *a, Op op) {
  for (int k = 0; k < op.nout; k++)
    a->g->t.at[op.out[k]].producer = a->out.n;
  *VEC_PUSH(a->g->arena, a->out) = op;
}

/* What an op of the backward of `unit` reads instead of tensor `t`. */
static Tid instead(const Again *a, Tid t, int unit) {
  bool own = a->to[t] >= 0 && a->g->t.at[t].unit == unit;
  return own ? a->to[t] : t;
}

static Tid copy_tensor(Again *a, Tid t) {
  Graph *g = a->g;
  Tensor like = g->t.at[t];
  *VEC_PUSH(g->arena, g->t) = like;
  return a->to[t] = g->t.n - 1;
}

static void copy_op(Again *a, Oid id) {
  Op op = a->g->op.at[id];
  op.in = arena_copy(a->g->arena, op.in, sizeof *op.in * (size_t)op.nin);
  op.out = arena_copy(a->g->arena, op.out, sizeof *op.out * (size_t)op.nout);
  op.phase = a->has_i[op.unit] ? PH_I : PH_W;
  op.again = true;
  for (int k = 0; k < op.nin; k++)
    op.in[k] = instead(a, op.in[k], op.unit);
  for (int k = 0; k < op.nout; k++)
    op.out[k] = copy_tensor(a, op.out[k]);
  push(a, op);
}

/* The copies of a unit, before the first op of its backward. */
static void copy_unit(Again *a, int unit) {
  if (a->done[unit]) return;
  a->done[unit] = true;
  for (int i = a->first[unit]; i >= 0; i = a->next[i])
    copy_op(a, i);
}

/* Whether a copy gathered the same in I: then W takes that. */
static bool is_shared(Again *a, const Op *op) {
  if (!a->share || op->code != OP_all_gather || op->phase != PH_W) return false;
  for (int i = a->first[op->unit]; i >= 0; i = a->next[i]) {
    const Op *f = &a->g->op.at[i];
    if (f->code != OP_all_gather || memcmp(&f->attr, &op->attr, sizeof f->attr) != 0 ||
        instead(a, f->in[0], op->unit) != op->in[0])
      continue;
    a->to[op->out[0]] = a->to[f->out[0]];
    return true;
  }
  return false;
}

static void write_backward(Again *a, Op op) {
  copy_unit(a, op.unit);
  for (int k = 0; k < op.nin; k++)
    op.in[k] = instead(a, op.in[k], op.unit);
  if (!is_shared(a, &op)) push(a, op);
}

void recompute(Graph *g, bool share) {
  Again a = {.g = g, .share = share};
  int units = g->unit.n, n = g->op.n;
  a.need = NEW_N(g->arena, bool, n);
  a.next = NEW_N(g->arena, int, n);
  a.first = NEW_N(g->arena, int, units);
  a.has_i = NEW_N(g->arena, bool, units);
  a.done = NEW_N(g->arena, bool, units);
  memset(a.first, 0xff, sizeof *a.first * (size_t)units);
  if (!find_needed(&a)) return;
  a.to = NEW_N(g->arena, Tid, g->t.n);
  memset(a.to, 0xff, sizeof *a.to * (size_t)g->t.n);
  for (int i = 0; i < n; i++) {
    if (g->op.at[i].phase == PH_F)
      push(&a, g->op.at[i]);
    else
      write_backward(&a, g->op.at[i]);
  }
  g->op.at = a.out.at, g->op.n = a.out.n, g->op.cap = a.out.cap;
}
