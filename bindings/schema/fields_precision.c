/* fields_precision.c - number formats: of ops, of gradients and states, fp8; a strategy
 * may name them, too. */
#include "schema.h"

/* A loss scale that nothing reads would be believed. */
static void scale_options(Check *c, int idx, const char *path) {
  static const char *const keys[] = {"init_scale",      "growth_factor", "backoff_factor",
                                     "growth_interval", "hysteresis",    "min_scale"};
  for (int i = 0; i < LEN(keys) && c->plan->dtype != DT_F16; i++) {
    if (field_push(c->L, idx, keys[i]) != LUA_TNIL)
      diag_error(
          c->d, "option", arena_printf(c->arena, "%s.%s", path, keys[i]),
          "gradients of %s are not scaled; param_dtype = \"f16\" needs a loss scale",
          dtype_name(c->plan->dtype));
    lua_pop(c->L, 1);
  }
}

/* ---- fp8 ---- */

void field_fp8_exclude(Check *c, int idx, const char *path) {
  int n;
  const char **at = field_list_texts(c, idx, path, "a list of patterns of linears", &n);
  if (!at) return;
  c->plan->fp8.exclude = (Patterns){at, n};
  c->plan->fp8.excludes = true;
}

/* An option of fp8 that the table at idx has, or NULL. */
static const char *fp8_option(Check *c, int idx) {
  static const char *const keys[] = {"recipe", "fp8_format", "round_scales_to_power_of_2",
                                     "exclude", "filter_fqns"};
  const char *found = NULL;
  for (int i = 0; i < LEN(keys); i++, lua_pop(c->L, 1))
    if (field_push(c->L, idx, keys[i]) != LUA_TNIL && !found) found = keys[i];
  return found;
}

static bool given(Check *c, int idx, const char *key) {
  bool is = lua_istable(c->L, idx) && field_push(c->L, idx, key) != LUA_TNIL;
  if (lua_istable(c->L, idx)) lua_pop(c->L, 1);
  return is;
}

/* Ops compute in bf16 unless the table at idx says otherwise. */
static void fp8_begin(Check *c) {
  c->plan->dtype = DT_BF16;
  c->plan->fp8.recipe = RECIPE_TENSORWISE;
}

static void fp8_defaults(Check *c, int idx, const char *path) {
  static const char *const head[] = {"lm_head"};
  Fp8Plan *p = &c->plan->fp8;
  if (!given(c, idx, "fp8_format"))
    p->format = p->recipe == RECIPE_TENSORWISE ? FORMAT_HYBRID : FORMAT_E4M3;
  if (!given(c, idx, "round_scales_to_power_of_2"))
    p->powers = p->recipe == RECIPE_ROWWISE;
  if (!p->excludes) p->exclude = (Patterns){head, 1};
  if (c->plan->dtype == DT_F16)
    diag_error(c->d, "option", arena_printf(c->arena, "%s.param_dtype", path),
               "f16 beside fp8: what is no linear computes in bf16 or f32");
}

/* "fp8", or { "fp8", ... } */
static bool says_fp8(Check *c, int idx) {
  bool table = lua_istable(c->L, idx);
  if (table) lua_rawgeti(c->L, idx, 1);
  int at = table ? -1 : idx;
  bool is = lua_type(c->L, at) == LUA_TSTRING && name_same(lua_tostring(c->L, at), "fp8");
  if (table) lua_pop(c->L, 1);
  return is && (!table || lua_rawlen(c->L, idx) == 1);
}

static void precision_table(Check *c, int idx, const char *path) {
  const char *key = fp8_option(c, idx);
  check_scope(c, idx, "precision", path, 1);
  scale_options(c, idx, path);
  if (!key) return;
  diag_error(c->d, "option", arena_printf(c->arena, "%s.%s", path, key),
             "is an option of fp8, and products are computed in %s",
             dtype_name(c->plan->dtype))
      ->suggestion = arena_printf(c->arena, "precision = { \"fp8\", %s = ... }", key);
}

void field_precision(Check *c, int idx, const char *path) {
  if (says_fp8(c, idx)) {
    fp8_begin(c);
    if (lua_istable(c->L, idx)) check_scope(c, idx, "precision", path, 2);
    if (lua_istable(c->L, idx)) scale_options(c, idx, path);
    fp8_defaults(c, idx, path);
  } else if (lua_istable(c->L, idx) && lua_rawlen(c->L, idx) > 0) {
    check_type(c, path, "a name, or a table with param_dtype", idx)->suggestion =
        "a name alone is written without braces; { \"fp8\", recipe = ... } has options";
  } else if (lua_istable(c->L, idx)) {
    precision_table(c, idx, path);
  } else if (lua_type(c->L, idx) != LUA_TSTRING) {
    check_type(c, path, "\"f32\", \"bf16\", \"f16\", \"fp8\" or a table", idx);
  } else {
    const char *names = schema_find("precision", "param_dtype")->names;
    const char *name = check_name(c, names, path, lua_tostring(c->L, idx));
    if (name) c->plan->dtype = dtype_named(name);
  }
}

/* Of a strategy. */
void field_mp_policy(Check *c, int idx, const char *path) {
  int top = lua_gettop(c->L);
  bool both = field_push(c->L, PLAN_INDEX, "precision") != LUA_TNIL ||
              field_push(c->L, PLAN_INDEX, "mp_policy") != LUA_TNIL;
  lua_settop(c->L, top);
  if (both)
    diag_error(c->d, "alias", path,
               "is another name of plan.precision, which is given too");
  field_precision(c, idx, path);
}

/* A list of names in schema.def. */
static const char *names_of(const char *scope, const char *key) {
  return schema_find(scope, key)->names;
}

/* Whether it fits to param_dtype is seen when that is known. */
void field_autocast(Check *c, int idx, const char *path) {
  if (lua_isboolean(c->L, idx) && !lua_toboolean(c->L, idx)) return;
  if (lua_type(c->L, idx) != LUA_TSTRING)
    check_type(c, path, "the name of a type", idx);
  else
    check_name(c, names_of("precision", "param_dtype"), path, lua_tostring(c->L, idx));
}

void field_fp8_cache(Check *c, int idx, const char *path) {
  if (!lua_isboolean(c->L, idx))
    check_type(c, path, "true or false", idx);
  else if (lua_toboolean(c->L, idx))
    diag_error(c->d, "option", path,
               "there are no fp8 weights: linears round theirs anew")
        ->suggestion = "leave it out";
  else
    diag_warn(c->d, "no-effect", path,
              "has no effect: there are no fp8 weights whose transposes could be kept");
}

void field_switch(Check *c, int idx, const char *path) {
  if (!lua_isboolean(c->L, idx)) check_type(c, path, "true or false", idx);
}

/* Leaves a field of the strategy, or of precision by whatever name that is given, on the
 * stack; its type. */
static int push_of(Check *c, const char *of, const char *key) {
  if (field_push(c->L, PLAN_INDEX, of) != LUA_TTABLE) return LUA_TNIL;
  return field_push(c->L, -1, key);
}

static int push_precision(Check *c, const char *key, const char **path) {
  static const char *const of[] = {"precision", "mp_policy", "strategy"};
  for (int i = 0; i < LEN(of); i++) {
    bool inside = i == 2;
    int t = push_of(c, of[i], inside ? "mp_policy" : key);
    if (inside) t = t == LUA_TTABLE ? field_push(c->L, -1, key) : LUA_TNIL;
    if (t == LUA_TNIL) continue;
    *path = arena_printf(c->arena, "%s%s.%s", of[i], inside ? ".mp_policy" : "", key);
    return t;
  }
  return LUA_TNIL;
}

/* The type that a text on top of the stack names; false if it names none, which has been
 * said. */
static bool type_on_top(Check *c, DType *t) {
  NameWord w;
  bool later = false;
  if (lua_type(c->L, -1) != LUA_TSTRING) return false;
  const char *s = lua_tostring(c->L, -1), *p = names_of("precision", "param_dtype");
  while (name_next(c->arena, &p, &later, &w))
    if (!w.later && name_same(arena_printf(c->arena, "%.*s", (int)w.n, w.s), s)) {
      *t = dtype_named(w.canon);
      return true;
    }
  return false;
}

/* Whether the plan says what type ops compute in. */
static bool says_dtype(Check *c) {
  const char *path;
  static const char *const whole[] = {"precision", "mp_policy"};
  for (int i = 0; i < LEN(whole); i++)
    if (field_push(c->L, PLAN_INDEX, whole[i]) == LUA_TSTRING) return true;
  if (push_of(c, "strategy", "mp_policy") == LUA_TSTRING) return true;
  return push_precision(c, "param_dtype", &path) != LUA_TNIL;
}

static void check_autocast(Check *c) {
  DType t;
  if (push_of(c, "strategy", "autocast_dtype") == LUA_TNIL || !type_on_top(c, &t)) return;
  if (c->plan->strategy.kind != STRATEGY_FSDP2) return;
  if (!says_dtype(c))
    c->plan->dtype = t;
  else if (c->plan->dtype != t)
    diag_error(c->d, "option", "strategy.autocast_dtype",
               "ops compute in one type: this one is %s, param_dtype is %s",
               dtype_name(t), dtype_name(c->plan->dtype))
        ->suggestion = "give param_dtype alone; precision.master_dtype says what the "
                       "optimizer steps";
}

/* Gradients are reduced as they are stored, unless the plan says otherwise. */
static void check_grad(Check *c) {
  const char *path;
  DType t = c->plan->grad, ops = c->plan->dtype;
  if (push_precision(c, "reduce_dtype", &path) == LUA_TNIL) c->plan->reduce = t;
  if (push_of(c, "strategy", "reduce_bucket_size") != LUA_TNIL)
    c->plan->strategy.bucket_bytes = c->plan->strategy.bucket_bytes / 4 * dtype_size(t);
  bool fits = t == DT_F32 || t == ops || (t == DT_BF16 && ops == DT_F32);
  if (fits || push_precision(c, "grad_dtype", &path) == LUA_TNIL) return;
  diag_error(c->d, "option", path,
             "%s: ops compute in %s, whose gradients are that or f32", dtype_name(t),
             dtype_name(ops))
      ->suggestion = t == DT_F16
                         ? "f16 needs a loss scale: give param_dtype = \"f16\", too"
                         : "give \"f32\", or leave it out";
}

static void check_master(Check *c) {
  const char *path;
  DType t = c->plan->master, ops = c->plan->dtype;
  if (t == DT_F32 || t == ops) return;
  if (push_precision(c, "master_dtype", &path) != LUA_TSTRING) return;
  diag_error(c->d, "option", path,
             "%s: ops read %s; without f32 master weights they read what is stepped",
             dtype_name(t), dtype_name(ops))
      ->suggestion =
      arena_printf(c->arena, "give param_dtype = \"%s\", too, or \"f32\"", dtype_name(t));
}

static void check_reduce(Check *c) {
  const char *path;
  static const char own[] = "strategy.grad_reduce_in_fp32";
  if (c->plan->strategy.kind != STRATEGY_MEGATRON_FSDP) return;
  if (push_of(c, "strategy", "grad_reduce_in_fp32") != LUA_TBOOLEAN) return;
  DType t = lua_toboolean(c->L, -1) ? DT_F32 : c->plan->dtype;
  bool said = push_precision(c, "reduce_dtype", &path) != LUA_TNIL;
  if (t == DT_F16)
    diag_error(c->d, "option", own,
               "asks for sums in param_dtype = \"f16\", where they "
               "would overflow")
        ->suggestion = "leave it out, or give precision.reduce_dtype = \"bf16\"";
  else if (said && c->plan->reduce != t)
    diag_error(c->d, "alias", own, "asks for sums in %s, but %s is %s", dtype_name(t),
               path, dtype_name(c->plan->reduce))
        ->suggestion = "give one of them";
  else
    c->plan->reduce = t;
}

/* Logits have param_dtype, and the loss is computed from them in f32, so that casting
 * them to either changes no bit. */
static void check_output(Check *c) {
  const char *path;
  DType t;
  if (push_precision(c, "output_dtype", &path) == LUA_TNIL || !type_on_top(c, &t)) return;
  if (t == DT_F32 || t == c->plan->dtype)
    diag_warn(c->d, "no-effect", path,
              "has no effect: the loss is computed in f32 from logits in param_dtype");
  else
    diag_error(c->d, "option", path,
               "logits have param_dtype = \"%s\", and the loss is "
               "computed from them in f32",
               dtype_name(c->plan->dtype))
        ->suggestion = "leave it out";
}

void strategy_rules(Check *c) {
  void (*const rules[])(Check *) = {check_autocast, check_grad, check_master,
                                    check_reduce, check_output};
  int top = lua_gettop(c->L);
  luaL_checkstack(c->L, 20, NULL);
  for (int i = 0; i < LEN(rules); i++, lua_settop(c->L, top)) rules[i](c);
}
