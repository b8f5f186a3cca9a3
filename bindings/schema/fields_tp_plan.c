/* fields_tp_plan.c - plan.tp_plan: patterns of modules and the styles that cut them. */
#include "schema.h"

/* An option of a style in a table { "colwise", gather_output = true }: with it the style
 * is another one. */
static const struct StyleOption {
  const char *key;
  TpStyle off, on;
} style_options[] = {{"gather_output", STYLE_COLWISE, STYLE_COLWISE_GATHER},
                     {"split_input", STYLE_ROWWISE, STYLE_ROWWISE_REP}};

static void style_option(Check *c, const char *path, const char *key, int v,
                         TpRule *rule) {
  static const char *const names[] = {"gather_output", "split_input"};
  for (int i = 0; i < LEN(style_options); i++) {
    const struct StyleOption *o = &style_options[i];
    if (strcmp(o->key, key) != 0) continue;
    const char *sub = arena_printf(c->arena, "%s.%s", path, key);
    if (!lua_isboolean(c->L, v))
      check_type(c, sub, "true or false", v);
    else if (rule->style != o->off && rule->style != o->on)
      diag_error(c->d, "tp-plan", sub, "is an option of %s, not of %s",
                 tp_style_name(o->off), tp_style_name(rule->style));
    else
      rule->style = lua_toboolean(c->L, v) ? o->on : o->off;
    return;
  }
  diag_error(c->d, "unknown-field", path, "a style has no option \"%s\"", key)
      ->suggestion = name_suggest(key, names, LEN(names));
}

/* The options of the style whose name is the first item of the table at `t`. */
static void style_table(Check *c, int t, const char *path, TpRule *rule) {
  lua_State *L = c->L;
  int top = lua_gettop(L);
  if (!sorted_keys(L, t)) return;
  int keys = lua_gettop(L), n = (int)lua_rawlen(L, keys);
  for (int i = 0; i < n; i++, lua_settop(L, keys)) {
    lua_rawgeti(L, keys, i + 1);
    lua_pushvalue(L, -1);
    lua_rawget(L, t);
    if (lua_type(L, keys + 1) == LUA_TSTRING)
      style_option(c, path, lua_tostring(L, keys + 1), keys + 2, rule);
    else if (!lua_isinteger(L, keys + 1) || lua_tointeger(L, keys + 1) != 1)
      diag_error(c->d, "type", path, "a style is one name and options");
  }
  lua_settop(L, top);
}

static void tp_rule(Check *c, int t, int key, const char *path, TpRule *rule) {
  lua_State *L = c->L;
  bool later = false;
  *rule = (TpRule){.pattern = arena_str(c->arena, lua_tostring(L, key))};
  lua_pushvalue(L, key);
  rule->from_default = mark_is_default(L, t);
  int value = lua_gettop(L);
  if (lua_istable(L, value)) lua_rawgeti(L, value, 1);
  if (lua_type(L, -1) != LUA_TSTRING) {
    check_type(c, path, "the name of a style, or { \"colwise\", option = value }", value);
    return;
  }
  const char *name = lua_tostring(L, -1);
  int style = tp_style_parse(name, &later);
  if (style >= 0 && !later) {
    rule->style = (TpStyle)style;
    rule->with = (uint8_t)tp_style_with(name);
    if (lua_istable(L, value)) style_table(c, value, path, rule);
  } else if (later) {
    not_built(c, path, arena_printf(c->arena, "the style \"%s\"", name));
  } else {
    int n = 0;
    const char *const *names = tp_style_names();
    while (names[n]) n++;
    Diag *g = diag_error(c->d, "unknown-name", path, "unknown style \"%s\"", name);
    g->suggestion = name_suggest(name, names, n);
    if (!g->suggestion)
      g->suggestion = "one of: colwise, rowwise, replicate, sequence_parallel, "
                      "embedding_rowwise, colwise_rep, rowwise_rep, packed_colwise, "
                      "packed_rowwise";
  }
}

void field_tp_plan(Check *c, int t, const char *path) {
  lua_State *L = c->L;
  if (!lua_istable(L, t)) {
    check_type(c, path, "a table of pattern = style, such as weft.tp_plan \"llama\"", t);
    return;
  }
  if (c->plan->tp) {
    diag_error(c->d, "alias", path, "tp_plan is given twice");
    return;
  }
  if (!check_mark(c, t, path)) return;
  t = lua_absindex(L, t);
  if (!sorted_keys(L, t)) {
    diag_error(c->d, "type", path, "the keys of tp_plan are patterns (strings)");
    return;
  }
  int keys = lua_gettop(L), n = (int)lua_rawlen(L, keys), rules = 0;
  TpRule *rule = NEW_N(c->arena, TpRule, n + 1);
  for (int i = 0; i < n; i++, lua_settop(L, keys)) {
    lua_rawgeti(L, keys, i + 1);
    const char *sub = path_join(c->arena, path, L, keys + 1);
    if (lua_type(L, keys + 1) != LUA_TSTRING) {
      diag_error(c->d, "type", sub, "the keys of tp_plan are patterns (strings)");
      continue;
    }
    lua_pushvalue(L, keys + 1);
    lua_rawget(L, t);
    tp_rule(c, t, keys + 1, sub, &rule[rules++]);
  }
  lua_settop(L, keys - 1);
  c->plan->tp = rule;
  c->plan->ntp = rules;
}
