/* shard_check.c - the invariants of a sharded graph, checked between passes on request
 * (strict.h): each collective makes exactly the change of placement that it says, every
 * operand has the placement that the op needs, all contributions to one gradient buffer
 * have the same placement, and none is over both the dense and the expert mesh. */
#include "shard.h"

/* ---- changes of placement ---- */

/* Whether a collective or slice changes an axis from `was` to `is`. */
static bool changes(const Op *op, int was, int is) {
  switch (op->code) {
  case OP_all_reduce: return was < PL_R && is == PL_R;
  case OP_all_gather: return was == op->attr.dim && is == PL_R;
  case OP_reduce_scatter: return was == PL_P && is == op->attr.dim;
  case OP_slice: return was == PL_R && is == op->attr.dim;
  case OP_all_to_all:
  case OP_all_to_all_v: return was == op->attr.from && is == op->attr.dim;
  case OP_shift: return was >= 0 && is == was;
  default: return true;
  }
}

static bool changes_only(const Op *op, Place from, Place to) {
  for (int a = 0; a < AX_N; a++)
    if (op->attr.axes >> a & 1 ? !changes(op, from.on[a], to.on[a])
                               : from.on[a] != to.on[a])
      return false;
  return op->attr.axes != 0;
}

/* A cast keeps the placement; with attr.cut, R becomes P. */
static bool casts(const Op *op, Place from, Place to) {
  for (int a = 0; a < AX_N; a++) {
    bool one_rank = axes_split(op->attr.cut) & ax_mesh((ShardAxis)a);
    if (one_rank ? from.on[a] != PL_R || to.on[a] != PL_P : from.on[a] != to.on[a])
      return false;
  }
  return true;
}

static bool is_conversion(int code) {
  return code == OP_all_reduce || code == OP_all_gather || code == OP_reduce_scatter ||
         code == OP_slice || code == OP_all_to_all || code == OP_all_to_all_v ||
         code == OP_shift;
}

static weft_status check_conversion(const Graph *g, const Op *op, weft_error *e) {
  const Tensor *x = &g->t.at[op->in[0]], *y = &g->t.at[op->out[0]];
  bool ok = op->code == OP_cast ? casts(op, x->place, y->place)
                                : changes_only(op, x->place, y->place);
  char from[PLACE_STR], to[PLACE_STR];
  if (ok) return WEFT_OK;
  return err_set(e, WEFT_EINTERNAL, "%s of %s makes [%s] of [%s]", op_info[op->code].name,
                 op->name ? op->name : "", place_str(y->place, to),
                 place_str(x->place, from));
}

/* ---- gradients of parameters ---- */

static weft_status check_gradient(const Graph *logical, const Sharded *s, Oid id, Tid t,
                                  weft_error *e) {
  const Tensor *x = &s->g->t.at[t];
  const Op *op = &s->g->op.at[id];
  if (x->grad_of < 0 || logical->t.at[x->grad_of].kind != T_PARAM) return WEFT_OK;
  int param = logical->t.at[x->grad_of].index;
  const char *name = logical->param.at[param].name;
  Place stored = s->param_place[param], sum = s->grad_place[param];
  char one[PLACE_STR], other[PLACE_STR];
  if (!op_adds(op->code) || op->phase != PH_W)
    return err_set(e, WEFT_EINTERNAL, "%s does not add to the gradient of %s",
                   op_info[op->code].name, name);
  if (!place_eq(x->place, sum))
    return err_set(e, WEFT_EINTERNAL,
                   "%s of %s adds [%s] to the gradient of %s, which is [%s]",
                   op_info[op->code].name, op->name ? op->name : "",
                   place_str(x->place, one), name, place_str(sum, other));
  for (int a = 0; a < AX_N; a++)
    if (sum.on[a] != stored.on[a] && !(stored.on[a] == PL_R && sum.on[a] == PL_P))
      return err_set(e, WEFT_EINTERNAL, "the gradient of %s is [%s], itself it is [%s]",
                     name, place_str(sum, one), place_str(stored, other));
  return WEFT_OK;
}

/* Kernels with several results accumulate all of them or none: see shard_backward.c. */
static weft_status check_shared(const Graph *logical, const Sharded *s, const int *adds,
                                weft_error *e) {
  for (int i = 0; i < s->g->op.n; i++) {
    const Op *op = &s->g->op.at[i];
    for (int k = 0; k < op->nout && op->nout > 1; k++) {
      Tid of = s->g->t.at[op->out[k]].grad_of;
      if (of < 0 || logical->t.at[of].kind != T_PARAM ||
          adds[logical->t.at[of].index] < 2)
        continue;
      return err_set(e, WEFT_EINTERNAL, "%s shares the gradient of %s with other ops",
                     op_info[op->code].name, logical->t.at[of].name);
    }
  }
  return WEFT_OK;
}

/* ---- meshes ---- */

static weft_status check_mesh(const char *what, const char *of, Place p, weft_error *e) {
  char on[PLACE_STR];
  if (shard_on_one_mesh(p)) return WEFT_OK;
  return err_set(e, WEFT_EINTERNAL,
                 "%s of %s is over the dense mesh, and over the expert mesh [%s]", what,
                 of, place_str(p, on));
}

weft_status shard_check(const Graph *logical, const Sharded *s, bool trains,
                        weft_error *e) {
  const Graph *g = s->g;
  int *adds = NEW_N(g->arena, int, logical->param.n);
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    if (is_conversion(op->code) || op->code == OP_cast) TRY(check_conversion(g, op, e));
    for (int k = 0; k < op->nout; k++) {
      TRY(check_mesh(op_info[op->code].name, op->name ? op->name : "",
                     g->t.at[op->out[k]].place, e));
      TRY(check_gradient(logical, s, i, op->out[k], e));
      Tid of = g->t.at[op->out[k]].grad_of;
      if (of >= 0 && logical->t.at[of].kind == T_PARAM) adds[logical->t.at[of].index]++;
    }
  }
  for (int i = 0; i < logical->param.n; i++) {
    TRY(check_mesh("parameter", logical->param.at[i].name, s->param_place[i], e));
    TRY(check_mesh("gradient", logical->param.at[i].name, s->grad_place[i], e));
  }
  for (int i = 0; i < logical->param.n && trains; i++)
    if (adds[i] == 0 && !logical->param.at[i].frozen)
      return err_set(e, WEFT_EINTERNAL, "nothing adds to the gradient of %s",
                     logical->param.at[i].name);
  return check_shared(logical, s, adds, e);
}
