/* shard_fp8.c - placements of amax, and of linears in fp8 (vm/graph/op_fp8.h).
 *
 * The largest magnitude of a tensor that is cut is the maximum over its pieces (PL_MAX),
 * which becomes R by an all_reduce, like a partial sum. Over dp a microbatch is the
 * rank's own, and so are its scales: groups of rows, cut as the rows are. What a linear
 * needs of an amax follows from how it needs the tensor: the same cut of what both have,
 * whole over all else. So scales, and what is rounded by them, are the same on every
 * mesh. */
#include "shard_rules.h"

#include "vm/graph/op_fp8.h"

/* The placement of the amax of `x`, which is placed as `p`; over an axis that cuts what
 * the maximum is of, `part`. */
static Place amax_place(const Tensor *x, Place p, int how, int part) {
  int last = x->ndim - 1, columns = x->kind == T_PARAM ? 0 : 1;
  for (int a = 0; a < AX_N; a++) {
    int d = p.on[a];
    if (d < 0) continue;
    bool group = a == AX_DP && x->kind != T_PARAM && d < last;
    if (how & FP8_ROWS)
      p.on[a] = (int8_t)(d < last ? d : part);
    else if (how & FP8_COLUMNS && d == last)
      p.on[a] = (int8_t)columns;
    else
      p.on[a] = (int8_t)(group ? 0 : part);
  }
  return p;
}

/* Of the tensor as it lies, so that no rank looks at what another one has. */
static void place_amax(Shard *s, Oid op, Place x) {
  int how = s->g->op.at[op].attr.fp8_how;
  shard_need(s, op, 0, x);
  s->yield[op][0] = amax_place(shard_tensor(s, op, 0), s->need[op][0], how, PL_MAX);
}

bool shard_amax(Shard *s, Oid op) {
  Place x;
  if (shard_tensor(s, op, 0)->kind != T_PARAM)
    x = shard_settled(s, op, 0);
  else if (!shard_param(s, op, 0, ROLE_WEIGHT, s->g->op.at[op].attr.layout ? 1 : 0, &x))
    return false;
  place_amax(s, op, x);
  return true;
}

static void place_scales(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  for (int i = 0; i < 2 && o->nin == 4; i++)
    s->need[op][2 + i] = amax_place(shard_tensor(s, op, i), s->need[op][i],
                                    fp8_kind(o->code, &o->attr, i), PL_R);
}

/* Whether blocks of 32 along dimension `d` of an operand are whole on each rank. */
static bool whole_blocks(Shard *s, Oid op, int i, int d, const char *of) {
  const Tensor *t = shard_tensor(s, op, i);
  int64_t size = t->dim[d].size, parts = t->dim[d].parts;
  for (int a = 0; a < AX_N; a++) {
    if (s->need[op][i].on[a] != d || s->n[a] == 1) continue;
    if (a == AX_TP_REP && s->need[op][i].on[AX_TP] == d && s->n[AX_TP] == 1) continue;
    size /= s->n[a];
    if (t->dim[d].tag == TAG_SEQ && !s->plan->cp.in_order) parts = 2;
  }
  if (size / parts % 32 == 0) return true;
  const Op *o = &s->g->op.at[op];
  if (shard_tell_once(s, arena_printf(s->d->arena, "mxfp8 %s", of)))
    diag_error(s->d, "divisibility", "precision.recipe",
               "mxfp8 has blocks of 32, and a rank has %lld %s of %s in one run",
               (long long)(size / parts), of, o->name ? o->name : "a linear")
        ->suggestion = "another recipe, or fewer ranks";
  return false;
}

static bool blocks_fit(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  bool ok = whole_blocks(s, op, 0, shard_tensor(s, op, 0)->ndim - 2, "tokens");
  for (int d = 0; d < 2 && ok; d++) {
    bool out = d == (o->attr.layout ? 1 : 0);
    ok = whole_blocks(s, op, 1, d, out ? "output features" : "input features");
  }
  return ok;
}

bool shard_linear_fp8(Shard *s, Oid op) {
  if (!shard_linear(s, op)) return false;
  place_scales(s, op);
  return s->g->op.at[op].attr.fp8 != FP8_MX || blocks_fit(s, op);
}

void shard_place_fp8(Shard *s, Oid id) {
  if (s->g->op.at[id].code == OP_amax)
    place_amax(s, id, shard_settled(s, id, 0));
  else
    place_scales(s, id);
}
