/* repl_help.c - help(x) and ?x, from the table of what scripts can call (api_doc.def) and
 * from that of a plan's fields (schema.def). */
#include "repl.h"

#include <lauxlib.h>

#include "bindings/script/api_doc.h"

/* ---- what is printed ---- */

static void add_entry(const char *form, const char *doc, Text *out) {
  text_printf(out, "%s\n  %s\n", form, doc);
}

/* True if the word stands in a list of names that blanks separate. */
static bool lists(const char *names, const char *word) {
  size_t n = strlen(word);
  for (const char *p = names; (p = strstr(p, word)); p += n)
    if ((p == names || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
  return false;
}

/* As one writes it: mesh = { tp = ... }, strategy = { "zero", stage = ... },
 * weft.adamw { eps = ... }. */
static void add_written(const Field *f, Text *out) {
  const Field *strategy = schema_find("plan", "strategy");
  const char *named = lists(schema_schedules, f->scope)              ? "schedule"
                      : strategy && lists(strategy->names, f->scope) ? "strategy"
                                                                     : NULL;
  if (strcmp(f->scope, "plan") == 0)
    text_printf(out, "%s = ...", f->key);
  else if (named)
    text_printf(out, "%s = { \"%s\", %s = ... }", named, f->scope, f->key);
  else if (strcmp(f->scope, "mesh") != 0 && api_doc_find("weft", f->scope))
    text_printf(out, "weft.%s { %s = ... }", f->scope, f->key);
  else
    text_printf(out, "%s = { %s = ... }", f->scope, f->key);
}

static void add_field(const Field *f, Text *out) {
  Text def = {0};
  add_written(f, out);
  text_add(out, "   ");
  schema_form(f, out);
  schema_default(f, &def);
  if (schema_required(f))
    text_add(out, "; required");
  else if (!str_eq(def.s, "-"))
    text_printf(out, "; default: %s", def.s ? def.s : "");
  text_add(out, "\n  ");
  schema_doc(f, out);
  text_add(out, "\n");
  text_free(&def);
}

/* The fields of a table, one a line. */
static void add_scope(const char *scope, Text *out) {
  int widest = 0;
  for (const Field *f = schema; f->scope; f++)
    if (strcmp(f->scope, scope) == 0) widest = MAX(widest, (int)strlen(f->key));
  for (const Field *f = schema; f->scope; f++)
    if (strcmp(f->scope, scope) == 0 && f->type != FIELD_ALIAS) {
      text_printf(out, "  %-*s  ", widest, f->key);
      schema_doc(f, out);
      text_add(out, "\n");
    }
}

static void add_object(const char *object, Text *out) {
  for (const ApiDoc *d = api_doc; d->object; d++)
    if (strcmp(d->object, object) == 0) add_entry(d->form, d->doc, out);
}

/* Names of scopes beside those of the plan's own objects, on lines of at most 79. */
static void add_scopes(Text *out) {
  const char *scope = "plan";
  int column = 0;
  for (const Field *f = schema; f->scope; f++) {
    if (strcmp(f->scope, scope) == 0 || strcmp(f->scope, "mesh") == 0) continue;
    int n = (int)strlen(f->scope) + 1;
    scope = f->scope;
    if (!column || column + n > 79) {
      text_add(out, "\n ");
      column = 1;
    }
    text_printf(out, " %s", scope);
    column += n;
  }
  text_add(out, "\n");
}

void help_overview(Text *out) {
  for (const Command *c = commands; c->name; c++)
    text_printf(out, "  ,%-6s %-11s %s\n", c->name, c->form, c->doc);
  text_add(out,
           "  ?topic              what is known about a field, function or object\n"
           "A value is printed and kept as _; a ; at the end of the line hides it.\n"
           "Ctrl-C stops what runs, the tab key completes.\n"
           "Topics: weft (functions), plan and mesh (objects and fields), and fields "
           "of");
  add_scopes(out);
}

/* ---- finding it ---- */

static bool is_object(const char *name) {
  for (const ApiDoc *d = api_doc; d->object; d++)
    if (strcmp(d->object, name) == 0) return true;
  return false;
}

/* The kind of object that a name stands for: itself, or that of a global variable. */
static const char *object_of(lua_State *L, const char *name) {
  if (is_object(name)) return name;
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_pushstring(L, name);
  lua_rawget(L, -2);
  const char *object = repl_object_name(L, -1);
  lua_pop(L, 2);
  return object;
}

static bool add_api(lua_State *L, const char *owner, const char *name, Text *out) {
  const char *object = *owner ? object_of(L, owner) : NULL;
  bool found = false;
  if (*owner && !object) return false;
  for (const ApiDoc *d = api_doc; d->object; d++) {
    if ((object && strcmp(d->object, object) != 0) || strcmp(d->name, name) != 0)
      continue;
    add_entry(d->form, d->doc, out);
    found = true;
  }
  object = *owner ? NULL : object_of(L, name);
  if (object) add_object(object, out);
  return found || object;
}

static bool is_scope(const char *name) {
  for (const Field *f = schema; f->scope; f++)
    if (strcmp(f->scope, name) == 0) return true;
  return false;
}

static bool add_schema(Arena *a, const char *owner, const char *name, Text *out) {
  const char *scope = scan_path(a, owner, strlen(owner));
  if (!scope && is_scope(owner)) scope = owner;
  const Field *f = scan_field(scope, name);
  const char *below = f ? scan_child(a, scope, name) : NULL;
  if (f) add_field(f, out);
  if (!below && !*owner && is_scope(name)) below = name;
  if (below && is_scope(below)) {
    text_printf(out, "fields of %s%s:\n", *owner ? owner : "", *owner ? "" : below);
    add_scope(below, out);
  }
  return f || below;
}

/* The nearest of all names that have the same owner. */
static const char *nearest(lua_State *L, Arena *a, const char *owner, const char *name) {
  VEC(const char *) names = {0};
  const char *object = *owner ? object_of(L, owner) : NULL;
  const char *scope = scan_path(a, owner, strlen(owner));
  for (const ApiDoc *d = api_doc; d->object; d++)
    if (!*owner || str_eq(object, d->object)) *VEC_PUSH(a, names) = d->name;
  for (const Field *f = schema; f->scope; f++)
    if (str_eq(scope, f->scope)) *VEC_PUSH(a, names) = f->key;
  const char *near = str_nearest(name, names.at, names.n);
  return near && *owner ? arena_printf(a, "%s.%s", owner, near) : near;
}

static bool command_topic(const char *topic, Text *out) {
  const Command *c = command_find(topic + 1, strlen(topic + 1));
  if (!c) return false;
  text_printf(out, ",%s%s%s\n  %s\n", c->name, *c->form ? " " : "", c->form, c->doc);
  return true;
}

bool help_topic(lua_State *L, Arena *a, const char *topic, Text *out, const char **near) {
  *near = NULL;
  if (*topic == ',') return command_topic(topic, out);
  size_t n = strcspn(topic, "( {"), last = n;
  while (last && topic[last - 1] != '.' && topic[last - 1] != ':')
    last--;
  const char *owner = arena_strn(a, topic, last ? last - 1 : 0);
  const char *name = arena_strn(a, topic + last, n - last);
  bool api = add_api(L, owner, name, out);
  bool field = add_schema(a, owner, name, out);
  if (!api && !field) *near = nearest(L, a, owner, name);
  return api || field;
}

/* ---- help(x) ---- */

/* The topic for the function at 1, "weft.mesh", if it is one of weft's; pushes it. */
static bool push_function_topic(lua_State *L) {
  const char *known = known_name(L, 1);
  if (known && strncmp(known, "weft.", 5) == 0) {
    lua_pushstring(L, known);
    return true;
  }
  for (const ApiDoc *d = api_doc; d->object; d++) {
    if (!repl_push_method(L, d->object, d->name)) continue;
    bool same = lua_rawequal(L, -1, 1);
    lua_pop(L, 1);
    if (!same) continue;
    lua_pushfstring(L, "%s.%s", d->object, d->name);
    return true;
  }
  return false;
}

/* Pushes the topic that the value at 1 stands for. */
static void push_topic(lua_State *L) {
  const char *object = repl_object_name(L, 1);
  if (!object && str_eq(known_name(L, 1), "weft")) object = "weft";
  if (lua_type(L, 1) == LUA_TSTRING) {
    lua_pushvalue(L, 1);
  } else if (object) {
    lua_pushstring(L, object);
  } else if (!lua_isfunction(L, 1) || !push_function_topic(L)) {
    luaL_error(L,
               "help knows weft's functions and objects and names in quotes, "
               "not this %s",
               luaL_typename(L, 1));
  }
}

int help_function(lua_State *L) {
  Repl *r = lua_touserdata(L, lua_upvalueindex(1));
  const char *near = NULL;
  bool known = true;
  r->out.n = 0;
  if (lua_gettop(L) == 0) {
    help_overview(&r->out);
  } else {
    lua_settop(L, 1);
    push_topic(L);
    known = help_topic(L, r->arena, lua_tostring(L, -1), &r->out, &near);
  }
  if (!known && near)
    return luaL_error(L, "nothing is known about '%s' (did you mean '%s'?)",
                      lua_tostring(L, -1), near);
  if (!known) return luaL_error(L, "nothing is known about '%s'", lua_tostring(L, -1));
  repl_flush(r, stdout);
  return 0;
}
