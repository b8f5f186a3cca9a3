/* repl_host.c - the functions that stdlib/prompt gets from C: tables of fields and calls,
 * files, the terminal. */
#include "repl.h"

#include <dirent.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bindings/schema/schema.h"
#include "bindings/object/result.h"
#include "bindings/script/api_doc.h"
#include "bindings/sandbox/stdlib.h"
#include "bindings/script/library.h"

static const char matches_key =
    'm'; /* registry: keeps the strings of the last matches alive */

/* ---- tables ---- */

/* Pushes a NULL-terminated list. */
static void push_list(lua_State *L, const char *const *s) {
  lua_newtable(L);
  for (int i = 0; s[i]; i++) {
    lua_pushstring(L, s[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Pushes the words of a list of built names, without aliases. */
static void push_names(lua_State *L, Arena *a, const char *names) {
  NameWord w;
  bool later = false;
  int n = 0;
  lua_newtable(L);
  for (const char *p = names; name_next(a, &p, &later, &w);) {
    if (later || w.n != strlen(w.canon)) continue;
    lua_pushstring(L, w.canon);
    lua_rawseti(L, -2, ++n);
  }
}

static void push_field(lua_State *L, Arena *a, const Field *f) {
  bool name = f->type == FIELD_NAME, named = f->type == FIELD_NAMED;
  lua_createtable(L, 0, 8);
  set_text(L, "scope", f->scope);
  set_text(L, "key", f->key);
  set_integer(L, "number", f - schema);
  if (f->type == FIELD_ALIAS)
    set_text(L, "alias", f->names);
  else if (!name && f->type != FIELD_NOOP)
    set_text(L, "tables", f->names);
  if (name || named) {
    push_names(L, a, f->names);
    lua_setfield(L, -2, "values");
  }
  set_boolean(L, "named", named);
}

static int push_schema(lua_State *L) {
  Arena *a = script_push_arena(L);
  lua_newtable(L);
  for (int i = 0, n = 0; schema[i].scope; i++) {
    if (schema[i].type == FIELD_REFUSED) continue; /* refused fields are not suggested */
    push_field(L, a, &schema[i]);
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

/* texts(field number): its form, default and meaning. */
static int field_texts(lua_State *L) {
  const Field *f = &schema[luaL_checkinteger(L, 1)];
  schema_form(f, script_push_text(L));
  script_end_text(L);
  schema_default(f, script_push_text(L));
  script_end_text(L);
  lua_pushstring(L, f->doc);
  return 3;
}

static int push_api(lua_State *L) {
  lua_newtable(L);
  for (int i = 0; api_doc[i].object; i++) {
    lua_createtable(L, 0, 5);
    set_text(L, "object", api_doc[i].object);
    set_text(L, "name", api_doc[i].name);
    set_text(L, "form", api_doc[i].form);
    set_text(L, "doc", api_doc[i].doc);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* files(folder): the names in it, each ended by a zero byte; names of folders end with a
 * slash. */
static int files(lua_State *L) {
  const char *folder = luaL_checkstring(L, 1);
  Text *t = script_push_text(L);
  DIR *d = opendir(*folder ? folder : ".");
  for (struct dirent *f; d && (f = readdir(d));) {
    struct stat s;
    if (str_eq(f->d_name, ".") || str_eq(f->d_name, "..")) continue;
    bool inner = fstatat(dirfd(d), f->d_name, &s, 0) == 0 && S_ISDIR(s.st_mode);
    text_add(t, f->d_name);
    text_addn(t, "/", inner);
    text_addn(t, "", 1);
  }
  if (d) closedir(d);
  script_end_text(L);
  return 1;
}

/* ---- the terminal and the loop ---- */

static Repl *repl_of(lua_State *L) { return lua_touserdata(L, lua_upvalueindex(1)); }

static int width(lua_State *L) {
  struct winsize w;
  bool sized = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20;
  lua_pushinteger(L, sized ? w.ws_col - 1 : 79);
  return 1;
}

/* write(text [, "error"]) */
static int write_text(lua_State *L) {
  size_t n;
  const char *s = luaL_checklstring(L, 1, &n);
  FILE *f = lua_isnoneornil(L, 2) ? stdout : stderr;
  fflush(stdout);
  fwrite(s, 1, n, f);
  fflush(f);
  return 0;
}

static int quit(lua_State *L) {
  repl_of(L)->quit = true;
  return 0;
}

static int timing(lua_State *L) {
  repl_of(L)->timing = lua_toboolean(L, 1);
  return 0;
}

static int remember(lua_State *L) {
  input_remember(repl_of(L)->input, luaL_checkstring(L, 1));
  return 0;
}

/* eval(code) runs and times it: "done", "incomplete" or "failed". */
static int eval(lua_State *L) {
  static const char *const names[] = {"done", "incomplete", "failed"};
  Repl *r = repl_of(L);
  size_t n;
  const char *code = luaL_checklstring(L, 1, &n);
  bool always = r->timing;
  r->timing = true;
  EvalResult result = repl_eval(r, code, n);
  r->timing = always;
  lua_pushstring(L, names[result]);
  return 1;
}

/* Sets `define` to { NAME = value } and `set` to a list of { path =, value = }; NAME
 * alone, as in -D NAME, is true. */
static void add_options(lua_State *L, const Cli *cli) {
  lua_newtable(L);
  for (int i = 0; i < cli->ndefine; i++) {
    const char *text = cli->define[i], *equals = strchr(text, '=');
    lua_pushlstring(L, text, equals ? (size_t)(equals - text) : strlen(text));
    if (equals)
      lua_pushstring(L, equals + 1);
    else
      lua_pushboolean(L, 1);
    lua_rawset(L, -3);
  }
  lua_setfield(L, -2, "define");
  lua_newtable(L);
  for (int i = 0; i < cli->nset; i++) {
    const char *equals = strchr(cli->set[i], '=');
    lua_createtable(L, 0, 2);
    lua_pushlstring(L, cli->set[i], (size_t)(equals - cli->set[i]));
    lua_setfield(L, -2, "path");
    set_text(L, "value", equals + 1);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "set");
}

/* The functions that depend on the current Repl. */
static void add_session(lua_State *L, Repl *r) {
  static const luaL_Reg loop[] = {
      {"width", width},       {"write", write_text}, {"quit", quit}, {"timing", timing},
      {"remember", remember}, {"eval", eval},        {NULL, NULL}};
  lua_pushlightuserdata(L, r);
  luaL_setfuncs(L, loop, 1);
  add_options(L, r->cli);
  if (r->cli->narg) set_text(L, "file", r->cli->arg[0]);
  set_integer(L, "no_file", WEFT_EFILE);
  set_boolean(L, "talks", r->input != NULL);
  set_boolean(L, "colour", r->colour);
  lua_getglobal(L, "weft");
  lua_getfield(L, -1, "load");
  lua_setfield(L, -3, "load");
  lua_setfield(L, -2, "weft");
}

/* about(file): the comment that a file of the library begins with; nil: there is none of
 * this name. */
static int file_about(lua_State *L) {
  const StdlibFile *f = stdlib_find(luaL_checkstring(L, 1));
  luaL_Buffer b;
  if (!f) return 0;
  luaL_buffinit(L, &b);
  for (const char *s = f->text; strncmp(s, "--", 2) == 0;) {
    const char *end = strchr(s, '\n');
    if (!end) break;
    s += s[2] == ' ' ? 3 : 2;
    luaL_addlstring(&b, s, (size_t)(end + 1 - s));
    s = end + 1;
  }
  luaL_pushresult(&b);
  return 1;
}

void repl_provide(lua_State *L, Repl *r) {
  static const luaL_Reg facts[] = {{"schema", push_schema}, {"texts", field_texts},
                                   {"api", push_api},       {"files", files},
                                   {"about", file_about},   {NULL, NULL}};
  luaL_checkstack(L, 12, NULL);
  luaL_newlib(L, facts);
  push_names(L, script_push_arena(L), SCHEDULE_NAMES);
  lua_setfield(L, -3, "schedules");
  lua_pop(L, 1);
  push_list(L, tp_style_names());
  lua_setfield(L, -2, "styles");
  push_list(L, axes_names());
  lua_setfield(L, -2, "axes");
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_setfield(L, -2, "globals");
  if (r) add_session(L, r);
  library_provide(L, "prompt/host");
}

/* ---- completion ---- */

typedef struct Asked {
  const char *text;
  int cursor;
  EditMatches *m;
} Asked;

/* The strings and their list stay in the registry until the next call. */
static int find_matches(lua_State *L) {
  Asked *a = lua_touserdata(L, 1);
  library_push(L, "prompt/complete");
  lua_pushlstring(L, a->text, (size_t)a->cursor);
  lua_call(L, 1, 1);
  int n = (int)lua_rawlen(L, 2);
  const char **text = texts_of(L, 2);
  lua_setfield(L, 2, "texts");
  lua_getfield(L, 2, "replaces");
  lua_getfield(L, 2, "suffix");
  *a->m = (EditMatches){.from = a->cursor - (int)lua_tointeger(L, 3),
                        .n = n,
                        .text = text,
                        .suffix = lua_tostring(L, 4)};
  lua_settop(L, 2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &matches_key);
  return 0;
}

void repl_complete(lua_State *L, const char *text, int cursor, EditMatches *m) {
  Asked a = {text, cursor, m};
  *m = (EditMatches){.from = cursor};
  lua_pushcfunction(L, find_matches);
  lua_pushlightuserdata(L, &a);
  if (lua_pcall(L, 1, 0, 0) == LUA_OK) return;
  lua_pop(L, 1);
  m->n = 0;
}

/* ---- help ---- */

int repl_help(lua_State *L) {
  int n = lua_gettop(L);
  library_push(L, "prompt/help");
  lua_getfield(L, -1, "about");
  lua_pushboolean(L, n > 0);
  if (n)
    lua_pushvalue(L, 1);
  else
    lua_pushnil(L);
  lua_call(L, 2, 2);
  if (lua_isnil(L, -2)) return luaL_error(L, "%s", lua_tostring(L, -1));
  library_push(L, "prompt/say");
  lua_getfield(L, -1, "line");
  lua_pushvalue(L, -4);
  lua_call(L, 1, 0);
  return 0;
}
