/* model_config.c - keys of a model's config, as the user, a preset or a file has them, on
 * top of the architecture's defaults. */
#include "model_int.h"

#include <math.h>

#include "bindings/plan_table/json_value.h"
#include "bindings/schema/schema.h"
#include "special_ids.h"

static bool in_set(lua_State *L, int arch, const char *set, int key) {
  bool yes = false;
  if (field_push(L, arch, set) == LUA_TTABLE) {
    lua_pushvalue(L, key);
    yes = lua_rawget(L, -2) != LUA_TNIL;
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return yes;
}

/* Pushes the config key that the key at `key` stands for. */
static void push_target(lua_State *L, int arch, int key) {
  if (field_push(L, arch, "aliases") == LUA_TTABLE) {
    lua_pushvalue(L, key);
    lua_rawget(L, -2);
    lua_remove(L, -2);
    if (!lua_isnil(L, -1)) return;
  }
  lua_pop(L, 1);
  lua_pushvalue(L, key);
}

/* The key of this architecture that other systems call so; NULL: nobody does. */
static const char *key_of_others(Model *m, const char *key) {
  NameWord w;
  bool later = false;
  const char *found = NULL;
  const ForeignName *f = foreign_find(arena_printf(m->arena, "plan.model.%s", key));
  if (!f || f->is != FOREIGN_MODEL || field_push(m->L, m->arch, "defaults") != LUA_TTABLE)
    return f && f->is == FOREIGN_ABSENT ? foreign_says(m->arena, f) : NULL;
  for (const char *p = f->text; !found && name_next(m->arena, &p, &later, &w);
       lua_pop(m->L, 1))
    if (field_push(m->L, -1, w.canon) != LUA_TNIL) found = w.canon;
  lua_pop(m->L, 1);
  return found ? arena_printf(m->arena, "weft's name is %s", found) : NULL;
}

static void unknown_key(Model *m, int key, const char *path) {
  lua_State *L = m->L;
  const char *name = lua_tostring(L, key), *says = key_of_others(m, name);
  VEC(const char *) names = {0};
  static const char *const sets[] = {"defaults", "aliases"};
  for (int i = 0; i < LEN(sets); i++) {
    if (field_push(L, m->arch, sets[i]) == LUA_TTABLE)
      for (lua_pushnil(L); state_next(L, -2); lua_pop(L, 1))
        if (lua_type(L, -2) == LUA_TSTRING)
          *VEC_PUSH(m->arena, names) = arena_str(m->arena, lua_tostring(L, -2));
    lua_pop(L, 1);
  }
  diag_error(m->d, "unknown-field", path, "%s models have no such key", m->lp->arch)
      ->suggestion = says ? says : name_suggest(name, names.at, names.n);
}

/* Whether the value is null; see hf.c. */
static bool is_null(lua_State *L, int value) {
  return lua_islightuserdata(L, value) && !lua_touserdata(L, value);
}

/* Pushes a value, converted to an integer if the default is one; null counts as not
 * given. */
static void push_normal(lua_State *L, int defaults, int target, int value) {
  double v = lua_tonumber(L, value);
  lua_pushvalue(L, target);
  lua_rawget(L, defaults);
  bool real = lua_type(L, -1) == LUA_TNUMBER && !lua_isinteger(L, -1);
  lua_pop(L, 1);
  if (is_null(L, value))
    lua_pushboolean(L, 0);
  else if (lua_type(L, value) != LUA_TNUMBER)
    lua_pushvalue(L, value);
  else if (real)
    lua_pushnumber(L, v);
  else if (v == floor(v) && fabs(v) < 9e15)
    lua_pushinteger(L, (lua_Integer)v);
  else
    lua_pushvalue(L, value);
}

/* A key that is read past, and that a plan has: what says the same elsewhere. */
static void tell_ignored(Model *m, int key, const char *path) {
  lua_State *L = m->L;
  field_push(L, m->arch, "ignored");
  lua_pushvalue(L, key);
  if (lua_rawget(L, -2) == LUA_TSTRING)
    diag_warn(m->d, "no-effect", path, "changes nothing: %s", lua_tostring(L, -1));
  lua_pop(L, 2);
}

/* Keeps the id of a special token; false and null: there is none. */
static void keep_id(Model *m, int key, int value) {
  lua_State *L = m->L;
  lua_pushvalue(L, key);
  if (lua_toboolean(L, value))
    lua_pushvalue(L, value);
  else
    lua_pushlightuserdata(L, NULL);
  lua_rawset(L, m->ids);
}

/* Whether the config has the value at `value` for the key at `target`. */
static bool has_value(Model *m, int target, int value) {
  lua_State *L = m->L;
  stdlib_push(L, "models/config");
  field_push(L, -1, "same");
  lua_remove(L, -2);
  lua_pushvalue(L, target);
  lua_rawget(L, m->config);
  lua_pushvalue(L, value);
  lua_call(L, 2, 1);
  bool yes = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return yes;
}

static void not_read(Model *m, int key) {
  *VEC_PUSH(m->arena, m->unread) = arena_str(m->arena, lua_tostring(m->L, key));
}

/* Puts the value on top, of the key at `key` in a file, which may have several names of
 * the key at `target`. Which of them a class reads is its own affair, so that they have
 * to agree; null says nothing where another one does. A name of weft's that the class
 * does not know counts as no name, and is told unless it says what is so anyway. */
static void put_read(Model *m, int target, int key, bool null) {
  lua_State *L = m->L;
  int value = lua_gettop(L);
  if (m->file && in_set(L, m->arch, "not_of_files", key)) {
    if (!null && !has_value(m, target, value)) not_read(m, key);
    return;
  }
  lua_pushvalue(L, target);
  if (lua_rawget(L, m->said) != LUA_TNIL) {
    if (!null && !has_value(m, target, value))
      diag_error(m->d, "alias", m->path, "%s: %s and %s are one key, with two values",
                 m->file ? m->file : "the preset", lua_tostring(L, -1),
                 lua_tostring(L, key));
    return;
  }
  if (!null) {
    lua_pushvalue(L, target);
    lua_pushvalue(L, key);
    lua_rawset(L, m->said);
  }
  lua_pushvalue(L, target);
  lua_pushvalue(L, value);
  lua_rawset(L, m->config);
}

/* Stack: key, value at the top. `path` NULL: not written by the user, so unknown keys
 * with a value other than false are only collected. */
static void put_key(Model *m, const char *path) {
  lua_State *L = m->L;
  int value = lua_gettop(L), key = value - 1;
  if (path) path = path_join(m->arena, path, L, key);
  if (in_set(L, m->arch, "ignored", key)) {
    /* top_k of a config.json is about sampling; written in a plan, it is about experts.
     */
    if (path && key_of_others(m, lua_tostring(L, key))) unknown_key(m, key, path);
    if (path) tell_ignored(m, key, path);
    if (path && special_ids_has(lua_tostring(L, key))) keep_id(m, key, value);
    return;
  }
  push_target(L, m->arch, key);
  int target = value + 1;
  field_push(L, m->arch, "defaults");
  lua_pushvalue(L, target);
  if (lua_rawget(L, value + 2) == LUA_TNIL) {
    if (path)
      unknown_key(m, key, path);
    else if (lua_toboolean(L, value) && !is_null(L, value))
      not_read(m, key);
    return;
  }
  if (path) {
    lua_pushvalue(L, target);
    if (lua_rawget(L, m->written) != LUA_TNIL) {
      diag_error(m->d, "alias", path,
                 "is another name of plan.model.%s, which is given "
                 "too",
                 lua_tostring(L, -1));
      return;
    }
    lua_pushvalue(L, target);
    lua_pushvalue(L, key);
    lua_rawset(L, m->written);
  }
  /* Classes put their own table where a file has null. */
  if (is_null(L, value) && lua_istable(L, value + 3)) return;
  push_normal(L, value + 2, target, value);
  if (!path) {
    put_read(m, target, key, is_null(L, value));
    return;
  }
  lua_pushvalue(L, target);
  lua_insert(L, -2);
  lua_rawset(L, m->config);
}

/* Keys of weft.hf that are about its files and not of the config. */
static bool of_weights(const char *key) {
  return str_eq(key, "weights") || str_eq(key, "new_tokens");
}

void config_overlay(Model *m, int src, const char *path) {
  lua_State *L = m->L;
  luaL_checkstack(L, 20, NULL);
  if (!sorted_keys(L, src)) {
    diag_error(m->d, "type", path ? path : "model", "the keys of a config are names");
    return;
  }
  lua_newtable(L);
  m->said = lua_gettop(L);
  int keys = m->said - 1;
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, m->said)) {
    if (lua_isinteger(L, -1) && lua_tointeger(L, -1) == 1) continue;
    if (lua_type(L, -1) == LUA_TSTRING) {
      if (m->hf && path && of_weights(lua_tostring(L, -1))) continue;
      lua_pushvalue(L, -1);
      lua_rawget(L, src);
      put_key(m, path);
    } else if (path) {
      diag_error(m->d, "unknown-field", path_join(m->arena, path, L, m->said + 1),
                 "a list item is not expected here");
    }
  }
  lua_settop(L, keys - 1);
}

/* Tells the problems of the list at the top of the stack, and pops it. */
static void tell_problems(Model *m) {
  lua_State *L = m->L;
  int list = lua_gettop(L);
  for (int i = 1; lua_istable(L, list) && lua_rawgeti(L, list, i) == LUA_TTABLE; i++) {
    field_push(L, -1, "message");
    field_push(L, -2, "severity");
    field_push(L, -3, "key");
    lua_pushvalue(L, -1);
    if (lua_rawget(L, m->written) == LUA_TNIL) lua_pop(L, 1);
    const char *path = path_join(m->arena, "model", L, lua_gettop(L));
    const char *text = lua_tostring(L, list + 2);
    if (str_eq(lua_tostring(L, list + 3), "warning"))
      diag_warn(m->d, "model", path, "%s", text);
    else
      diag_error(m->d, "model", path, "%s", text);
    lua_settop(L, list);
  }
  lua_settop(L, list - 1);
}

void config_ids(Model *m) {
  lua_State *L = m->L;
  Text text = {.alloc = arena_allocator(m->arena)};
  Json j = {.out = &text};
  lua_pushnil(L);
  if (!lua_next(L, m->ids)) return;
  lua_pop(L, 2);
  stdlib_push(L, "models/config");
  field_push(L, -1, "check_ids");
  lua_remove(L, -2);
  lua_pushvalue(L, m->ids);
  field_push(L, m->config, "vocab_size");
  lua_call(L, 2, 1);
  tell_problems(m);
  lua_pushvalue(L, m->ids);
  json_value(L, NULL, &j);
  m->lp->special_ids = arena_take(m->arena, &text);
}

void config_check(Model *m) {
  lua_State *L = m->L;
  if (field_push(L, m->arch, "check") != LUA_TFUNCTION) {
    lua_pop(L, 1);
    return;
  }
  lua_pushvalue(L, m->config);
  lua_call(L, 1, 1);
  tell_problems(m);
}

/* Calls a function of models/changed.lua. */
static void call_changed(Model *m, const char *name, int results) {
  lua_State *L = m->L;
  stdlib_push(L, "models/changed");
  field_push(L, -1, name);
  lua_remove(L, -2);
  lua_pushvalue(L, m->arch);
  lua_pushvalue(L, m->base);
  lua_pushvalue(L, m->config);
  lua_pushvalue(L, m->written);
  lua_call(L, 4, results);
}

void config_write(Model *m, int src) {
  lua_State *L = m->L;
  lua_newtable(L);
  m->base = lua_gettop(L);
  for (lua_pushnil(L); state_next(L, m->config);) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, m->base);
  }
  int errors = m->d->errors;
  config_overlay(m, src, "model");
  if (m->d->errors == errors) call_changed(m, "settle", 0);
}

void config_check_read(Model *m) {
  call_changed(m, "unread", 1);
  tell_problems(m);
}
