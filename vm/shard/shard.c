/* shard.c - from the logical graph to the graph of one rank.
 *
 * Forward ops get placements from their rules, in order. Backward ops follow their
 * forward op: an operand of the forward op is needed as the forward op needed it, the
 * gradient of a result has the placement of that result, and the gradient of an operand
 * has the dual of the operand's placement (S for S, P for R where work was divided). Then
 * every op is written again with local shapes, and where a tensor is not placed as an op
 * needs it, a conversion is inserted, once per (tensor, placement, body). Gradients of
 * parameters: shard_backward.c. */
#include "shard.h"
#include "vm/graph/rules.h"

/* ---- writing the sharded graph ---- */

/* Ops of the loss: without loss_parallel the plan asks for whole logits. */
static bool reads_logits(const Op *op) {
  return op->code == OP_ce_max || op->code == OP_ce_sum || op->code == OP_ce_dx ||
         op->code == OP_divergence_sums || op->code == OP_divergence_dx;
}

/* Warns about a gather that neither sequence parallelism nor a style asks for: a
 * collective that the user may not expect. */
static void report_unforced(Shard *s, Tid t, Place want, const Op *user) {
  Place p = s->place[t];
  int d = p.on[AX_TP];
  if (d < 0 || want.on[AX_TP] == d) return;
  if (s->g->t.at[t].dim[d].tag == TAG_SEQ || s->g->t.at[t].dim[d].tag == TAG_TOKEN)
    return;
  if (s->g->t.at[t].grad_of >= 0 || reads_logits(user)) return;
  const char *module = user->name ? user->name : "the model", *dot = strrchr(module, '.');
  const char *text =
      arena_printf(s->d->arena,
                   "%s reads the whole of a tensor that is sharded along %s: an "
                   "all_gather in every microbatch",
                   dot ? dot + 1 : module, tag_name(s->g->t.at[t].dim[d].tag));
  if (shard_tell_once(s, text))
    diag_warn(s->d, "unforced", "tp_plan", "%s (first in %s)", text, module);
}

/* Whether a conversion that exists can be used in this body. A gathered tensor is not
 * saved for a later body but gathered again there, unless W follows I at once. */
static bool reusable(const Shard *s, const Conversion *c, Place want, int unit,
                     Phase ph) {
  if (c->unit != unit || !place_eq(c->to, want)) return false;
  if (c->phase == ph || !c->gather) return true;
  return c->phase == PH_I && !s->regather;
}

/* The sharded tensor with logical tensor `t` in placement `want`, converted if necessary,
 * for an op of this body. */
static Tid converted(Shard *s, Tid t, Place want, const Op *user, Phase ph) {
  if (shard_same(s, s->place[t], want)) return s->local[t];
  want = shard_told(s, want);
  for (int i = 0; i < s->conv[t].n; i++)
    if (reusable(s, &s->conv[t].at[i], want, user->unit, ph)) return s->conv[t].at[i].t;
  report_unforced(s, t, want, user);
  bool gather = !shard_exchanges_rows(s->place[t], want) &&
                shard_gathers(s->out->t.at[s->local[t]].place, want);
  Tid x = shard_convert(s, t, s->local[t], want, user, ph);
  *VEC_PUSH(s->out->arena, s->conv[t]) = (Conversion){want, user->unit, ph, x, gather};
  return x;
}

/* The placement in which a tensor leaves its unit: without partial sums. The host puts
 * logits together from one run of columns of each rank. */
static Place leaving(const Shard *s, Tid t) {
  Place p = shard_settle(s, t);
  return t == s->logits ? shard_one_run(s, t, p) : p;
}

/* Converts results that must not stay in the placement that the op gives: partial sums
 * that leave the unit, and outputs whose style gathers them. */
static void settle_result(Shard *s, Oid id, Tid t) {
  const Op *op = &s->g->op.at[id];
  Place want = s->place[t];
  if (s->crosses[t] && s->g->t.at[t].ndim > 1) want = leaving(s, t);
  if (op->phase != PH_F && s->crosses[t] && s->g->t.at[t].grad_of >= 0)
    want = shard_settle(s, t);
  if (id < s->g->forward_ops && s->gathered[id] && want.on[AX_TP] >= 0)
    want.on[AX_TP] = want.on[AX_TP_REP] = PL_R;
  if (shard_same(s, want, s->place[t])) return;
  s->local[t] = shard_convert(s, t, s->local[t], want, op, op->phase);
  s->place[t] = want;
}

static void emit(Shard *s, Oid id) {
  const Op *op = &s->g->op.at[id];
  Tid in[KERNEL_OPERANDS];
  assert(op->nin <= LEN(in));
  for (int i = 0; i < op->nin; i++)
    in[i] = converted(s, op->in[i], s->need[id][i], op, op->phase);
  for (int i = 0; i < op->nout; i++) s->place[op->out[i]] = s->yield[id][i];
  Oid f = id < s->g->forward_ops ? id : op->fwd;
  bool whole = op->code == OP_acc || op->code == OP_attention_sinks_dw; /* no steps */
  if (!whole && s->expand[f])
    s->expand[f](s, id, in);
  else
    shard_emit_like(s, id, in);
  for (int i = 0; i < op->nout; i++)
    if (!shard_settle_gradient(s, id, i)) settle_result(s, id, op->out[i]);
}

/* ---- the pass ---- */

static bool is_told(const Op *op) {
  return op->code == OP_ce_loss && ce_loss_sources(op) >= 0;
}

static void start(Shard *s, const CompileInput *in, Diags *d) {
  const Graph *g = in->graph;
  Arena *a = in->arena;
  Mesh m = *in->mesh;
  *s = (Shard){.g = g, .plan = in->plan, .d = d, .tp = m.size[AXIS_TP]};
  s->regather = compile_splits(in) && !in->plan->strategy.keep_gathered;
  mesh_split_tp(&m, shard_head_copies(g, s->tp));
  mesh_split_cp(&m, plan_cp_heads(in->plan, &m));
  for (int x = 0; x < AX_N; x++) s->n[x] = mesh_size(&m, ax_mesh(x));
  s->own_experts =
      graph_has(g, OP_grouped_linear) && (s->n[AX_EP] > 1 || s->n[AX_ETP] != s->tp);
  s->out = graph_new(a, g->batch, g->seq);
  s->out->unit.at = g->unit.at, s->out->unit.n = s->out->unit.cap = g->unit.n;
  s->place = NEW_N(a, Place, g->t.n);
  s->local = NEW_N(a, Tid, g->t.n);
  s->conv = (void *)arena_alloc(a, sizeof *s->conv * (size_t)g->t.n);
  s->crosses = NEW_N(a, bool, g->t.n);
  s->need = NEW_N(a, Place *, g->op.n);
  s->yield = NEW_N(a, Place *, g->op.n);
  s->gathered = NEW_N(a, bool, g->op.n);
  s->expand = (void *)arena_alloc(a, sizeof *s->expand * (size_t)g->op.n);
  s->placed = NEW_N(a, int8_t, g->param.n);
  s->rule_hits = NEW_N(a, int, in->plan->ntp + 1);
  for (int i = 0; i < g->op.n; i++) {
    s->told_losses += is_told(&g->op.at[i]);
    s->need[i] = NEW_N(a, Place, g->op.at[i].nin);
    s->yield[i] = NEW_N(a, Place, g->op.at[i].nout);
    for (int k = 0; k < g->op.at[i].nin; k++) {
      Tid t = g->op.at[i].in[k];
      if (g->t.at[t].unit >= 0 && g->t.at[t].unit != g->op.at[i].unit)
        s->crosses[t] = true;
    }
  }
  s->logits = in->context ? g->loss : -1;
  if (in->context) s->crosses[g->loss] = true;
  for (int t = 0; t < g->t.n; t++) {
    const Tensor *x = &g->t.at[t];
    s->place[t] = place_whole();
    bool rows = x->kind == T_INPUT && x->index != IN_SEED;
    if (rows && s->n[AX_DP] > 1) s->place[t].on[AX_DP] = 0;
    for (int a = AX_CP; a <= AX_CP_HEADS && rows; a++)
      if (s->n[a] > 1) s->place[t].on[a] = 1;
    if (x->kind != T_VALUE) s->local[t] = shard_emit_tensor(s, t, s->place[t]);
  }
}

/* Places the forward ops in order: rules read the placements that earlier ones gave,
 * including what a style or a unit boundary changes afterwards. Behind an op that cannot
 * be placed placements mean nothing. */
static bool place_forward(Shard *s) {
  bool all = true, ok = true;
  for (int i = 0; i < s->g->forward_ops; i++) {
    const Op *op = &s->g->op.at[i];
    all &= shard_rule[op->code](s, i);
    ok &= all && shard_stays_on_mesh(s, i);
    for (int k = 0; k < op->nout; k++) {
      Tid t = op->out[k];
      s->place[t] = s->yield[i][k];
      if (s->crosses[t]) s->place[t] = leaving(s, t);
      if (s->gathered[i] && s->place[t].on[AX_TP] >= 0)
        s->place[t].on[AX_TP] = s->place[t].on[AX_TP_REP] = PL_R;
    }
  }
  return ok;
}

static void emit_phase(Shard *s, Phase ph) {
  for (int i = 0; i < s->g->op.n; i++) {
    if (s->g->op.at[i].phase != ph) continue;
    if (ph != PH_F) shard_place_backward(s, i);
    emit(s, i);
  }
}

static void check_sizes(Shard *s) {
  const Graph *g = s->g;
  check_sequence_cut(s->plan, s->n[AX_CP] * s->n[AX_CP_HEADS], s->tp, s->d);
  for (int i = 0; i < g->forward_ops; i++)
    if (!shard_rule[g->op.at[i].code])
      diag_error(s->d, "missing-rule", "model", "op %s has no placement rule",
                 op_info[g->op.at[i].code].name);
}

/* Ranks of ep must have experts to share. */
static void check_experts(Shard *s) {
  if (!graph_has(s->g, OP_grouped_linear) && s->n[AX_EP] > 1)
    diag_error(s->d, "pointless", "mesh.ep",
               "the model has no experts that %d ranks could share", s->n[AX_EP]);
}

/* Losses are told apart by source where cross entropies are made, which is the same place
 * for all: see shard_ce_loss. */
static void collect_sources(const Shard *s, Sharded *out) {
  for (int i = 0; i < s->g->op.n; i++) {
    const Op *op = &s->g->op.at[i];
    if (!is_told(op)) continue;
    Place p = shard_told(s, s->place[op->out[0]]);
    assert(!out->sources || place_eq(p, out->sources_place));
    out->sources = op->attr.n;
    out->sources_place = p;
  }
}

static void collect(const Shard *s, const CompileInput *in, Sharded *out) {
  const Graph *g = s->g;
  out->g = s->out;
  out->local = s->local;
  out->joined = NULL;
  out->param_place = NEW_N(in->arena, Place, g->param.n);
  out->grad_place = NEW_N(in->arena, Place, g->param.n);
  for (int i = 0; i < g->param.n; i++) {
    out->param_place[i] = shard_told(s, s->place[g->param.at[i].tensor]);
    out->grad_place[i] = shard_told(s, s->grad_to[i]);
  }
  out->loss_place = shard_told(s, s->place[g->loss]);
  out->sources = 0;
  collect_sources(s, out);
  out->copies = s->n[AX_TP_REP];
}

weft_status shard(const CompileInput *in, Sharded *out, Diags *d, weft_error *e) {
  Shard s;
  int errors = d->errors;
  start(&s, in, d);
  check_sizes(&s);
  check_experts(&s);
  if (d->errors > errors) return WEFT_EPLAN;
  bool ok = place_forward(&s);
  tp_unmatched(&s);
  if (!ok || d->errors > errors) return WEFT_EPLAN;
  shard_size_params(&s);
  shard_grad_targets(&s);
  emit_phase(&s, PH_F);
  emit_phase(&s, PH_I);
  emit_phase(&s, PH_W);
  if (d->errors > errors) return WEFT_EPLAN;
  s.out->loss = s.local[in->graph->loss];
  collect(&s, in, out);
  return WEFT_OK;
}
