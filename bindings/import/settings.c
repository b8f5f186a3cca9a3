/* settings.c - takes the path of a settings file, gives its tree. JSON is first held to
 * its own grammar, and then read as the YAML that it is or that json_yaml makes of it,
 * for its lines. */
#include "settings.h"

#include <lauxlib.h>

#include "bindings/sandbox/lua_fields.h"
#include "bindings/script/library.h"
#include "bindings/script/script.h"
#include "vm/base/terminal.h"
#include "vm/base/absent.h"
#include "vm/io/file.h"
#include "vm/io/json_text.h"

static bool ends_in(const char *path, const char *ending) {
  size_t n = strlen(path), m = strlen(ending);
  return n > m && strcasecmp(path + n - m, ending) == 0;
}

/* Files of programs in Python may have its Infinity, which YAML reads as a word. */
static void check_json(lua_State *L, const char *text, size_t n, const char *name) {
  weft_error e = NO_ERROR;
  json_t *v = json_text_python(name, "", text, n, &e);
  if (!v && !e.line) library_error(L, "%s: %s", name, SHOWN(e.text));
  if (!v) library_error(L, "%s:%d: %s", name, e.line, SHOWN(e.text));
  json_decref(v);
}

/* What was opened, closed when Lua collects it: reading may raise. */
typedef struct Opened {
  File f;
  char name[512];
} Opened;

static int close_file(lua_State *L) {
  Opened *o = lua_touserdata(L, 1);
  file_close(&o->f);
  return 0;
}

static Opened *push_opened(lua_State *L) {
  Opened *o = lua_newuserdatauv(L, sizeof *o, 0);
  *o = (Opened){0};
  set_gc(L, "weft.opened", close_file);
  return o;
}

static int raise(lua_State *L, const char *name, const weft_error *e) {
  return library_error(L, "%s: %s", name, e->text);
}

/* The registry's table of settings that a verb has made itself, by path. */
static const char GIVEN[] = "weft.given_settings";

/* give_settings(path, text): reads of this path give the text. */
static int give_settings(lua_State *L) {
  luaL_checkstring(L, 1);
  luaL_checkstring(L, 2);
  lua_settop(L, 2);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, GIVEN);
  lua_insert(L, 1);
  lua_rawset(L, 1);
  return 0;
}

/* Pushes the text that was given for the path, or nil. */
static const char *push_given(lua_State *L, const char *path, size_t *n) {
  luaL_getsubtable(L, LUA_REGISTRYINDEX, GIVEN);
  lua_getfield(L, -1, path);
  lua_remove(L, -2);
  return lua_tolstring(L, -1, n);
}

/* Pushes what was opened, and the bytes of a file of at most SETTINGS_BYTES, which end in
 * a 0 behind `n`. */
static Opened *push_file(lua_State *L, const char *path, const char **text, size_t *n) {
  weft_error e = NO_ERROR;
  Opened *o = push_opened(L);
  show_name(path, o->name, sizeof o->name);
  if ((*text = push_given(L, path, n))) return o;
  if (file_open(path, &o->f, &e) != WEFT_OK) raise(L, o->name, &e);
  if (o->f.size > SETTINGS_BYTES)
    library_error(L, "%s: has %d bytes or more; settings have at most %d", o->name,
                  (int)MIN(o->f.size, INT32_MAX), SETTINGS_BYTES);
  *n = (size_t)o->f.size;
  char *bytes = lua_newuserdatauv(L, *n + 1, 0);
  if (*n && file_at(&o->f, 0, bytes, *n, &e) != WEFT_OK) raise(L, o->name, &e);
  bytes[*n] = 0;
  *text = bytes;
  return o;
}

static int read_settings(lua_State *L) {
  const char *path = luaL_checkstring(L, 1), *text;
  size_t n;
  Opened *o = push_file(L, path, &text, &n);
  if (ends_in(path, ".json") || ends_in(path, ".conf")) {
    check_json(L, text, n, o->name);
    text = json_yaml(L, text, &n);
  }
  yaml_tree(L, text, n, o->name);
  return 1;
}

/* Raises for a control character other than tabs and the ends of lines. */
static void check_characters(lua_State *L, const char *text, size_t n, const char *name) {
  for (size_t i = 0, line = 1; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    line += c == '\n';
    if ((c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 127)
      library_error(L, "%s:%d: is no text: it has a byte of value %d", name, (int)line,
                    c);
  }
}

/* read_text(path): the text of a file, its name as messages have it, { nodes =, depth =
 * }. */
static int read_text(lua_State *L) {
  const char *text;
  size_t n;
  Opened *o = push_file(L, luaL_checkstring(L, 1), &text, &n);
  check_characters(L, text, n, o->name);
  lua_pushlstring(L, text, n);
  lua_pushstring(L, o->name);
  lua_createtable(L, 0, 2);
  set_integer(L, "nodes", SETTINGS_NODES);
  set_integer(L, "depth", SETTINGS_DEPTH);
  return 3;
}

/* absent(path): what to do instead, where this is no file that may be read; or nil. */
static int absent(lua_State *L) {
  const char *path = luaL_checkstring(L, 1), *slash = strrchr(path, '/');
  Arena *a = script_push_arena(L);
  if (setjmp(*arena_guard(a))) return luaL_error(L, "not enough memory");
  const char *folder = slash ? arena_strn(a, path, (size_t)(slash - path)) : ".";
  const char *advice = absent_hub(a, path);
  if (!advice) advice = absent_convert(a, folder, slash ? slash + 1 : path);
  lua_pushstring(L, advice);
  return 1;
}

void settings_provide(lua_State *L) {
  lua_pushcfunction(L, absent);
  library_provide(L, "absent");
  lua_pushcfunction(L, give_settings);
  library_provide(L, "give_settings");
  lua_pushcfunction(L, read_settings);
  library_provide(L, "read_settings");
  lua_pushcfunction(L, read_text);
  library_provide(L, "read_text");
}
