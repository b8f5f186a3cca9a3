/* shard_rules.c - the placement rule of every forward op (named in ops.def).
 *
 * A rule reads the placements of its operands as they are produced, says what it needs
 * of each and what it yields. Backward ops need no rules of their own: shard_backward.c
 * derives theirs from the forward op's (see dual() there). */
#include "shard_rules.h"
#include "vm/graph/rules.h"

ShardRule *const shard_rule[OP_N] = {
#define OP(name, nin, nout, infer, grad, shard, cost, doc) [OP_##name] = shard,
#include "vm/graph/ops.def"
};

/* A token finds its row by its number. */
static bool rows_in_one_run(Shard *s, Oid op, Place table) {
  const Tensor *t = shard_tensor(s, op, 1);
  if (table.on[AX_TP] != 0 || t->dim[0].parts <= 1) return true;
  char label[96];
  diag_error(s->d, "tp-plan", "tp_plan",
             "the rows of %s are packed from %d parts: a rank that has a piece of each "
             "does not find a token's row by its number",
             tensor_label(s->g, s->g->op.at[op].in[1], label), t->dim[0].parts)
      ->suggestion = "replicate it";
  return false;
}

bool shard_embedding(Shard *s, Oid op) {
  Place table, ids = shard_in(s, op, 0);
  if (!shard_param(s, op, 1, ROLE_TABLE, 0, &table)) return false;
  if (!rows_in_one_run(s, op, table)) return false;
  Place y = ids;
  if (table.on[AX_TP] == 0)
    shard_divide(&y, table, PL_P);
  else if (table.on[AX_TP] == 1)
    y.on[AX_TP] = 2, s->gathered[op] = true;
  else if (shard_is_residual(s, s->g->op.at[op].out[0]))
    ids.on[AX_TP] = y.on[AX_TP] = 1;
  return shard_placed(s, op, 2, (Place[]){ids, table}, y);
}

/* Whether a bias of style colwise_gather_output follows: then the output of the module,
 * which the style gathers, is that of the bias. */
static bool bias_follows(Shard *s, Oid op) {
  const Op *next = &s->g->op.at[op + 1];
  return op + 1 < s->g->forward_ops && next->code == OP_add_bias &&
         next->in[0] == s->g->op.at[op].out[0] &&
         shard_style(s, op + 1, 1) == STYLE_COLWISE_GATHER;
}

bool shard_linear(Shard *s, Oid op) {
  int out_dim = s->g->op.at[op].attr.layout ? 1 : 0, last = shard_last_dim(s, op, 0);
  Place w, x = shard_linear_rows(s, op);
  if (!shard_param(s, op, 1, ROLE_WEIGHT, out_dim, &w)) return false;
  Place y = x;
  if (w.on[AX_TP] == out_dim) {
    x.on[AX_TP] = PL_R;
    y.on[AX_TP] = (int8_t)last;
    s->gathered[op] =
        shard_style(s, op, 1) == STYLE_COLWISE_GATHER && !bias_follows(s, op);
  } else if (w.on[AX_TP] >= 0) {
    x.on[AX_TP] = (int8_t)last;
    shard_divide(&y, w, PL_P);
  } else if (x.on[AX_TP] == last) {
    x.on[AX_TP] = y.on[AX_TP] = PL_R;
  }
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, w);
  shard_yield(s, op, 0, y);
  bool meet = x.on[AX_TP] == last && w.on[AX_TP] == 1 - out_dim;
  return !meet || shard_same_parts(s, op, 0, last, 1, 1 - out_dim);
}

bool shard_add_bias(Shard *s, Oid op) {
  Place b, x = shard_settled(s, op, 0);
  if (!shard_param(s, op, 1, ROLE_BIAS, 0, &b)) return false;
  int last = shard_last_dim(s, op, 0);
  if ((x.on[AX_TP] == last) != (b.on[AX_TP] == 0)) {
    if (b.on[AX_TP] == 0)
      x.on[AX_TP] = (int8_t)last;
    else
      x.on[AX_TP] = PL_R;
  }
  if (b.on[AX_TP] == 0) s->gathered[op] = shard_style(s, op, 1) == STYLE_COLWISE_GATHER;
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, b);
  shard_yield(s, op, 0, x);
  return b.on[AX_TP] != 0 || shard_same_parts(s, op, 0, last, 1, 0);
}

/* One placement for all operands: that of the first sharded one; for the residual stream
 * the residual's own. */
static Place common(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  Place p = shard_settled(s, op, 0);
  for (int i = 1; i < o->nin; i++) {
    Place q = shard_settled(s, op, i);
    for (int a = 0; a < AX_N; a++)
      if (p.on[a] < 0 && q.on[a] >= 0) p.on[a] = q.on[a];
  }
  if (shard_is_residual(s, o->in[0])) p.on[AX_TP] = 1;
  return p;
}

static bool same_cut(Shard *s, Oid op, Place p) {
  int d = p.on[AX_TP];
  for (int i = 1; i < s->g->op.at[op].nin && d >= 0; i++)
    if (!shard_same_parts(s, op, 0, d, i, d)) return false;
  return true;
}

/* Linear in its operands: stays partial where all of them are. */
bool shard_add(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  Place p = common(s, op);
  for (int a = 0; a < AX_N; a++)
    if (shard_all_parts(s, op, a)) p.on[a] = PL_P;
  for (int i = 0; i < o->nin; i++) shard_need(s, op, i, p);
  shard_yield(s, op, 0, p);
  return same_cut(s, op, p);
}

bool shard_follow(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  Place p = common(s, op);
  const Dim *last = &shard_tensor(s, op, 0)->dim[shard_last_dim(s, op, 0)];
  int at = shard_last_dim(s, op, 0);
  if (o->code == OP_split && (p.on[AX_TP] == at || p.on[AX_ETP] == at) &&
      last->parts % o->attr.n != 0) {
    diag_error(s->d, "tp-plan", "tp_plan",
               "%s is cut as one piece and then split into %d: use packed_colwise",
               o->name ? o->name : "a tensor", o->attr.n);
    return false;
  }
  for (int i = 0; i < o->nin; i++) shard_need(s, op, i, p);
  for (int i = 0; i < o->nout; i++) shard_yield(s, op, i, p);
  return same_cut(s, op, p);
}

/* Neighbours stay on one rank. */
bool shard_pairs(Shard *s, Oid op) {
  int last = shard_last_dim(s, op, 0);
  const Dim *d = &shard_tensor(s, op, 0)->dim[last];
  Place x = shard_settled(s, op, 0);
  shard_need(s, op, 0, x);
  shard_yield(s, op, 0, x);
  if ((x.on[AX_TP] != last && x.on[AX_ETP] != last) || d->unit % 2 == 0) return true;
  const Op *o = &s->g->op.at[op];
  diag_error(
      s->d, "tp-plan", "tp_plan",
      "%s is cut between neighbours that belong together: its features need unit = 2",
      o->name ? o->name : "a tensor");
  return false;
}

/* Follows x; draws of a column are those of its number. */
bool shard_dropout(Shard *s, Oid op) {
  int last = shard_last_dim(s, op, 0);
  Place x = shard_one_run(s, s->g->op.at[op].in[0], common(s, op));
  return shard_placed(s, op, 2, (Place[]){x, shard_rows_of(x, last)}, x);
}

/* Cut as the weight of the linear that reads it, whose style holds; groups are whole. */
bool shard_nf4(Shard *s, Oid op) {
  for (int i = 0; i < 3; i++) {
    Place p;
    if (!shard_param(s, op, i, ROLE_WEIGHT, 0, &p)) return false;
    shard_need(s, op, i, p);
    if (i == 0) shard_yield(s, op, 0, p);
  }
  return true;
}

/* Of parameters that linears before it read, as these have placed them: norms of features
 * that are cut, or parts of sums over inputs that are. */
bool shard_feature_sqnorms(Shard *s, Oid op) {
  int out_dim = s->g->op.at[op].attr.layout ? 1 : 0;
  Place w = shard_in(s, op, 0), y = place_whole();
  for (int a = 0; a < AX_N; a++)
    if (w.on[a] >= 0) y.on[a] = w.on[a] == out_dim ? 0 : PL_P;
  for (int i = 0; i < 3; i++) shard_need(s, op, i, shard_in(s, op, i));
  shard_yield(s, op, 0, y);
  return true;
}

/* As a bias is cut; linear in x, which stays partial. */
bool shard_feature_scale(Shard *s, Oid op) {
  Place m, x = shard_settled(s, op, 0);
  if (!shard_param(s, op, 1, ROLE_BIAS, 0, &m)) return false;
  int last = shard_last_dim(s, op, 0);
  if (m.on[AX_TP] == 0)
    x.on[AX_TP] = (int8_t)last;
  else if (x.on[AX_TP] == last)
    x.on[AX_TP] = PL_R;
  for (int a = 0; a < AX_N; a++)
    if (shard_in(s, op, 0).on[a] == PL_P && m.on[a] == PL_R) x.on[a] = PL_P;
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, m);
  shard_need(s, op, 2, m);
  shard_yield(s, op, 0, x);
  return m.on[AX_TP] != 0 || shard_same_parts(s, op, 0, last, 1, 0);
}

/* A norm of groups, whose weights are cut as the groups are. */
static bool norm_groups(Shard *s, Oid op) {
  int last = shard_last_dim(s, op, 0);
  Place w, x = shard_settled(s, op, 0);
  if (!shard_param(s, op, 1, ROLE_BIAS, 0, &w)) return false;
  bool cut = w.on[AX_TP] == 0;
  if (cut || x.on[AX_TP] == last) x.on[AX_TP] = (int8_t)(cut ? last : PL_R);
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, w);
  for (int i = 0; i < 2; i++) shard_yield(s, op, i, x);
  return !cut || (shard_same_parts(s, op, 0, last, 1, 0) &&
                  shard_whole_heads(s, op, 0, s->g->op.at[op].attr.head_dim));
}

/* RMSNorm and LayerNorm need whole rows, or whole heads. */
bool shard_norm(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  if (o->code == OP_rmsnorm && o->attr.head_dim) return norm_groups(s, op);
  int last = shard_last_dim(s, op, 0);
  Place w, x = shard_settled(s, op, 0);
  for (int i = 1; i < o->nin; i++) {
    if (!shard_param(s, op, i, ROLE_NORM, 0, &w)) return false;
    shard_need(s, op, i, w);
  }
  const Tensor *tx = shard_tensor(s, op, 0);
  bool per_head = o->code == OP_rmsnorm && tx->dim[last].unit > 1 &&
                  shard_tensor(s, op, 1)->dim[0].size == tx->dim[last].unit;
  if (x.on[AX_TP] == last && !per_head) x.on[AX_TP] = PL_R;
  if (x.on[AX_TP] == PL_R && s->tp > 1 && tx->ndim == 3 && tx->dim[1].size > 1 &&
      shard_style(s, op, 1) == STYLE_SEQUENCE)
    x.on[AX_TP] = 1;
  shard_need(s, op, 0, x);
  shard_yield(s, op, 0, x);
  shard_yield(s, op, 1, x);
  return true;
}

/* Of whole rows. */
bool shard_center(Shard *s, Oid op) {
  Place x = shard_settled(s, op, 0);
  if (x.on[AX_TP] == shard_last_dim(s, op, 0)) x.on[AX_TP] = PL_R;
  return shard_placed(s, op, 1, (Place[]){x}, x);
}

/* The numbers of rows and heads are where these are; of partial sums they are whole. */
bool shard_gate(Shard *s, Oid op) {
  int last = shard_last_dim(s, op, 0);
  int64_t of = s->g->t.at[s->g->op.at[op].in[1]].dim[last].size;
  int64_t width = s->g->t.at[s->g->op.at[op].in[0]].dim[last].size / of;
  Place x = shard_in(s, op, 0), gate = of > 1 ? x : shard_rows_of(x, last);
  for (int a = 0; a < AX_N; a++)
    if (gate.on[a] == PL_P) gate.on[a] = PL_R;
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, gate);
  shard_yield(s, op, 0, x);
  return of == 1 || x.on[AX_TP] != last || shard_whole_heads(s, op, 0, width);
}

/* Every rank has both numbers, wherever elements are. */
bool shard_xielu(Shard *s, Oid op) {
  Place p, x = shard_settled(s, op, 0);
  shard_need(s, op, 0, x);
  for (int i = 1; i < 3; i++) {
    if (!shard_param(s, op, i, ROLE_SINKS, 0, &p)) return false;
    shard_need(s, op, i, p);
  }
  shard_yield(s, op, 0, x);
  return true;
}

/* ---- cross entropy ---- The vocabulary may stay sharded. */

static Place logits_place(const Shard *s, Oid op) {
  Place p = shard_settled(s, op, 0);
  bool cut = p.on[AX_TP] == shard_last_dim(s, op, 0);
  if (cut && !s->plan->strategy.loss_parallel) p.on[AX_TP] = PL_R;
  return shard_one_run(s, s->g->op.at[op].in[0], p);
}

bool shard_ce_max(Shard *s, Oid op) {
  int last = shard_last_dim(s, op, 0);
  Place x = logits_place(s, op), m = shard_rows_of(x, last);
  if (x.on[AX_TP] == last) shard_divide(&m, x, PL_MAX);
  return shard_placed(s, op, 1, (Place[]){x}, m);
}

bool shard_ce_sum(Shard *s, Oid op) {
  int last = shard_last_dim(s, op, 0);
  Place x = logits_place(s, op), rows = shard_rows_of(x, last), y = rows;
  if (x.on[AX_TP] == last) shard_divide(&y, x, PL_P);
  return shard_placed(s, op, 3, (Place[]){x, rows, rows}, y);
}

/* A sum over rows: partial where rows are sharded. What several cross entropies add up by
 * source is reduced as one: over tp their rows are whole then. */
bool shard_ce_loss(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  Place x = shard_settled(s, op, 0), y;
  if (s->told_losses > 1 && o->code == OP_ce_loss && ce_loss_sources(o) >= 0)
    x.on[AX_TP] = PL_R;
  y = x;
  for (int a = 0; a < AX_N; a++)
    if (y.on[a] >= 0) y.on[a] = PL_P;
  for (int k = 0; k < o->nin; k++) shard_need(s, op, k, x);
  shard_yield(s, op, 0, y);
  return true;
}
