/* vars.c - variables of a plan: the values of -D. weft.var declares one with a default,
 * weft.vars.NAME is one that has to be given. What was declared and read is noted, so
 * that a -D that the plan does not know is an error. */
#include "plan_table.h"

/* Registry: { given = { name -> text, or true without one }, default = { name -> value },
 * read = { name -> true } }. */
static const char vars_key = 'v';

/* Pushes the table `field` of the notes. */
static void push_notes(lua_State *L, const char *field) {
  luaL_checkstack(L, 10, NULL);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &vars_key);
  lua_getfield(L, -1, field);
  lua_remove(L, -2);
}

/* notes[field][name] = the value on top, which is popped. */
static void note(lua_State *L, const char *field, const char *name) {
  push_notes(L, field);
  lua_insert(L, -2);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

/* Pushes notes[field][name]; its type. */
static int noted(lua_State *L, const char *field, const char *name) {
  push_notes(L, field);
  int type = lua_getfield(L, -1, name);
  lua_remove(L, -2);
  return type;
}

/* The name of the table on top that is nearest to `name`, or NULL; the table is popped.
 */
static const char *nearest_of(lua_State *L, const char *name) {
  enum { MOST = 256 };
  const char *names[MOST];
  int n = 0, t = lua_gettop(L);
  for (lua_pushnil(L); state_next(L, t); lua_pop(L, 1))
    if (n < MOST) names[n++] = lua_tostring(L, -2);
  lua_pop(L, 1);
  return name_suggest(name, names, n);
}

/* ---- reading ---- */

/* Pushes the value of a -D, as a literal if it is one: notes[given][name] is on top. */
static void push_literal(lua_State *L) {
  if (lua_type(L, -1) != LUA_TSTRING) return;
  value_parse(L, lua_tostring(L, -1));
  lua_remove(L, -2);
}

/* "bf16" with quotes, 3 and true without. */
static const char *shown(lua_State *L, int idx) {
  const char *s = plain_tostring(L, idx);
  return lua_type(L, idx) == LUA_TSTRING ? lua_pushfstring(L, "\"%s\"", s) : s;
}

/* Replaces what was given, on top, by the same as a value of the default's type. */
static void convert(lua_State *L, const char *name, int like) {
  static const char *const takes[] = {[LUA_TBOOLEAN] = "true or false",
                                      [LUA_TNUMBER] = "a number",
                                      [LUA_TSTRING] = "a string"};
  int type = lua_type(L, like), given = lua_gettop(L);
  const char *text = lua_type(L, given) == LUA_TSTRING ? lua_tostring(L, given) : NULL;
  lua_pushvalue(L, given);
  push_literal(L);
  if (type == LUA_TSTRING && text && lua_type(L, -1) != LUA_TSTRING) {
    lua_pop(L, 1); /* 8, 1e3 and true are strings where one is wanted */
    lua_pushvalue(L, given);
  }
  if (lua_type(L, -1) != type)
    luaL_error(L, "-D %s%s%s: weft.var(\"%s\", %s) takes %s", name, text ? "=" : "",
               text ? text : "", name, shown(L, like), takes[type]);
  lua_Integer whole;
  if (lua_isinteger(L, like) && !lua_isinteger(L, -1) &&
      lua_numbertointeger(lua_tonumber(L, -1), &whole) &&
      (lua_Number)whole == lua_tonumber(L, -1)) {
    lua_pop(L, 1); /* 5e7 is an integer where one is the default */
    lua_pushinteger(L, whole);
  }
  lua_replace(L, given);
}

/* Pushes the value of a variable, and notes that it was read; false, with nothing pushed:
 * it was neither given nor declared. */
static bool push_value(lua_State *L, const char *name) {
  int top = lua_gettop(L);
  lua_pushboolean(L, 1);
  note(L, "read", name);
  bool declared = noted(L, "default", name) != LUA_TNIL;
  bool given = noted(L, "given", name) != LUA_TNIL;
  if (given && declared)
    convert(L, name, top + 1);
  else if (given)
    push_literal(L);
  else
    lua_settop(L, declared ? top + 1 : top);
  return given || declared;
}

/* weft.var(name, default) */
static int var(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  int type = lua_type(L, 2);
  if (type != LUA_TBOOLEAN && type != LUA_TNUMBER && type != LUA_TSTRING)
    return luaL_error(
        L,
        "weft.var(\"%s\", DEFAULT): the default is a number, a string, true "
        "or false; weft.vars.%s is a variable without one",
        name, name);
  lua_settop(L, 2);
  if (noted(L, "default", name) != LUA_TNIL && !lua_rawequal(L, 2, -1))
    return luaL_error(L, "weft.var(\"%s\", %s): its default was %s before", name,
                      shown(L, 2), shown(L, 3));
  lua_settop(L, 2);
  note(L, "default", name);
  push_value(L, name);
  return 1;
}

/* Pushes all names that were given or declared, in a table. */
static void push_names(lua_State *L) {
  static const char *const fields[] = {"given", "default"};
  lua_newtable(L);
  int all = lua_gettop(L);
  for (int i = 0; i < LEN(fields); i++, lua_settop(L, all)) {
    push_notes(L, fields[i]);
    for (lua_pushnil(L); state_next(L, all + 1);) {
      lua_pop(L, 1);
      lua_pushvalue(L, -1);
      lua_pushboolean(L, 1);
      lua_rawset(L, all);
    }
  }
}

/* weft.vars[name] */
static int vars_index(lua_State *L) {
  if (lua_type(L, 2) != LUA_TSTRING) return luaL_error(L, "weft.vars has values by name");
  const char *name = lua_tostring(L, 2);
  if (push_value(L, name)) return 1;
  push_names(L);
  const char *near = nearest_of(L, name);
  return luaL_error(L,
                    "weft.vars.%s has no value: give -D %s=VALUE, or write "
                    "weft.var(\"%s\", DEFAULT)%s%s%s",
                    name, name, name, near ? " (did you mean '" : "", near ? near : "",
                    near ? "'?)" : "");
}

static int vars_assign(lua_State *L) {
  return luaL_error(L, "weft.vars cannot be changed: its values are those of -D");
}

/* pairs(weft.vars): those that were given. */
static int vars_pairs(lua_State *L) {
  lua_settop(L, 1);
  lua_newtable(L);
  push_notes(L, "given");
  for (lua_pushnil(L); state_next(L, 3);) {
    const char *name = lua_tostring(L, -2);
    lua_pushboolean(L, 1);
    note(L, "read", name);
    push_literal(L);
    lua_setfield(L, 2, name);
  }
  lua_settop(L, 2);
  lua_pushcfunction(L, sorted_pairs);
  lua_insert(L, 2);
  lua_call(L, 1, 3);
  return 3;
}

/* ---- what was given ---- */

static void take_given(lua_State *L, const LangOptions *o) {
  for (int i = 0; i < o->ndefine; i++) {
    const char *eq = strchr(o->define[i], '=');
    lua_pushlstring(L, o->define[i],
                    eq ? (size_t)(eq - o->define[i]) : strlen(o->define[i]));
    if (eq)
      lua_pushstring(L, eq + 1);
    else
      lua_pushboolean(L, 1);
    lua_rawset(L, -3);
  }
}

void vars_add(lua_State *L, const LangOptions *o) {
  static const luaL_Reg meta[] = {{"__index", vars_index},
                                  {"__newindex", vars_assign},
                                  {"__pairs", vars_pairs},
                                  {NULL, NULL}};
  luaL_checkstack(L, 8, NULL);
  lua_newtable(L);
  lua_newtable(L);
  take_given(L, o);
  lua_setfield(L, -2, "given");
  lua_newtable(L);
  lua_setfield(L, -2, "default");
  lua_newtable(L);
  lua_setfield(L, -2, "read");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &vars_key);
  lua_newtable(L);
  luaL_newlib(L, meta);
  lua_pushliteral(L, "weft.vars");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  known_add(L, "weft.vars");
  lua_setfield(L, -2, "vars");
  lua_pushcfunction(L, var);
  known_add(L, "weft.var");
  lua_setfield(L, -2, "var");
}

/* ---- variables that were given and not read ---- */

typedef struct UnreadJob {
  const LangState *s;
  weft_error *e;
  weft_status st;
} UnreadJob;

/* "; it has dir and steps", of the names in the table on top, which is popped. */
static const char *its_names(lua_State *L) {
  int n = 0, top = lua_gettop(L);
  luaL_Buffer b;
  sorted_keys(L, top);
  n = (int)lua_rawlen(L, top + 1);
  luaL_buffinit(L, &b);
  for (int i = 1; i <= n; i++) {
    luaL_addstring(&b, i == 1 ? "; it has " : i < n ? ", " : " and ");
    lua_rawgeti(L, top + 1, i);
    luaL_addvalue(&b);
  }
  luaL_pushresult(&b);
  return lua_tostring(L, -1);
}

static void unread_job(lua_State *L, void *ud) {
  UnreadJob *j = ud;
  const LangOptions *o = j->s->opt;
  bool any = lua_rawgetp(L, LUA_REGISTRYINDEX, &vars_key) == LUA_TTABLE;
  for (int i = 0; i < o->ndefine; i++) {
    size_t n = strcspn(o->define[i], "=");
    const char *name = lua_pushlstring(L, o->define[i], n), *near = NULL;
    if (any && noted(L, "read", name) != LUA_TNIL) continue;
    const char *has = "";
    if (any) {
      push_notes(L, "read");
      near = nearest_of(L, name);
      push_notes(L, "read");
      has = its_names(L);
    }
    j->st = err_set(j->e, WEFT_EUSAGE, "-D %s: %s has no variable '%s'%s%s%s%s",
                    o->define[i], j->s->path, name, near ? " (did you mean '" : "",
                    near ? near : "", near ? "'?)" : "", near ? "" : has);
    return;
  }
}

weft_status vars_check(LangState *s, weft_error *e) {
  UnreadJob j = {.s = s, .e = e};
  if (s->opt->ndefine) TRY(state_protect(s, unread_job, &j, e));
  return j.st;
}
