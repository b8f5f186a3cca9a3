/* chat_modules.c - the modules that a template asks for when it is called: their names
 * and the hashes of their texts. */
#include "chat_modules.h"

#include <inttypes.h>

typedef struct ModulesJob {
  int before; /* registry reference */
  Arena *arena;
  const char *given, *out;
} ModulesJob;

static void begin_job(lua_State *L, void *ud) {
  int *before = ud;
  modules_push_loaded(L);
  *before = luaL_ref(L, LUA_REGISTRYINDEX);
}

weft_status chat_modules_begin(LangState *s, int *before, weft_error *e) {
  *before = LUA_NOREF;
  return state_protect(s, begin_job, before, e);
}

static void end_job(lua_State *L, void *ud) {
  const int *before = ud;
  lua_rawgeti(L, LUA_REGISTRYINDEX, *before);
  modules_forget(L, lua_gettop(L));
  luaL_unref(L, LUA_REGISTRYINDEX, *before);
}

void chat_modules_end(LangState *s, int *before) {
  weft_error e = NO_ERROR;
  if (*before != LUA_NOREF) state_protect(s, end_job, before, &e);
  *before = LUA_NOREF;
}

/* ---- lists ---- */

static void add_module(ModulesJob *j, const char *name, uint64_t hash) {
  j->out =
      arena_printf(j->arena, "%s%s %016" PRIx64 "\n", j->out ? j->out : "", name, hash);
}

static void since_job(lua_State *L, void *ud) {
  ModulesJob *j = ud;
  lua_rawgeti(L, LUA_REGISTRYINDEX, j->before);
  int before = lua_gettop(L), texts = before + 1, names = before + 2;
  modules_push_texts(L);
  sorted_keys(L, texts);
  for (int i = 1; lua_rawgeti(L, names, i) != LUA_TNIL; i++, lua_settop(L, names)) {
    const char *name = lua_tostring(L, -1);
    if (lua_getfield(L, before, name) != LUA_TNIL) continue;
    lua_getfield(L, texts, name);
    add_module(j, name, (uint64_t)lua_tointeger(L, -1));
  }
}

weft_status chat_modules_since(LangState *s, int before, Arena *a, const char **out,
                               weft_error *e) {
  ModulesJob j = {.before = before, .arena = a};
  TRY(state_protect(s, since_job, &j, e));
  *out = j.out;
  return WEFT_OK;
}

static void now_job(lua_State *L, void *ud) {
  ModulesJob *j = ud;
  for (const char *p = j->given; *p; p += strcspn(p, "\n"), p += *p == '\n') {
    const char *name = arena_strn(j->arena, p, strcspn(p, " \n"));
    add_module(j, name, modules_hash(L, name));
  }
}

weft_status chat_modules_now(LangState *s, const char *modules, Arena *a,
                             const char **out, weft_error *e) {
  ModulesJob j = {.arena = a, .given = modules};
  TRY(state_protect(s, now_job, &j, e));
  *out = j.out ? j.out : "";
  return WEFT_OK;
}
