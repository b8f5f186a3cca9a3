/* shard_param.c - parameters: which tp_plan rule applies, which dimension its style
 * shards, and whether the sizes allow it. */
#include "shard.h"
#include "vm/base/plural.h"

/* ---- replicated heads ---- */

static int64_t pieces(const Dim *d) { return d->size / ((int64_t)d->unit * d->parts); }

int shard_head_copies(const Graph *g, int tp) {
  int64_t least = tp;
  for (int i = 0; i < g->t.n; i++)
    for (int k = 0; k < g->t.at[i].ndim; k++)
      if (g->t.at[i].dim[k].tag == TAG_KV_HEAD)
        least = MIN(least, pieces(&g->t.at[i].dim[k]));
  return least > 0 && tp % least == 0 ? tp / (int)least : 1;
}

bool shard_copied(const Shard *s, Tid id, int dim) {
  const Dim *d = &s->g->t.at[id].dim[dim];
  return s->n[AX_TP_REP] > 1 && d->tag == TAG_KV_HEAD && pieces(d) == s->n[AX_TP];
}

/* ---- problems ---- */

bool shard_tell_once(Shard *s, const char *what) {
  for (int i = 0; i < s->told.n; i++)
    if (strcmp(s->told.at[i], what) == 0) return false;
  *VEC_PUSH(s->g->arena, s->told) = what;
  return true;
}

/* An error about a tp_plan rule (-1: about the plan), with the first parameter that has
 * it. */
static void rule_error(Shard *s, int rule, const char *fmt, ...) PRINTF(3, 4);
static void rule_error(Shard *s, int rule, const char *fmt, ...) {
  Arena *a = s->d->arena;
  if (!shard_tell_once(s, arena_printf(a, "%d %s", rule, fmt))) return;
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(a, fmt, ap);
  va_end(ap);
  const char *path = "tp_plan";
  if (rule >= 0) path = arena_printf(a, "tp_plan[\"%s\"]", s->plan->tp[rule].pattern);
  diag_error(s->d, "tp-plan", path, "%s", text);
}

/* The rule for operand i; -1 if there is none or the operand is no parameter. That of an
 * adapter is the rule of its base. */
static int rule_of(Shard *s, Oid op, int i) {
  const Op *o = &s->g->op.at[op];
  const TpRule *tp = s->plan->tp;
  const Tensor *t = &s->g->t.at[graph_weight(s->g, o->in[i])];
  const char *name = t->name, *module = o->name;
  if (t->kind != T_PARAM) return -1;
  const Param *p = &s->g->param.at[t->index];
  if (p->base) name = p->base;
  if (p->adapter) {
    const char *end = strrchr(module, '.');
    module = arena_strn(s->d->arena, module, (size_t)(end - module));
  }
  int tie, rule = tp_match(s->plan, name, module, s->rule_hits, &tie);
  if (tie >= 0)
    rule_error(s, tie,
               "\"%s\" (%s) and \"%s\" (%s) both match %s and are equally specific",
               tp[rule].pattern, tp_style_name(tp[rule].style), tp[tie].pattern,
               tp_style_name(tp[tie].style), name);
  return rule;
}

TpStyle shard_style(Shard *s, Oid op, int i) {
  int rule = rule_of(s, op, i);
  return rule < 0 ? STYLE_REPLICATE : s->plan->tp[rule].style;
}

/* The dimension that a style shards, -1 for none, -2 if the style makes no sense here. */
static int style_cut(TpStyle st, ParamRole role, int out_dim) {
  switch (st) {
  case STYLE_REPLICATE:
  case STYLE_SEQUENCE: return -1;
  case STYLE_COLWISE:
  case STYLE_COLWISE_GATHER:
  case STYLE_PACKED_COLWISE:
    if (role == ROLE_EXPERTS) return out_dim;
    if (role == ROLE_EXPERTS_BIAS) return 1;
    if (role == ROLE_SINKS) return st == STYLE_COLWISE ? -1 : -2;
    return role == ROLE_WEIGHT ? out_dim : role == ROLE_NORM ? -2 : 0;
  case STYLE_ROWWISE:
  case STYLE_ROWWISE_REP:
  case STYLE_PACKED_ROWWISE:
    if (role == ROLE_EXPERTS) return 3 - out_dim;
    if (role == ROLE_EXPERTS_BIAS) return -1;
    if (role == ROLE_WEIGHT) return 1 - out_dim;
    return role == ROLE_TABLE ? 0 : role == ROLE_BIAS ? -1 : -2;
  case STYLE_EMBEDDING_ROWWISE: return role == ROLE_TABLE || role == ROLE_WEIGHT ? 0 : -2;
  case STYLE_EMBEDDING_COLWISE: return role == ROLE_TABLE || role == ROLE_WEIGHT ? 1 : -2;
  case STYLE_EXPERTS:
    return role == ROLE_EXPERTS || role == ROLE_EXPERTS_BIAS || role == ROLE_NORM ? -1
                                                                                  : -2;
  case STYLE_N: break;
  }
  return -2;
}

/* The config key of a dimension: "num_attention_heads" for heads, ... */
static const char *size_name(DimTag tag) {
  switch (tag) {
  case TAG_HEAD: return "model.num_attention_heads";
  case TAG_KV_HEAD: return "model.num_key_value_heads";
  case TAG_FFN: return "model.intermediate_size";
  case TAG_GROUP: return "model.n_groups";
  case TAG_HIDDEN: return "model.hidden_size";
  default: return NULL;
  }
}

/* Kernels take pieces to be equal, so sizes must divide; only the vocabulary is padded.
 */
bool shard_check_cut(Shard *s, Tid id, int dim) {
  const Dim *d = &s->g->t.at[id].dim[dim];
  int64_t piece = (int64_t)d->unit * d->parts;
  int n = shard_copied(s, id, dim) ? s->n[AX_TP] : s->tp;
  if ((d->tag == TAG_VOCAB && piece == 1) || d->size % (piece * n) == 0) return true;
  const Tensor *t = &s->g->t.at[id];
  const char *name = size_name(d->tag);
  char label[96];
  if (t->kind == T_PARAM && s->g->param.at[t->index].quant && dim == 1)
    name = arena_printf(s->d->arena, "the blocks of a row of %s in 4 bits", t->name);
  if (!name)
    name = arena_printf(s->d->arena, "dimension %d of %s", dim,
                        tensor_label(s->g, id, label));
  const char *text = mesh_tp_divides(s->d->arena, n, name, pieces(d));
  if (shard_tell_once(s, text)) diag_error(s->d, "divisibility", "mesh.tp", "%s", text);
  return false;
}

bool shard_whole_heads(Shard *s, Oid op, int i, int head) {
  const Op *o = &s->g->op.at[op];
  const Tensor *t = &s->g->t.at[o->in[i]];
  const Dim *d = &t->dim[t->ndim - 1];
  if (!shard_check_cut(s, o->in[i], t->ndim - 1)) return false;
  int n = shard_copied(s, o->in[i], t->ndim - 1) ? s->n[AX_TP] : s->tp;
  if (d->size % ((int64_t)head * d->parts * n) == 0) return true;
  char label[96];
  const char *text = arena_printf(s->d->arena, "%d does not divide the %lld heads of %s",
                                  n, (long long)(d->size / head / d->parts),
                                  tensor_label(s->g, o->in[i], label));
  if (shard_tell_once(s, text)) diag_error(s->d, "divisibility", "mesh.tp", "%s", text);
  return false;
}

bool shard_cp_heads(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  int cp = s->n[AX_CP_HEADS];
  bool all = s->plan->cp.comm == CP_A2A;
  for (int i = 0; i < 3; i++) {
    const Tensor *t = &s->g->t.at[o->in[i]];
    bool cut = s->need[op][i].on[AX_TP] == 2;
    int ranks = !cut ? 1 : shard_copied(s, o->in[i], 2) ? s->n[AX_TP] : s->tp;
    int64_t heads =
        t->dim[2].size / (i < 2 ? o->attr.head_dim : attr_value_dim(&o->attr));
    if (heads % (ranks * cp) == 0) continue;
    const char *text =
        arena_printf(s->d->arena,
                     "cp.comm = \"%s\" gives each rank whole heads: %d%s does not divide "
                     "the %lld %sheads",
                     all ? "a2a" : "a2a+p2p", cp,
                     ranks > 1 ? arena_printf(s->d->arena, " * %d (tp)", ranks) : "",
                     (long long)heads, i ? "key-value " : "");
    if (shard_tell_once(s, text))
      diag_error(s->d, "divisibility", all ? "mesh.cp" : "cp.heads_size", "%s", text)
          ->suggestion = "cp = { comm = \"allgather\" } cuts tokens only";
    return false;
  }
  return true;
}

bool shard_same_parts(Shard *s, Oid op, int i, int di, int k, int dk) {
  const Op *o = &s->g->op.at[op];
  int a = s->g->t.at[o->in[i]].dim[di].parts, b = s->g->t.at[o->in[k]].dim[dk].parts;
  if (a == b || s->tp == 1) return true;
  char one[96], other[96];
  rule_error(s, -1,
             "%s takes %s, which is cut in %d packed part%s, and %s, which is cut "
             "in %d",
             o->name ? o->name : op_info[o->code].name, tensor_label(s->g, o->in[i], one),
             a, plural(a, "s"), tensor_label(s->g, o->in[k], other), b);
  return false;
}

/* A weight that is computed and not a parameter: sharded as its producer left it, where
 * the op can use that; whole over other axes. */
static Place made_weight(const Shard *s, Tid t, ParamRole role) {
  Place p = shard_settle(s, t);
  int cut = p.on[AX_TP];
  bool fits =
      role == ROLE_WEIGHT || role == ROLE_BIAS || (role == ROLE_TABLE && cut == 0);
  p = place_whole();
  if (fits) p.on[AX_TP] = (int8_t)cut;
  return shard_with_copies(s, t, p);
}

static bool set_param(Shard *s, const Tensor *t, int rule, int cut) {
  Place *p = &s->place[s->g->param.at[t->index].tensor];
  int8_t to = cut < 0 || s->tp == 1 ? PL_R : (int8_t)cut;
  if (s->placed[t->index] && p->on[AX_TP] != to) {
    rule_error(s, rule, "the styles of its uses shard the tied parameter %s in two ways",
               t->name);
    return false;
  }
  s->placed[t->index] = 1;
  p->on[AX_TP] = to;
  *p = shard_with_copies(s, s->g->param.at[t->index].tensor, *p);
  return cut < 0 || s->tp == 1 ||
         shard_check_cut(s, s->g->param.at[t->index].tensor, cut);
}

/* The dimension of an expert's weight or bias that etp shards: its inner features. */
static int features_of(const Tensor *t) {
  for (int d = 1; d < t->ndim; d++)
    if (t->dim[d].tag == TAG_FFN) return d;
  return -1;
}

static bool experts_divide(Shard *s, const Tensor *t, int features) {
  int ep = s->n[AX_EP], etp = s->n[AX_ETP];
  bool ok = t->dim[0].size % ep == 0, fits = true;
  if (!ok && shard_tell_once(s, "ep"))
    diag_error(s->d, "divisibility", "mesh.ep",
               "%d does not divide the %lld experts of %s", ep, (long long)t->dim[0].size,
               t->name)
        ->suggestion = arena_printf(s->d->arena, "ep may be %s",
                                    mesh_divisors(s->d->arena, t->dim[0].size));
  /* the bias of the way out; what of an adapter is beside the features */
  bool whole = features < 0 && (t->ndim == 2 || s->g->param.at[t->index].adapter);
  if (etp > 1 && !whole) fits = features > 0 && pieces(&t->dim[features]) % etp == 0;
  if (fits || !shard_tell_once(s, "etp")) return ok && fits;
  if (features < 0)
    diag_error(s->d, "divisibility", "mesh.etp",
               "%s has no dimension with the tag \"ffn\", which etp cuts", t->name);
  else
    diag_error(s->d, "divisibility", "mesh.etp", "%d does not divide the %lld %s of %s",
               etp, (long long)pieces(&t->dim[features]), "inner features", t->name);
  return false;
}

bool shard_experts_param(Shard *s, Oid op, int i, Place *p) {
  Tid id = s->g->op.at[op].in[i];
  const Tensor *t = &s->g->t.at[id];
  *p = place_whole();
  if (t->kind != T_PARAM) return true;
  int features = features_of(t);
  if (!experts_divide(s, t, features)) return false;
  rule_of(s, op, i);
  if (s->n[AX_EP] > 1) p->on[AX_EP] = 0;
  if (s->n[AX_ETP] > 1) p->on[AX_ETP] = (int8_t)(features < 0 ? PL_R : features);
  s->placed[t->index] = 1;
  s->place[id] = *p;
  return true;
}

/* The operand that a style cuts over tp, or -1. */
static int operand_cut(const Shard *s, const Op *op) {
  for (int i = 0; i < op->nin; i++)
    if (s->g->t.at[op->in[i]].kind == T_PARAM && s->place[op->in[i]].on[AX_TP] >= 0)
      return i;
  return -1;
}

bool shard_stays_on_mesh(Shard *s, Oid id) {
  const Op *op = &s->g->op.at[id];
  bool ok = true;
  for (int i = 0; i < op->nin; i++) ok &= shard_on_one_mesh(s->need[id][i]);
  for (int i = 0; i < op->nout; i++) {
    Place *y = &s->yield[id][i];
    if (shard_on_one_mesh(*y)) continue;
    for (int a = 0; a < AX_N; a++)
      if (!ax_expert((ShardAxis)a)) y->on[a] = PL_R;
    ok = false;
  }
  if (ok) return true;
  int cut = operand_cut(s, op), rule = cut < 0 ? -1 : rule_of(s, id, cut);
  const char *name = op->name ? op->name : op_info[op->code].name;
  if (rule < 0)
    rule_error(s, rule,
               "%s reads features that tp cuts beside flattened tokens: where mesh.ep or "
               "mesh.etp gives experts a mesh of their own, ranks of tp have different "
               "tokens",
               name);
  else
    rule_error(
        s, rule,
        "%s reads flattened tokens: where mesh.ep or mesh.etp gives experts a mesh "
        "of their own, ranks of tp have different ones, and style %s cuts the "
        "features of the same ones: let it read (batch, seq, features), or "
        "replicate it",
        name, tp_style_name(s->plan->tp[rule].style));
  return false;
}

/* What of an adapter is cut where a style cuts its base: A, (rank, in), along the input
 * features, and B, (out, rank), along the output features, as the magnitudes; of experts
 * behind their number. */
static int adapter_cut(const Tensor *t, int part, int cut) {
  if (cut < 0 || part == ADAPTER_M) return cut;
  return cut == t->ndim - (part == ADAPTER_A ? 1 : 2) ? cut : -1;
}

bool shard_takes_partial(const Shard *s, Oid op, ShardAxis a) {
  const Tensor *w = &s->g->t.at[s->g->op.at[op].in[1]];
  bool b = w->kind == T_PARAM && s->g->param.at[w->index].adapter == ADAPTER_B;
  return b && shard_in(s, op, 0).on[a] == PL_P;
}

Place shard_linear_rows(const Shard *s, Oid op) {
  Place x = shard_settled(s, op, 0);
  if (shard_takes_partial(s, op, AX_TP))
    for (int a = 0; a < AX_N; a++)
      if (ax_of_one_factor((ShardAxis)a, AX_TP)) x.on[a] = shard_in(s, op, 0).on[a];
  return x;
}

bool shard_param(Shard *s, Oid op, int i, ParamRole role, int out_dim, Place *p) {
  const Tensor *t = &s->g->t.at[s->g->op.at[op].in[i]];
  if (t->kind != T_PARAM) {
    *p = made_weight(s, s->g->op.at[op].in[i], role);
    return true;
  }
  int rule = rule_of(s, op, i);
  TpStyle st = rule < 0 ? STYLE_REPLICATE : s->plan->tp[rule].style;
  int cut = style_cut(st, role, out_dim), part = s->g->param.at[t->index].adapter;
  if (part) cut = adapter_cut(t, part, cut);
  if (s->g->param.at[t->index].quant == QUANT_GROUPS) cut = -1;
  bool packed = st == STYLE_PACKED_COLWISE || st == STYLE_PACKED_ROWWISE;
  if (cut == -2) {
    rule_error(s, rule, "style %s makes no sense for %s", tp_style_name(st), t->name);
    return false;
  }
  if (cut >= 0 && s->tp > 1 && packed != (t->dim[cut].parts > 1)) {
    rule_error(s, rule, "%s is %s: use %s", t->name,
               packed ? "not made of packed parts" : "made of packed parts",
               packed ? "colwise or rowwise" : "packed_colwise or packed_rowwise");
    return false;
  }
  if (!set_param(s, t, rule, cut)) return false;
  *p = s->place[s->g->op.at[op].in[i]];
  return true;
}
