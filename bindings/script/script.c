/* script.c - the host of a script's state, strings, interruption, locale; see script.h.
 */
#include "script.h"

#include "api_doc.h"
#include "bindings/sandbox/sandbox.h"
#include "bindings/sandbox/lua_fields.h"
#include "vm/base/c_locale.h"

static const char host_key = 'h'; /* registry: light userdata, a ScriptHost */
#define TEXT_TYPE   "weft.textbox"
#define ARENA_TYPE  "weft.arena"
#define LOCALE_TYPE "weft.locale"
enum { POLL_STEP = 1000 }; /* instructions between two polls of the flag */

void script_set_host(lua_State *L, const ScriptHost *h) {
  lua_pushlightuserdata(L, (void *)h);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &host_key);
}

const ScriptHost *script_host(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &host_key);
  const ScriptHost *h = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return h;
}

const StopFlag *script_stop(lua_State *L) {
  const ScriptHost *h = script_host(L);
  return h ? h->stop : NULL;
}

/* ---- interruption ---- */

/* A coroutine copies the hook when it is created. Once the flag is set, the hook fires at
 * every line and instruction, so that no code that catches errors can continue. */
static void poll(lua_State *L, lua_Debug *ar) {
  if (script_interrupt(L)) luaL_error(L, "interrupted!");
  if (lua_gethookcount(L) != POLL_STEP) lua_sethook(L, poll, LUA_MASKCOUNT, POLL_STEP);
}

/* The main thread, which may be waiting for this one, must stop as well. */
bool script_interrupt(lua_State *L) {
  const StopFlag *stop = script_stop(L);
  if (!stop || !*stop) return false;
  lua_sethook(L, poll, LUA_MASKLINE | LUA_MASKCOUNT, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
  lua_sethook(lua_tothread(L, -1), poll, LUA_MASKLINE | LUA_MASKCOUNT, 1);
  lua_pop(L, 1);
  return true;
}

void script_resume(lua_State *L) { lua_sethook(L, poll, LUA_MASKCOUNT, POLL_STEP); }

/* ---- unknown names ---- */

int script_unknown(lua_State *L, const char *object) {
  const char *names[64], *key = luaL_tolstring(L, 2, NULL);
  const char *what = strcmp(object, "weft") == 0 ? "" : "weft.";
  int n = api_doc_names(object, names, LEN(names));
  const char *near = name_suggest(key, names, n);
  if (!*what && strcmp(key, "var") == 0)
    return luaL_error(L, "weft has no 'var' in a script: it is of plans, which weft.load "
                         "reads; a script has arg");
  if (near)
    return luaL_error(L, "%s%s has no '%s' (did you mean '%s'?)", what, object, key,
                      near);
  return luaL_error(L, "%s%s has no '%s'", what, object, key);
}

/* ---- strings ---- */

static int free_text(lua_State *L) {
  text_free(luaL_checkudata(L, 1, TEXT_TYPE));
  return 0;
}

Text *script_push_text(lua_State *L) {
  Text *t = lua_newuserdatauv(L, sizeof *t, 0);
  *t = (Text){0};
  set_gc(L, TEXT_TYPE, free_text);
  return t;
}

void script_end_text(lua_State *L) {
  Text *t = lua_touserdata(L, -1);
  if (t->oom) luaL_error(L, "not enough memory");
  lua_pushlstring(L, t->s ? t->s : "", t->n && t->s[t->n - 1] == '\n' ? t->n - 1 : t->n);
  text_free(t);
  lua_remove(L, -2);
}

static int free_arena(lua_State *L) {
  Arena **a = luaL_checkudata(L, 1, ARENA_TYPE);
  arena_free(*a);
  *a = NULL;
  return 0;
}

Arena *script_push_arena(lua_State *L) {
  Arena **a = lua_newuserdatauv(L, sizeof *a, 0);
  *a = NULL;
  set_gc(L, ARENA_TYPE, free_arena);
  *a = arena_new(NULL);
  if (!*a) luaL_error(L, "not enough memory");
  return *a;
}

/* ---- the locale ---- */

static int leave_locale(lua_State *L) {
  c_locale_leave(luaL_checkudata(L, 1, LOCALE_TYPE));
  return 0;
}

void script_in_c_locale(lua_State *L) {
  locale_t *before = lua_newuserdatauv(L, sizeof *before, 0);
  if (luaL_newmetatable(L, LOCALE_TYPE)) {
    lua_pushcfunction(L, leave_locale);
    lua_setfield(L, -2, "__close");
  }
  lua_setmetatable(L, -2);
  *before = uselocale((locale_t)0);
  lua_toclose(L, -1);
  c_locale_take();
}
