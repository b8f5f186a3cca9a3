/* repl_complete.c - what the tab key offers: chains such as plan.mesh:co are looked up in
 * Lua's tables, the rest is a matter of where the cursor stands. */
#include "repl_complete.h"

#include <lauxlib.h>
#include <stdlib.h>

#include "bindings/script/api_doc.h"
#include "repl_commands.h"
#include "repl_print.h"

enum { CHAIN_LINKS = 16 /* tables behind __index that are followed */ };

/* ---- looking things up ---- */

const char *repl_object_name(lua_State *L, int idx) {
  if (lua_type(L, idx) != LUA_TUSERDATA || !lua_getmetatable(L, idx)) return NULL;
  const char *name = NULL;
  lua_pushliteral(L, "__name");
  if (lua_rawget(L, -2) == LUA_TSTRING) {
    const char *full = lua_tostring(L, -1);
    luaL_getmetatable(L, full);
    if (lua_rawequal(L, -1, -3) && strncmp(full, "weft.", 5) == 0) name = full + 5;
    lua_pop(L, 1);
  }
  lua_pop(L, 2);
  return name;
}

/* Replaces the value on top by the table behind it in its metatable's __index; pops it
 * and returns false if there is none. */
static bool table_behind(lua_State *L) {
  if (!lua_getmetatable(L, -1)) {
    lua_pop(L, 1);
    return false;
  }
  lua_pushliteral(L, "__index");
  lua_rawget(L, -2);
  lua_replace(L, -3);
  lua_pop(L, 1);
  if (lua_istable(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

/* The methods are in the table of __index, or in the upvalue of its function. */
bool repl_push_method(lua_State *L, const char *object, const char *name) {
  int top = lua_gettop(L);
  luaL_getmetatable(L, lua_pushfstring(L, "weft.%s", object));
  if (lua_istable(L, -1)) {
    lua_pushliteral(L, "__index");
    lua_rawget(L, -2);
    if (lua_iscfunction(L, -1) && !lua_getupvalue(L, -1, 1)) lua_pushnil(L);
    if (lua_istable(L, -1)) {
      lua_pushstring(L, name);
      lua_rawget(L, -2);
    }
  }
  bool found = lua_iscfunction(L, -1);
  if (found) lua_replace(L, top + 1);
  lua_settop(L, found ? top + 1 : top);
  return found;
}

static int get_field(lua_State *L) {
  lua_gettable(L, 1);
  return 1;
}

/* A field of one of weft's objects, whose __index is known to have no effect. */
static void object_field(lua_State *L, const char *object) {
  const ApiDoc *d = api_doc_find(object, lua_tostring(L, -1));
  if (!d || api_doc_is_method(d)) {
    lua_pop(L, 2);
    lua_pushnil(L);
    return;
  }
  lua_pushcfunction(L, get_field);
  lua_insert(L, -3);
  if (lua_pcall(L, 2, 1, 0) == LUA_OK) return;
  lua_pop(L, 1);
  lua_pushnil(L);
}

/* Replaces the value and the key on top by value[key], or nil. */
static void follow(lua_State *L) {
  const char *object = repl_object_name(L, -2);
  if (object && lua_type(L, -1) == LUA_TSTRING) {
    object_field(L, object);
    return;
  }
  lua_insert(L, -2);
  for (int i = 0; i < CHAIN_LINKS; i++) {
    if (lua_istable(L, -1)) {
      lua_pushvalue(L, -2);
      if (lua_rawget(L, -2) != LUA_TNIL) {
        lua_replace(L, -3);
        lua_pop(L, 1);
        return;
      }
      lua_pop(L, 1);
    }
    if (!table_behind(L)) {
      lua_pop(L, 1);
      lua_pushnil(L);
      return;
    }
  }
  lua_pop(L, 2);
  lua_pushnil(L);
}

/* ---- chains ---- */

/* Where the chain that ends before the token `back` places from the end begins, counted
 * the same way; 0 if it begins with something that has no value yet, such as a call. */
static int chain_begin(const Scan *s, int back) {
  for (;;) {
    Token t = scan_back(s, back);
    if (t.type == ']') {
      char key = scan_back(s, back + 1).type;
      if ((key != '"' && key != '0') || scan_back(s, back + 2).type != '[') return 0;
      back += 3;
      continue;
    }
    if (t.type == '"') return back;
    if (t.type != 'a') return 0;
    char dot = scan_back(s, back + 1).type;
    if (dot != '.' && dot != ':') return back;
    back += 2;
  }
}

static void push_token(lua_State *L, const Scan *s, Token t) {
  const char *text = s->text + t.at;
  if (t.type == '"') {
    lua_pushlstring(L, text + 1, (size_t)MAX(t.n - 2, 0));
  } else {
    lua_pushlstring(L, text, (size_t)t.n);
    if (t.type == '0' && lua_stringtonumber(L, lua_tostring(L, -1))) lua_remove(L, -2);
  }
}

/* Pushes the value of the chain from `begin` to `end` places before the end. */
static void push_chain(lua_State *L, const Scan *s, int begin, int end) {
  Token first = scan_back(s, begin);
  if (first.type == '"') {
    push_token(L, s, first);
  } else {
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    push_token(L, s, first);
    follow(L);
  }
  for (int at = begin - 1; at >= end; at--) {
    Token t = scan_back(s, at);
    if (t.type != 'a' && t.type != '"' && t.type != '0') continue;
    push_token(L, s, t);
    follow(L);
  }
}

/* ---- members ---- */

typedef struct Prefix {
  const char *s;
  size_t n;
} Prefix;

static void add_keys(lua_State *L, Completions *c, Prefix p, bool only_functions) {
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    size_t n;
    if (lua_type(L, -2) != LUA_TSTRING) continue;
    const char *name = lua_tolstring(L, -2, &n);
    bool hidden = *name == '_' && (p.n == 0 || *p.s != '_');
    bool callable = lua_isfunction(L, -1);
    if (hidden || !repl_is_name(name, n) || (only_functions && !callable)) continue;
    complete_add(c, name, p.s, p.n, callable ? "(" : NULL);
  }
}

static void add_object(Completions *c, const char *object, Prefix p, bool methods) {
  for (const ApiDoc *d = api_doc; d->object; d++)
    if (strcmp(d->object, object) == 0 && api_doc_is_method(d) == methods)
      complete_add(c, d->name, p.s, p.n, methods ? "(" : NULL);
}

/* The names in the value on top, which is popped, and in what it inherits from. */
static void add_members(lua_State *L, Completions *c, Prefix p, bool methods) {
  const char *object = repl_object_name(L, -1);
  if (object) {
    add_object(c, object, p, methods);
    if (!c->match.n && !methods) add_object(c, object, p, true);
    lua_pop(L, 1);
    return;
  }
  /* A text has methods and no fields. */
  if (lua_type(L, -1) == LUA_TSTRING && !methods) {
    lua_pop(L, 1);
    return;
  }
  for (int i = 0; i < CHAIN_LINKS; i++) {
    if (lua_istable(L, -1)) add_keys(L, c, p, methods);
    if (!table_behind(L)) return;
  }
  lua_pop(L, 1);
}

/* ---- code ---- */

static bool is_new_item(const Scan *s, int back) {
  char t = scan_back(s, back).type;
  return t == '{' || t == ',' || t == ';';
}

static void complete_name(lua_State *L, const Scan *s, Completions *c, Prefix p,
                          int back) {
  Bracket b = scan_bracket(s);
  if (b.scope && b.type == '{' && is_new_item(s, back))
    complete_fields(c, b.scope, p.s, p.n, " = ");
  if (c->match.n) return;
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  add_members(L, c, p, false);
  for (int i = 0; p.n && repl_keywords[i]; i++)
    complete_add(c, repl_keywords[i], p.s, p.n, NULL);
}

static void complete_code(lua_State *L, const Scan *s, Completions *c) {
  Token last = scan_back(s, 1);
  bool typed = last.type == 'a' && last.at + last.n == s->cursor;
  Prefix p = {s->text + s->cursor, 0};
  if (typed) p = (Prefix){s->text + last.at, (size_t)last.n};
  c->from = s->cursor - (int)p.n;
  int back = typed ? 2 : 1;
  char dot = scan_back(s, back).type;
  if (dot != '.' && dot != ':') {
    complete_name(L, s, c, p, back);
    return;
  }
  int begin = chain_begin(s, back + 1);
  if (!begin) return;
  push_chain(L, s, begin, back + 1);
  add_members(L, c, p, dot == ':');
}

/* ---- texts ---- */

/* The texts that a function takes. */
static bool complete_argument(const Scan *s, Completions *c, Prefix p) {
  Token last = scan_back(s, 1), name = last.type == '(' ? scan_back(s, 2) : last;
  if (scan_is(s, name, "require")) {
    complete_add(c, "weft", p.s, p.n, NULL);
    return true;
  }
  if (scan_is(s, name, "group") || scan_is(s, name, "groups")) {
    for (const char *const *axis = axes_names(); *axis; axis++)
      complete_add(c, *axis, p.s, p.n, NULL);
    return true;
  }
  if (scan_is(s, name, "help")) {
    complete_path(c, s->text_at, p.s, p.n, NULL);
    return true;
  }
  return false;
}

static void complete_text(const Scan *s, Completions *c) {
  Prefix p = {s->text + s->text_at, (size_t)(s->cursor - s->text_at)};
  Bracket b = scan_bracket(s);
  Token last = scan_back(s, 1), key = scan_back(s, 2);
  const Field *f = last.type == '{' ? b.field : NULL;
  c->from = s->text_at;
  if (last.type == '=' && key.type == 'a')
    f = scan_field(b.scope, arena_strn(c->arena, s->text + key.at, (size_t)key.n));
  if (str_eq(b.scope, "tp_plan") && last.type == '=')
    complete_styles(c, p.s, p.n);
  else if (str_eq(b.scope, "axis") && !b.items)
    complete_path(c, s->text_at, p.s, p.n, NULL);
  else if (f && !str_eq(b.scope, "tp_plan"))
    complete_values(c, f, p.s, p.n);
  else if (complete_argument(s, c, p))
    return;
  if (!c->match.n) complete_files(c, s->text_at, p.s, p.n, NULL);
}

/* ---- all ---- */

static void complete_lua(lua_State *L, const char *text, int cursor, Completions *c) {
  Scan s;
  scan(&s, c->arena, text, cursor);
  if (s.place == AT_CODE) complete_code(L, &s, c);
  if (s.place == AT_TEXT) complete_text(&s, c);
}

/* A topic is a path of a plan, what an object of the same name has, or the name of
 * something. */
static void complete_topic(lua_State *L, const char *text, int from, int cursor,
                           Completions *c) {
  const char *path = text + from;
  size_t n = (size_t)(cursor - from), name = n;
  while (name && path[name - 1] != '.')
    name--;
  complete_path(c, from, path, n, NULL);
  const char *owner = arena_strn(c->arena, path, name ? name - 1 : 0);
  for (const ApiDoc *d = api_doc; d->object; d++)
    if (strcmp(d->object, owner) == 0)
      complete_add(c, d->name, path + name, n - name, NULL);
  if (c->match.n) return;
  complete_lua(L, text + from, cursor - from, c);
  c->from += from;
}

/* path=value: fields before the equals sign, what the field takes behind it. */
static void complete_set(const char *text, int from, int cursor, Completions *c) {
  const char *path = text + from;
  size_t n = (size_t)(cursor - from);
  const char *equals = memchr(path, '=', n), *key = equals;
  if (!equals) {
    complete_path(c, from, path, n, "=");
    return;
  }
  while (key > path && key[-1] != '.')
    key--;
  const char *scope =
      scan_path(c->arena, path, key > path ? (size_t)(key - 1 - path) : 0);
  const Field *f = scan_field(scope, arena_strn(c->arena, key, (size_t)(equals - key)));
  c->from = (int)(equals + 1 - text);
  if (f) complete_values(c, f, equals + 1, (size_t)(cursor - c->from));
}

static void complete_command(lua_State *L, const char *text, int cursor, Completions *c) {
  int name_end = (int)strcspn(text, " ");
  if (cursor <= name_end) {
    c->from = 1;
    for (const Command *k = commands; k->name; k++)
      complete_add(c, k->name, text + 1, (size_t)cursor - 1, *k->form ? " " : NULL);
    return;
  }
  int from = MIN(cursor, name_end + (int)strspn(text + name_end, " "));
  const Command *k = command_find(text + 1, (size_t)name_end - 1);
  switch (k ? k->takes : COMMAND_NOTHING) {
  case COMMAND_NOTHING:
    break;
  case COMMAND_FILE:
    complete_files(c, from, text + from, (size_t)(cursor - from), ".lua");
    break;
  case COMMAND_TOPIC:
    complete_topic(L, text, from, cursor, c);
    break;
  case COMMAND_CODE:
    complete_lua(L, text + from, cursor - from, c);
    c->from += from;
    break;
  case COMMAND_SET:
    complete_set(text, from, cursor, c);
    break;
  }
}

typedef struct CompleteJob {
  const char *text;
  int cursor;
  Completions *c;
} CompleteJob;

/* Out of memory of the arena becomes an error of Lua's. */
static int run_job(lua_State *L) {
  CompleteJob *j = lua_touserdata(L, 1);
  lua_settop(L, 0);
  luaL_checkstack(L, 40, NULL);
  if (setjmp(*arena_guard(j->c->arena))) return luaL_error(L, "out of memory");
  if (*j->text == ',')
    complete_command(L, j->text, j->cursor, j->c);
  else if (*j->text == '?')
    complete_topic(L, j->text, 1, j->cursor, j->c);
  else
    complete_lua(L, j->text, j->cursor, j->c);
  return 0;
}

static int compare(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void repl_complete(lua_State *L, const char *text, int cursor, Completions *c) {
  CompleteJob j = {text, cursor, c};
  int top = lua_gettop(L);
  c->from = cursor;
  lua_pushcfunction(L, run_job);
  lua_pushlightuserdata(L, &j);
  if (lua_pcall(L, 1, 0, 0) != LUA_OK) c->match.n = 0;
  lua_settop(L, top);
  if (c->match.n) qsort(c->match.at, (size_t)c->match.n, sizeof *c->match.at, compare);
  int n = 0;
  for (int i = 0; i < c->match.n; i++)
    if (!n || strcmp(c->match.at[n - 1], c->match.at[i]) != 0)
      c->match.at[n++] = c->match.at[i];
  c->match.n = n;
}
