/* autodiff.c - reverse-mode differentiation of a finished forward graph; each backward op
 * is tagged I (input gradients) or W (weight gradients).
 *
 * Works backward over the forward ops. A tensor with several readers gets several
 * gradient contributions; one `acc` sums them in each unit that contributes and, if there
 * are several such units, one more in the unit that produced the tensor. So one gradient
 * crosses between units wherever one tensor did. Contributions to a parameter are not
 * summed here: each accumulates into its gradient buffer.
 *
 * A tensor learns if it is a parameter that is not frozen or depends on one. Others have
 * no gradient, and ops that would compute nothing but such gradients are left out, so the
 * backward ends where nothing before it learns, and nothing is saved for it there. */
#include "rewrite_passes.h"

#include "rewrite.h"

typedef struct Contribution {
  Tid t;
  int unit; /* unit of the forward op that contributes */
} Contribution;

typedef struct Autodiff {
  Graph *g;
  Diags *d;
  bool broken;  /* an op has no gradient: no further errors for the ops before it */
  bool *learns; /* of each tensor of the forward */
  VEC(Contribution) * of; /* for each tensor */
} Autodiff;

/* Reports a problem with the op or parameter at this line of the model function. */
static Diag *problem(Autodiff *ad, int line, const char *fmt, ...) PRINTF(3, 4);
static Diag *problem(Autodiff *ad, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(ad->d->arena, fmt, ap);
  va_end(ap);
  Diag *x = diag_error(ad->d, "model", "model", "%s", text);
  if (ad->g->file && line > 0)
    x->file = arena_str(ad->d->arena, ad->g->file), x->line = line;
  return x;
}

/* "linear of model.head", for messages. */
static const char *op_label(const Autodiff *ad, const Op *op) {
  const char *name = op_info[op->code].name;
  return op->name ? arena_printf(ad->d->arena, "%s of %s", name, op->name) : name;
}

/* ---- sums ---- */

/* Names a sum after the first op of its unit that reads the tensor: the op that made the
 * tensor may be in another unit, and bodies of equal layers must have equal names. */
static const char *name_in_unit(const Graph *g, const Tid *in, int n, int unit) {
  for (int i = 0; i < n; i++) {
    const Tensor *t = &g->t.at[in[i]];
    if (t->unit == unit && t->producer >= 0) return g->op.at[t->producer].name;
  }
  return NULL;
}

static Tid add_acc(Graph *g, Tid of, const Tid *in, int n, int unit) {
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
  return t;
}

/* The sum of n tensors, as a chain of `acc` ops with as many operands as a kernel takes.
 */
static Tid sum_all(Graph *g, Tid of, Tid *in, int n, int unit) {
  enum { MOST = 8 };
  while (n > MOST) {
    in[0] = add_acc(g, of, in, MOST, unit);
    n -= MOST - 1;
    memmove(in + 1, in + MOST, sizeof(Tid) * (size_t)(n - 1));
  }
  return n == 1 ? in[0] : add_acc(g, of, in, n, unit);
}

/* Sums the contributions from the unit of the first one and removes them from the list.
 */
static Tid sum_unit(Autodiff *ad, Tid of, int *n, Contribution *c) {
  Tid *in = NEW_N(ad->g->arena, Tid, *n);
  int k = 0, rest = 0, unit = c[0].unit;
  for (int i = 0; i < *n; i++) {
    if (c[i].unit != unit)
      c[rest++] = c[i];
    else
      in[k++] = c[i].t;
  }
  *n = rest;
  return sum_all(ad->g, of, in, k, unit);
}

/* Sets the gradient of tensor `t`, the sum of its contributions, if it has any. */
static void finish(Autodiff *ad, Tid t) {
  Graph *g = ad->g;
  int n = ad->of[t].n;
  if (n == 0) return;
  VEC(Tid) per_unit = {0};
  while (n > 0) *VEC_PUSH(g->arena, per_unit) = sum_unit(ad, t, &n, ad->of[t].at);
  g->grad[t] = sum_all(g, t, per_unit.at, per_unit.n, g->t.at[t].unit);
}

/* ---- ops ---- */

/* The result tensor for what an op contributes to the gradient of its operand i: in the
 * type of gradients for a parameter if the op can accumulate, else the operand's own. */
static Tid contribution(Graph *g, Oid f, int i, Tid t) {
  Tid of = g->op.at[f].in[i];
  bool param = g->t.at[of].kind == T_PARAM;
  Oid made = g->t.at[t].producer;
  bool own = g->t.at[t].grad_of == of; /* not a gradient that the op passes through */
  bool adds = own && made >= g->forward_ops && op_adds(g->op.at[made].code);
  if (adds == param) return t;
  Oid id = graph_add(g, OP_cast, 1, 1, g->op.at[f].unit, PH_I);
  Tensor like = g->t.at[of];
  DType type = param ? graph_grad_dtype(g, of) : (DType)like.dtype;
  Tid y = graph_tensor(g, T_VALUE, type, like.dim, like.ndim);
  const Op *fwd = &g->op.at[f];
  Op *op = &g->op.at[id];
  op->fwd = f;
  op->name = fwd->name;
  op->line = fwd->line;
  op->in[0] = t;
  op->out[0] = y;
  op->role[0] = op->role[1] = (uint8_t)(ROLE_DIN + i);
  g->t.at[y].producer = id;
  g->t.at[y].unit = fwd->unit;
  g->t.at[y].grad_of = of;
  return y;
}

/* Every use of a parameter must contribute in its own unit, because gradient buffers are
 * not zeroed beforehand. */
static void check_uses(Autodiff *ad, const Op *op, const Tid *din) {
  if (op->code == OP_feature_sqnorms || op->code == OP_amax)
    return; /* constants: what they read is used elsewhere */
  for (int i = 0; i < op->nin; i++) {
    const Tensor *t = &ad->g->t.at[op->in[i]];
    if (t->kind == T_PARAM && !ad->g->param.at[t->index].frozen && din[i] < 0)
      problem(ad, op->line, "no gradient of parameter %s comes from its use in %s",
              t->name, op_label(ad, op));
  }
}

static void differentiate(Autodiff *ad, Oid id) {
  Graph *g = ad->g;
  Tid dout[KERNEL_OPERANDS], din[KERNEL_OPERANDS];
  bool any = false, all = true;
  for (int i = 0; i < g->op.at[id].nout; i++) {
    Tid out = g->op.at[id].out[i];
    finish(ad, out);
    dout[i] = g->grad[out];
    any |= dout[i] >= 0, all &= dout[i] >= 0;
  }
  const Op *op = &g->op.at[id];
  int nin = op->nin;
  assert(nin <= LEN(din) && op->nout <= LEN(dout));
  for (int i = 0; i < nin; i++) din[i] = -1;
  if (any && !op_info[op->code].grad) {
    problem(ad, op->line, "%s has no gradient", op_label(ad, op));
    ad->broken = true;
    return;
  }
  bool parts =
      op->code == OP_split || op->code == OP_split_heads || op->code == OP_split_pairs;
  if (any && !all && parts) {
    problem(ad, op->line, "%s: some results are used and some are not", op_label(ad, op));
    ad->broken = true;
    return;
  }
  if (any) op_info[op->code].grad(g, id, dout, din);
  for (int i = 0; i < nin; i++) {
    if (din[i] < 0 || !ad->learns[g->op.at[id].in[i]]) continue;
    Tid t = contribution(g, id, i, din[i]);
    op = &g->op.at[id];
    *VEC_PUSH(g->arena, ad->of[op->in[i]]) = (Contribution){t, op->unit};
  }
  if (!ad->broken) check_uses(ad, &g->op.at[id], din);
}

/* ---- what learns ---- */

static void find_learning(Autodiff *ad) {
  const Graph *g = ad->g;
  ad->learns = NEW_N(g->arena, bool, g->t.n);
  for (int i = 0; i < g->param.n; i++)
    ad->learns[g->param.at[i].tensor] = !g->param.at[i].frozen;
  for (int i = 0; i < g->forward_ops; i++) {
    const Op *op = &g->op.at[i];
    bool any = false;
    for (int k = 0; k < op->nin; k++) any |= ad->learns[op->in[k]];
    for (int k = 0; k < op->nout; k++) ad->learns[op->out[k]] = any;
  }
}

/* Removes backward ops whose results are no gradient of what learns. A result beside one
 * that is needed stays, but it is not the gradient of its parameter. */
static void drop_frozen(Autodiff *ad) {
  Graph *g = ad->g;
  bool *live = NEW_N(g->arena, bool, g->t.n), *keep = NEW_N(g->arena, bool, g->op.n);
  for (int i = 0; i < g->param.n; i++) {
    Tid t = g->param.at[i].tensor;
    for (int k = 0; k < ad->of[t].n; k++) live[ad->of[t].at[k].t] = true;
  }
  for (int i = g->op.n - 1; i >= g->forward_ops; i--) {
    const Op *op = &g->op.at[i];
    keep[i] = rewrite_live(op, false, live);
    for (int k = 0; k < op->nout; k++) {
      Tensor *t = &g->t.at[op->out[k]];
      const Tensor *of = t->grad_of >= 0 ? &g->t.at[t->grad_of] : NULL;
      if (of && of->kind == T_PARAM && g->param.at[of->index].frozen) t->grad_of = -1;
    }
  }
  rewrite_remove(g, g->forward_ops, keep);
}

/* Tags backward ops: I if a gradient that leaves the unit depends on it, else W, which
 * ends in gradients of parameters only. Consumers are later in the list, so one pass from
 * the end suffices. */
static void tag_phases(Graph *g) {
  bool *wanted =
      NEW_N(g->arena, bool, g->t.n); /* whether an I op or another unit reads it */
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

static void check_params(Autodiff *ad) {
  const Graph *g = ad->g;
  bool *read = NEW_N(g->arena, bool, g->t.n);
  for (int i = 0; i < g->forward_ops; i++)
    for (int k = 0; k < g->op.at[i].nin; k++) read[g->op.at[i].in[k]] = true;
  for (int i = 0; i < g->param.n; i++)
    if (g->param.at[i].frozen ? !read[g->param.at[i].tensor]
                              : ad->of[g->param.at[i].tensor].n == 0)
      problem(ad, g->param.at[i].line,
              "parameter %s does not influence the loss: remove it from the model",
              g->param.at[i].name);
}

/* Removes the ops that neither the loss nor what is told depends on: their parameters
 * would get no gradient. */
static void drop_unused(Graph *g) {
  bool *live = NEW_N(g->arena, bool, g->t.n), *keep = NEW_N(g->arena, bool, g->op.n);
  live[g->loss] = true;
  if (g->told >= 0) live[g->told] = true;
  for (int i = g->op.n - 1; i >= 0; i--)
    keep[i] = rewrite_live(&g->op.at[i], false, live);
  rewrite_remove(g, 0, keep);
}

void forward_alone(Graph *g) {
  drop_unused(g);
  g->forward_ops = g->op.n;
  g->grad = NEW_N(g->arena, Tid, g->t.n);
  for (int i = 0; i < g->t.n; i++) g->grad[i] = -1;
}

weft_status autodiff(Graph *g, Diags *d) {
  int errors = d->errors;
  drop_unused(g);
  g->forward_ops = g->op.n;
  Tid seed = graph_input(g, IN_SEED);
  int tensors = g->t.n;
  g->grad = NEW_N(g->arena, Tid, tensors);
  for (int i = 0; i < tensors; i++) g->grad[i] = -1;
  Autodiff ad = {.g = g, .d = d};
  ad.of = (void *)arena_alloc(g->arena, sizeof *ad.of * (size_t)tensors);
  find_learning(&ad);
  *VEC_PUSH(g->arena, ad.of[g->loss]) = (Contribution){seed, g->t.at[g->loss].unit};
  for (int i = g->forward_ops - 1; i >= 0; i--) differentiate(&ad, i);
  if (!ad.broken) check_params(&ad);
  if (d->errors > errors) return WEFT_EPLAN;
  drop_frozen(&ad);
  tag_phases(g);
  return WEFT_OK;
}
