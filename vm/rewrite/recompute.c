/* recompute.c - activation checkpointing: in each unit, copies of the marked forward ops
 * that its backward needs are placed before it, on the sharded graph, so that copies have
 * placements and collectives like the originals and give the same bits.
 *
 * What is saved follows: a tensor that only copies compute again is no operand of the
 * backward and so has no place in a frame. Copies are in I; in a unit without I they are
 * in W. Where I and W are split, what W needs of them is either saved by I or computed
 * once more in W, whichever keeps fewer bytes. An all_gather of the forward is not saved
 * for the backward, so it runs again where a copy reads its result. Ops with random or
 * data-dependent decisions (routing) must not be marked. */
#include "recompute.h"

enum { FOR_I = 1, FOR_W = 2 };

typedef struct Again {
  Graph *g;
  RecomputeHow how;
  Tid *to[2];        /* tensor -> its copy, or the gathered one to take instead; -1; and
                        that of W where it has copies of its own */
  uint8_t *need;     /* of each op: what it runs again for */
  int *first, *next; /* needed ops by unit, -1 */
  bool *has_i;       /* of each unit */
  bool *twice;       /* of each unit: what W needs runs again in W */
  uint8_t *done;     /* of each unit: what copies are there for */
  VEC(Op) out;
} Again;

/* The op of this op's unit that makes its operand k and runs again for it, or -1. */
static Oid maker(const Graph *g, const Op *op, int k) {
  const Tensor *t = &g->t.at[op->in[k]];
  if (t->producer < 0 || t->unit != op->unit) return -1;
  const Op *m = &g->op.at[t->producer];
  bool gather = op->phase == PH_F && m->code == OP_all_gather;
  return m->phase == PH_F && (m->recomputed || gather) ? t->producer : -1;
}

/* Consumers come later in the list, so one pass from the end sees them first. */
static bool find_needed(Again *a) {
  const Graph *g = a->g;
  bool any = false;
  for (int i = g->op.n - 1; i >= 0; i--) {
    const Op *op = &g->op.at[i];
    a->has_i[op->unit] |= op->phase == PH_I;
    if (op->phase == PH_F && !a->need[i]) continue;
    uint8_t of = op->phase == PH_F ? a->need[i] : op->phase == PH_I ? FOR_I : FOR_W;
    for (int k = 0; k < op->nin; k++) {
      Oid m = maker(g, op, k);
      if (m >= 0) a->need[m] |= of, any = true;
    }
    if (op->phase == PH_F) a->next[i] = a->first[op->unit], a->first[op->unit] = i;
  }
  return any;
}

/* ---- what keeps fewer bytes until W ---- */

/* Bytes of each unit that wait: copies that W reads, if they do; or what would be read in
 * W to make them there and is not kept for W anyway. */
typedef struct Waiting {
  uint64_t *copies, *sources;
  uint8_t *seen; /* of each tensor: was counted, bits; W reads it itself */
} Waiting;
enum { AS_COPY = 1, AS_SOURCE = 2, ANYWAY = 4 };

static void count_once(const Graph *g, Waiting *w, Tid t, int as, int unit) {
  if (g->t.at[t].kind != T_VALUE || w->seen[t] & (as | ANYWAY)) return;
  w->seen[t] |= (uint8_t)as;
  *(as == AS_COPY ? &w->copies[unit] : &w->sources[unit]) +=
      (uint64_t)tensor_bytes(&g->t.at[t]);
}

static void choose(Again *a) {
  const Graph *g = a->g;
  int units = g->unit.n;
  Waiting w = {NEW_N(g->arena, uint64_t, units), NEW_N(g->arena, uint64_t, units),
               NEW_N(g->arena, uint8_t, g->t.n)};
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    for (int k = 0; k < op->nin && op->phase == PH_W; k++) {
      if (maker(g, op, k) >= 0)
        count_once(g, &w, op->in[k], AS_COPY, op->unit);
      else
        w.seen[op->in[k]] |= ANYWAY;
    }
  }
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    for (int k = 0; k < op->nin && a->need[i] & FOR_W; k++)
      if (maker(g, op, k) < 0) count_once(g, &w, op->in[k], AS_SOURCE, op->unit);
  }
  for (int u = 0; u < units; u++) a->twice[u] = a->has_i[u] && w.sources[u] < w.copies[u];
}

/* ---- writing ---- */

static void push(Again *a, Op op) {
  for (int k = 0; k < op.nout; k++) a->g->t.at[op.out[k]].producer = a->out.n;
  *VEC_PUSH(a->g->arena, a->out) = op;
}

/* The copies that an op of this phase reads. */
static Tid *copies(const Again *a, int unit, Phase ph) {
  return a->to[a->twice[unit] && ph == PH_W];
}

/* What it reads instead of tensor `t`. */
static Tid instead(const Again *a, Tid t, int unit, Phase ph) {
  Tid copy = copies(a, unit, ph)[t];
  return copy >= 0 && a->g->t.at[t].unit == unit ? copy : t;
}

static Tid copy_tensor(Again *a, Tid t) {
  Graph *g = a->g;
  Tensor like = g->t.at[t];
  *VEC_PUSH(g->arena, g->t) = like;
  return g->t.n - 1;
}

static void copy_op(Again *a, Oid id, Phase ph) {
  Op op = a->g->op.at[id];
  op.in = arena_copy(a->g->arena, op.in, sizeof *op.in * (size_t)op.nin);
  op.out = arena_copy(a->g->arena, op.out, sizeof *op.out * (size_t)op.nout);
  op.phase = ph;
  op.recomputed = true;
  for (int k = 0; k < op.nin; k++) op.in[k] = instead(a, op.in[k], op.unit, ph);
  for (int k = 0; k < op.nout; k++)
    op.out[k] = copies(a, op.unit, ph)[op.out[k]] = copy_tensor(a, op.out[k]);
  push(a, op);
}

/* The copies of a unit, before the first op of its I or, twice, of its W. */
static void copy_unit(Again *a, int unit, Phase ph) {
  int of = ph == PH_I ? FOR_I : FOR_W, all = a->twice[unit] ? of : FOR_I | FOR_W;
  if (a->done[unit] & of) return;
  a->done[unit] |= (uint8_t)all;
  for (int i = a->first[unit]; i >= 0; i = a->next[i])
    if (a->need[i] & all) copy_op(a, i, ph);
}

/* Whether a copy gathered the same, in W, or in I that W follows: then W takes that. */
static bool is_shared(Again *a, const Op *op) {
  if (!(a->how.share || a->twice[op->unit]) || op->code != OP_all_gather ||
      op->phase != PH_W)
    return false;
  for (int i = a->first[op->unit]; i >= 0; i = a->next[i]) {
    const Op *f = &a->g->op.at[i];
    if (f->code != OP_all_gather || (a->twice[op->unit] && !(a->need[i] & FOR_W)) ||
        memcmp(&f->attr, &op->attr, sizeof f->attr) != 0 ||
        instead(a, f->in[0], op->unit, PH_W) != op->in[0])
      continue;
    Tid *to = copies(a, op->unit, PH_W);
    to[op->out[0]] = to[f->out[0]];
    return true;
  }
  return false;
}

static void write_backward(Again *a, Op op) {
  copy_unit(a, op.unit, op.phase);
  for (int k = 0; k < op.nin; k++) op.in[k] = instead(a, op.in[k], op.unit, op.phase);
  if (!is_shared(a, &op)) push(a, op);
}

void recompute(Graph *g, RecomputeHow how) {
  Again a = {.g = g, .how = how};
  int units = g->unit.n, n = g->op.n;
  a.need = NEW_N(g->arena, uint8_t, n);
  a.next = NEW_N(g->arena, int, n);
  a.first = NEW_N(g->arena, int, units);
  a.has_i = NEW_N(g->arena, bool, units);
  a.twice = NEW_N(g->arena, bool, units);
  a.done = NEW_N(g->arena, uint8_t, units);
  memset(a.first, 0xff, sizeof *a.first * (size_t)units);
  if (!find_needed(&a)) return;
  if (how.apart) choose(&a);
  for (int i = 0; i < 2; i++) {
    a.to[i] = NEW_N(g->arena, Tid, g->t.n);
    memset(a.to[i], 0xff, sizeof *a.to[i] * (size_t)g->t.n);
  }
  for (int i = 0; i < n; i++) {
    if (g->op.at[i].phase == PH_F)
      push(&a, g->op.at[i]);
    else
      write_backward(&a, g->op.at[i]);
  }
  g->op.at = a.out.at, g->op.n = a.out.n, g->op.cap = a.out.cap;
}
