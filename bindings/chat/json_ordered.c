/* json_ordered.c - JSON as Lua values that keep the order of fields, which templates
 * write into prompts. */
#include "bindings/plan_table/json_value.h"
#include "template.h"
#include "vm/io/json_text.h"

static void push_object(lua_State *L, const json_t *v) {
  const char *key;
  json_t *item;
  int n = (int)json_object_size(v), i = 0;
  lua_createtable(L, n, n + 1);
  lua_pushboolean(L, 1);
  lua_rawseti(L, -2, 0);
  json_object_foreach((json_t *)v, key, item) {
    lua_pushstring(L, key);
    lua_pushvalue(L, -1);
    lua_rawseti(L, -3, ++i);
    json_push_ordered(L, item);
    lua_rawset(L, -3);
  }
}

static void push_list(lua_State *L, const json_t *v) {
  size_t i;
  json_t *item;
  lua_createtable(L, (int)json_array_size(v), 0);
  json_array_foreach(v, i, item) {
    json_push_ordered(L, item);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

void json_push_ordered(lua_State *L, const json_t *v) {
  luaL_checkstack(L, 6, "JSON is nested too deeply");
  switch (json_typeof(v)) {
  case JSON_OBJECT: push_object(L, v); return;
  case JSON_ARRAY: push_list(L, v); return;
  case JSON_NULL: lua_pushlightuserdata(L, NULL); return;
  default: json_push_scalar(L, v);
  }
}

/* A number or a text by itself is JSON, too, for which the parser needs a list around
 * it. */
static json_t *parse(lua_State *L) {
  size_t n;
  const char *s = luaL_checklstring(L, 1, &n);
  Text list = {0};
  text_addn(&list, "[", 1);
  text_addn(&list, s, n);
  text_addn(&list, "]", 1);
  json_t *doc = list.oom ? NULL : json_text("", "", list.s, list.n, NULL);
  text_free(&list);
  return doc;
}

int json_from_text(lua_State *L) {
  json_t **doc = json_box(L);
  *doc = parse(L);
  if (json_array_size(*doc) != 1) return 0;
  json_push_ordered(L, json_array_get(*doc, 0));
  return 1;
}
