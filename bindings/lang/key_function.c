/* key_function.c - functions of a plan as bytes to compare: their code, what they
 * capture, and all that this leads to. It may lead back: every object is numbered when it
 * is met, and where it is met again its number stands for it. */
#include "key_value.h"

/* ---- objects that are met ---- */

void key_begin(lua_State *L, KeyJob *j) {
  luaL_checkstack(L, 12, NULL);
  lua_newtable(L);
  j->met = lua_gettop(L);
  j->objects = j->queued = j->done = 0;
}

static int64_t number_of(lua_State *L, int idx, const KeyJob *j) {
  lua_pushvalue(L, idx);
  lua_rawget(L, j->met);
  int64_t n = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return n;
}

static void add_number_of(lua_State *L, int idx, KeyJob *j) {
  text_add(j->out, "ref ");
  key_digits(j->out, number_of(L, idx, j));
}

bool key_met(lua_State *L, int idx, KeyJob *j) {
  if (number_of(L, idx, j)) {
    add_number_of(L, idx, j);
    return true;
  }
  lua_pushvalue(L, idx);
  lua_pushinteger(L, ++j->objects);
  lua_rawset(L, j->met);
  return false;
}

bool key_later(lua_State *L, int idx, KeyJob *j) {
  if (j->nest < KEY_DEEPEST) return false;
  add_number_of(L, idx, j);
  lua_pushvalue(L, idx);
  lua_rawseti(L, j->met, ++j->queued);
  return true;
}

bool key_again(lua_State *L, int t, KeyJob *j) {
  lua_pushvalue(L, t);
  bool again = lua_rawget(L, j->met) != LUA_TNIL;
  lua_pop(L, 1);
  if (again) return true;
  lua_pushvalue(L, t);
  lua_pushboolean(L, 1);
  lua_rawset(L, j->met);
  return false;
}

/* ---- functions ---- */

typedef struct Code {
  uint64_t hash;
  bool requires;
} Code;

/* Lua writes each constant of the code by itself. */
static int add_code(lua_State *L, const void *p, size_t n, void *ud) {
  static const char name[] = "require";
  Code *c = ud;
  c->hash = hash_bytes(c->hash, p, n);
  c->requires |= n == sizeof name - 1 && memcmp(p, name, n) == 0;
  return 0;
}

static void add_head(lua_State *L, int f, KeyJob *j) {
  Code c = {0};
  if (lua_iscfunction(L, f)) {
    text_add(j->out, "function ");
    return;
  }
  lua_pushvalue(L, f);
  lua_dump(L, add_code, &c, true);
  lua_pop(L, 1);
  j->requires |= c.requires;
  text_printf(j->out, "function %016llx", (unsigned long long)c.hash);
}

/* The table of globals is left out, because it is the same for all plans. */
static void add_captured(lua_State *L, int f, KeyJob *j) {
  if (lua_iscfunction(L, f)) {
    if (!lua_getupvalue(L, f, 1)) return;
    lua_pop(L, 1);
  }
  text_add(j->out, "(");
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  int globals = lua_gettop(L);
  for (int i = 1; lua_getupvalue(L, f, i); i++) {
    if (!lua_rawequal(L, -1, globals)) key_inner(L, -1, j);
    text_add(j->out, ",");
    lua_settop(L, globals);
  }
  lua_settop(L, globals - 1);
  text_add(j->out, ")");
}

/* ---- coroutines ---- */

/* Appends the value on top of the coroutine's stack, which is popped. */
static void add_from(lua_State *L, lua_State *co, KeyJob *j) {
  lua_xmove(co, L, 1);
  key_inner(L, lua_gettop(L), j);
  text_add(j->out, ",");
  lua_pop(L, 1);
}

/* A coroutine goes on where it stands in its functions, with their locals. */
static void add_coroutine(lua_State *L, int idx, KeyJob *j) {
  lua_State *co = lua_tothread(L, idx);
  lua_Debug ar;
  if (!lua_checkstack(co, 8)) luaL_error(L, "a value is nested too deeply");
  text_add(j->out, "thread ");
  key_digits(j->out, lua_status(co));
  text_add(j->out, "(");
  for (int level = 0; lua_getstack(co, level, &ar); level++) {
    lua_getinfo(co, "fSl", &ar);
    key_digits(j->out, ar.currentline - ar.linedefined);
    text_add(j->out, "@");
    add_from(L, co, j);
    for (int i = 1; lua_getlocal(co, &ar, i); i++) add_from(L, co, j);
  }
  for (int i = 1, n = lua_gettop(co); i <= n; i++) {
    lua_pushvalue(co, i);
    add_from(L, co, j);
  }
  text_add(j->out, ")");
}

/* ---- both ---- */

static void add_whole(lua_State *L, int f, KeyJob *j) {
  luaL_checkstack(L, 12, "a value is nested too deeply");
  j->nest++;
  j->inside++;
  if (lua_isthread(L, f)) {
    add_coroutine(L, f, j);
  } else {
    add_head(L, f, j);
    add_captured(L, f, j);
  }
  j->inside--;
  j->nest--;
}

void key_function(lua_State *L, int f, KeyJob *j) {
  luaL_checkstack(L, 12, "a value is nested too deeply");
  const char *known = known_name(L, f);
  if (known) {
    text_printf(j->out, "function %s", known);
    j->requires |= str_eq(known, "require");
    j->variables |= str_eq(known, "weft.var");
  } else if (!key_met(L, f, j) && !key_later(L, f, j)) {
    add_whole(L, f, j);
  }
}

void key_rest(lua_State *L, KeyJob *j) {
  while (j->done < j->queued && !j->wrong) {
    lua_rawgeti(L, j->met, ++j->done);
    int at = lua_gettop(L);
    text_add(j->out, ";");
    j->inside++;
    if (lua_istable(L, at))
      key_table(L, at, j);
    else
      add_whole(L, at, j);
    j->inside--;
    lua_settop(L, at - 1);
  }
}

void key_surroundings(lua_State *L, KeyJob *j) {
  const LangOptions *o = &j->lp->opt;
  if (j->what || j->wrong) return;
  if (j->requires) {
    text_add(j->out, ";modules ");
    modules_push_loaded(L);
    j->inside++;
    key_value(L, lua_gettop(L), j);
    j->inside--;
    lua_pop(L, 1);
  }
  if (!j->whole || (!j->requires && !j->variables)) return;
  for (int i = 0; i < o->ndefine; i++) {
    text_add(j->out, ";-D ");
    key_digits(j->out, (int64_t)strlen(o->define[i]));
    text_add(j->out, ":");
    text_add(j->out, o->define[i]);
  }
}

void key_end(lua_State *L, KeyJob *j) { lua_settop(L, j->met - 1); }
