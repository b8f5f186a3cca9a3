/* strategy_checks.c - rules between the strategy of the plan and its mesh: which axes a
 * strategy may have, how many ranks its shards and groups need, what it offloads. */
#include "cross_checks_int.h"

#include "vm/plan/optimizer.h"

/* Ranks of these strategies have all experts, as tp cuts them. */
static void check_experts_strategy(const Cross *c, const char *name, const char *has,
                                   const char *instead) {
  const int *n = c->mesh->size;
  if (n[AXIS_EP] > 1)
    diag_error(c->d, "strategy", "mesh.ep", "the strategy \"%s\" has %s; for ep use %s",
               name, has, instead);
  if (n[AXIS_ETP] != n[AXIS_TP])
    diag_error(c->d, "strategy", "mesh.etp",
               "the strategy \"%s\" has %s; for an etp that is not tp use %s", name, has,
               instead);
}

/* What a strategy does not go with. */
static void check_kind(const Cross *c) {
  static const struct {
    StrategyKind kind;
    const char *name, *has, *instead;
    AxisSet axes; /* it may have more than one rank of these */
  } all[] = {{STRATEGY_DDP, "ddp", "data parallelism only", "\"zero\"", AXES_DP},
             {STRATEGY_MEGATRON_FSDP, "megatron_fsdp", "no pipeline and no experts",
              "\"fsdp2\" or \"zero\"", AXES_DP | AXIS_BIT(AXIS_TP) | AXIS_BIT(AXIS_CP)}};
  for (int i = 0; i < LEN(all); i++) {
    if (c->plan->strategy.kind != all[i].kind) continue;
    for (Axis a = 0; a < AXIS_N; a++)
      if (!(all[i].axes & AXIS_BIT(a)) && c->mesh->size[a] > 1)
        diag_error(c->d, "strategy", arena_printf(c->d->arena, "mesh.%s", axis_name(a)),
                   "the strategy \"%s\" has %s; for %s use %s", all[i].name, all[i].has,
                   axis_name(a), all[i].instead);
    check_experts_strategy(c, all[i].name, all[i].has, all[i].instead);
    if (c->mesh->size[AXIS_DP_REPLICATE] > 1)
      diag_error(c->d, "strategy", "mesh.dp_replicate",
                 "the strategy \"%s\" treats all of dp alike; for copies of shards use "
                 "\"fsdp2\" or \"zero\"",
                 all[i].name);
  }
}

/* Shards need several ranks; copies alone are stage 0. */
static void check_copies(const Cross *c) {
  int copies = c->mesh->size[AXIS_DP_REPLICATE];
  if (c->plan->strategy.stage == 0 || copies == 1 ||
      c->mesh->size[AXIS_DP_SHARD] * c->mesh->size[AXIS_CP] > 1)
    return;
  if (c->plan->strategy.kind == STRATEGY_FSDP2) {
    diag_error(c->d, "strategy", "mesh.dp_replicate",
               "all of dp = %d holds copies, so there are no shards for \"fsdp2\"",
               copies)
        ->suggestion =
        "a part of dp leaves the rest for shards; copies alone are \"ddp\"";
    return;
  }
  diag_warn(c->d, "pointless", "mesh.dp_replicate",
            "all of dp = %d holds copies, so nothing is cut, as in stage 0", copies)
      ->suggestion = "a part of dp leaves the rest for shards";
}

/* Groups that keep parameters between forward and backward. */
static void check_group(const Cross *c) {
  const Strategy *s = &c->plan->strategy;
  bool fsdp2 = s->kind == STRATEGY_FSDP2;
  const char *path =
      fsdp2 ? "strategy.reshard_after_forward" : "strategy.zero_hpz_partition_size";
  int cp = c->mesh->size[AXIS_CP], ranks = c->mesh->size[AXIS_DP_SHARD] * cp;
  const char *all = cp > 1 ? "dp_shard * cp" : "dp_shard";
  if (!s->reshard_to) return;
  if (s->stage < 3)
    diag_error(c->d, "strategy", path, "parameters are whole in stage %d", s->stage)
        ->suggestion = "it needs stage = 3";
  else if (ranks % s->reshard_to)
    diag_error(c->d, "divisibility", path, "%d does not divide %s = %d", s->reshard_to,
               all, ranks)
        ->suggestion = ranks > 1
                           ? arena_printf(c->d->arena, "a group may have %s ranks",
                                          mesh_divisors(c->d->arena, ranks))
                           : "there are no shards that a group could share: leave it out";
  else if (s->reshard_to % cp)
    diag_error(c->d, "divisibility", path,
               "%d is not a multiple of cp = %d: a group has whole sequences",
               s->reshard_to, cp)
        ->suggestion = arena_printf(c->d->arena, "the smallest one is %d", cp);
  else if (s->reshard_to == ranks)
    diag_warn(c->d, "pointless", path,
              "the group is all of %s = %d: nothing else stays than without it", all,
              ranks);
}

void check_strategy(const Cross *c) {
  check_kind(c);
  check_copies(c);
  check_group(c);
}

/* What lies on the host is what is cut. */
void check_offload(const Cross *c) {
  const Strategy *s = &c->plan->strategy;
  bool fsdp2 = s->kind == STRATEGY_FSDP2;
  const char *path = fsdp2               ? "strategy.offload_policy"
                     : s->offload_params ? "strategy.offload_param"
                                         : "strategy.offload_optimizer";
  if (!s->offload_state && !s->offload_params) return;
  if (!s->offload_state)
    diag_error(c->d, "strategy", path, "parameters are stepped where their state is")
        ->suggestion = "add offload_optimizer = \"cpu\"";
  else if (s->stage < (s->offload_params ? 3 : 1))
    diag_error(c->d, "strategy", path, "what is offloaded is shards: it needs stage %s",
               s->offload_params ? "3" : "1 or more");
  const OptimizerInfo *o = &optimizer_info[c->plan->opt.kind];
  if (o->factored)
    diag_error(
        c->d, "not-built", path,
        "%s sums up whole parameters on the device: its states, which are few, stay "
        "there",
        o->name)
        ->suggestion = "leave it out, or give another optimizer";
  if (o->matrices)
    diag_error(c->d, "not-built", path,
               "%s puts matrices together on the device: its states stay there", o->name)
        ->suggestion = "leave it out, or give another optimizer";
  if (c->plan->opt.post_validation)
    diag_error(
        c->d, "strategy", "optimizer.post_validation",
        "an optimizer that runs on the host (%s) does not step before it knows the "
        "norm",
        path);
  int ways = c->mesh->size[AXIS_DP_SHARD] * c->mesh->size[AXIS_CP];
  if (s->offload_params && ways == 1)
    diag_warn(
        c->d, "pointless", path,
        "one rank has all of each parameter: there are no shards, and only optimizer "
        "state is offloaded");
}
