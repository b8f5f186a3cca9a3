/* script.c - full Lua states for scripts: made, interrupted, given a file to run. */
#include "script.h"

#include <lualib.h>
#include <stdio.h>

#include "api_doc.h"
#include "bindings/lang/lang.h"
#include "bindings/lang/lib.h"
#include "bindings/object/reasons.h"
#include "library.h"
#include "vm/io/io.h"

static const char host_key = 'h'; /* registry: light userdata, a ScriptHost */
#define TEXT_TYPE  "weft.textbox"
#define ARENA_TYPE "weft.arena"
enum { POLL_STEP = 1000 }; /* instructions between two looks at the flag */

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

/* Coroutines get a copy of the hook when they are made. Once the flag is set it fires at
 * every line and instruction, so that nothing that catches errors goes on. */
static void poll(lua_State *L, lua_Debug *ar) {
  if (script_interrupt(L)) luaL_error(L, "interrupted!");
  if (lua_gethookcount(L) != POLL_STEP) lua_sethook(L, poll, LUA_MASKCOUNT, POLL_STEP);
}

/* The main thread, which may be waiting for this one, must stop too. */
bool script_interrupt(lua_State *L) {
  const StopFlag *stop = script_stop(L);
  if (!stop || !*stop) return false;
  lua_sethook(L, poll, LUA_MASKLINE | LUA_MASKCOUNT, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
  lua_sethook(lua_tothread(L, -1), poll, LUA_MASKLINE | LUA_MASKCOUNT, 1);
  lua_pop(L, 1);
  return true;
}

void script_resume(lua_State *L) {
  lua_sethook(L, poll, LUA_MASKCOUNT, POLL_STEP);
}

/* ---- a state ---- */

/* Work in C of a script has no limit, but it ends when the script is interrupted. */
static void charge(lua_State *L, int64_t steps) {
  if (script_interrupt(L)) luaL_error(L, "interrupted!");
}

static const Meter meter = {charge, (size_t)PTRDIFF_MAX};

static int open_all(lua_State *L) {
  luaL_openlibs(L);
  lua_getglobal(L, "string");
  lib_string(L, &meter);
  lua_getglobal(L, "table");
  lib_table(L, &meter);
  lua_settop(L, 0);
  library_open(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, script_weft);
  lua_setfield(L, -2, "weft");
  return 0;
}

lua_State *script_new(const ScriptHost *h) {
  lua_State *L = luaL_newstate();
  if (!L) return NULL;
  lua_pushcfunction(L, open_all);
  if (lua_pcall(L, 0, 0, 0) != LUA_OK) {
    lua_close(L);
    return NULL;
  }
  script_set_host(L, h);
  if (h && h->stop) script_resume(L);
  return L;
}

/* ---- errors ---- */

int script_handler(lua_State *L) {
  const char *msg = lua_tostring(L, 1);
  if (!msg && luaL_getmetafield(L, 1, "__tostring") != LUA_TNIL) {
    lua_settop(L, 1);
    return 1;
  }
  if (!msg) msg = lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
  luaL_traceback(L, L, msg, 1);
  return 1;
}

/* Upvalue: where the status of an error object goes. Everything becomes a text. */
static int final_handler(lua_State *L) {
  weft_status *st = lua_touserdata(L, lua_upvalueindex(1));
  *st = reasons_status(L, 1);
  if (lua_isstring(L, 1) || luaL_getmetafield(L, 1, "__tostring") == LUA_TNIL)
    return script_handler(L);
  luaL_tolstring(L, 1, NULL);
  luaL_traceback(L, L, lua_tostring(L, -1), 1);
  return 1;
}

/* ---- running a file ---- */

static weft_status read_input(Text *t, weft_error *e) {
  char buf[4096];
  /* A terminal goes on after its end of file: one is enough. */
  for (size_t n; !feof(stdin) && (n = fread(buf, 1, sizeof buf, stdin)) > 0;)
    text_addn(t, buf, n);
  if (t->oom) return err_set(e, WEFT_ENOMEM, "out of memory for the script");
  return ferror(stdin) ? err_set(e, WEFT_EFILE, "cannot read the standard input")
                       : WEFT_OK;
}

/* Leaves the chunk, or the message of the parser with WEFT_EPLAN. */
static weft_status load_script(lua_State *L, const char *path, weft_error *e) {
  char *text;
  size_t n;
  int status;
  if (strcmp(path, "-") == 0) {
    Text *t = script_push_text(L);
    TRY(read_input(t, e));
    status = chunk_load(L, t->s ? t->s : "", t->n, "=stdin");
  } else {
    TRY(file_read(NULL, path, FILE_OWN_MAX, &text, &n, e));
    status = chunk_load(L, text, n, lua_pushfstring(L, "@%s", path));
    lua_remove(L, -2);
    mem_free(NULL, text, n + 1);
  }
  return status == LUA_OK ? WEFT_OK : err_set(e, WEFT_EPLAN, "%s", lua_tostring(L, -1));
}

typedef struct RunJob {
  const char *path;
  int argc;
  char *const *argv;
  weft_error *e;
  weft_status st, raised;
} RunJob;

static void push_args(lua_State *L, const RunJob *j) {
  luaL_checkstack(L, j->argc + 4, "too many arguments");
  lua_createtable(L, j->argc, 2);
  lua_pushliteral(L, "weft lua");
  lua_rawseti(L, -2, -1);
  lua_pushstring(L, j->path);
  lua_rawseti(L, -2, 0);
  for (int i = 0; i < j->argc; i++) {
    lua_pushstring(L, j->argv[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setglobal(L, "arg");
  for (int i = 0; i < j->argc; i++)
    lua_pushstring(L, j->argv[i]);
}

/* Returns nothing, or the message of the parser. */
static int run_job(lua_State *L) {
  RunJob *j = lua_touserdata(L, 1);
  j->st = load_script(L, j->path, j->e);
  if (j->st != WEFT_OK) return j->st == WEFT_EPLAN;
  push_args(L, j);
  lua_call(L, j->argc, 0);
  return 0;
}

weft_status script_run(lua_State *L, const char *path, int argc, char *const *argv,
                       weft_error *e) {
  RunJob j = {.path = path, .argc = argc, .argv = argv, .e = e, .raised = WEFT_EPLAN};
  int top = lua_gettop(L);
  lua_pushlightuserdata(L, &j.raised);
  lua_pushcclosure(L, final_handler, 1);
  lua_pushcfunction(L, run_job);
  lua_pushlightuserdata(L, &j);
  int status = lua_pcall(L, 1, 1, top + 1);
  lua_remove(L, top + 1);
  if (status == LUA_OK) {
    if (j.st != WEFT_EPLAN) lua_settop(L, top);
    return j.st;
  }
  const StopFlag *stop = script_stop(L);
  if (status == LUA_ERRMEM) j.raised = WEFT_ENOMEM;
  if (stop && *stop) j.raised = WEFT_EINTR;
  return err_set(e, j.raised, "%s", lua_tostring(L, -1));
}

/* ---- names that are not there ---- */

int script_unknown(lua_State *L, const char *object) {
  const char *names[64], *key = luaL_tolstring(L, 2, NULL);
  const char *what = strcmp(object, "weft") == 0 ? "" : "weft.";
  int n = api_doc_names(object, names, LEN(names));
  const char *near = value_suggest(key, names, n);
  if (near)
    return luaL_error(L, "%s%s has no '%s' (did you mean '%s'?)", what, object, key,
                      near);
  return luaL_error(L, "%s%s has no '%s'", what, object, key);
}

/* ---- texts ---- */

static int free_text(lua_State *L) {
  text_free(luaL_checkudata(L, 1, TEXT_TYPE));
  return 0;
}

Text *script_push_text(lua_State *L) {
  Text *t = lua_newuserdatauv(L, sizeof *t, 0);
  *t = (Text){0};
  if (luaL_newmetatable(L, TEXT_TYPE)) {
    lua_pushcfunction(L, free_text);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
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
  if (luaL_newmetatable(L, ARENA_TYPE)) {
    lua_pushcfunction(L, free_arena);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
  *a = arena_new(NULL);
  if (!*a) luaL_error(L, "not enough memory");
  return *a;
}
