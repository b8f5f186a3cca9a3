/* hf.c - a Hugging Face config.json as a Lua table. */
#include "bindings/lang/lang.h"

#include "vm/io/io.h"
#include "vm/io/json_text.h"

static void push_json(lua_State *L, const json_t *v);

static void push_object(lua_State *L, const json_t *v) {
  const char *key;
  json_t *item;
  lua_createtable(L, 0, (int)json_object_size(v));
  json_object_foreach((json_t *)v, key, item) {
    lua_pushstring(L, key);
    push_json(L, item);
    lua_rawset(L, -3);
  }
}

static void push_json(lua_State *L, const json_t *v) {
  size_t i;
  json_t *item;
  luaL_checkstack(L, 4, "config.json is nested too deeply");
  switch (json_typeof(v)) {
  case JSON_OBJECT:
    push_object(L, v);
    return;
  case JSON_ARRAY:
    lua_createtable(L, (int)json_array_size(v), 0);
    json_array_foreach(v, i, item) {
      push_json(L, item);
      lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return;
  case JSON_STRING:
    lua_pushlstring(L, json_string_value(v), json_string_length(v));
    return;
  case JSON_INTEGER:
    lua_pushinteger(L, json_integer_value(v));
    return;
  case JSON_REAL:
    lua_pushnumber(L, json_real_value(v));
    return;
  case JSON_TRUE:
    lua_pushboolean(L, 1);
    return;
  case JSON_FALSE:
    lua_pushboolean(L, 0);
    return;
  case JSON_NULL:
    lua_pushnil(L);
    return;
  }
}

/* A key that is null is not one that is absent: it asks for what Hugging Face derives. */
static void mark_nulls(lua_State *L, const json_t *v) {
  const char *key;
  json_t *item;
  json_object_foreach((json_t *)v, key, item) {
    if (!json_is_null(item)) continue;
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, key);
  }
}

/* The JSON document belongs to a userdata, so that running out of memory in between
 * does not lose it. */
static int drop_json(lua_State *L) {
  json_t **doc = lua_touserdata(L, 1);
  if (*doc) json_decref(*doc);
  *doc = NULL;
  return 0;
}

static json_t *read_config(lua_State *L, const char *file, weft_error *e) {
  const LangOptions *o = state_of(L)->opt;
  char *text;
  size_t n;
  if (file_read(o->alloc, file, FILE_CODE_MAX, &text, &n, e) != WEFT_OK) return NULL;
  json_t *doc = json_text(file, "", text, n, e);
  mem_free(o->alloc, text, n + 1);
  return doc;
}

bool hf_config_push(lua_State *L, const char *file, const char *path, Diags *d) {
  weft_error e;
  err_clear(&e);
  json_t **doc = lua_newuserdatauv(L, sizeof *doc, 0);
  *doc = NULL;
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, drop_json);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  *doc = read_config(L, file, &e);
  if (*doc && !json_is_object(*doc))
    err_file(&e, WEFT_EFILE, file, 1, "an object was expected");
  if (e.code == WEFT_ENOMEM) longjmp(*arena_guard(d->arena), 1);
  if (e.code != WEFT_OK) {
    if (e.line)
      diag_error(d, "file", path, "%s:%d: %s", file, e.line, e.text);
    else
      diag_error(d, "file", path, "%s: %s", file, e.text);
    lua_pop(L, 1);
    return false;
  }
  push_json(L, *doc);
  mark_nulls(L, *doc);
  lua_remove(L, -2);
  return true;
}
