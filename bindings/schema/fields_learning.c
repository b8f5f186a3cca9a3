/* fields_learning.c - fields that say which parameters learn, and how: freeze, groups,
 * adapter. */
#include "schema.h"

/* freeze = { "embed_tokens", "layers.*.mlp" } */
void field_freeze(Check *c, int idx, const char *path) {
  int n;
  const char **at = field_list_texts(c, idx, path, "a list of patterns", &n);
  if (at) c->plan->freeze = (Patterns){at, n};
}

/* ---- groups ---- */

/* The patterns of the table at idx: its items. */
static bool group_patterns(Check *c, int idx, const char *path, Patterns *out) {
  int n = (int)lua_rawlen(c->L, idx);
  const char **at = NEW_N(c->arena, const char *, n + 1);
  for (int i = 0; i < n; i++) {
    bool ok = lua_rawgeti(c->L, idx, i + 1) == LUA_TSTRING;
    if (ok)
      at[i] = arena_str(c->arena, lua_tostring(c->L, -1));
    else
      check_type(c, field_item_path(c, path, i + 1), "a pattern", -1);
    lua_pop(c->L, 1);
    if (!ok) return false;
  }
  *out = (Patterns){at, n};
  if (n == 0)
    diag_error(c->d, "required", path, "names no parameters: the items are patterns")
        ->suggestion = "{ \"embed_tokens\", lr = 0.1 }";
  return n > 0;
}

/* The number of this name at idx, if it is given. */
static bool group_number(Check *c, int idx, const char *key, double *v) {
  bool given = field_push(c->L, idx, key) == LUA_TNUMBER;
  if (given) *v = lua_tonumber(c->L, -1);
  lua_pop(c->L, 1);
  return given;
}

/* { "embed_tokens", "norm", lr = 0.1, weight_decay = 0 }, on top of the stack. */
static void group_item(Check *c, const char *path, ParamGroup *g) {
  int idx = lua_gettop(c->L);
  *g = (ParamGroup){.lr = 1};
  if (!lua_istable(c->L, idx)) {
    check_type(c, path, "{ patterns, lr = factor, weight_decay = number }", idx);
    return;
  }
  if (!group_patterns(c, idx, path, &g->of)) return;
  check_scope(c, idx, "group", path, g->of.n + 1);
  bool lr = group_number(c, idx, "lr", &g->lr);
  g->own_decay = group_number(c, idx, "weight_decay", &g->weight_decay);
  if (!lr && !g->own_decay)
    diag_error(c->d, "required", path, "says nothing of its parameters")->suggestion =
        "lr = factor of the learning rate, or weight_decay";
  if (lr && g->lr == 0)
    diag_error(c->d, "range", arena_printf(c->arena, "%s.lr", path),
               "0 times the learning rate learns nothing")
        ->suggestion = "freeze = { patterns } leaves out gradients and states, too";
}

/* groups = { { "embed_tokens", lr = 0.1 }, { "norm", weight_decay = 0 } } */
void field_groups(Check *c, int idx, const char *path) {
  int n = field_list_length(c, idx, path, "a list of { patterns, lr =, weight_decay = }");
  if (n < 0) return;
  idx = lua_absindex(c->L, idx);
  ParamGroup *group = (void *)arena_alloc(c->arena, sizeof *group * (size_t)(n + 1));
  for (int i = 0; i < n; i++) {
    lua_rawgeti(c->L, idx, i + 1);
    group_item(c, field_item_path(c, path, i + 1), &group[i]);
    lua_pop(c->L, 1);
  }
  c->plan->group = group;
  c->plan->ngroup = n;
}

/* ---- adapter ---- */

void field_targets(Check *c, int idx, const char *path) {
  Adapter *a = &c->plan->adapter;
  if (lua_type(c->L, idx) == LUA_TSTRING) {
    a->all = check_name(c, "all-linear", path, lua_tostring(c->L, idx)) != NULL;
    return;
  }
  int n;
  const char *want = "\"all-linear\" or a list of patterns";
  const char **at = field_list_texts(c, idx, path, want, &n);
  if (at && n == 0) diag_error(c->d, "required", path, "names no linear");
  if (at) a->targets = (Patterns){at, n};
}

/* "qlora" and "dora" are "lora" with an option, which may be said again. */
static void read_kind(Check *c, int idx, const char *kind, const char *path) {
  Adapter *a = &c->plan->adapter;
  bool base = str_eq(kind, "qlora"), dora = str_eq(kind, "dora");
  if (!base && !dora) return;
  const char *key = base ? "base" : "dora";
  bool said = field_push(c->L, idx, key) != LUA_TNIL;
  lua_pop(c->L, 1);
  if (said && !(base ? a->base == BASE_NF4 : a->dora))
    diag_error(c->d, "contradiction", arena_printf(c->arena, "%s.%s", path, key),
               "\"%s\" has this on: leave it out, or name it \"lora\"", kind);
  if (base) a->base = BASE_NF4;
  if (dora) a->dora = true;
}

/* adapter = { "lora", rank = 16 } */
void field_adapter(Check *c, int idx, const char *path) {
  if (lua_isboolean(c->L, idx) && !lua_toboolean(c->L, idx)) return;
  idx = lua_absindex(c->L, idx);
  if (!lua_istable(c->L, idx)) {
    check_type(c, path, "{ \"lora\", rank = 16 }", idx);
    return;
  }
  bool named = lua_rawgeti(c->L, idx, 1) == LUA_TSTRING;
  const char *kind = named ? arena_str(c->arena, lua_tostring(c->L, -1)) : NULL;
  if (!named) check_type(c, path, "a name first, { \"lora\", rank = 16 }", -1);
  lua_pop(c->L, 1);
  if (!kind || !check_name(c, "lora qlora dora", path, kind)) return;
  check_scope(c, idx, "lora", path, 2);
  read_kind(c, idx, kind, path);
  if (!c->plan->adapter.targets.n) c->plan->adapter.all = true;
}
