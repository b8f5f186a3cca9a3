/* shrink.c - shrinks a plan until it can run twice on a laptop and keeps what can go
 * wrong in it: every axis that had several ranks keeps some, every stage keeps a layer at
 * least, heads are still spread over tp. Reports what was reduced. */
#include "bindings/model/model.h"
#include "bindings/schedule/schedule_facts.h"
#include "job.h"

typedef struct Shrink {
  LangPlan *lp;
  Plan *plan;
  const Graph *whole; /* of the model as it was */
  Arena *arena;
  VEC(const char *) what;
  Diags *d;
  weft_error *e;
} Shrink;

static void note(Shrink *s, const char *what, int64_t from, int64_t to) {
  if (from != to)
    *VEC_PUSH(s->arena, s->what) =
        arena_printf(s->arena, "%s %lld -> %lld", what, (long long)from, (long long)to);
}

/* ---- the mesh ---- */

/* Keeps groups of ranks that share shards, of the fewest ranks. */
static void shrink_group(Shrink *s, int cp, int ranks, int was) {
  int *n = &s->plan->strategy.reshard_to, of = *n;
  if (!of || ranks == was) return;
  for (*n = MAX(cp, 2); *n < ranks && ranks % *n;) *n += cp;
  if (*n >= ranks) *n = 0;
  note(s, "ranks that reshard after forward", of, *n);
}

/* Keeps the expert mesh: axes that had several ranks keep them as far as there are ranks.
 */
static void shrink_experts(Shrink *s, const Mesh *was, const Mesh *m) {
  MeshSpec *spec = &s->plan->mesh;
  int tp = m->size[AXIS_TP], ranks = mesh_size(m, AXES_DP) * m->size[AXIS_CP] * tp;
  int ep = was->size[AXIS_EP], etp = was->size[AXIS_ETP];
  etp = etp == was->size[AXIS_TP] ? tp : MIN(etp, 2);
  if (ranks % etp) etp = 1;
  ep = MIN(ep, ranks / etp);
  while (ranks % (ep * etp)) ep--;
  note(s, "ep", was->size[AXIS_EP], ep);
  note(s, "etp", was->size[AXIS_ETP], etp);
  if (spec->ep) spec->ep = ep;
  if (spec->etp) spec->etp = etp;
}

/* Keeps ring attention of groups, where cp has ranks for it. */
static void shrink_rings(Shrink *s, int cp) {
  int *n = &s->plan->cp.heads, of = *n;
  if (!of) return;
  *n = cp % 2 == 0 && cp % MIN(of, 2) == 0 ? MIN(of, 2) : 1;
  note(s, "ranks that exchange heads", of, *n);
}

/* Halves one axis after the other, those first that matter least; an odd size becomes its
 * smallest divisor above 1. */
static void shrink_mesh(Shrink *s, Mesh *m, int ranks) {
  Mesh was = *m;
  bool groups = s->plan->strategy.reshard_to > 0, rings = s->plan->cp.heads > 0;
  for (int i = 0; i < AXIS_N; i++)
    while (m->size[axis_to_shrink(i)] > ((groups && axis_to_shrink(i) == AXIS_DP_SHARD) ||
                                                 (rings && axis_to_shrink(i) == AXIS_CP)
                                             ? 4
                                             : 2) &&
           mesh_size(m, AXES_ALL) > ranks) {
      int *n = &m->size[axis_to_shrink(i)], least = 2;
      while (*n % least != 0 && least < *n) least++;
      *n = least == *n ? 2 : *n / least;
    }
  for (int i = 0; i < AXIS_N && mesh_size(m, AXES_ALL) > ranks; i++)
    m->size[axis_to_shrink(i)] = 1;
  for (int i = 0; i < AXIS_N; i++) {
    Axis a = axis_to_shrink(i);
    note(s, axis_name(a), was.size[a], m->size[a]);
  }
  shrink_rings(s, m->size[AXIS_CP]);
  shrink_group(s, m->size[AXIS_CP], m->size[AXIS_DP_SHARD] * m->size[AXIS_CP],
               was.size[AXIS_DP_SHARD] * was.size[AXIS_CP]);
  mesh_write_sizes(m, &s->plan->mesh);
  shrink_experts(s, &was, m);
}

/* ---- the model ---- */

static bool get(Shrink *s, const char *key, int64_t *v) {
  return lang_config_int(s->lp, key, v) && *v > 0;
}

static weft_status put(Shrink *s, const char *key, int64_t from, int64_t to) {
  if (from == to) return WEFT_OK;
  note(s, key, from, to);
  return lang_set_config_int(s->lp, key, to, s->e);
}

static weft_status build_whole(Shrink *s, const Mesh *m) {
  const Batch *b = &s->plan->batch;
  int64_t B = b->micro * mesh_size(m, AXES_DP);
  Graph *g = graph_new(s->arena, B, b->seq);
  g->sources = plan_sources(&s->plan->data);
  s->whole = g;
  return lang_build_graph(s->lp, s->plan, B, b->seq, g, s->d, s->e);
}

/* How many layers the model has, whether or not its config says so. */
static int64_t layers_of(Shrink *s) {
  const Graph *g = s->whole;
  int64_t n = 0;
  if (get(s, "num_hidden_layers", &n)) return n;
  for (int i = 0; i < g->op.n; i++)
    if (!g->op.at[i].second) n = MAX(n, g->unit.at[g->op.at[i].unit].layer + 1);
  return n;
}

/* As many as the first with experts needs; 0: there are none. */
static int64_t layers_to_experts(const Graph *g) {
  for (int i = 0; i < g->op.n; i++)
    if (!g->op.at[i].second && g->op.at[i].code == OP_grouped_linear)
      return g->unit.at[g->op.at[i].unit].layer + 1;
  return 0;
}

/* At least the first with experts, and one of each kind where a pattern says the kinds. A
 * config with such a pattern need not say how many there are. */
static weft_status shrink_layers(Shrink *s, int64_t stages) {
  int64_t least = MAX(2, layers_to_experts(s->whole)), n = layers_of(s), said;
  bool kinds = lang_config_has(s->lp, "hybrid_override_pattern") ||
               lang_config_has(s->lp, "layers_block_type");
  if (kinds) least = 4;
  if (!get(s, "num_hidden_layers", &said) && !kinds) return WEFT_OK;
  return put(s, "num_hidden_layers", n, MIN(n, MAX(stages, least)));
}

/* Whether of a smaller head an even number of elements turns, as of each rope of the
 * model. Of a head of h elements t turn if the part that turns is from t/h to below
 * (t+1)/h. */
static bool turns_evenly(const Graph *g, int64_t head, int64_t small) {
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    int64_t t = op->attr.rotary_dim;
    bool part = op->code == OP_rope && !op->second && t && !op->attr.rotary_from;
    if (!part || op->attr.head_dim != head) continue;
    int64_t least = small * t / head, most = (small * (t + 1) - 1) / head;
    if (least != most || least % 2 || !least) return false;
  }
  return true;
}

/* At most 16 elements. */
static int64_t small_head(const Shrink *s, int64_t d) {
  for (int64_t small = MIN(d, 16); small > 1; small -= 2)
    if (turns_evenly(s->whole, d, small)) return small;
  return MIN(d, 16);
}

/* As few heads as tp allows, with the same number of query heads per key-value head, at
 * most four, so that grouped attention stays grouped. If tp ranks shared a key-value head
 * in the mesh of `was` tp ranks, some still do. */
static weft_status shrink_heads(Shrink *s, int64_t tp, int64_t was) {
  int64_t heads, kv, width, d, dim, turns;
  if (!get(s, "num_attention_heads", &heads) || !get(s, "hidden_size", &width))
    return WEFT_OK;
  bool grouped = get(s, "num_key_value_heads", &kv), own = get(s, "head_dim", &dim);
  if (!grouped) kv = heads;
  int64_t group = MIN(heads / MAX(kv, 1), 4), new_kv = MIN(kv, MAX(tp, 2));
  bool copies = kv < was;
  if (copies) new_kv = MAX(kv * tp / was, 1);
  if (copies && tp % new_kv != 0) new_kv = 1;
  if (!copies && (kv % new_kv != 0 || new_kv % tp != 0)) new_kv = tp;
  if (copies) group = MAX(tp / new_kv, MIN(group, 2));
  int64_t new_heads = MIN(heads, new_kv * MAX(group, 1));
  d = own ? dim : width / heads;
  int64_t new_d = small_head(s, d), new_width = MIN(width, new_heads * new_d);
  if (!own) new_width = new_heads * new_d;
  TRY(put(s, "num_attention_heads", heads, new_heads));
  if (grouped) TRY(put(s, "num_key_value_heads", kv, new_kv));
  if (own) TRY(put(s, "head_dim", dim, new_d));
  if (own && get(s, "rotary_dim", &turns))
    TRY(put(s, "rotary_dim", turns, new_d * turns / dim));
  return put(s, "hidden_size", width, new_width);
}

/* The sizes of latent attention (MLA), each different, so that none can be mistaken for
 * another. */
static weft_status shrink_latents(Shrink *s) {
  static const struct {
    const char *key;
    int64_t most;
  } size[] = {{"q_lora_rank", 24},
              {"kv_lora_rank", 20},
              {"qk_nope_head_dim", 12},
              {"qk_rope_head_dim", 8},
              {"v_head_dim", 10}};
  int64_t v;
  for (int i = 0; i < LEN(size); i++)
    if (get(s, size[i].key, &v)) TRY(put(s, size[i].key, v, MIN(v, size[i].most)));
  return WEFT_OK;
}

/* As few groups of heads of Mamba-2 as tp allows, of two heads each. */
static weft_status shrink_mamba(Shrink *s, int64_t tp) {
  static const struct {
    const char *heads, *groups, *width, *state, *all;
  } keys[] = {{"mamba_num_heads", "n_groups", "mamba_head_dim", "ssm_state_size", ""},
              {"mamba_n_heads", "mamba_n_groups", "", "mamba_d_state", "mamba_d_ssm"}};
  for (int i = 0; i < LEN(keys); i++) {
    int64_t heads, groups, width, state, all;
    if (!get(s, keys[i].heads, &heads) || !get(s, keys[i].groups, &groups)) continue;
    int64_t kept = tp > 1 && groups % tp == 0 ? tp : MIN(groups, 2);
    int64_t now = kept * MIN(heads / MAX(groups, 1), 2);
    if (get(s, keys[i].all, &all))
      TRY(put(s, keys[i].all, all, now * MIN(all / heads, 16)));
    if (get(s, keys[i].width, &width)) TRY(put(s, keys[i].width, width, MIN(width, 16)));
    if (get(s, keys[i].state, &state)) TRY(put(s, keys[i].state, state, MIN(state, 16)));
    TRY(put(s, keys[i].groups, groups, kept));
    TRY(put(s, keys[i].heads, heads, now));
  }
  return WEFT_OK;
}

/* A window that hides tokens of the whole sequence hides some of the short one, too. */
static weft_status shrink_window(Shrink *s) {
  int64_t v, seq = lang_plan(s->lp)->batch.seq;
  if (!get(s, "sliding_window", &v) || v >= seq) return WEFT_OK;
  return put(s, "sliding_window", v, MIN(v, MAX(s->plan->batch.seq / 3, 1)));
}

static weft_status shrink_model(Shrink *s, const Mesh *m, int64_t was_tp) {
  int64_t v, tp = m->size[AXIS_TP];
  TRY(shrink_layers(s, m->size[AXIS_PP] * plan_virtual(s->plan)));
  TRY(shrink_heads(s, tp, was_tp));
  TRY(shrink_latents(s));
  TRY(shrink_mamba(s, tp));
  TRY(shrink_window(s));
  int64_t whole = tp * MAX(s->plan->mesh.etp, 1); /* tp and etp both must divide it */
  if (get(s, "intermediate_size", &v))
    TRY(put(s, "intermediate_size", v, MIN(v, (96 + whole - 1) / whole * whole)));
  if (get(s, "moe_intermediate_size", &v))
    TRY(put(s, "moe_intermediate_size", v, MIN(v, (32 + whole - 1) / whole * whole)));
  /* Not a multiple of tp, so that the padding of the vocabulary is tested, too. */
  if (get(s, "vocab_size", &v) && s->plan->data.kind == DATA_SYNTHETIC)
    TRY(put(s, "vocab_size", v, MIN(v, 250)));
  return WEFT_OK;
}

/* Lists of units per stage name layers that are gone; splits by cost are computed again.
 */
static void shrink_stages(Shrink *s) {
  PpPlan *pp = &s->plan->pp;
  const char *was = pp->layout             ? "pp_plan.layout"
                    : pp->layers           ? "pp_plan.layers"
                    : pp->modules          ? "pp_plan.modules"
                    : pp->layers_per_stage ? "pp_plan.layers_per_stage"
                    : pp->first_less       ? "pp_plan.first_stage_less_layers"
                    : pp->last_less        ? "pp_plan.last_stage_less_layers"
                                           : NULL;
  if (was) *VEC_PUSH(s->arena, s->what) = was;
  *pp = (PpPlan){.virtual_stages = pp->virtual_stages,
                 .virtual_default = pp->virtual_default,
                 .by_cost = pp->by_cost};
}

/* Patterns may name layers that are gone, so they need not match any more. */
static void free_patterns(Shrink *s) {
  TpRule *rule = NEW_N(s->arena, TpRule, s->plan->ntp + 1);
  if (s->plan->ntp) memcpy(rule, s->plan->tp, sizeof *rule * (size_t)s->plan->ntp);
  for (int i = 0; i < s->plan->ntp; i++) rule[i].from_default = true;
  s->plan->tp = rule;
  s->plan->recompute.may_miss = true;
}

/* ---- the batch ---- */

/* More microbatches than ranks, so that the schedule reaches its steady state, and as
 * many as the schedule requires; not more than the plan had, unless the smaller mesh
 * needs that. */
static weft_status shrink_batch(Shrink *s, const Mesh *m, int was_microbatches) {
  Batch *b = &s->plan->batch;
  Batch was = *b;
  int64_t dp = mesh_size(m, AXES_DP), tp = m->size[AXIS_TP];
  int64_t micro = MIN(b->micro, 2);
  int mbs, least = MIN(was_microbatches, m->size[AXIS_PP] + 2);
  TRY(schedule_fewest(s->lp, s->plan, m->size[AXIS_PP], least, &mbs, s->e));
  b->micro = micro;
  if (s->plan->moe.aux_sequences > 0)
    s->plan->moe.aux_sequences = MIN(s->plan->moe.aux_sequences, micro);
  if (s->plan->moe.sinkhorn_sequences > 0)
    s->plan->moe.sinkhorn_sequences = MIN(s->plan->moe.sinkhorn_sequences, micro);
  b->global = micro * dp * mbs * MAX(b->rounds, 1);
  int64_t cp = m->size[AXIS_CP], unit = cp > 1 ? 2 * cp * tp : tp;
  b->seq = MIN(b->seq, (32 + unit - 1) / unit * unit);
  note(s, "batch.global", was.global, b->global);
  note(s, "batch.micro", was.micro, b->micro);
  note(s, "batch.seq", was.seq, b->seq);
  return WEFT_OK;
}

weft_status lang_shrink(LangPlan *lp, int ranks, Plan *out, LangShrunk *what, Diags *d,
                        weft_error *e) {
  Mesh m;
  *out = *lang_plan(lp);
  *what = (LangShrunk){0};
  if (!lang_resolve_mesh(lp, out, 0, &m, d)) {
    lang_locate(lp, d);
    return WEFT_EPLAN;
  }
  Shrink s = {.lp = lp, .plan = out, .arena = d->arena, .d = d, .e = e};
  if (lp->arch) TRY(build_whole(&s, &m));
  int microbatches = plan_microbatches(out, &m);
  int stages = m.size[AXIS_PP], tp = m.size[AXIS_TP];
  shrink_mesh(&s, &m, ranks);
  TRY(shrink_batch(&s, &m, microbatches));
  free_patterns(&s);
  if (lp->arch) {
    int64_t layers = layers_of(&s);
    TRY(shrink_model(&s, &m, tp));
    if (layers_of(&s) != layers || stages != m.size[AXIS_PP]) shrink_stages(&s);
  }
  what->what = s.what.at;
  what->n = s.what.n;
  return WEFT_OK;
}
