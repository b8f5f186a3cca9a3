/* fields_learning.c - fields that say which parameters learn, and how: freeze, groups,
 * adapter. */
#include "schema.h"

#include <math.h>
#include <stdlib.h>

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

/* The same limits as of rank and alpha. */
enum { RANK_MOST = 65536, ALPHA_MOST = 1000000 };

/* A table has no order; errors and folders have this one. */
static int by_pattern(const void *a, const void *b) {
  const PatternNumber *x = a, *y = b;
  return strcmp(x->pattern, y->pattern);
}

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

static void patterns(Check *c, int idx, const char *path, Patterns *out) {
  int n;
  const char **at = field_list_texts(c, idx, path, "a list of patterns", &n);
  if (at) *out = (Patterns){at, n};
}

void field_target_parameters(Check *c, int idx, const char *path) {
  patterns(c, idx, path, &c->plan->adapter.experts);
}

void field_modules_to_save(Check *c, int idx, const char *path) {
  patterns(c, idx, path, &c->plan->adapter.saved);
}

/* The key and the value on top of the stack. */
static bool pattern_number(Check *c, const char *path, double most, bool whole,
                           PatternNumber *out) {
  lua_State *L = c->L;
  if (lua_type(L, -2) != LUA_TSTRING) {
    diag_error(c->d, "type", path, "the keys are patterns of modules (strings)");
    return false;
  }
  out->pattern = arena_str(c->arena, lua_tostring(L, -2));
  const char *sub = arena_printf(c->arena, "%s[\"%s\"]", path, out->pattern);
  if (lua_type(L, -1) != LUA_TNUMBER) {
    check_type(c, sub, "a number", -1);
    return false;
  }
  out->number = lua_tonumber(L, -1);
  bool fits = out->number > 0 && out->number <= most;
  if (fits && (!whole || out->number == floor(out->number))) return true;
  diag_error(c->d, "range", sub, "%g is not %s from %s to %g", out->number,
             whole ? "a whole number" : "a number", whole ? "1" : "above 0", most);
  return false;
}

/* { ["q_proj"] = 8, ["layers.0.mlp.up_proj"] = 4 } */
static void pattern_numbers(Check *c, int idx, const char *path, double most, bool whole,
                            PatternNumbers *out) {
  lua_State *L = c->L;
  int n = 0;
  if (!lua_istable(L, idx)) {
    check_type(c, path, "a table of pattern = number", idx);
    return;
  }
  idx = lua_absindex(L, idx);
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) n++;
  PatternNumber *at = (void *)arena_alloc(c->arena, sizeof *at * (size_t)(n + 1));
  n = 0;
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1))
    n += pattern_number(c, path, most, whole, &at[n]);
  qsort(at, (size_t)n, sizeof *at, by_pattern);
  *out = (PatternNumbers){at, n};
}

void field_rank_pattern(Check *c, int idx, const char *path) {
  pattern_numbers(c, idx, path, RANK_MOST, true, &c->plan->adapter.ranks);
}

void field_alpha_pattern(Check *c, int idx, const char *path) {
  pattern_numbers(c, idx, path, ALPHA_MOST, false, &c->plan->adapter.alphas);
}

/* Adapters of experts, of which PEFT has no other kind either. */
static void check_experts(Check *c, const char *path) {
  const Adapter *a = &c->plan->adapter;
  if (!a->experts.n) return;
  if (a->dropout > 0)
    diag_error(c->d, "contradiction", arena_printf(c->arena, "%s.dropout", path),
               "what adapters of experts read is not dropped")
        ->suggestion = "leave out dropout, or target_parameters";
  if (a->dora)
    diag_error(c->d, "contradiction", arena_printf(c->arena, "%s.dora", path),
               "adapters of experts have no magnitudes")
        ->suggestion = "leave out dora, or target_parameters";
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
  const Adapter *a = &c->plan->adapter;
  if (!a->targets.n && !a->experts.n) c->plan->adapter.all = true;
  check_experts(c, path);
}
