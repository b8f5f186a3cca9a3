/* repl_eval.c - evaluates a chunk; stdlib/prompt prints the result. */
#include "repl.h"

#include <lauxlib.h>

#include "bindings/script/library.h"

enum { FRAMES_SHOWN = 8 };

/* ---- errors ---- */

/* Pushes a traceback of the innermost Lua functions, "stdin:2: in function 'f'", without
 * C functions and the library. A single frame that the message already names is left out.
 */
static void push_frames(lua_State *L, bool always) {
  lua_Debug ar;
  int shown = 0;
  lua_pushliteral(L, "");
  for (int level = 1; shown <= FRAMES_SHOWN && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sln", &ar);
    if (ar.currentline <= 0 || strncmp(ar.source, "@stdlib/", 8) == 0) continue;
    bool main = str_eq(ar.what, "main"), method = ar.name && *ar.namewhat == 'm';
    if (shown++ == FRAMES_SHOWN)
      lua_pushliteral(L, "\n  ...");
    else if (main || !ar.name)
      lua_pushfstring(L, "\n  %s:%d: in %s", ar.short_src, ar.currentline,
                      main ? "the chunk" : "a function");
    else
      lua_pushfstring(L, "\n  %s:%d: in %s '%s'", ar.short_src, ar.currentline,
                      method ? "method" : "function", ar.name);
    lua_concat(L, 2);
  }
  if (shown > 1 || always) return;
  lua_pop(L, 1);
  lua_pushliteral(L, "");
}

/* Upvalue: the Repl. Adds the traceback to string errors; error objects stay as they are.
 */
static int on_error(lua_State *L) {
  Repl *r = lua_touserdata(L, lua_upvalueindex(1));
  lua_settop(L, 1);
  if (!lua_isstring(L, 1)) return 1;
  push_frames(L, *r->cli->stop);
  lua_concat(L, 2);
  return 1;
}

/* File, name and arguments of a function of stdlib/prompt. */
static int call_prompt(lua_State *L) {
  int n = lua_gettop(L);
  library_push(L, lua_pushfstring(L, "prompt/%s", lua_tostring(L, 1)));
  lua_getfield(L, -1, lua_tostring(L, 2));
  lua_replace(L, 2);
  lua_settop(L, n);
  lua_call(L, n - 2, LUA_MULTRET);
  return lua_gettop(L) - 1;
}

/* Pushes call_prompt below the arguments on top. */
static void insert_prompt(lua_State *L, const char *file, const char *name, int nargs) {
  int base = lua_gettop(L) - nargs + 1;
  lua_pushcfunction(L, call_prompt);
  lua_insert(L, base);
  lua_pushstring(L, file);
  lua_insert(L, base + 1);
  lua_pushstring(L, name);
  lua_insert(L, base + 2);
}

/* Prints "error: ..." for the value on top and pops it. A chunk of one line needs no
 * traceback. */
static void show_error(Repl *r) {
  lua_State *L = r->L;
  lua_pushvalue(L, -1);
  lua_pushboolean(L, !r->chunk.n || !memchr(r->chunk.s, '\n', r->chunk.n));
  insert_prompt(L, "show", "failure", 2);
  if (lua_pcall(L, 4, 0, 0) != LUA_OK) {
    lua_pop(L, 1);
    report_error("%s", lua_isstring(L, -1) ? lua_tostring(L, -1)
                                           : "an error without a message");
  }
  lua_pop(L, 1);
}

/* ---- calling ---- */

/* Calls the function below `nargs` arguments, as repl_prompt does. A Ctrl-C that came
 * while it was compiled is for it, too: nothing is called. */
static bool call_chunk(Repl *r, int nargs, int nresults) {
  lua_State *L = r->L;
  int base = lua_gettop(L) - nargs;
  lua_pushlightuserdata(L, r);
  lua_pushcclosure(L, on_error, 1);
  lua_insert(L, base);
  int status = LUA_ERRRUN;
  if (*r->cli->stop) {
    lua_settop(L, base);
    lua_pushliteral(L, "interrupted!");
  } else {
    status = lua_pcall(L, nargs, nresults, base);
  }
  lua_remove(L, base);
  if (*r->cli->stop) {
    putchar('\n'); /* after the ^C of the terminal */
    r->cli->listen();
    script_resume(L);
  }
  if (status == LUA_OK) return true;
  fflush(stdout);
  show_error(r);
  return false;
}

bool repl_prompt(Repl *r, const char *file, const char *name, int nargs, int nresults) {
  if (!lua_checkstack(r->L, LUA_MINSTACK)) return false;
  insert_prompt(r->L, file, name, nargs);
  return call_chunk(r, nargs + 2, nresults);
}

/* ---- chunks ---- */

static bool ends_early(lua_State *L) {
  size_t n;
  const char *msg = lua_tolstring(L, -1, &n);
  return msg && n >= 5 && strcmp(msg + n - 5, "<eof>") == 0;
}

/* Whether the message on top is only about a chunk that begins with an expression. */
static bool blames_begin(lua_State *L, const char *chunk) {
  const char *msg = lua_tostring(L, -1), *near = msg ? strstr(msg, " near '") : NULL;
  if (!near || !strstr(msg, "unexpected symbol")) return false;
  near += strlen(" near '");
  size_t n = strlen(near);
  chunk += strspn(chunk, " \t\n");
  return n > 1 && strncmp(chunk, near, n - 1) == 0;
}

/* Pushes the chunk as a function, as an expression if it is one; else pushes the error
 * message. */
static EvalResult read_chunk(Repl *r, const char *chunk, size_t n) {
  lua_State *L = r->L;
  const char *expression = lua_pushfstring(L, "return %s", chunk);
  int status = luaL_loadbufferx(L, expression, strlen(expression), "=stdin", "t");
  lua_remove(L, -2);
  if (status == LUA_OK) return EVAL_DONE;
  if (luaL_loadbufferx(L, chunk, n, "=stdin", "t") == LUA_OK) {
    lua_remove(L, -2);
    return EVAL_DONE;
  }
  bool early = ends_early(L);
  if (!early && blames_begin(L, chunk)) {
    lua_pop(L, 1);
    early = ends_early(L);
  } else {
    lua_remove(L, -2);
  }
  return early ? EVAL_INCOMPLETE : EVAL_FAILED;
}

EvalResult repl_eval(Repl *r, const char *chunk, size_t n) {
  lua_State *L = r->L;
  int top = lua_gettop(L);
  if (!lua_checkstack(L, LUA_MINSTACK)) return EVAL_FAILED;
  EvalResult result = read_chunk(r, chunk, n);
  if (result == EVAL_FAILED) show_error(r);
  if (result == EVAL_DONE) {
    double from = 1e3 * now_s();
    bool good = call_chunk(r, 0, LUA_MULTRET);
    double took = 1e3 * now_s() - from;
    if (good) {
      lua_pushlstring(L, chunk, n);
      lua_insert(L, top + 1);
      good = repl_prompt(r, "show", "values", lua_gettop(L) - top, 0);
    }
    if (r->timing) printf("%.2f ms\n", took);
    if (!good) result = EVAL_FAILED;
  }
  lua_settop(L, top);
  return result;
}
