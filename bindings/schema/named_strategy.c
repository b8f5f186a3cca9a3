/* named_strategy.c - plan.strategy: a name, which may say an option, and a table of
 * options behind it. */
#include "schema.h"

/* What a strategy is before its options say more. What ZeRO and Megatron's FSDP cut of
 * gradients is reduced after each microbatch, as these systems do; DDP cuts nothing. */
static void strategy_begin(Strategy *s, const char *name) {
  static const struct {
    const char *name;
    Strategy is;
  } all[] = {{"zero", {.kind = STRATEGY_ZERO}},
             {"ddp", {.kind = STRATEGY_DDP}},
             {"fsdp2", {.kind = STRATEGY_FSDP2, .stage = 3, .defer_grad_sync = true}},
             {"megatron_fsdp", {.kind = STRATEGY_MEGATRON_FSDP, .stage = 3}}};
  for (int i = 0; i < LEN(all); i++) {
    if (strcmp(all[i].name, name) != 0) continue;
    s->kind = all[i].is.kind;
    s->stage = all[i].is.stage;
    s->defer_grad_sync = all[i].is.defer_grad_sync;
  }
}

/* Names that also say an option: it is laid under what is written, so that whoever reads
 * the plan's table finds the same plan as with the option. */
static const struct StrategyAlias {
  const char *name, *is, *option;
  int value;   /* of a switch: -1 is false */
  bool copies; /* needs mesh.dp_replicate */
} strategy_aliases[] = {
    {"zero0", "zero", "stage", 0, false},
    {"zero1", "zero", "stage", 1, false},
    {"zero2", "zero", "stage", 2, false},
    {"zero3", "zero", "stage", 3, false},
    {"full_shard", "fsdp2", "reshard_after_forward", -2, false},
    {"shard_grad_op", "fsdp2", "reshard_after_forward", -1, false},
    {"no_shard", "ddp", NULL, 0, false},
    {"hsdp", "fsdp2", NULL, 0, true},
    {"hybrid_shard", "fsdp2", "reshard_after_forward", -2, true},
    {"hybrid_shard_zero2", "fsdp2", "reshard_after_forward", -1, true},
    {"mics", "zero", "stage", 3, true}, /* Zhang et al., arXiv 2205.00119 */
};

static void push_option(lua_State *L, int value) {
  if (value < 0)
    lua_pushboolean(L, value == -2);
  else
    lua_pushinteger(L, value);
}

/* Copies of shards, of which the mesh does not say how many there are. */
static void needs_copies(Check *c, const char *name, const char *path) {
  int top = lua_gettop(c->L);
  field_push(c->L, PLAN_INDEX, "mesh");
  if (field_push(c->L, -1, "dp_replicate") == LUA_TNIL)
    diag_error(c->d, "required", path, "\"%s\" has copies of shards: how many?", name)
        ->suggestion = "mesh.dp_replicate says it";
  lua_settop(c->L, top);
}

/* Replaces the value on top, a name or a table with one, if the name is an alias that
 * says an option: by a table, which the plan has from then on. */
static void expand_strategy(Check *c, const Field *f, const char *path) {
  lua_State *L = c->L;
  int value = lua_gettop(L);
  const struct StrategyAlias *a = NULL;
  if (lua_istable(L, value))
    lua_rawgeti(L, value, 1);
  else
    lua_pushvalue(L, value);
  const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  for (int i = 0; i < LEN(strategy_aliases) && !a; i++)
    if (name_same(strategy_aliases[i].name, name)) a = &strategy_aliases[i];
  if (a && a->copies) needs_copies(c, a->name, path);
  if (a) {
    if (!lua_istable(L, value)) {
      lua_newtable(L);
      lua_replace(L, value);
    }
    lua_pushstring(L, a->is);
    lua_rawseti(L, value, 1);
    if (a->option && field_push(L, value, a->option) == LUA_TNIL) {
      lua_pushstring(L, a->option);
      push_option(L, a->value);
      lua_rawset(L, value);
    }
    lua_pushstring(L, f->key);
    lua_pushvalue(L, value);
    lua_rawset(L, PLAN_INDEX);
  }
  lua_settop(L, value);
}

/* { zero = 3 }, { kind = "zero" }: the name is the first item, without a key. */
static void name_not_first(Check *c, const Field *f, int idx, const char *path) {
  static const char *const keys[] = {"name", "kind", "type", "strategy"};
  lua_State *L = c->L;
  const char *name = NULL;
  NameWord w;
  bool later = false;
  for (int i = 0; i < LEN(keys) && !name; i++, lua_pop(L, 1))
    if (field_push(L, idx, keys[i]) == LUA_TSTRING)
      name = arena_str(c->arena, lua_tostring(L, -1));
  for (const char *p = f->names; !name && name_next(c->arena, &p, &later, &w);
       lua_pop(L, 1))
    if (field_push(L, idx, arena_strn(c->arena, w.s, w.n)) != LUA_TNIL) name = w.canon;
  diag_error(c->d, "type", path,
             "the first item is the name of a strategy: { \"%s\", option = value }",
             name ? name : "zero");
}

void check_named(Check *c, const Field *f, int idx, const char *path) {
  lua_State *L = c->L;
  luaL_checkstack(L, 8, NULL);
  lua_pushvalue(L, idx);
  idx = lua_gettop(L);
  expand_strategy(c, f, path);
  bool table = lua_istable(L, idx);
  if (table)
    lua_rawgeti(L, idx, 1);
  else
    lua_pushvalue(L, idx);
  if (table && lua_isnil(L, -1)) {
    name_not_first(c, f, idx, path);
  } else if (lua_type(L, -1) != LUA_TSTRING) {
    check_type(c, path, "a name, such as \"zero\", or { \"zero\", option = value }",
               table ? -1 : idx);
  } else {
    const char *name = check_name(c, f->names, path, lua_tostring(L, -1));
    if (name) {
      Strategy *s = &c->plan->strategy;
      strategy_begin(s, name);
      if (table) check_scope(c, idx, name, path, 2);
      if (s->kind == STRATEGY_MEGATRON_FSDP && !s->overlap_param_gather)
        s->prefetch[0] = s->prefetch[1] = 0;
    }
  }
  lua_settop(L, idx - 1);
}
