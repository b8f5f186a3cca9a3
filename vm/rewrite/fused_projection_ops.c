/* fused_projection_ops.c - writes the fused forward, dx and dW ops of
 * fused_projections.c. */
#include "fused_projections_int.h"

/* A tensor with the parts concatenated along dimension `dim`. */
static Tid side_by_side(Join *j, const Tid *part, int n, int dim) {
  Graph *g = j->r.g;
  Tensor t = g->t.at[part[n - 1]];
  for (int k = 0; k + 1 < n; k++) {
    t.dim[dim].size += g->t.at[part[k]].dim[dim].size;
    t.dim[dim].local += g->t.at[part[k]].dim[dim].local;
  }
  *VEC_PUSH(g->arena, g->t) = t;
  return g->t.n - 1;
}

Tid fused_values(Join *j, const Tid *part, int n) {
  Tid t = side_by_side(j, part, n, tensor_at(j, part[0])->ndim - 1);
  tensor_at(j, t)->grad_of = -1;
  return t;
}

/* The fused weight matrix, made at its first use. */
static Tid whole(Join *j, Joined *w) {
  Tid part[JOINED_MOST];
  if (j->sh->joined[w->param[0]]) return w->whole;
  for (int k = 0; k < w->n; k++)
    part[k] = stored(j, w->param[k]), j->sh->joined[w->param[k]] = w;
  w->whole = side_by_side(j, part, w->n, 0);
  tensor_at(j, w->whole)->joined = true;
  return w->whole;
}

/* Names a fused op after all its parts: "mlp.gate_proj,up_proj". */
static void name_all(Join *j, Oid at, const char *const *name, int n) {
  Op *op = &j->r.g->op.at[at];
  op->name = name[0];
  for (int k = 1; k < n && op->name && name[k]; k++) {
    const char *dot = strrchr(name[k], '.');
    op->name = arena_printf(j->r.g->arena, "%s,%s", op->name, dot ? dot + 1 : name[k]);
  }
}

/* Writes `x` over op `at`, one of n, and removes the others. */
static void write_one(Join *j, const Oid *of, int n, Oid at, NewOp x) {
  const char *name[JOINED_MOST] = {NULL};
  for (int k = 0; k < n; k++) name[k] = op_at(j, of[k])->name, j->r.gone[of[k]] = true;
  rewrite_op(&j->r, at, of[0], x);
  name_all(j, at, name, n);
}

static Oid first_of(const Oid *op, int n) {
  Oid at = op[0];
  for (int k = 1; k < n; k++) at = MIN(at, op[k]);
  return at;
}

static Oid last_of(const Oid *op, int n) {
  Oid at = op[0];
  for (int k = 1; k < n; k++) at = MAX(at, op[k]);
  return at;
}

Tid fused_products(Join *j, Joined *w, const Oid *product) {
  Tid part[JOINED_MOST], x = op_at(j, product[0])->in[0];
  for (int k = 0; k < w->n; k++) part[k] = op_at(j, product[k])->out[0];
  Tid y = fused_values(j, part, w->n);
  write_one(
      j, product, w->n, first_of(product, w->n),
      (NewOp){
          .code = OP_linear, .nin = 2, .nout = 1, .in = {x, whole(j, w)}, .out = {y}});
  return y;
}

/* ---- gradients ---- */

/* Finds the two ops that read the gradient of product k; false if other ops read it, too.
 */
static bool readers(const Join *j, const Joined *w, int k, Tid dy, Backward *out) {
  out->dx[k] = out->dw[k] = NOBODY;
  for (int i = j->r.first[dy]; i < j->r.first[dy + 1]; i++) {
    Oid id = j->r.reader[i];
    const Op *op = op_at(j, id);
    if (op->code == OP_linear_dx && op->in[0] == dy && fused_weight(j, op) == w->param[k])
      out->dx[k] = id;
    else if (op->in[1] == dy && id == j->gradient[w->param[k]])
      out->dw[k] = id;
    else
      return false;
  }
  return readers_of(&j->r, dy) == 2 && out->dx[k] >= 0 && out->dw[k] >= 0;
}

bool fused_backward(const Join *j, const Joined *w, const Tid *dy, Backward *out) {
  for (int k = 0; k < w->n; k++) {
    if (!readers(j, w, k, dy[k], out)) return false;
    const Op *dx = op_at(j, out->dx[k]), *dw = op_at(j, out->dw[k]);
    Tid t = dx->out[0];
    if (readers_of(&j->r, t) != 1 || readers_of(&j->r, dw->out[0]) != 0 ||
        dx->phase != op_at(j, out->dx[0])->phase ||
        dw->phase != op_at(j, out->dw[0])->phase ||
        dw->in[0] != op_at(j, out->dw[0])->in[0])
      return false;
    Oid sum = j->r.reader[j->r.first[t]];
    if (k > 0 && sum != out->sum) return false;
    out->sum = sum;
  }
  return op_at(j, out->sum)->code == OP_acc;
}

/* Writes dx in the place of the first of its parts in the sum, if the sum has other parts
 * as well. */
static Tid sum_or_part(Join *j, const Joined *w, const Backward *b) {
  Graph *g = j->r.g;
  Op *sum = &g->op.at[b->sum];
  if (sum->nin == w->n) {
    j->r.gone[b->sum] = true;
    return sum->out[0];
  }
  Tensor like = *tensor_at(j, op_at(j, b->dx[0])->out[0]);
  *VEC_PUSH(g->arena, g->t) = like;
  Tid all = g->t.n - 1, *in = NEW_N(g->arena, Tid, sum->nin);
  int n = 0;
  bool there = false;
  for (int i = 0; i < sum->nin; i++) {
    bool part = false;
    for (int k = 0; k < w->n; k++) part |= sum->in[i] == op_at(j, b->dx[k])->out[0];
    if (!part)
      in[n++] = sum->in[i];
    else if (!there)
      in[n++] = all, there = true;
  }
  sum->in = in, sum->nin = (int16_t)n;
  return all;
}

void write_fused_backward(Join *j, Joined *w, const Backward *b, Tid dy) {
  Tid part[JOINED_MOST], x = op_at(j, b->dw[0])->in[0];
  for (int k = 0; k < w->n; k++) part[k] = op_at(j, b->dw[k])->out[0];
  Tid dw = side_by_side(j, part, w->n, 0), dx = sum_or_part(j, w, b);
  tensor_at(j, dw)->joined = true;
  write_one(j, b->dx, w->n, last_of(b->dx, w->n),
            (NewOp){.code = OP_linear_dx,
                    .nin = 2,
                    .nout = 1,
                    .in = {dy, whole(j, w)},
                    .out = {dx}});
  /* In a unit whose input needs no gradient dx is in W, too, and a part of dw may come
   * before the last part of dy. */
  Oid at = first_of(b->dw, w->n);
  if (at < tensor_at(j, dy)->producer) at = last_of(b->dw, w->n);
  write_one(
      j, b->dw, w->n, at,
      (NewOp){.code = OP_linear_dw, .nin = 2, .nout = 1, .in = {x, dy}, .out = {dw}});
}
