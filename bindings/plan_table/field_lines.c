/* field_lines.c - finds the lines of plan fields without a parser. When a check has
 * failed, the plan is evaluated again under a line hook. Before each new line the tables
 * in the registers of the running function (locals and "(temporary)" slots) are
 * inspected; keys that are new belong to the line that has just run. A field whose value
 * is a table made inside its parent's constructor gets the line of its opening brace. */
#include "plan_table.h"

#include "bindings/sandbox/lua_fields.h"

enum { MAX_DEPTH = 200, MAX_NEST = 12, MAX_FILES = 64 };

/* Registry keys of the replaying state. */
static const char born_key = 'b';  /* table -> where and when it was first seen */
static const char keys_key = 'k';  /* table -> { key -> place } */
static const char round_key = 'r'; /* table -> the round in which it was last inspected */

struct Replay {
  Arena *arena;
  const char *file[MAX_FILES];
  int nfile, round, seen;
  int64_t budget;               /* keys that may still be inspected */
  int64_t place[MAX_DEPTH + 2]; /* by depth of the call stack: the line that is running */
};

Replay *replay_new(Arena *a) {
  Replay *r = NEW(a, Replay);
  r->arena = a;
  r->budget = 20 * 1000 * 1000;
  return r;
}

/* ---- places: a file's number and a line in one integer, never 0 ---- */

static int64_t place_of(Replay *r, const char *file, int line) {
  int i = 0;
  while (i < r->nfile && strcmp(r->file[i], file) != 0) i++;
  if (i == MAX_FILES) return 0;
  if (i == r->nfile) r->file[r->nfile++] = arena_str(r->arena, file);
  return (int64_t)(i + 1) << 24 | (line & 0xffffff);
}

/* Encodes when a table was first seen: order, depth of the call, place. */
static int64_t birth(int seen, int depth, int64_t place) {
  return (int64_t)(seen & 0xffffff) << 40 | (int64_t)(depth & 0xff) << 32 |
         (place & 0xffffffff);
}
static int birth_order(int64_t b) { return (int)(b >> 40 & 0xffffff); }
static int birth_depth(int64_t b) { return (int)(b >> 32 & 0xff); }
static int64_t birth_place(int64_t b) { return b & 0xffffffff; }

/* ---- recording ---- */

/* store[table at t]; leaves nothing on the stack. */
static int64_t get_number(lua_State *L, const char *key, int t) {
  registry_table(L, key);
  lua_pushvalue(L, t);
  lua_rawget(L, -2);
  int64_t v = lua_tointeger(L, -1);
  lua_pop(L, 2);
  return v;
}

static void store_number(lua_State *L, const char *key, int t, int64_t v) {
  registry_table(L, key);
  lua_pushvalue(L, t);
  lua_pushinteger(L, v);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* Pushes the table { key -> place } of the table at t. */
static void push_places(lua_State *L, Replay *r, int t, int64_t place, int depth) {
  registry_table(L, &keys_key);
  lua_pushvalue(L, t);
  if (lua_rawget(L, -2) != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, t);
    lua_pushvalue(L, -2);
    lua_rawset(L, -4);
    store_number(L, &born_key, t, birth(++r->seen, depth, place));
  }
  lua_remove(L, -2);
}

/* Records the new keys of the table on top and of tables in it. */
static void scan(lua_State *L, Replay *r, int64_t place, int depth, int nest) {
  int t = lua_gettop(L);
  if (nest > MAX_NEST || r->budget < 0 || get_number(L, &round_key, t) == r->round)
    return;
  luaL_checkstack(L, 12, NULL);
  store_number(L, &round_key, t, r->round);
  push_places(L, r, t, place, depth);
  for (lua_pushnil(L); state_next(L, t); lua_settop(L, t + 2)) {
    if (--r->budget < 0) break;
    lua_pushvalue(L, t + 2);
    bool known = lua_rawget(L, t + 1) != LUA_TNIL;
    lua_pop(L, 1);
    if (!known) {
      lua_pushvalue(L, t + 2);
      lua_pushinteger(L, place);
      lua_rawset(L, t + 1);
    }
    if (lua_istable(L, t + 3)) scan(L, r, place, depth, nest + 1);
  }
  lua_settop(L, t);
}

static int depth_of(lua_State *L) {
  lua_Debug ar;
  int n = 0;
  while (n < MAX_DEPTH && lua_getstack(L, n + 1, &ar)) n++;
  return n;
}

/* The place of the running function's caller, 0 if that is not in a file of the user. */
static int64_t caller_place(lua_State *L, Replay *r) {
  lua_Debug ar;
  for (int level = 1; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue;
    const char *file = chunk_file(ar.source);
    return file ? place_of(r, file, ar.currentline) : 0;
  }
  return 0;
}

void replay_event(lua_State *L, lua_Debug *ar, void *replay) {
  Replay *r = replay;
  if (L != state_of(L)->L || r->budget < 0) return;
  lua_getinfo(L, "Sl", ar);
  const char *file = chunk_file(ar->source);
  if (ar->currentline <= 0 || !file) return;
  int depth = depth_of(L), top = lua_gettop(L);
  int64_t now = place_of(r, file, ar->currentline), place = r->place[depth];
  bool leaves = ar->event == LUA_HOOKRET;
  if (leaves)
    place = now;
  else if (!place)
    place = caller_place(L, r);
  r->place[depth] = leaves ? 0 : now;
  r->place[depth + 1] = 0;
  if (!place) return;
  luaL_checkstack(L, 20, NULL);
  r->round++;
  for (int i = 1; lua_getlocal(L, ar, i); i++) {
    if (lua_istable(L, -1)) scan(L, r, place, depth, 0);
    lua_settop(L, top);
  }
}

/* ---- looking up ---- */

/* The place of the key on top (kept) in the table at t, 0 if unknown. */
static int64_t key_place(lua_State *L, int t) {
  int top = lua_gettop(L);
  int64_t place = 0;
  lua_pushvalue(L, top);
  mark_origin(L, t);
  int origin = lua_gettop(L);
  registry_table(L, &keys_key);
  lua_pushvalue(L, origin);
  if (lua_rawget(L, -2) == LUA_TTABLE) {
    lua_pushvalue(L, top);
    lua_rawget(L, -2);
    place = lua_tointeger(L, -1);
  }
  lua_pushvalue(L, top);
  if (place && lua_rawget(L, origin) == LUA_TTABLE) {
    int64_t child = get_number(L, &born_key, lua_gettop(L));
    int64_t parent = get_number(L, &born_key, origin);
    if (child && birth_depth(child) == birth_depth(parent) &&
        birth_order(child) > birth_order(parent) &&
        birth_place(child) >> 24 == place >> 24 && birth_place(child) < place)
      place = birth_place(child);
  }
  lua_settop(L, top);
  return place;
}

/* Whether the values on top of both states are equal, as far as that can be decided. */
static bool same_value(lua_State *a, lua_State *b) {
  if (lua_type(a, -1) != lua_type(b, -1)) return false;
  switch (lua_type(a, -1)) {
  case LUA_TNUMBER: return lua_tonumber(a, -1) == lua_tonumber(b, -1);
  case LUA_TSTRING: return strcmp(lua_tostring(a, -1), lua_tostring(b, -1)) == 0;
  case LUA_TBOOLEAN: return lua_toboolean(a, -1) == lua_toboolean(b, -1);
  default: return true;
  }
}

static void push_same_key(lua_State *from, lua_State *to) {
  if (lua_type(from, -1) == LUA_TSTRING)
    lua_pushstring(to, lua_tostring(from, -1));
  else
    lua_pushinteger(to, lua_tointeger(from, -1));
}

/* The plan's table is on top of both stacks; `again` may be NULL. Takes the nearest field
 * on the path that has a line, else the nearest builder call. */
bool replay_find(Replay *r, lua_State *again, lua_State *first, const char *path,
                 const char **file, int *line) {
  const char *builder_file = NULL;
  int builder_line = mark_line(first, -1, &builder_file);
  int64_t place = 0;
  bool bad;
  while (path_next(first, &path, &bad)) {
    if (again) {
      push_same_key(first, again);
      int64_t p = key_place(again, lua_gettop(again) - 1);
      if (p) place = p;
      lua_rawget(again, -2);
      lua_remove(again, -2);
    }
    lua_rawget(first, -2);
    lua_remove(first, -2);
    if (again && !same_value(first, again)) place = 0, again = NULL;
    const char *f;
    int l = mark_line(first, -1, &f);
    if (l) builder_file = f, builder_line = l;
    if (!lua_istable(first, -1)) break;
    if (again && !lua_istable(again, -1)) again = NULL;
  }
  *file = place ? r->file[(place >> 24) - 1] : builder_file;
  *line = place ? (int)(place & 0xffffff) : builder_line;
  return *line > 0;
}
