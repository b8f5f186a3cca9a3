/* fused_projections.c - fused QKV and gate-up projections.
 *
 * Several weights become one matrix W: y = x W gives their results concatenated, dx = dy
 * W is the sum over all of them, dW has the gradients of all. The ops are those of one
 * weight; W is a parameter that layout() composes of adjacent weights.
 *
 * Weights can be fused if layout() treats them alike, only products read them, and each
 * ends where the next one begins. The fused result is never split: the ops that read it,
 * rope and silu_mul, read their columns in place, and their gradients are written there.
 */
#include "fused_projections_int.h"

#include "vm/base/dynamic8.h"

#include "vm/storage/memory_plan.h"

/* ---- which weights ---- */

static void find_gradients(Join *j) {
  const Graph *g = j->r.g;
  j->gradient = arena_alloc(g->arena, sizeof *j->gradient * (size_t)j->logical->param.n);
  for (int p = 0; p < j->logical->param.n; p++) j->gradient[p] = NOBODY;
  for (int i = 0; i < g->op.n; i++)
    for (int k = 0; k < g->op.at[i].nout; k++) {
      Tid of = g->t.at[g->op.at[i].out[k]].grad_of;
      if (of < 0 || j->logical->t.at[of].kind != T_PARAM) continue;
      Oid *by = &j->gradient[j->logical->t.at[of].index];
      *by = *by == NOBODY ? i : SEVERAL;
    }
}

int fused_weight(const Join *j, const Op *op) {
  if ((op->code != OP_linear && op->code != OP_linear_dx) || op->attr.layout != 0)
    return -1;
  const Tensor *w = tensor_at(j, op->in[1]);
  if (w->kind != T_PARAM || w->joined || op->in[0] == op->in[1]) return -1;
  return w->index;
}

/* Whether only products of unit `unit` read the parameter, and one op at most makes its
 * gradient. */
static bool is_of_products(const Join *j, int param, int unit) {
  Tid w = stored(j, param);
  for (int i = j->r.first[w]; i < j->r.first[w + 1]; i++) {
    const Op *op = op_at(j, j->r.reader[i]);
    if (op->unit != unit || fused_weight(j, op) != param) return false;
  }
  Oid by = j->gradient[param];
  return by == NOBODY || (by != SEVERAL && op_at(j, by)->code == OP_linear_dw);
}

/* Whether the states of a weight are in f32, though those of others are in blocks. */
static bool few_elements(const Join *j, const Tensor *x) {
  return j->in_bits && dims_size(x->dim, x->ndim) < DYNAMIC8_LEAST;
}

/* Whether two weights have equal settings for layout() and equal width. */
static bool are_alike(const Join *j, int p, int q) {
  const Param *a = &j->logical->param.at[p], *b = &j->logical->param.at[q];
  const Tensor *x = tensor_at(j, stored(j, p)), *y = tensor_at(j, stored(j, q));
  return p != q && a->decay == b->decay && a->share == b->share &&
         a->frozen == b->frozen && a->group == b->group && x->dtype == y->dtype &&
         x->ndim == y->ndim && x->dim[1].local == y->dim[1].local &&
         (tensor_count(x) < j->persistence) == (tensor_count(y) < j->persistence) &&
         few_elements(j, x) == few_elements(j, y) &&
         place_eq(j->sh->param_place[p], j->sh->param_place[q]) &&
         place_eq(j->sh->grad_place[p], j->sh->grad_place[q]);
}

/* Elements to which weights must be aligned, so that they are adjacent in every region:
 * no region has a type narrower than bf16, but where states are in blocks. */
static int64_t aligned_to(const Join *j) {
  return j->in_bits ? DYNAMIC8_BLOCK : ALIGN / 2;
}

static bool can_join(const Join *j, const Joined *w, int unit) {
  for (int k = 0; k < w->n; k++) {
    int p = w->param[k];
    if (j->sh->joined[p] || !is_of_products(j, p, unit) ||
        tensor_count(tensor_at(j, stored(j, p))) % aligned_to(j) != 0)
      return false;
    for (int i = 0; i < k; i++)
      if (!are_alike(j, w->param[i], p)) return false;
  }
  return true;
}

/* The weights of n products as one matrix, or NULL; the same matrix in all bodies of a
 * unit. */
static Joined *join_weights(Join *j, const Oid *product, int n) {
  Joined w = {.n = n};
  for (int k = 0; k < n; k++) w.param[k] = fused_weight(j, op_at(j, product[k]));
  Joined *known = j->sh->joined[w.param[0]];
  if (known)
    return known->n == n && memcmp(known->param, w.param, sizeof w.param) == 0 ? known
                                                                               : NULL;
  bool can = can_join(j, &w, op_at(j, product[0])->unit);
  return can ? arena_copy(j->r.g->arena, &w, sizeof w) : NULL;
}

/* ---- patterns ---- Each starts at op i and returns false if it does not match. */

/* The product that computes t in the same body as `like`, from rows x if given, or -1. */
static Oid product_of(const Join *j, Tid t, Tid x, const Op *like) {
  Oid id = tensor_at(j, t)->producer;
  if (id < 0) return NOBODY;
  const Op *op = op_at(j, id);
  bool is = op->code == OP_linear && !j->r.gone[id] && fused_weight(j, op) >= 0 &&
            op->unit == like->unit && (x < 0 || op->in[0] == x);
  return is ? id : NOBODY;
}

static bool same_body(const Op *a, const Op *b) {
  return a->unit == b->unit && a->phase == b->phase &&
         (a->phase == PH_F || a->recomputed == b->recomputed);
}

/* Finds the readers of one result: silu_mul of both, and its gradient (*back). False if
 * there are others. */
static bool gate_readers(const Join *j, Tid t, const Tid *both, Oid *back) {
  for (int i = j->r.first[t]; i < j->r.first[t + 1]; i++) {
    const Op *op = op_at(j, j->r.reader[i]);
    if ((op->code != OP_silu_mul && op->code != OP_silu_mul_dx) || op->in[0] != both[0] ||
        op->in[1] != both[1] || (op->code == OP_silu_mul_dx && op->in[2] == t))
      return false;
    if (op->code == OP_silu_mul) continue;
    if (*back >= 0 && *back != j->r.reader[i]) return false;
    *back = j->r.reader[i];
  }
  return true;
}

/* silu_mul of two products, and its gradient. */
static bool gate_and_up(Join *j, Oid i) {
  const Op *op = op_at(j, i);
  if (op->code != OP_silu_mul && op->code != OP_silu_mul_dx) return false;
  Tid both[] = {op->in[0], op->in[1]}, dy[2];
  Oid product[2] = {product_of(j, both[0], -1, op)}, back = NOBODY;
  if (product[0] < 0) return false;
  product[1] = product_of(j, both[1], op_at(j, product[0])->in[0], op);
  if (product[1] < 0 || !same_body(op_at(j, product[0]), op_at(j, product[1])))
    return false;
  Joined *w = join_weights(j, product, 2);
  Backward b;
  if (!w || !gate_readers(j, both[0], both, &back) ||
      !gate_readers(j, both[1], both, &back))
    return false;
  for (int k = 0; k < 2 && back >= 0; k++) dy[k] = op_at(j, back)->out[k];
  if (back >= 0 && !fused_backward(j, w, dy, &b)) return false;
  int first = j->r.first[both[0]], end = j->r.first[both[0] + 1];
  Tid y = fused_products(j, w, product);
  for (int k = first; k < end; k++) {
    Oid id = j->r.reader[k];
    Tid out = op_at(j, id)->out[0];
    if (id != back)
      rewrite_op(
          &j->r, id, id,
          (NewOp){.code = OP_swiglu, .nin = 1, .nout = 1, .in = {y}, .out = {out}});
  }
  if (back < 0) return true;
  Tid d = fused_values(j, dy, 2), of = op_at(j, back)->in[2];
  rewrite_op(
      &j->r, back, back,
      (NewOp){.code = OP_swiglu_dx, .nin = 2, .nout = 1, .in = {y, of}, .out = {d}});
  write_fused_backward(j, w, &b, d);
  return true;
}

/* Whether one op reads both. */
static bool read_together(const Join *j, Tid a, Tid b) {
  for (int i = j->r.first[a]; i < j->r.first[a + 1]; i++) {
    const Op *op = op_at(j, j->r.reader[i]);
    for (int k = 0; k < op->nin; k++)
      if (op->in[k] == b) return true;
  }
  return false;
}

/* The product that computes the values: of the same rows, in the same body, and the only
 * third one, or the only one read together with the keys. Else -1. */
static Oid values_of(const Join *j, const Oid *two, Tid keys) {
  const Op *like = op_at(j, two[0]);
  Oid found[2] = {NOBODY, NOBODY};
  int n[2] = {0, 0};
  for (int i = j->r.first[like->in[0]]; i < j->r.first[like->in[0] + 1]; i++) {
    Oid id = j->r.reader[i];
    const Op *op = op_at(j, id);
    if (op->code != OP_linear || !same_body(op, like) || id == two[0] || id == two[1])
      continue;
    for (int k = 0; k < 2; k++)
      if (k == 0 || read_together(j, keys, op->out[0])) found[k] = id, n[k]++;
  }
  int k = n[0] != 1;
  if (n[k] != 1 || j->r.gone[found[k]] || fused_weight(j, op_at(j, found[k])) < 0)
    return NOBODY;
  return found[k];
}

/* Whether only ropes of both read them. */
static bool rope_readers(const Join *j, const Tid *both) {
  for (int k = 0; k < 2; k++)
    for (int i = j->r.first[both[k]]; i < j->r.first[both[k] + 1]; i++) {
      const Op *op = op_at(j, j->r.reader[i]);
      if (op->code != OP_rope_pair || op->in[0] != both[0] || op->in[1] != both[1])
        return false;
    }
  return true;
}

/* Makes the readers of the values behind op `at` in its body read `mine`, a result of
 * `at`. */
static void take_values(Join *j, Tid values, Oid at, Tid mine) {
  for (int i = j->r.first[values]; i < j->r.first[values + 1]; i++) {
    Op *op = &j->r.g->op.at[j->r.reader[i]];
    if (j->r.reader[i] < at || op->unit != op_at(j, at)->unit ||
        op->phase != op_at(j, at)->phase)
      continue;
    op->in = arena_copy(j->r.g->arena, op->in, sizeof *op->in * (size_t)op->nin);
    for (int k = 0; k < op->nin; k++)
      if (op->in[k] == values) op->in[k] = mine;
  }
}

/* The ropes of the fused result y (values, keys, queries). Recomputed ropes compute the
 * values again, too, so that only y is saved for them. */
static void write_ropes(Join *j, const Tid *both, Tid values, Tid y) {
  int first = j->r.first[both[0]], end = j->r.first[both[0] + 1];
  for (int k = first; k < end; k++) {
    Oid at = j->r.reader[k];
    const Op *op = op_at(j, at);
    Tid v = values;
    if (k > first) {
      Tensor like = *tensor_at(j, values);
      *VEC_PUSH(j->r.g->arena, j->r.g->t) = like;
      v = j->r.g->t.n - 1;
    }
    NewOp x = {.code = OP_rope_qkv,
               .nin = 2,
               .nout = 3,
               .in = {y, op->in[2]},
               .out = {op->out[0], op->out[1], v}};
    rewrite_op(&j->r, at, at, x);
    if (k > first) take_values(j, values, at, v);
  }
}

/* The ropes of two products, and a third product that nothing before them reads. */
static bool queries_keys_values(Join *j, Oid i) {
  const Op *op = op_at(j, i);
  if (op->code != OP_rope_pair) return false;
  Tid both[] = {op->in[0], op->in[1]};
  Oid product[3] = {product_of(j, both[0], -1, op)};
  if (product[0] < 0 || !same_body(op_at(j, product[0]), op)) return false;
  product[1] = product_of(j, both[1], op_at(j, product[0])->in[0], op);
  if (product[1] < 0 || !same_body(op_at(j, product[1]), op)) return false;
  product[2] = values_of(j, product, op->out[1]);
  if (product[2] < 0 || !rope_readers(j, both)) return false;
  Tid v = op_at(j, product[2])->out[0];
  for (int k = j->r.first[v]; k < j->r.first[v + 1]; k++)
    if (j->r.reader[k] <= i) return false;
  Joined *w = join_weights(j, product, 3);
  if (!w) return false;
  write_ropes(j, both, v, fused_products(j, w, product));
  return true;
}

/* The gradient that a product with parameter p reads, or -1. */
static Tid passed_on(const Join *j, int p) {
  Tid w = stored(j, p);
  for (int i = j->r.first[w]; i < j->r.first[w + 1]; i++) {
    const Op *op = op_at(j, j->r.reader[i]);
    if (op->code == OP_linear_dx) return op->in[0];
  }
  return -1;
}

/* The gradients of fused queries, keys and values: ropes of two gradients, where the
 * gradient of the values is known as well. */
static bool gradients_of_them(Join *j, Oid i) {
  const Op *op = op_at(j, i);
  int p = -1;
  if (op->code != OP_rope_pair) return false;
  for (int k = j->r.first[op->out[0]]; p < 0 && k < j->r.first[op->out[0] + 1]; k++)
    p = fused_weight(j, op_at(j, j->r.reader[k]));
  Joined *w = p < 0 ? NULL : j->sh->joined[p];
  Backward b;
  if (!w || w->n != 3) return false;
  int second = w->param[0] != p;
  Tid dy[3] = {op->out[second], op->out[!second], passed_on(j, w->param[2])};
  if (dy[2] < 0 || !is_known(&j->r, dy[2], i) || !fused_backward(j, w, dy, &b) ||
      op_at(j, b.dx[0])->unit != op->unit)
    return false;
  Tid d = fused_values(j, dy, 3);
  NewOp x = {.code = OP_rope_qkv_dx,
             .nin = 4,
             .nout = 1,
             .in = {op->in[second], op->in[!second], dy[2], op->in[2]},
             .out = {d}};
  rewrite_op(&j->r, i, i, x);
  write_fused_backward(j, w, &b, d);
  return true;
}

/* ---- the pass ---- */

void fuse_projections(const CompileInput *in, Sharded *sh) {
  static bool (*const pattern[])(Join *, Oid) = {gate_and_up, queries_keys_values,
                                                 gradients_of_them};
  Join j = {.r = rewrite_begin(sh->g),
            .logical = in->graph,
            .sh = sh,
            .in_bits = dtype_elements(in->plan->opt.state) > 1,
            .persistence = in->plan->strategy.persistence};
  sh->joined = NEW_N(sh->g->arena, Joined *, in->graph->param.n);
  find_gradients(&j);
  for (int i = 0; i < sh->g->op.n; i++)
    for (int k = 0; k < LEN(pattern) && !j.r.gone[i]; k++)
      if (pattern[k](&j, i)) break;
  rewrite_end(&j.r);
}
