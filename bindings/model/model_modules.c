/* model_modules.c - names of modules: those of a plan's patterns, which may be of Hugging
 * Face's modules in memory or of its files, and the library's tp_plan. */
#include "model_int.h"

#include "vm/weights/module_names.h"

/* The library's plan for the architecture is on top. Rules of a written plan that it has,
 * too, are about modules that not every size has: Hugging Face's plan of Qwen3-MoE cuts
 * MLPs of layers without experts. */
static void mark_library_rules(lua_State *L, LangPlan *lp, Arena *a) {
  TpRule *rule = NEW_N(a, TpRule, lp->plan.ntp + 1);
  for (int i = 0; i < lp->plan.ntp; i++) {
    rule[i] = lp->plan.tp[i];
    lua_getfield(L, -1, rule[i].pattern);
    if (lua_type(L, -1) == LUA_TSTRING &&
        tp_style_parse(lua_tostring(L, -1), NULL) == (int)rule[i].style)
      rule[i].from_default = true;
    lua_pop(L, 1);
  }
  lp->plan.tp = rule;
}

enum { MODULES = 3 }; /* that are one in memory */

/* Writes a rule, or if its pattern names a module of the table on top of the stack, one
 * for each of those in its place. Returns how many. */
static int renamed(lua_State *L, const TpRule *rule, TpRule *out, Arena *a) {
  int names = lua_gettop(L), n = 0;
  for (lua_pushnil(L); state_next(L, names); lua_settop(L, names + 1)) {
    const char *module = lua_tostring(L, -2);
    if (!module_name_in(rule->pattern, module)) continue;
    int list = lua_gettop(L);
    for (; n < MODULES && lua_rawgeti(L, list, n + 1) == LUA_TSTRING; n++) {
      const char *text = luaL_gsub(L, rule->pattern, module, lua_tostring(L, -1));
      out[n] = *rule;
      out[n].pattern = arena_str(a, text);
    }
  }
  lua_settop(L, names);
  if (n == 0) out[n++] = *rule;
  return n;
}

/* Names that Transformers has for modules in memory, by those that files have: `modules`
 * of an architecture, each with a list. */
static void rename_modules(lua_State *L, LangPlan *lp, Arena *a) {
  int top = lua_gettop(L), n = 0;
  if (push_architecture(L, lp->arch) && field_push(L, -1, "modules") == LUA_TTABLE) {
    TpRule *rule = NEW_N(a, TpRule, MODULES * lp->plan.ntp + 1);
    for (int i = 0; i < lp->plan.ntp; i++) n += renamed(L, &lp->plan.tp[i], rule + n, a);
    lp->plan.tp = rule;
    lp->plan.ntp = n;
  }
  lua_settop(L, top);
}

/* Modules of the architecture on top that have one other name in memory. */
static ModuleNames module_names(lua_State *L, Arena *a) {
  VEC(ModuleName) all = {0};
  int top = lua_gettop(L);
  bool any = field_push(L, -1, "modules") == LUA_TTABLE && sorted_keys(L, top + 1);
  int keys = lua_gettop(L);
  for (int i = 1; any && lua_rawgeti(L, keys, i) == LUA_TSTRING; i++) {
    lua_pushvalue(L, -1);
    lua_rawget(L, top + 1);
    /* One that is several here is packed: see packed_modules.h. */
    if (lua_rawgeti(L, -1, 2) == LUA_TNIL && lua_rawgeti(L, -2, 1) == LUA_TSTRING)
      *VEC_PUSH(a, all) = (ModuleName){.files = arena_str(a, lua_tostring(L, -1)),
                                       .memory = arena_str(a, lua_tostring(L, keys + 1))};
    lua_settop(L, keys);
  }
  lua_settop(L, top);
  return (ModuleNames){.at = all.at, .n = all.n};
}

static const char *as_files(const ModuleNames *m, Arena *a, const char *pattern) {
  char name[512];
  if (strlen(pattern) >= sizeof name) return pattern;
  module_to_files(m, pattern, name);
  return arena_str(a, name);
}

static Patterns patterns_as_files(const ModuleNames *m, Arena *a, Patterns of) {
  const char **at = NEW_N(a, const char *, of.n);
  for (int i = 0; i < of.n; i++) at[i] = as_files(m, a, of.at[i]);
  return (Patterns){at, of.n};
}

static PatternNumbers numbers_as_files(const ModuleNames *m, Arena *a,
                                       PatternNumbers of) {
  PatternNumber *at = NEW_N(a, PatternNumber, of.n);
  for (int i = 0; i < of.n; i++)
    at[i] = (PatternNumber){as_files(m, a, of.at[i].pattern), of.at[i].number};
  return (PatternNumbers){at, of.n};
}

/* Patterns may have the names that PEFT has, those of modules in memory. */
static void rename_patterns(Adapter *of, Arena *a) {
  const ModuleNames *m = &of->modules;
  of->targets = patterns_as_files(m, a, of->targets);
  of->experts = patterns_as_files(m, a, of->experts);
  of->saved = patterns_as_files(m, a, of->saved);
  of->ranks = numbers_as_files(m, a, of->ranks);
  of->alphas = numbers_as_files(m, a, of->alphas);
}

void model_modules(lua_State *L, LangPlan *lp) {
  int top = lua_gettop(L);
  Arena *a = lp->arena;
  VEC(const char *) experts = {0};
  if (!lp->arch || !lp->plan.adapter.rank || !push_architecture(L, lp->arch)) return;
  ModuleNames m = module_names(L, a);
  if (field_push(L, -1, "peft") == LUA_TTABLE) {
    field_push(L, -1, "names_of_files");
    m.tensors = lua_toboolean(L, -1);
    bool list = field_push(L, -2, "takes_for_experts") == LUA_TTABLE;
    for (int i = 1; list && lua_rawgeti(L, -1, i) == LUA_TSTRING; i++, lua_pop(L, 1))
      *VEC_PUSH(a, experts) = arena_str(a, lua_tostring(L, -1));
  }
  m.experts = (Patterns){experts.at, experts.n};
  lp->plan.adapter.modules = m;
  if (m.n) rename_patterns(&lp->plan.adapter, a);
  lua_settop(L, top);
}

void model_default_tp(lua_State *L, LangPlan *lp, Diags *d) {
  int top = lua_gettop(L);
  if (!lp->arch || !stdlib_push(L, lua_pushfstring(L, "tp_plans/%s", lp->arch))) {
    lua_settop(L, top);
    return;
  }
  if (lp->plan.tp) {
    rename_modules(L, lp, d->arena);
    mark_library_rules(L, lp, d->arena);
    lua_settop(L, top);
    return;
  }
  if (!sorted_keys(L, lua_gettop(L))) {
    lua_settop(L, top);
    return;
  }
  int keys = lua_gettop(L), n = (int)lua_rawlen(L, keys);
  TpRule *rule = NEW_N(d->arena, TpRule, n + 1);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, keys, i + 1);
    lua_pushvalue(L, -1);
    lua_rawget(L, keys - 1);
    rule[i] = (TpRule){.pattern = arena_str(d->arena, lua_tostring(L, -2)),
                       .style = (TpStyle)tp_style_parse(lua_tostring(L, -1), NULL),
                       .from_default = true};
    lua_pop(L, 2);
  }
  lp->plan.tp = rule;
  lp->plan.ntp = n;
  lua_settop(L, top);
}
