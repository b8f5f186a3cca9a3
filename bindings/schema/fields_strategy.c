/* fields_strategy.c - fields of strategies with a form of their own, and recompute, which
 * a strategy may name, too. */
#include "schema.h"

/* The ranks of a group that share what stays; one rank would keep all of it. */
static void reshard_to(Check *c, int idx, const char *path, const char *alone,
                       Reshard one) {
  Strategy *s = &c->plan->strategy;
  int64_t n;
  if (!check_int(c, idx, path, 1, 1e6, &n)) return;
  s->reshard = n == 1 ? one : RESHARD_YES;
  s->reshard_to = n == 1 ? 0 : (int)n;
  if (n == 1) diag_warn(c->d, "pointless", path, "%s", alone);
}

/* True, false, a number of ranks, or what the stages of the pipeline want; torchtitan has
 * names for the three. */
void field_reshard(Check *c, int idx, const char *path) {
  static const char names[] = "default always never";
  const char *name = NULL;
  if (lua_type(c->L, idx) == LUA_TSTRING) {
    name = check_name(c, names, path, lua_tostring(c->L, idx));
    if (name && name[0] != 'd')
      c->plan->strategy.reshard = name[0] == 'a' ? RESHARD_YES : RESHARD_NO;
  } else if (lua_type(c->L, idx) == LUA_TNUMBER)
    reshard_to(c, idx, path,
               "a group of one rank keeps all of its parameters: the same as "
               "false",
               RESHARD_NO);
  else if (!lua_isboolean(c->L, idx))
    check_type(c, path, "true, false or a number of ranks", idx);
  else
    c->plan->strategy.reshard = lua_toboolean(c->L, idx) ? RESHARD_YES : RESHARD_NO;
}

/* As DeepSpeed counts: 1 is what there is without it. */
void field_hpz_partition(Check *c, int idx, const char *path) {
  reshard_to(c, idx, path, "1 is no partition", RESHARD_BY_PP);
}

/* Another name of bucket_bytes. */
static void set_bucket(Check *c, const char *path, int64_t bytes) {
  field_push(c->L, PLAN_INDEX, "strategy");
  bool both = field_push(c->L, -1, "bucket_bytes") != LUA_TNIL;
  lua_pop(c->L, 2);
  if (both)
    diag_error(c->d, "alias", path,
               "is another name of plan.strategy.bucket_bytes, which is given too");
  c->plan->strategy.bucket_bytes = bytes;
}

/* Elements, here of four bytes; check_grad() counts those of other gradients. */
void field_reduce_bucket(Check *c, int idx, const char *path) {
  int64_t n;
  if (check_int(c, idx, path, 1, 2.5e11, &n)) set_bucket(c, path, 4 * n);
}

void field_bucket_cap(Check *c, int idx, const char *path) {
  double mib = lua_type(c->L, idx) == LUA_TNUMBER ? lua_tonumber(c->L, idx) : 0;
  if (mib >= 0.001 && mib <= 1e6)
    set_bucket(c, path, (int64_t)(mib * (1 << 20)));
  else
    check_type(c, path, "a number of MiB", idx);
}

/* Of models with several parts; those here have one. */
void field_ac_scope(Check *c, int idx, const char *path) {
  const char *name = lua_type(c->L, idx) == LUA_TSTRING ? lua_tostring(c->L, idx) : NULL;
  if (!name)
    check_type(c, path, "\"all\" or \"language\"", idx);
  else if (name_same(name, "all") || name_same(name, "language"))
    diag_warn(c->d, "no-effect", path,
              "has no effect: models here are language models, which is all of them");
  else
    diag_error(c->d, "option", path, "a language model has no part \"%.40s\"", name)
        ->suggestion = "leave it out";
}

/* Of FSDP2: both that ZeRO tells apart. */
void field_offload_policy(Check *c, int idx, const char *path) {
  Strategy *s = &c->plan->strategy;
  check_value(c, schema_find("zero", "offload_param"), idx, path);
  s->offload_state = s->offload_params;
}

/* 0 to 3 or a name of Megatron's. */
void field_zero_dp(Check *c, int idx, const char *path) {
  static const char names[] = "no_shard optim optim_grads optim_grads_params";
  static const char *const name[] = {"no_shard", "optim", "optim_grads",
                                     "optim_grads_params"};
  int64_t stage;
  if (lua_type(c->L, idx) != LUA_TSTRING) {
    if (check_int(c, idx, path, 0, 3, &stage)) c->plan->strategy.stage = (int)stage;
    return;
  }
  const char *found = check_name(c, names, path, lua_tostring(c->L, idx));
  for (int i = 0; found && i < LEN(name); i++)
    if (strcmp(found, name[i]) == 0) c->plan->strategy.stage = i;
}

/* Options of Megatron-FSDP that are always on here. There some are off by default, so
 * that false is no wish to be refused. */
void field_always_on(Check *c, int idx, const char *path) {
  if (!lua_isboolean(c->L, idx))
    check_type(c, path, "true or false", idx);
  else if (!lua_toboolean(c->L, idx))
    diag_warn(c->d, "no-effect", path, "false has no effect: it is on always (%s)",
              schema_find("megatron_fsdp", strrchr(path, '.') + 1)->doc);
}

/* ---- recompute ---- */

static const char recompute_words[] = "none full selective cheap";

/* One word; in a list everything else is a pattern. */
static bool recompute_word(Recompute *r, const char *s) {
  if (name_same(s, "full"))
    r->full = true;
  else if (name_same(s, "selective"))
    r->selective = true;
  else if (name_same(s, "cheap"))
    r->cheap = true;
  else
    return false;
  return true;
}

/* The item on top of the stack. */
static void recompute_item(Check *c, const char *path, int item,
                           struct RecomputePattern *pattern) {
  Recompute *r = &c->plan->recompute;
  if (lua_type(c->L, -1) != LUA_TSTRING) {
    check_type(c, path, "a word or a pattern", -1);
    return;
  }
  const char *s = arena_str(c->arena, lua_tostring(c->L, -1));
  if (name_same(s, "none") || !*s)
    diag_error(c->d, "unknown-name", path, "\"%s\" is nothing that could run again", s);
  else if (!recompute_word(r, s))
    pattern[r->npattern++] = (struct RecomputePattern){s, item};
}

/* Settings of other systems: { partition_activations = true }. */
static bool recompute_settings(Check *c, int t, const char *path) {
  lua_State *L = c->L;
  int found = 0;
  if (!sorted_keys(L, t)) return false;
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    if (lua_type(L, keys + 1) != LUA_TSTRING) continue;
    lua_pushvalue(L, keys + 1);
    lua_rawget(L, t);
    unknown_field(c, "", path_join(c->arena, path, L, keys + 1), keys + 1);
    found++;
  }
  lua_settop(L, keys - 1);
  return found > 0;
}

static void recompute_list(Check *c, int idx, const char *path) {
  if (recompute_settings(c, idx, path)) return;
  int n = field_list_length(c, idx, path, "a list of words and patterns");
  if (n < 0) return;
  struct RecomputePattern *pattern = NEW_N(c->arena, struct RecomputePattern, n + 1);
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(c->L, idx, i);
    recompute_item(c, field_item_path(c, path, i), i, pattern);
    lua_pop(c->L, 1);
  }
  c->plan->recompute.pattern = pattern;
}

/* Whether the field of that name is one of the strategy, where the plan has its own. */
static bool said_by_plan(Check *c, const char *path) {
  static const char *const own[] = {"recompute", "activation_checkpointing"};
  int top = lua_gettop(c->L);
  bool said = false;
  for (int i = 0; i < LEN(own) && strncmp(path, "strategy.", 9) == 0; i++)
    said |= field_push(c->L, PLAN_INDEX, own[i]) != LUA_TNIL;
  lua_settop(c->L, top);
  return said;
}

/* true, "full", { "selective", "layers.*.mlp" } */
void field_recompute(Check *c, int idx, const char *path) {
  Recompute *r = &c->plan->recompute;
  if (said_by_plan(c, path)) {
    diag_error(c->d, "alias", path, "recompute is given twice");
    return;
  }
  if (lua_isboolean(c->L, idx)) {
    r->full = lua_toboolean(c->L, idx);
  } else if (lua_type(c->L, idx) == LUA_TSTRING) {
    const char *name = check_name(c, recompute_words, path, lua_tostring(c->L, idx));
    if (name) recompute_word(r, name);
  } else if (lua_istable(c->L, idx)) {
    recompute_list(c, idx, path);
  } else {
    check_type(c, path, "true, false, a word such as \"full\" or a list of patterns",
               idx);
  }
}

/* 8 or "auto" */
void field_loss_chunks(Check *c, int idx, const char *path) {
  enum { MOST = 65536 };
  int64_t n;
  bool number = lua_isnumber(c->L, idx); /* or a string that is one */
  if (!number && lua_type(c->L, idx) == LUA_TSTRING) {
    if (check_name(c, "auto", path, lua_tostring(c->L, idx)))
      c->plan->loss_chunks = LOSS_CHUNKS_AUTO;
  } else if (!number) {
    check_type(c, path, "an integer of at least 1, or \"auto\"", idx);
  } else if (check_int(c, idx, path, 1, MOST, &n)) {
    c->plan->loss_chunks = (int)n;
  }
}
