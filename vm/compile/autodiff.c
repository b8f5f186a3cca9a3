/* autodiff.c - adds the backward ops to a finished forward graph and tags each one I
 * (input gradients) or W (weight gradients).
 *
 * Works backward over the forward ops. A tensor that several ops read gets several
 * contributions; they are summed by one `acc` in each unit that contributes and, if
 * there are several such units, by one more in the unit that made the tensor. So one
 * gradient crosses from unit to unit wherever one tensor did. Contributions to a
 * parameter are not summed here: each is added to its gradient buffer as it is made. */
#include "autodiff.h"

typedef struct Contribution {
  Tid t;
  int unit;            /* of the forward op that contributed it */
} Contribution;

typedef struct Autodiff {
  Graph *g;
  VEC(Contribution) *of;     /* for each tensor */
} Autodiff;

/* A sum is named after the first op of its unit that adds to it: the op that made the
 * tensor may be in another unit, and bodies of equal layers must have equal names. */
static const char *name_in_unit(const Graph *g, const Tid *in, int n, int unit) {
  for (int i = 0; i < n; i++) {
    const Tensor *t = &g->t.at[in[i]];
    if (t->unit == unit && t->producer >= 0) return g->op.at[t->producer].name;
  }
  return NULL;
}

static Oid add_acc(Graph *g, Tid of, const Tid *in, int n, int unit) {
  if (n > 8) return -1;
  Oid id = graph_add(g, OP_acc, n, 1, unit, PH_I);
  Tensor like = g->t.at[of];
  Tid t = graph_tensor(g, T_VALUE, like.dtype, like.dim, like.ndim);
  Op *op = &g->op.at[id];
  memcpy(op->in, in, sizeof(Tid) * (size_t)n);
  op->out[0] = t;
  op->fwd = like.producer;
  op->name = name_in_unit(g, in, n, unit);
  g->t.at[t].producer = id;
  g->t.at[t].unit = unit;
  g->t.at[t].grad_of = of;
  return id;
}

/* Sums the contributions of one unit, starting at index i; moves the others down. */
static Tid sum_unit(Autodiff *ad, Tid of, int *n, Contribution *c, weft_error *e) {
  Tid in[64];
  int k = 0, rest = 0, unit = c[0].unit;
  for (int i = 0; i < *n; i++) {
    if (c[i].unit != unit) {
      c[rest++] = c[i];
    } else if (k < LEN(in)) {
      in[k++] = c[i].t;
    }
  }
  *n = rest;
  if (k == 1) return in[0];
  Oid acc = add_acc(ad->g, of, in, k, unit);
  if (acc < 0) {
    char label[96];
    err_set(e, WEFT_EPLAN, "%s is read by %d ops of one unit; at most 8 are supported",
            tensor_label(ad->g, of, label), k);
    return -1;
  }
  return ad->g->op.at[acc].out[0];
}

/* The gradient of tensor `t` from all its contributions; -1 if it has none. */
static weft_status finish(Autodiff *ad, Tid t, weft_error *e) {
  Graph *g = ad->g;
  int n = ad->of[t].n;
  if (n == 0) return WEFT_OK;
  VEC(Tid) per_unit = {0};
  while (n > 0) {
    Tid sum = sum_unit(ad, t, &n, ad->of[t].at, e);
    if (sum < 0) return WEFT_EPLAN;
    *VEC_PUSH(g->arena, per_unit) = sum;
  }
  if (per_unit.n == 1) {
    g->grad[t] = per_unit.at[0];
    return WEFT_OK;
  }
  if (per_unit.n > 8) {
    char label[96];
    return err_set(e, WEFT_EPLAN, "%s is read in %d units; at most 8 are supported",
                   tensor_label(g, t, label), per_unit.n);
  }
  Oid acc = add_acc(g, t, per_unit.at, per_unit.n, g->t.at[t].unit);
  g->grad[t] = g->op.at[acc].out[0];
  return WEFT_OK;
}

static weft_status differentiate(Autodiff *ad, Oid id, weft_error *e) {
  Graph *g = ad->g;
  const Op *op = &g->op.at[id];
  Tid dout[8], din[16];
  bool any = false;
  int nout = op->nout, nin = op->nin;
  if (nin > LEN(din))
    return err_set(e, WEFT_EPLAN, "%s has %d operands", op_info[op->code].name, nin);
  for (int i = 0; i < nout; i++) {
    TRY(finish(ad, g->op.at[id].out[i], e));
    dout[i] = g->grad[g->op.at[id].out[i]];
    any |= dout[i] >= 0;
  }
  if (!any) return WEFT_OK;
  op = &g->op.at[id];
  if (!op_info[op->code].grad)
    return err_set(e, WEFT_EPLAN, "op %s (%s) has no gradient", op_info[op->code].name,
                   op->name ? op->name : "");
  for (int i = 0; i < nin; i++) din[i] = -1;
  int before = g->op.n;
  op_info[op->code].grad(g, id, dout, din);
  op = &g->op.at[id];
  bool made = g->op.n > before;
  for (int i = 0; i < nin; i++) {
    if (din[i] < 0) continue;
    made = true;
    *VEC_PUSH(g->arena, ad->of[op->in[i]]) = (Contribution){din[i], op->unit};
  }
  if (!made)
    return err_set(e, WEFT_EPLAN, "%s (%s): some results are used and some are not",
                   op_info[op->code].name, op->name ? op->name : "");
  return WEFT_OK;
}

/* I: what a gradient that leaves the unit is made of. The rest is W: it ends in
 * gradients of parameters only. Consumers come later in the list, so one pass from the
 * end sees them first. */
static void tag_phases(Graph *g) {
  bool *wanted = NEW_N(g->arena, bool, g->t.n);   /* by an I op or by another unit */
  for (int i = g->op.n - 1; i >= g->forward_ops; i--) {
    Op *op = &g->op.at[i];
    bool is_i = false;
    for (int k = 0; k < op->nout; k++) is_i |= wanted[op->out[k]];
    op->phase = is_i ? PH_I : PH_W;
    for (int k = 0; k < op->nin; k++) {
      const Tensor *t = &g->t.at[op->in[k]];
      if (is_i || (t->unit != op->unit && t->grad_of >= 0)) wanted[op->in[k]] = true;
    }
  }
}

static weft_status check_params(const Graph *g, const Autodiff *ad, weft_error *e) {
  for (int i = 0; i < g->param.n; i++)
    if (ad->of[g->param.at[i].tensor].n == 0)
      return err_set(e, WEFT_EPLAN,
                     "parameter %s does not influence the loss: remove it from the model",
                     g->param.at[i].name);
  return WEFT_OK;
}

/* requires a finished forward graph; establishes grad, forward_ops, phases */
weft_status autodiff(Graph *g, weft_error *e) {
  g->forward_ops = g->op.n;
  Tid seed = graph_input(g, IN_SEED);
  int tensors = g->t.n;
  g->grad = NEW_N(g->arena, Tid, tensors);
  for (int i = 0; i < tensors; i++) g->grad[i] = -1;
  Autodiff ad = {.g = g};
  ad.of = (void *)arena_alloc(g->arena, sizeof *ad.of * (size_t)tensors);
  *VEC_PUSH(g->arena, ad.of[g->loss]) = (Contribution){seed, g->t.at[g->loss].unit};
  for (int i = g->forward_ops - 1; i >= 0; i--) TRY(differentiate(&ad, i, e));
  TRY(check_params(g, &ad, e));
  tag_phases(g);
  return WEFT_OK;
}
