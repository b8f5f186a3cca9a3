/* cross_checks.c - rules between fields, model config and mesh, checked before a graph is
 * built, so that all errors of a plan come together; passes check what only they can see.
 */
#include "cross_checks_int.h"

#include "bindings/schedule/schedule_facts.h"
#include "vm/base/multiples.h"
#include "vm/base/plural.h"
#include "vm/io/io.h"
#include "vm/pipeline/schedule.h"

/* Reads an integer of the config at the top of the stack. */
static bool config_int(lua_State *L, const char *key, int64_t *v) {
  bool ok = field_push(L, -1, key) == LUA_TNUMBER && lua_isinteger(L, -1);
  if (ok) *v = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return ok;
}

/* tp cuts the heads into groups, of which each needs one or more key-value heads, or
 * several the same one. */
static bool heads_spread(int64_t kv, int64_t tp) { return kv % tp == 0 || tp % kv == 0; }

/* "1, 2 or 4": what tp may be with `common` dividing sizes and so many key-value heads.
 */
static const char *legal_tp(Arena *a, int64_t common, int64_t kv) {
  enum { SHOWN = 12 };
  const char *s = NULL, *last = NULL;
  int shown = 0;
  for (int64_t tp = 1; tp <= MIN(common, 65536); tp++) {
    if (common % tp || (kv > 0 && !heads_spread(kv, tp))) continue;
    if (++shown > SHOWN) return arena_printf(a, "%s, ...", s);
    if (last) s = s ? arena_printf(a, "%s, %s", s, last) : last;
    last = arena_printf(a, "%lld", (long long)tp);
  }
  return s ? arena_printf(a, "%s or %s", s, last) : last;
}

/* Says what is wrong with tp, and what it may be. */
static void wrong_tp(Cross *c, const char *wrong, int64_t common, int64_t kv) {
  Arena *a = c->d->arena;
  diag_error(c->d, "divisibility", "mesh.tp", "%s", wrong)->suggestion =
      arena_printf(a, "tp may be %s", legal_tp(a, MAX(common, 1), kv));
}

/* tp cuts heads and the MLP; a vocabulary is padded instead. */
static void check_tp(Cross *c) {
  static const char *const keys[] = {"num_attention_heads", "intermediate_size"};
  int tp = c->mesh->size[AXIS_TP];
  int64_t v, kv = 0, common = 0;
  Arena *a = c->d->arena;
  if (!config_int(c->L, "num_key_value_heads", &kv)) kv = 0;
  for (int i = 0; i < LEN(keys); i++)
    if (config_int(c->L, keys[i], &v) && v > 0) common = gcd(v, common);
  bool heads = true;
  for (int i = 0; i < LEN(keys); i++) {
    if (!config_int(c->L, keys[i], &v) || v <= 0) continue;
    if (v % tp == 0) continue;
    const char *wrong = mesh_tp_divides(a, tp, arena_printf(a, "model.%s", keys[i]), v);
    wrong_tp(c, wrong, common, kv);
    heads &= i > 0;
  }
  if (heads && kv > 0 && !heads_spread(kv, tp))
    wrong_tp(c,
             arena_printf(a,
                          "%d neither divides model.num_key_value_heads = %lld nor is a "
                          "multiple of it",
                          tp, (long long)kv),
             common, kv);
  check_sequence_cut(c->plan, c->mesh->size[AXIS_CP], tp, c->d);
}

static void check_epochs(Cross *c) {
  if (c->plan->epochs > 0 && c->plan->data.kind == DATA_SYNTHETIC)
    diag_error(c->d, "option", "train.epochs",
               "weft.synthetic has no end: train.steps says how long a run is");
}

/* Each piece adds to the gradient of the head. */
static void check_loss_chunks(Cross *c) {
  const Plan *p = c->plan;
  if (p->loss_chunks == 1 || p->loss_chunks == 0) return;
  if (!p->fused_ops)
    diag_error(c->d, "option", "loss_chunks", "needs fused_ops, which is false here");
  if (p->grad != DT_F32)
    diag_error(
        c->d, "option", "loss_chunks",
        "each piece would round the gradient of the head to precision.grad_dtype = "
        "%s",
        dtype_name(p->grad))
        ->suggestion = "precision.grad_dtype = \"f32\"";
}

/* What goes by the validation loss. An evaluation by itself does not ask when a training
 * has one, so that it may have other data. */
static void check_evaluation(Cross *c) {
  if (c->lp->opt.measures) return;
  const struct {
    const char *path;
    bool said;
  } needs[] = {{"train.early_stopping", c->plan->patience > 0},
               {"checkpoint.keep_best", c->plan->checkpoint.keep_best}};
  for (int i = 0; i < LEN(needs); i++)
    if (needs[i].said && !c->plan->eval_every)
      diag_error(
          c->d, "missing", needs[i].path,
          "goes by the validation loss: train.eval_every says when it is measured");
  if (c->plan->eval_every && !data_has_val(&c->plan->data))
    diag_error(c->d, "missing", "train.eval_every",
               "there is no validation data: data.val and data.val_fraction say which");
}

/* Tokens that the plan names must be tokens of the model. */
static void check_tokens(Cross *c, int64_t vocab) {
  const Plan *p = c->plan;
  const DataSpec *data[] = {&p->data, p->data.val};
  for (int i = 0; i < LEN(data); i++)
    if (data[i] && data[i]->kind == DATA_SYNTHETIC && data[i]->vocab > vocab)
      diag_error(c->d, "range", i ? "data.val.vocab" : "data.vocab",
                 "%lld is above model.vocab_size = %lld", (long long)data[i]->vocab,
                 (long long)vocab);
  if (p->packed.size && p->packed.size != p->batch.seq)
    diag_error(c->d, "range", "packed.size",
               "%lld is not batch.seq = %lld, the length of a sequence",
               (long long)p->packed.size, (long long)p->batch.seq);
  if (p->packed.separated && p->packed.separator >= vocab)
    diag_error(c->d, "range", p->packed.first ? "packed.bos" : "packed.eot",
               "token %d is not below model.vocab_size = %lld", p->packed.separator,
               (long long)vocab);
}

/* At most one field, or one group of them, says what a stage has. */
static bool check_split(Cross *c) {
  const PpPlan *pp = &c->plan->pp;
  const struct {
    const char *key;
    bool said;
    int group;
  } field[] = {{"layers", pp->layers && !pp->layout, 0},
               {"layout", pp->layout != NULL, 1},
               {"modules", pp->modules != NULL, 2},
               {"layers_per_stage", pp->layers_per_stage > 0, 3},
               {"first_stage_less_layers", pp->first_less > 0, 3},
               {"last_stage_less_layers", pp->last_less > 0, 3},
               {"balance", pp->by_cost, 4}};
  int first = -1;
  bool ok = true;
  for (int i = 0; i < LEN(field); i++) {
    if (!field[i].said) continue;
    if (first < 0) first = i;
    if (field[i].group == field[first].group) continue;
    diag_error(c->d, "alias", arena_printf(c->d->arena, "pp_plan.%s", field[i].key),
               PP_BOTH, field[first].key, field[i].key);
    ok = false;
  }
  return ok;
}

/* A layer that the layout has for a further token would be a plain one of the model. */
static bool check_further(Cross *c) {
  const PpPlan *pp = &c->plan->pp;
  int64_t have = c->plan->mtp.layers;
  if (!pp->layout || pp->layout_further == have) return true;
  diag_error(c->d, "range", "pp_plan.layout",
             "\"%s\" has %d layer%s for further tokens (m), and mtp.num_layers is %lld",
             pp->layout, pp->layout_further, plural(pp->layout_further, "s"),
             (long long)have);
  return false;
}

/* `layers` is -1 where only the graph will tell. A schedule that is wrong is "", and then
 * nobody knows how many stages there are unless the plan says so. */
static void check_stages(Cross *c, int64_t layers) {
  const PpPlan *pp = &c->plan->pp;
  int ranks = c->mesh->size[AXIS_PP], chunks = plan_virtual(c->plan);
  bool unknown = !pp->virtual_stages && !*c->plan->schedule;
  if (!check_split(c) || !check_further(c) || unknown) return;
  if (pp->modules && pp->nmodules != ranks * chunks)
    diag_error(c->d, "range", "pp_plan.modules", "%d %s for %d stage%s", pp->nmodules,
               pp->nmodules == 1 ? "entry" : "entries", ranks * chunks,
               plural((int64_t)ranks * chunks, "s"));
  if (pp->modules || pp->by_cost || (layers < 0 && !pp->layers)) return;
  if (layers >= 0) layers += c->plan->mtp.layers;
  int *each = NEW_N(c->d->arena, int, ranks *chunks);
  stage_layers(pp, ranks, chunks, (int)MIN(layers, 1000000), each, c->d);
}

/* Names of styles that say what the strategy says, too. */
static void check_styles(Cross *c) {
  const Plan *p = c->plan;
  for (int i = 0; i < p->ntp; i++) {
    int with = p->tp[i].with;
    if (!with) continue;
    const char *path = arena_printf(c->d->arena, "tp_plan[\"%s\"]", p->tp[i].pattern);
    if (with & STYLE_WITH_SEQUENCE && !p->strategy.sequence_parallel)
      diag_error(c->d, "tp-plan", path, "scatters by sequence without sequence_parallel")
          ->suggestion = "set strategy.sequence_parallel = true";
    if (with & STYLE_WITH_LOSS && !p->strategy.loss_parallel)
      diag_error(c->d, "tp-plan", path, "leaves the logits cut without loss_parallel")
          ->suggestion = "set strategy.loss_parallel = true";
  }
}

/* Attention over cp in two parts. */
static void check_heads(Cross *c) {
  const CpPlan *p = &c->plan->cp;
  int cp = c->mesh->size[AXIS_CP];
  if (p->comm != CP_A2A_RING && p->heads)
    diag_error(c->d, "alias", "cp.heads_size", "is for comm = \"a2a+p2p\"");
  else if (p->comm == CP_A2A_RING && !p->heads && cp > 1)
    diag_error(c->d, "missing", "cp.comm",
               "\"a2a+p2p\" needs heads_size, the ranks that exchange heads")
        ->suggestion = arena_printf(c->d->arena, "cp = %d may have %s", cp,
                                    mesh_divisors(c->d->arena, cp));
  else if (p->heads && cp % p->heads)
    diag_error(c->d, "divisibility", "cp.heads_size", "%d does not divide mesh.cp = %d",
               p->heads, cp)
        ->suggestion =
        arena_printf(c->d->arena, "it may be %s", mesh_divisors(c->d->arena, cp));
}

static void check_batch(Cross *c) {
  const Batch *b = &c->plan->batch;
  int n = plan_microbatches(c->plan, c->mesh);
  if (n) {
    schedule_check_sizes(c->L, c->lp, c->plan, c->mesh, n, c->d);
    return;
  }
  int dp = mesh_size(c->mesh, AXES_DP);
  int64_t one;
  if (__builtin_mul_overflow(b->micro * dp, b->rounds, &one)) one = INT64_MAX / 2;
  if (b->global % one == 0) {
    diag_error(c->d, "range", "batch.global",
               "%lld microbatches are more than the %d that "
               "a step can have",
               (long long)(b->global / one * b->rounds), MICROBATCHES_MAX)
        ->suggestion = "a larger batch.micro would do";
    return;
  }
  const char *rounds =
      b->rounds > 1 ? arena_printf(c->d->arena, " * rounds = %lld", (long long)b->rounds)
                    : "";
  diag_error(c->d, "divisibility", "batch.global",
             "%lld is not a multiple of batch.micro * dp = %lld * %d%s",
             (long long)b->global, (long long)b->micro, dp, rounds)
      ->suggestion = nearest_multiples(c->d->arena, b->global, one);
}

static void check_optimizer(Cross *c) {
  const Optimizer *o = &c->plan->opt;
  bool wide = o->state == DT_F32 && c->plan->master == DT_F32;
  if (wide && o->stochastic)
    diag_error(c->d, "option", "optimizer.stochastic_rounding",
               "states in f32 are not rounded; give state_dtype = \"bf16\", too")
        ->suggestion =
        "or precision.master_dtype = \"bf16\", whose parameters are rounded";
#define RULE(ID, wrong, field, message)                                                  \
  if (o->kind == OPTIMIZER_##ID && (wrong))                                              \
    diag_error(c->d, "option", "optimizer." field, message);
#include "vm/plan/optimizers.def"
}

static void check_sinkhorn(Cross *c, const MoePlan *m) {
  const char *key = "moe.sinkhorn_sequences";
  if (m->sinkhorn_sequences == 0) return;
  if (c->plan->batch.micro % m->sinkhorn_sequences)
    diag_error(c->d, "divisibility", key,
               "%lld sequences do not divide batch.micro = %lld",
               (long long)m->sinkhorn_sequences, (long long)c->plan->batch.micro);
  if (m->aux > 0)
    diag_error(c->d, "option", key, "aux_loss_coef balances the same choices by a loss")
        ->suggestion = "leave out one of them";
  if (m->groups > 0)
    diag_error(c->d, "option", key,
               "num_groups limits choices that this balances over all experts")
        ->suggestion = "leave out one of them";
}

static void check_aux_batch(Cross *c, const MoePlan *m) {
  const char *key = "moe.aux_loss_batch";
  if (m->aux_batch == AUX_MICRO) return;
  if (m->aux == 0)
    diag_error(c->d, "option", key, "no loss balances experts")->suggestion =
        "add aux_loss_coef";
  if (m->aux_sequences > 0)
    diag_error(c->d, "option", key,
               "aux_loss_sequences balances sequences of a microbatch by themselves")
        ->suggestion = "leave out one of them";
}

static void check_moe(Cross *c) {
  const MoePlan *m = &c->plan->moe;
  const Strategy *s = &c->plan->strategy;
  if (m->drop && m->capacity == 0 && !m->drops)
    diag_error(c->d, "option", "moe.drop_policy", "nothing is dropped")->suggestion =
        m->most > 0 ? "add drop = true" : "add capacity_factor";
  if (m->drops && m->most == 0)
    diag_error(c->d, "option", "moe.drop", "there is room for all rows")->suggestion =
        "add max_tokens_factor";
  if (m->most > 0 && m->capacity > 0)
    diag_error(c->d, "option", "moe.max_tokens_factor",
               "capacity_factor bounds the rows of every expert already")
        ->suggestion = "leave out one of them";
  if (m->aux_sequences > 0 && m->aux == 0)
    diag_error(c->d, "option", "moe.aux_loss_sequences", "no loss balances experts")
        ->suggestion = "add aux_loss_coef";
  if (m->aux_sequences > 0 && c->plan->batch.micro % m->aux_sequences)
    diag_error(c->d, "divisibility", "moe.aux_loss_sequences",
               "%lld sequences do not divide batch.micro = %lld",
               (long long)m->aux_sequences, (long long)c->plan->batch.micro);
  check_aux_batch(c, m);
  check_sinkhorn(c, m);
  if ((m->groups > 0) != (m->group_topk > 0))
    diag_error(c->d, "option", m->groups ? "moe.num_groups" : "moe.group_topk",
               "num_groups and group_topk go together")
        ->suggestion = "give both or neither";
  if (m->bias_rate == 0) return;
  if (c->plan->opt.post_validation)
    diag_error(c->d, "not-built", "moe.bias_update_rate",
               "is not taken back with a step: leave out optimizer.post_validation");
  if (s->offload_state || s->offload_params)
    diag_error(c->d, "not-built", "moe.bias_update_rate",
               "steps what lies on the GPU: leave out what offloads optimizer state");
}

/* Layers for further tokens stand behind a model that trains as a whole, by tokens. */
static void check_mtp(Cross *c) {
  const Plan *p = c->plan;
  bool by_tokens = !p->loss.name || (str_eq(p->loss.name, "cross_entropy") &&
                                     p->loss.per == LOSS_PER_TOKENS);
  if (p->mtp.layers == 0) return;
  if (p->adapter.rank)
    diag_error(c->d, "not-built", "mtp.num_layers",
               "layers that predict further tokens are not built beside an adapter")
        ->suggestion = "leave out mtp, or the adapter";
  if (!by_tokens)
    diag_error(
        c->d, "not-built", "mtp.num_layers",
        "further tokens are predicted with a cross entropy that is divided by label "
        "tokens alone")
        ->suggestion = "leave out mtp, or the loss";
  if (p->batch.seq <= p->mtp.layers)
    diag_error(c->d, "option", "mtp.num_layers",
               "no token of batch.seq = %lld has one so far behind it",
               (long long)p->batch.seq);
}

static void cross_job(lua_State *L, void *ud) {
  Cross *c = ud;
  c->L = L;
  check_strategy(c);
  check_heads(c);
  check_offload(c);
  check_optimizer(c);
  check_moe(c);
  check_mtp(c);
  check_evaluation(c);
  check_epochs(c);
  check_loss_chunks(c);
  if (c->mesh->size[AXIS_TP] > 1) check_styles(c);
  int64_t layers = -1;
  if (c->lp->config != LUA_NOREF) {
    int64_t v;
    lua_rawgeti(L, LUA_REGISTRYINDEX, c->lp->config);
    if (config_int(L, "vocab_size", &v)) check_tokens(c, v);
    if (c->lp->arch) check_tp(c);
    if (c->lp->arch && config_int(L, "num_hidden_layers", &v) && v > 0) layers = v;
    lua_pop(L, 1);
  }
  check_stages(c, layers);
  if (c->plan->batch.global > 0) check_batch(c);
}

weft_status lang_check_mesh(LangPlan *lp, const Plan *p, const Mesh *m, Diags *d,
                            weft_error *e) {
  Cross c = {.lp = lp, .plan = p, .mesh = m, .d = d};
  int before = d->errors;
  TRY(state_protect(lp->state, cross_job, &c, e));
  return d->errors == before ? WEFT_OK : WEFT_EPLAN;
}
