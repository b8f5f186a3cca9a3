/* runner.c - creates Lua states for scripts and runs files in them. */
#include "runner.h"

#include <lualib.h>
#include <stdio.h>

#include "bindings/sandbox/sandbox.h"
#include "bindings/sandbox/lib.h"
#include "bindings/object/reasons.h"
#include "bindings/script/library.h"
#include "vm/io/io.h"

/* ---- a state ---- */

/* C functions called by a script have no limit of work, but end when the script is
 * interrupted. In a sweep there is no hook: the sweep ends itself. */
static void charge(lua_State *L, int64_t steps) {
  if (lua_gethook(L) && script_interrupt(L)) luaL_error(L, "interrupted!");
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

#define IN_LIBRARY "stdlib/"

/* Pushes the calls that led here, with a newline before each. Those inside the library
 * are left out where it refuses what a script wrote: the message has the script's line.
 */
static void push_calls(lua_State *L, const char *msg) {
  luaL_traceback(L, L, "", 1);
  const char *all = lua_tostring(L, -1), *line = all;
  if (strncmp(msg, IN_LIBRARY, strlen(IN_LIBRARY)) == 0) return; /* its own fault */
  if (!strstr(all, "\n\t" IN_LIBRARY)) return;
  luaL_Buffer b;
  int calls = 0;
  luaL_buffinit(L, &b);
  while ((line = strchr(line, '\n'))) {
    size_t n = 1 + strcspn(line + 1, "\n");
    bool library = strncmp(line, "\n\t" IN_LIBRARY, 2 + strlen(IN_LIBRARY)) == 0 ||
                   strncmp(line, "\n\t[C]:", 6) == 0;
    if (!library) luaL_addlstring(&b, line, n);
    calls += !library && line[1] == '\t';
    line += n;
  }
  luaL_pushresult(&b);
  if (calls < 2) lua_pushliteral(L, ""); /* the message has that line */
}

/* Pushes the message with the place where it was raised. Its further lines are indented,
 * because only messages of weft begin at the margin. */
static int push_traceback(lua_State *L, const char *msg) {
  push_calls(L, msg);
  lua_pushfstring(L, "%s%s", msg, lua_tostring(L, -1));
  luaL_gsub(L, lua_tostring(L, -1), "\n", "\n  ");
  luaL_gsub(L, lua_tostring(L, -1), "\n  \t", "\n    ");
  return 1;
}

int script_handler(lua_State *L) {
  const char *msg = lua_tostring(L, 1);
  if (!msg && luaL_getmetafield(L, 1, "__tostring") != LUA_TNIL) {
    lua_settop(L, 1);
    return 1;
  }
  if (!msg) msg = lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
  /* The prompt has it as a global, and a script is Lua as elsewhere. */
  if (strstr(msg, "attempt to index a nil value (global 'weft')"))
    msg = lua_pushfstring(L, "%s (write: local weft = require \"weft\")", msg);
  return push_traceback(L, msg);
}

/* Message handler: makes a string of any error. Upvalue: where the status of an error
 * object goes. */
static int final_handler(lua_State *L) {
  weft_status *st = lua_touserdata(L, lua_upvalueindex(1));
  *st = reasons_status(L, 1);
  if (lua_isstring(L, 1) || luaL_getmetafield(L, 1, "__tostring") == LUA_TNIL)
    return script_handler(L);
  luaL_tolstring(L, 1, NULL);
  return push_traceback(L, lua_tostring(L, -1));
}

/* ---- running a file ---- */

static weft_status read_input(Text *t, weft_error *e) {
  char buf[4096];
  /* A terminal can be read on after its end of file; one end is enough. */
  for (size_t n; !feof(stdin) && (n = fread(buf, 1, sizeof buf, stdin)) > 0;)
    text_addn(t, buf, n);
  if (t->oom) return err_set(e, WEFT_ENOMEM, "out of memory for the script");
  return ferror(stdin) ? err_set(e, WEFT_EFILE, "cannot read the standard input")
                       : WEFT_OK;
}

/* Leaves the chunk as a function, or the parser's message and WEFT_EPLAN. */
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
  for (int i = 0; i < j->argc; i++) lua_pushstring(L, j->argv[i]);
}

/* Returns nothing, or the parser's message. */
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
