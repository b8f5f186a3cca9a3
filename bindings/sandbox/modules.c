/* modules.c - require: files below the plan's folder and the embedded standard library.
 */
#include "sandbox.h"
#include "stdlib.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "length.h"
#include "lua_fields.h"
#include "vm/io/io.h"

enum { PIECE = 4096 };
static const char loaded_key = 'l', library_key = 'b', texts_key = 't', loading = 0;

/* The rest of a text that Lua compiles. */
typedef struct Source {
  const char *text;
  size_t n;
} Source;

/* Passes a plan to Lua's parser in pieces, so that compiling can be interrupted: it takes
 * long for texts with many labels. */
static const char *next_piece(lua_State *L, void *ud, size_t *n) {
  Source *s = ud;
  const char *piece = s->text;
  *n = MIN(s->n, (size_t)PIECE);
  s->text += *n;
  s->n -= *n;
  if (state_counts(L)) state_charge(L, (int64_t)*n / 64);
  return piece;
}

int chunk_load(lua_State *L, const char *text, size_t n, const char *name) {
  /* Skips a byte order mark of UTF-8. */
  if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3, n -= 3;
  /* Skips a first line for the shell, but not its newline, so that lines keep their
   * numbers. */
  if (n && *text == '#') {
    const char *nl = memchr(text, '\n', n);
    size_t skip = nl ? (size_t)(nl - text) : n;
    text += skip;
    n -= skip;
  }
  return lua_load(L, next_piece, &(Source){text, n}, name, "t");
}

/* ---- the library ---- */

const StdlibFile *stdlib_find(const char *name) {
  for (const StdlibFile *f = stdlib_files; f->name; f++)
    if (strcmp(f->name, name) == 0) return f;
  return NULL;
}

/* Files of the library require each other by weft's require, which scripts, whose own is
 * Lua's, do not have: gives it to the function on top. */
static void give_require(lua_State *L) {
  int file = lua_gettop(L);
  bool has =
      lua_getglobal(L, "require") && lua_tocfunction(L, file + 1) == modules_require;
  if (!has) {
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, modules_require);
    lua_setfield(L, -2, "require");
    lua_createtable(L, 0, 1);
    lua_pushglobaltable(L);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_setupvalue(L, file, 1);
  }
  lua_settop(L, file);
}

bool stdlib_push(lua_State *L, const char *name) {
  luaL_checkstack(L, 8, NULL); /* seven, in give_require */
  registry_table(L, &library_key);
  if (lua_getfield(L, -1, name) != LUA_TNIL) {
    lua_remove(L, -2);
    return true;
  }
  lua_pop(L, 1);
  const StdlibFile *f = stdlib_find(name);
  if (!f) {
    lua_pop(L, 1);
    return false;
  }
  const char *chunk = lua_pushfstring(L, "@stdlib/%s.lua", name);
  if (chunk_load(L, f->text, f->n, chunk) != LUA_OK) lua_error(L);
  give_require(L);
  length_function(L);
  lua_call(L, 0, 1);
  lua_remove(L, -2);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, name);
  lua_remove(L, -2);
  return true;
}

const char *const *stdlib_names(Arena *a, const char *folder, int *n) {
  size_t len = strlen(folder);
  VEC(const char *) v = {0};
  for (const StdlibFile *f = stdlib_files; f->name; f++)
    if (strncmp(f->name, folder, len) == 0 && f->name[len] == '/')
      *VEC_PUSH(a, v) = f->name + len + 1;
  *n = v.n;
  return v.at;
}

/* ---- require ---- */

/* Whether a module name is valid: "lib.models" or "lib/models", words of letters, digits,
 * - and _. */
static bool valid_name(const char *s) {
  bool word = false;
  for (; *s; s++) {
    bool sep = *s == '.' || *s == '/';
    if (!sep && !isalnum((unsigned char)*s) && *s != '_' && *s != '-') return false;
    if (sep && !word) return false;
    word = !sep;
  }
  return word;
}

bool path_below(const char *file, const char *dir) {
  char f[PATH_MAX], d[PATH_MAX];
  if (!realpath(file, f) || !realpath(*dir ? dir : ".", d)) return false;
  size_t n = strlen(d);
  return strncmp(f, d, n) == 0 && (f[n] == '/' || d[n - 1] == '/');
}

/* Pushes the path of module `name`, with slashes for dots. */
static const char *module_path(lua_State *L, const char *dir, const char *name) {
  const char *slashed = luaL_gsub(L, name, ".", "/");
  const char *s = *dir ? lua_pushfstring(L, "%s/%s.lua", dir, slashed)
                       : lua_pushfstring(L, "%s.lua", slashed);
  lua_remove(L, -2);
  return s;
}

/* Never 0, which stands for a text that is not there. */
static uint64_t hash_text(const char *text, size_t n) {
  uint64_t h = hash_bytes(0, text, n);
  return h ? h : 1;
}

static void note_text(lua_State *L, const char *name, lua_Integer hash) {
  registry_table(L, &texts_key);
  lua_pushinteger(L, hash);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

/* Leaves the module's function. */
static void load_module(lua_State *L, const char *name) {
  LangState *s = state_of(L);
  const char *path = module_path(L, s->dir, name);
  const char *chunk = lua_pushfstring(L, "@%s", path);
  note_text(L, name, 0);
  if (!path_below(path, s->dir)) {
    static const char *const weft[] = {"weft"};
    bool near = name_suggest(name, weft, 1) != NULL;
    luaL_error(L, "require \"%s\": no file %s below the plan's folder%s", name, path,
               near ? " (did you mean 'weft'?)" : "");
  }
  char *text;
  size_t n;
  weft_error e = NO_ERROR;
  weft_status st = file_read(s->opt->alloc, path, FILE_CODE_MAX, &text, &n, &e);
  if (st == WEFT_ENOMEM) s->no_memory = true;
  if (st != WEFT_OK) luaL_error(L, "require \"%s\": %s", name, e.text);
  lua_Integer hash = (lua_Integer)hash_text(text, n);
  int status = chunk_load(L, text, n, chunk);
  mem_free(s->opt->alloc, text, n + 1);
  if (status != LUA_OK) lua_error(L);
  length_function(L);
  note_text(L, name, hash);
}

/* Replaces the value on top by a deep copy if it is a table; `memo` has the tables copied
 * before. */
static void copy_tables(lua_State *L, int memo) {
  int from = lua_gettop(L);
  if (!lua_istable(L, from)) return;
  luaL_checkstack(L, 8, NULL);
  lua_pushvalue(L, from);
  if (lua_rawget(L, memo) == LUA_TNIL) {
    lua_newtable(L);
    lua_replace(L, from + 1);
    lua_pushvalue(L, from);
    lua_pushvalue(L, from + 1);
    lua_rawset(L, memo);
    for (lua_pushnil(L); state_next(L, from);) {
      copy_tables(L, memo);
      lua_pushvalue(L, -2);
      lua_insert(L, -2);
      lua_rawset(L, from + 1);
    }
  }
  lua_replace(L, from);
}

/* Whether the library itself calls require: it shares modules of which a plan gets
 * copies. */
static bool asked_by_library(lua_State *L) {
  lua_Debug ar;
  return lua_getstack(L, 1, &ar) && lua_getinfo(L, "S", &ar) &&
         strncmp(ar.source, "@stdlib/", 8) == 0;
}

/* require "weft.models.llama" is stdlib/models/llama.lua. The name is at 1. */
static int require_library(lua_State *L, const char *name) {
  bool shared = asked_by_library(L);
  registry_table(L, &loaded_key);
  if (!shared && lua_getfield(L, 2, name) != LUA_TNIL) return 1;
  lua_settop(L, 2);
  const char *file = luaL_gsub(L, name + strlen("weft."), ".", "/");
  if (!stdlib_push(L, file))
    return luaL_error(L,
                      "require \"%s\": the library has no such file; its functions are "
                      "those of require \"weft\"",
                      name);
  if (shared) return 1;
  lua_newtable(L);
  lua_insert(L, -2);
  copy_tables(L, lua_gettop(L) - 1);
  lua_pushvalue(L, -1);
  lua_setfield(L, 2, name);
  return 1;
}

/* Closes what marks module `name` as being loaded: one that raised an error may be asked
 * for again, and does so again. */
static int end_loading(lua_State *L) {
  lua_getiuservalue(L, 1, 1);
  const char *name = lua_tostring(L, -1);
  registry_table(L, &loaded_key);
  if (lua_getfield(L, -1, name) != LUA_TLIGHTUSERDATA) return 0;
  lua_pushnil(L);
  lua_setfield(L, -3, name);
  return 0;
}

/* Marks the module at 1 in the table at 2, until the caller ends. */
static void begin_loading(lua_State *L) {
  lua_newuserdatauv(L, 0, 1);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, end_loading);
  lua_setfield(L, -2, "__close");
  lua_setmetatable(L, -2);
  lua_toclose(L, -1);
  lua_pushvalue(L, 1);
  lua_pushlightuserdata(L, (void *)&loading);
  lua_rawset(L, 2);
}

int modules_require(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  lua_settop(L, 1);
  if (strncmp(name, "weft.", 5) == 0) return require_library(L, name);
  registry_table(L, &loaded_key);
  if (lua_getfield(L, 2, name) == LUA_TLIGHTUSERDATA)
    return luaL_error(L, "require \"%s\": the module requires itself", name);
  if (!lua_isnil(L, -1)) return 1;
  if (strcmp(name, "weft") == 0) {
    LangState *s = state_of(L);
    s->host.push_weft(L, s->opt);
    known_add(L, "weft");
  } else {
    if (!valid_name(name))
      return luaL_error(L,
                        "require \"%s\": a module is \"weft\" or a name like "
                        "\"folder.file\" below the plan's folder",
                        name);
    begin_loading(L);
    load_module(L, name);
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    if (lua_isnil(L, -1)) {
      lua_pushboolean(L, 1);
      lua_replace(L, -2);
    }
  }
  lua_pushvalue(L, -1);
  lua_setfield(L, 2, name);
  return 1;
}

/* ---- what was loaded ---- */

void modules_push_loaded(lua_State *L) {
  luaL_checkstack(L, 8, NULL);
  lua_newtable(L);
  int to = lua_gettop(L);
  registry_table(L, &loaded_key);
  for (lua_pushnil(L); state_next(L, to + 1); lua_settop(L, to + 2)) {
    if (lua_islightuserdata(L, to + 3) || str_eq(lua_tostring(L, to + 2), "weft"))
      continue;
    lua_pushvalue(L, to + 2);
    lua_pushvalue(L, to + 3);
    lua_rawset(L, to);
  }
  lua_settop(L, to);
}

void modules_push_texts(lua_State *L) {
  luaL_checkstack(L, 8, NULL);
  registry_table(L, &texts_key);
}

void modules_forget(lua_State *L, int idx) {
  idx = lua_absindex(L, idx);
  modules_push_loaded(L);
  int now = lua_gettop(L);
  registry_table(L, &loaded_key);
  registry_table(L, &texts_key);
  for (lua_pushnil(L); state_next(L, now); lua_settop(L, now + 3)) {
    const char *name = lua_tostring(L, now + 3);
    if (lua_getfield(L, idx, name) != LUA_TNIL) continue;
    for (int t = now + 1; t <= now + 2; t++) {
      lua_pushnil(L);
      lua_setfield(L, t, name);
    }
  }
  lua_settop(L, now - 1);
}

uint64_t modules_hash(lua_State *L, const char *name) {
  LangState *s = state_of(L);
  char *text;
  size_t n;
  const char *path = module_path(L, s->dir, name);
  bool there = valid_name(name) && path_below(path, s->dir) &&
               file_read(s->opt->alloc, path, FILE_CODE_MAX, &text, &n, NULL) == WEFT_OK;
  uint64_t h = there ? hash_text(text, n) : 0;
  if (there) mem_free(s->opt->alloc, text, n + 1);
  lua_pop(L, 1);
  return h;
}
