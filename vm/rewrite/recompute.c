/* recompute.c - activation checkpointing on the sharded graph: in each unit, copies of
 * the marked forward ops are placed before the backward ops that need them. They have the
 * placements and collectives of the originals and give the same bits.
 *
 * What is saved follows from that: a tensor that only copies read again is no operand of
 * the backward and so has no place in a frame. Copies are in I, or in W in a unit without
 * I. Where I and W are split, the copies that W needs are either saved by I or made once
 * more in W, whichever saves fewer bytes. An all_gather of the forward is never saved for
 * the backward: it is repeated where a copy reads its result. Ops with random or
 * data-dependent decisions (routing) must not be marked. */
#include "recompute.h"

enum { FOR_I = 1, FOR_W = 2 };

typedef struct Again {
  Graph *g;
  RecomputeHow how;
  Tid *to[2]; /* tensor -> its copy, or a gathered tensor to use instead, -1; [1]: for W
                 where W has copies of its own */
  uint8_t *need;     /* of each op: the phases that need a copy of it */
  int *first, *next; /* ops with copies, by unit, -1 */
  bool *has_i;       /* of each unit */
  bool *twice;       /* of each unit: W makes the copies it needs once more */
  uint8_t *done;     /* of each unit: the phases whose copies are written */
  VEC(Op) out;
} Again;

/* The recomputed op, in the unit of `op`, that makes its operand k; -1 if there is none.
 */
static Oid maker(const Graph *g, const Op *op, int k) {
  const Tensor *t = &g->t.at[op->in[k]];
  if (t->producer < 0 || t->unit != op->unit) return -1;
  const Op *m = &g->op.at[t->producer];
  bool gather = op->phase == PH_F && m->code == OP_all_gather;
  return m->phase == PH_F && (m->recomputed || gather) ? t->producer : -1;
}

/* Finds the ops to copy. Consumers are later in the list, so one pass from the end
 * suffices. */
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

/* ---- whether W makes copies of its own ---- */

/* For each unit, the bytes that are saved from I to W: either the copies that W reads; or
 * what W would read to make these copies and does not save anyway. */
typedef struct Waiting {
  uint64_t *copies, *sources;
  uint8_t *seen; /* of each tensor: flags: already counted; W reads it in any case */
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

/* The tensor that an op of this phase reads in place of `t`. */
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

/* Writes the copies of a unit, before its first op of phase I or, if W makes its own, of
 * W. */
static void copy_unit(Again *a, int unit, Phase ph) {
  int of = ph == PH_I ? FOR_I : FOR_W, all = a->twice[unit] ? of : FOR_I | FOR_W;
  if (a->done[unit] & of) return;
  a->done[unit] |= (uint8_t)all;
  for (int i = a->first[unit]; i >= 0; i = a->next[i])
    if (a->need[i] & all) copy_op(a, i, ph);
}

/* Whether a copy has already gathered the same tensor, in W or in an I that W follows at
 * once: then the op can use it. */
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
