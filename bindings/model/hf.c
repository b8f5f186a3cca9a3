/* hf.c - reads a Hugging Face config.json into a Lua table. */
#include <math.h>
#include <unistd.h>

#include "bindings/plan_table/json_value.h"
#include "model.h"

#include "vm/io/json_text.h"

/* Puts false where the list on top, the value of a key, has null: an item that says
 * nothing is one. */
static void mark_items(lua_State *L, const json_t *list) {
  size_t i;
  json_t *item;
  json_array_foreach((json_t *)list, i, item) {
    if (!json_is_null(item)) continue;
    lua_pushboolean(L, 0);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

/* Marks null values, because null is not the same as a missing key: it asks for what
 * Hugging Face derives. */
static void mark_nulls(lua_State *L, const json_t *v) {
  const char *key;
  json_t *item;
  json_object_foreach((json_t *)v, key, item) {
    if (json_is_array(item)) {
      lua_getfield(L, -1, key);
      mark_items(L, item);
      lua_pop(L, 1);
    } else if (json_is_null(item)) {
      lua_pushlightuserdata(L, NULL);
      lua_setfield(L, -2, key);
    }
  }
}

/* Makes infinities of the numbers that stand for them, in all tables of the one on top.
 */
static void mark_infinities(lua_State *L) {
  luaL_checkstack(L, 4, "JSON is nested too deeply");
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    double v = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
    if (lua_istable(L, -1)) mark_infinities(L);
    if (fabs(v) != JSON_INFINITE) continue;
    lua_pushvalue(L, -2);
    lua_pushnumber(L, v < 0 ? -HUGE_VAL : HUGE_VAL);
    lua_rawset(L, -5);
  }
}

static json_t *read_config(lua_State *L, const char *file, weft_error *e) {
  const LangOptions *o = state_of(L)->opt;
  char *text;
  size_t n;
  if (file_read(o->alloc, file, FILE_CODE_MAX, &text, &n, e) != WEFT_OK) return NULL;
  json_t *doc = json_text_python(file, "", text, n, e);
  mem_free(o->alloc, text, n + 1);
  return doc;
}

bool hf_config_push(lua_State *L, const char *file, const char *hub, const char *path,
                    Diags *d) {
  weft_error e = NO_ERROR;
  json_t **doc = json_box(L);
  *doc = read_config(L, file, &e);
  if (*doc && !json_is_object(*doc))
    err_file(&e, WEFT_EFILE, file, 1, "an object was expected");
  if (e.code == WEFT_ENOMEM) longjmp(*arena_guard(d->arena), 1);
  if (e.code != WEFT_OK) {
    if (e.line)
      diag_error(d, "file", path, "%s:%d: %s", file, e.line, e.text);
    else
      diag_error(d, "file", path, "%s: %s", file, e.text)->suggestion =
          access(file, F_OK) == 0 ? NULL
          : hub                   ? hub
                                  : "weft.hf takes a folder that is at hand; nothing is "
                                    "downloaded";
    lua_pop(L, 1);
    return false;
  }
  json_push(L, *doc);
  mark_nulls(L, *doc);
  mark_infinities(L);
  lua_remove(L, -2);
  return true;
}
