/* fuse_ops.c - fuses ops that pass over the same memory: add and the norm after it; the
 * two gradients of a norm and the sum that takes dx; the ropes of queries and keys; the
 * maximum and sum of cross entropy. It runs on the sharded graph after all passes that
 * look at single ops; later passes and devices see a fused op as any other.
 *
 * A pattern starts at one op, finds the others among the readers of its results, and
 * writes the fused op over one that comes after everything it reads and before everything
 * that reads it. */
#include "rewrite_passes.h"

#include "rewrite.h"

/* The op of this code, in the same body as `like`, that reads t as operand k, or -1.
 * Recomputed ops are fused with recomputed ones only. */
static Oid reader_of(const Rewriter *f, const Op *like, Tid t, int code, int k) {
  for (int i = f->first[t]; i < f->first[t + 1]; i++) {
    const Op *op = &f->g->op.at[f->reader[i]];
    if (op->code == code && op->unit == like->unit && op->phase == like->phase &&
        (op->phase == PH_F || op->recomputed == like->recomputed) && op->in[k] == t &&
        !f->gone[f->reader[i]])
      return f->reader[i];
  }
  return -1;
}

/* ---- patterns ---- Each starts at op i and returns false if it does not match. */

/* z = a + b, and the norm of z. */
static bool add_rmsnorm(Rewriter *f, Oid i) {
  const Op *add = &f->g->op.at[i];
  if (add->code != OP_add) return false;
  Oid j = reader_of(f, add, add->out[0], OP_rmsnorm, 0);
  if (j < 0) return false;
  const Op *norm = &f->g->op.at[j];
  if (norm->attr.head_dim || !is_known(f, norm->in[1], i))
    return false; /* not of groups */
  f->gone[j] = true;
  rewrite_op(f, i, j,
             (NewOp){.code = OP_add_rmsnorm,
                     .nin = 3,
                     .nout = 3,
                     .in = {add->in[0], add->in[1], norm->in[1]},
                     .out = {add->out[0], norm->out[0], norm->out[1]}});
  return true;
}

/* The op that computes dw of the norm whose dx is `dx`, in I or W, or -1. No op may read
 * dw, because it moves. */
static Oid weight_gradient(const Rewriter *f, const Op *dx) {
  Tid rstd = dx->in[2];
  for (int i = f->first[rstd]; i < f->first[rstd + 1]; i++) {
    const Op *op = &f->g->op.at[f->reader[i]];
    if (op->code == OP_rmsnorm_dw && op->unit == dx->unit && op->in[0] == dx->in[0] &&
        op->in[1] == rstd && op->in[2] == dx->in[3] && !f->gone[f->reader[i]] &&
        readers_of(f, op->out[0]) == 0)
      return f->reader[i];
  }
  return -1;
}

/* The gradients of a norm, and the sum of dx and one other gradient. */
static bool rmsnorm_back(Rewriter *f, Oid i) {
  const Op *dx = &f->g->op.at[i];
  if (dx->code != OP_rmsnorm_dx || dx->attr.head_dim) return false;
  Oid w = weight_gradient(f, dx), at = i;
  if (w < 0) return false;
  NewOp x = {.code = OP_rmsnorm_back,
             .nin = 4,
             .nout = 2,
             .in = {dx->in[0], dx->in[1], dx->in[2], dx->in[3]},
             .out = {f->g->op.at[w].out[0], dx->out[0]}};
  for (int k = 0; k < 2 && at == i; k++) {
    Oid j = reader_of(f, dx, dx->out[0], OP_acc, k);
    if (j < 0 || f->g->op.at[j].nin != 2 || readers_of(f, dx->out[0]) != 1) continue;
    at = j;
    x.nin = 5, x.in[4] = f->g->op.at[j].in[1 - k], x.out[1] = f->g->op.at[j].out[0];
  }
  f->gone[i] = f->gone[w] = true;
  rewrite_op(f, at, i, x);
  return true;
}

static bool alike(const Op *a, const Op *b) {
  return b->code == a->code && b->unit == a->unit && b->phase == a->phase &&
         b->recomputed == a->recomputed &&
         memcmp(&a->attr, &b->attr, sizeof a->attr) == 0;
}

/* Whether no op up to `at` reads it. */
static bool is_free(const Rewriter *f, Tid t, Oid at) {
  for (int i = f->first[t]; i < f->first[t + 1]; i++)
    if (f->reader[i] <= at) return false;
  return true;
}

/* The ropes of queries and keys at the same positions. The fused op takes the place of
 * the first one, or of the second if its operand is computed later. */
static bool rope_pair(Rewriter *f, Oid i) {
  const Op *a = &f->g->op.at[i];
  if (a->code != OP_rope) return false;
  for (int k = f->first[a->in[1]]; k < f->first[a->in[1] + 1]; k++) {
    Oid j = f->reader[k];
    const Op *b = &f->g->op.at[j];
    if (j <= i || f->gone[j] || !alike(a, b) || b->in[0] == a->in[0] ||
        b->in[1] != a->in[1])
      continue;
    bool early = is_known(f, b->in[0], i);
    if (!early && !is_free(f, a->out[0], j)) continue;
    NewOp x = {.code = OP_rope_pair,
               .nin = 3,
               .nout = 2,
               .in = {a->in[0], b->in[0], a->in[1]},
               .out = {a->out[0], b->out[0]}};
    f->gone[early ? j : i] = true;
    rewrite_op(f, early ? i : j, i, x);
    return true;
  }
  return false;
}

/* Maximum and sum of cross entropy. If ranks have shards of the columns, sums are
 * relative to the local maximum until the global one is known. */
static bool ce_stats(Rewriter *f, Oid i) {
  Graph *g = f->g;
  const Op *most = &g->op.at[i];
  if (most->code != OP_ce_max) return false;
  Tid logits = most->in[0], m = most->out[0], all = m;
  Oid k = reader_of(f, most, m, OP_all_reduce, 0);
  if (k >= 0) all = g->op.at[k].out[0];
  Oid j = reader_of(f, most, all, OP_ce_sum, 2);
  if (j < 0 || g->op.at[j].in[0] != logits || !is_known(f, g->op.at[j].in[1], i))
    return false;
  Tid labels = g->op.at[j].in[1], s = g->op.at[j].out[0], own = s;
  if (k >= 0) {
    Tensor like = g->t.at[s];
    *VEC_PUSH(g->arena, g->t) = like;
    own = g->t.n - 1;
    int columns = (int)g->t.at[logits].dim[g->t.at[logits].ndim - 1].local;
    rewrite_op(f, j, j,
               (NewOp){.code = OP_ce_shift,
                       .nin = 4,
                       .nout = 1,
                       .in = {own, m, all, labels},
                       .out = {s}});
    g->op.at[j].attr.n = columns;
  } else {
    f->gone[j] = true;
  }
  rewrite_op(f, i, i,
             (NewOp){.code = OP_ce_stats,
                     .nin = 2,
                     .nout = 2,
                     .in = {logits, labels},
                     .out = {m, own}});
  return true;
}

/* ---- the pass ---- */

void fuse_ops(Graph *g) {
  static bool (*const pattern[])(Rewriter *, Oid) = {add_rmsnorm, rmsnorm_back, rope_pair,
                                                     ce_stats};
  Rewriter f = rewrite_begin(g);
  for (int i = 0; i < g->op.n; i++)
    for (int k = 0; k < LEN(pattern) && !f.gone[i]; k++)
      if (pattern[k](&f, i)) break;
  rewrite_end(&f);
}
