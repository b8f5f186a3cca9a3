/* values.c - Lua values in messages, command-line strings as Lua values, and field paths
 * such as mesh.order[2] or tp_plan["lm_head"]. */
#include "plan_table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

int field_push(lua_State *L, int t, const char *key) {
  t = lua_absindex(L, t);
  if (!lua_istable(L, t)) {
    lua_pushnil(L);
    return LUA_TNIL;
  }
  lua_pushstring(L, key);
  return lua_rawget(L, t);
}

/* ---- messages ---- */

static const char *describe_text(Arena *a, const char *s, size_t n) {
  enum { SHOWN = 40 };
  return arena_printf(a, "string \"%.*s\"%s", (int)MIN(n, (size_t)SHOWN), s,
                      n > SHOWN ? "..." : "");
}

const char *value_describe(Arena *a, lua_State *L, int idx) {
  size_t n;
  idx = lua_absindex(L, idx);
  const char *s, *kind = mark_kind(L, idx);
  switch (lua_type(L, idx)) {
  case LUA_TNONE:
  case LUA_TNIL: return "nothing";
  case LUA_TBOOLEAN: return lua_toboolean(L, idx) ? "true" : "false";
  case LUA_TNUMBER:
  case LUA_TSTRING:
    lua_pushvalue(L, idx);
    s = lua_tolstring(L, -1, &n);
    s = lua_type(L, idx) == LUA_TNUMBER ? arena_printf(a, "number %s", s)
                                        : describe_text(a, s, n);
    lua_pop(L, 1);
    return s;
  case LUA_TTABLE:
    if (kind && !str_eq(kind, "extend")) return arena_printf(a, "weft.%s", kind);
    return "a table";
  default: return arena_printf(a, "a %s", luaL_typename(L, idx));
  }
}

/* ---- values from the command line ---- */

static int no_names(lua_State *L) {
  return luaL_error(L, "'%s' is no value", luaL_tolstring(L, 2, NULL));
}

/* For values of a plan: weft.cosine { ... } makes one, as in the plan. */
static int weft_alone(lua_State *L) {
  if (lua_type(L, 2) != LUA_TSTRING || !str_eq(lua_tostring(L, 2), "weft"))
    return no_names(L);
  lua_pushcfunction(L, modules_require);
  lua_pushvalue(L, 2);
  lua_call(L, 1, 1);
  return 1;
}

static bool load_with(lua_State *L, const char *code, const char *name,
                      lua_CFunction names) {
  if (luaL_loadbufferx(L, code, strlen(code), name, "t") != LUA_OK) return false;
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, names);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_setupvalue(L, -2, 1);
  return true;
}

bool literal_load(lua_State *L, const char *code, const char *name) {
  return load_with(L, code, name, no_names);
}

static bool is_literal(lua_State *L) {
  int t = lua_type(L, -1);
  return t == LUA_TNIL || t == LUA_TBOOLEAN || t == LUA_TNUMBER || t == LUA_TSTRING ||
         t == LUA_TTABLE;
}

static const char *behind_long(const char *s) {
  size_t level = strspn(s + 1, "=");
  char end[80];
  if (s[1 + level] != '[' || level > sizeof end - 3) return NULL;
  snprintf(end, sizeof end, "]%.*s]", (int)level, s + 1);
  const char *at = strstr(s + level + 2, end);
  return at ? at + level + 2 : s + strlen(s);
}

/* What is behind the string or comment that begins here; NULL: none does. */
static const char *behind_text(const char *s) {
  const char *end;
  if (*s == '[') return behind_long(s);
  if (s[0] == '-' && s[1] == '-') {
    end = s[2] == '[' ? behind_long(s + 2) : NULL;
    return end ? end : s + strcspn(s, "\r\n");
  }
  if (*s != '"' && *s != '\'') return NULL;
  for (end = s + 1; *end && *end != *s; end++)
    if (*end == '\\' && end[1]) end++;
  return *end ? end + 1 : end;
}

/* Whether Lua's text has a function, which alone could make its evaluation long: the
 * word, and not its letters in a name of a file. */
static bool has_function(const char *s) {
  static const char word[] = "function";
  while (*s) {
    const char *end = behind_text(s);
    size_t n =
        strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (!end && n == strlen(word) && strncmp(s, word, n) == 0) return true;
    s = end ? end : s + MAX(n, 1);
  }
  return false;
}

/* Pushes the value of the text as an expression with these names. False: it is none; then
 * a text that says why is on the stack. */
static bool evaluate(lua_State *L, const char *text, lua_CFunction names) {
  luaL_checkstack(L, 6, NULL);
  int top = lua_gettop(L);
  const char *code = lua_pushfstring(L, "return %s", text);
  bool ok = load_with(L, code, "=value", names);
  if (ok && has_function(text)) {
    lua_pushliteral(L, "a function is of the file of the plan, not of a value");
    ok = false;
  } else if (ok) {
    ok = lua_pcall(L, 0, 1, 0) == LUA_OK && is_literal(L);
    if (!ok) state_rethrow(L);
  }
  lua_replace(L, top + 1);
  lua_settop(L, top + 1);
  return ok;
}

/* Without any names bf16 and 1f1b are strings, while 64/8 and { 2, 4 } are values. */
void value_parse(lua_State *L, const char *text) {
  if (evaluate(L, text, no_names)) return;
  lua_pop(L, 1);
  lua_pushstring(L, text);
}

/* "weft.NAME {", "weft.NAME \"" and so on. */
static bool calls_weft(const char *text) {
  if (strncmp(text, "weft.", 5) != 0) return false;
  text += 5;
  text += strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
  text += strspn(text, " ");
  return *text && strchr("{(\"'[", *text);
}

/* A value of a plan: what a call of weft.NAME makes, too, and no string that looks like
 * one. */
static bool plan_value(lua_State *L, const char *text, const char **why) {
  if (!calls_weft(text)) {
    value_parse(L, text);
    return true;
  }
  if (evaluate(L, text, weft_alone)) return true;
  static const char chunk[] = "value:1: ";
  *why = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "that is no value";
  if (strncmp(*why, chunk, sizeof chunk - 1) == 0) *why += sizeof chunk - 1;
  return false;
}

/* ---- paths ---- */

static bool is_name(const char *s) {
  if (!isalpha((unsigned char)*s) && *s != '_') return false;
  for (; *s; s++)
    if (!isalnum((unsigned char)*s) && *s != '_') return false;
  return true;
}

const char *path_join(Arena *a, const char *base, lua_State *L, int key) {
  if (lua_type(L, key) == LUA_TSTRING) {
    const char *s = lua_tostring(L, key);
    if (is_name(s)) return arena_printf(a, "%s%s%s", base, *base ? "." : "", s);
    return arena_printf(a, "%s[\"%s\"]", base, s);
  }
  if (lua_isinteger(L, key))
    return arena_printf(a, "%s[%lld]", base, (long long)lua_tointeger(L, key));
  lua_pushvalue(L, key);
  const char *s = arena_printf(a, "%s[%s]", base, plain_tostring(L, -1));
  lua_pop(L, 2);
  return s;
}

bool path_next(lua_State *L, const char **path, bool *bad) {
  const char *p = *path;
  *bad = false;
  if (*p == '.') p++;
  if (!*p) return false;
  if (p[0] == '[' && p[1] == '"') {
    const char *end = strstr(p + 2, "\"]");
    *bad = !end;
    if (*bad) return false;
    lua_pushlstring(L, p + 2, (size_t)(end - p - 2));
    *path = end + 2;
    return true;
  }
  if (*p == '[') {
    char *end;
    long long i = strtoll(p + 1, &end, 10);
    *bad = end == p + 1 || *end != ']';
    if (*bad) return false;
    lua_pushinteger(L, i);
    *path = end + 1;
    return true;
  }
  size_t n = strcspn(p, ".[");
  *bad = n == 0;
  if (*bad) return false;
  lua_pushlstring(L, p, n);
  *path = p + n;
  return true;
}

/* ---- --set ---- */

typedef struct SetJob {
  const char *text, *value;
  weft_error *e;
  weft_status st;
} SetJob;

/* Of a field whose name alone stands for a table: the key of the name there, "" for the
 * first item; NULL: it has no table. */
static const char *key_of_name(const char *path, size_t n, const char *name) {
  static const struct {
    const char *path, *key;
  } fields[] = {{"strategy", ""},
                {"schedule", ""},
                {"cluster", ""},
                {"cluster.gpu", ""},
                {"loss", ""},
                {"precision", "param_dtype"},
                {"mp_policy", "param_dtype"},
                {"strategy.mp_policy", "param_dtype"}};
  for (int i = 0; i < LEN(fields); i++)
    if (strlen(fields[i].path) == n && strncmp(fields[i].path, path, n) == 0)
      return str_ieq(name, "fp8") ? "" : fields[i].key;
  return NULL;
}

/* Replaces the name on top, behind its table and its key, by the table that means the
 * same, in which options have a place: "zero" by { "zero" }. */
static void open_name(lua_State *L, const char *path, size_t n) {
  if (lua_type(L, -1) != LUA_TSTRING) return;
  const char *key = key_of_name(path, n, lua_tostring(L, -1));
  if (!key) return;
  lua_createtable(L, 1, 1);
  lua_insert(L, -2);
  if (*key)
    lua_setfield(L, -2, key);
  else
    lua_rawseti(L, -2, 1);
  lua_pushvalue(L, -2);
  lua_pushvalue(L, -2);
  lua_rawset(L, -5);
}

bool value_find(lua_State *L, const char *path, const char **why) {
  bool bad;
  const char *whole = path;
  if (strncmp(path, "plan.", 5) == 0) path += 5;
  const char *first = path;
  lua_pushvalue(L, PLAN_INDEX);
  bool ok = path_next(L, &path, &bad);
  while (ok && *path) {
    lua_pushvalue(L, -1);
    lua_rawget(L, -3);
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      lua_newtable(L);
      lua_pushvalue(L, -2);
      lua_pushvalue(L, -2);
      lua_rawset(L, -5);
    }
    open_name(L, first, (size_t)(path - first));
    if (!lua_istable(L, -1)) {
      const char *above = lua_pushlstring(L, whole, (size_t)(path - whole));
      bool rate = str_eq(above, "optimizer.lr");
      *why = lua_pushfstring(L, "%s is a %s, not a table%s", above, luaL_typename(L, -2),
                             rate ? ": 'optimizer.lr=weft.constant { max = ..., ... }' "
                                    "gives it whole"
                                  : "");
      return false;
    }
    lua_replace(L, -3);
    lua_pop(L, 1);
    ok = path_next(L, &path, &bad);
  }
  if (!ok) *why = lua_pushfstring(L, "\"%s\" is not the path of a field", whole);
  return ok;
}

static void set_job(lua_State *L, void *ud) {
  SetJob *j = ud;
  const char *path = lua_pushlstring(L, j->text, (size_t)(j->value - 1 - j->text)), *why;
  if (value_find(L, path, &why) && plan_value(L, j->value, &why))
    lua_rawset(L, -3);
  else
    j->st = err_set(j->e, WEFT_EUSAGE, "--set %s: %s", j->text, why);
}

weft_status value_set(LangState *s, const char *assignment, weft_error *e) {
  const char *eq = strchr(assignment, '=');
  if (!eq || eq == assignment)
    return err_set(e, WEFT_EUSAGE,
                   "--set %s: write --set PATH=VALUE, for example "
                   "--set mesh.tp=4",
                   assignment);
  /* Not the default: it is what a shell makes of a variable that is not set. */
  if (!eq[1 + strspn(eq + 1, " \t")])
    return err_set(e, WEFT_EUSAGE,
                   "--set %s there is no value behind =; %snil leaves the field out",
                   assignment, assignment);
  SetJob j = {.text = assignment, .value = eq + 1, .e = e};
  TRY(state_protect(s, set_job, &j, e));
  return j.st;
}
