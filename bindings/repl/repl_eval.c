/* repl_eval.c - runs what was typed and prints what comes of it. */
#include "repl.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES_SHOWN = 8 };

/* ---- printing ---- */

PrintOptions repl_print_options(const Repl *r) {
  struct winsize w;
  bool sized = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20;
  return (PrintOptions){.depth = 4,
                        .items = 30,
                        .lines = 100,
                        .width = sized ? w.ws_col - 1 : 79,
                        .colour = r->colour};
}

void repl_flush(Repl *r, FILE *f) {
  if (r->out.n) fwrite(r->out.s, 1, r->out.n, f);
  r->out.n = 0;
  fflush(f);
}

void repl_paint(const Repl *r, const char *colour, const char *text, Text *out) {
  text_printf(out, "%s%s%s", r->colour ? colour : "", text, r->colour ? "\033[0m" : "");
}

/* ---- errors ---- */

/* "stdin:2: in function 'f'" for the innermost Lua functions that were running, without
 * those of C. One line that says what the message says is left out. */
static void add_frames(lua_State *L, Text *out, bool always) {
  lua_Debug ar;
  int shown = 0;
  size_t before = out->n;
  for (int level = 1; shown <= FRAMES_SHOWN && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sln", &ar);
    if (ar.currentline <= 0) continue;
    if (shown++ == FRAMES_SHOWN) {
      text_add(out, "\n  ...");
      break;
    }
    bool main = str_eq(ar.what, "main");
    text_printf(out, "\n  %s:%d: in %s", ar.short_src, ar.currentline,
                main      ? "the chunk"
                : ar.name ? *ar.namewhat == 'm' ? "method " : "function "
                          : "a function");
    if (ar.name && !main) text_printf(out, "'%s'", ar.name);
  }
  if (shown == 1 && !always) out->n = before;
}

/* A hint for a name that is not there: the nearest global. Names of three letters are
 * near to too many others. */
static void add_nearest(lua_State *L, const char *msg, Text *out) {
  const char *names[256], *mark = "a nil value (global '", *at = strstr(msg, mark);
  if (!at) return;
  at += strlen(mark);
  const char *name = lua_pushlstring(L, at, strcspn(at, "'"));
  int n = 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING && n < LEN(names))
      names[n++] = lua_tostring(L, -2);
  const char *near = strlen(name) > 3 ? str_nearest(name, names, n) : NULL;
  if (near) text_printf(out, " (did you mean '%s'?)", near);
  lua_pop(L, 2);
}

/* Upvalue: the Repl. Texts get the frames; error objects stay what they are. */
static int on_error(lua_State *L) {
  Repl *r = lua_touserdata(L, lua_upvalueindex(1));
  const char *msg = lua_tostring(L, 1);
  r->out.n = 0;
  if (!msg) return 1;
  text_add(&r->out, msg);
  add_nearest(L, msg, &r->out);
  add_frames(L, &r->out, *r->cli->stop);
  lua_pushlstring(L, r->out.s, r->out.n);
  r->out.n = 0;
  return 1;
}

/* Writes the value at 1 into the output of the Repl at 2. */
static int describe_error(lua_State *L) {
  Repl *r = lua_touserdata(L, 2);
  PrintOptions o = repl_print_options(r);
  repl_print(L, 1, &o, &r->out);
  return 0;
}

/* Places in a chunk of one line say nothing. */
static const char *without_place(const Repl *r, const char *msg) {
  static const char place[] = "stdin:1: ";
  bool one_line = !r->chunk.n || !memchr(r->chunk.s, '\n', r->chunk.n);
  bool here = one_line && strncmp(msg, place, sizeof place - 1) == 0;
  return msg + (here ? sizeof place - 1 : 0);
}

void repl_show_error(Repl *r) {
  lua_State *L = r->L;
  r->out.n = 0;
  const char *msg = lua_tostring(L, -1);
  /* The reasons of weft have their own form. */
  bool own = !msg && luaL_getmetafield(L, -1, "__tostring") != LUA_TNIL;
  if (own) lua_pop(L, 1);
  if (!own) repl_paint(r, "\033[31m", "error: ", &r->out);
  if (msg) {
    text_add(&r->out, without_place(r, msg));
  } else {
    lua_pushcfunction(L, describe_error);
    lua_pushvalue(L, -2);
    lua_pushlightuserdata(L, r);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK) lua_pop(L, 1);
  }
  lua_pop(L, 1);
  if (!r->out.n || r->out.s[r->out.n - 1] != '\n') text_add(&r->out, "\n");
  repl_flush(r, stderr);
}

/* ---- calling ---- */

bool repl_call(Repl *r, int nargs, int nresults) {
  lua_State *L = r->L;
  int base = lua_gettop(L) - nargs;
  lua_pushlightuserdata(L, r);
  lua_pushcclosure(L, on_error, 1);
  lua_insert(L, base);
  r->cli->listen();
  int status = lua_pcall(L, nargs, nresults, base);
  lua_remove(L, base);
  if (*r->cli->stop) {
    putchar('\n'); /* after the ^C of the terminal */
    r->cli->listen();
    script_resume(L);
  }
  if (status == LUA_OK) return true;
  fflush(stdout);
  repl_show_error(r);
  return false;
}

/* Results of an expression: beside each other if that fits, else one below the other. */
static int print_values(lua_State *L) {
  Repl *r = lua_touserdata(L, 1);
  PrintOptions o = repl_print_options(r);
  int n = lua_gettop(L);
  r->out.n = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 2; i <= n; i++) {
      if (i > 2) text_add(&r->out, pass ? "\n" : "\t");
      repl_print(L, i, &o, &r->out);
    }
    bool fits = n == 2 || (!memchr(r->out.s, '\n', r->out.n) && (int)r->out.n < o.width);
    if (fits) break;
    if (!pass) r->out.n = 0;
  }
  text_add(&r->out, "\n");
  return 0;
}

/* Keeps the first of the values from index `from` on as `_`, and prints them. */
static bool take_results(Repl *r, int from, bool quiet) {
  lua_State *L = r->L;
  int n = lua_gettop(L) - from + 1;
  if (n <= 0) return true;
  if (!lua_checkstack(L, 8)) return false;
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_pushliteral(L, "_");
  lua_pushvalue(L, from);
  lua_rawset(L, -3);
  lua_pop(L, 1);
  if (quiet) return true;
  lua_pushcfunction(L, print_values);
  lua_insert(L, from);
  lua_pushlightuserdata(L, r);
  lua_insert(L, from + 1);
  if (!repl_call(r, n + 1, 0)) return false;
  repl_flush(r, stdout);
  return true;
}

/* ---- chunks ---- */

static bool ends_early(lua_State *L) {
  size_t n;
  const char *msg = lua_tolstring(L, -1, &n);
  return msg && n >= 5 && strcmp(msg + n - 5, "<eof>") == 0;
}

/* True if the message on top says only that the chunk begins with an expression. */
static bool blames_begin(lua_State *L, const char *chunk) {
  const char *msg = lua_tostring(L, -1), *near = msg ? strstr(msg, " near '") : NULL;
  if (!near || !strstr(msg, "unexpected symbol")) return false;
  near += strlen(" near '");
  size_t n = strlen(near);
  chunk += strspn(chunk, " \t\n");
  return n > 1 && strncmp(chunk, near, n - 1) == 0;
}

/* Pushes the chunk as a function: as an expression if it is one. Otherwise pushes the
 * message. */
static EvalResult read_chunk(Repl *r, const char *chunk, size_t n) {
  lua_State *L = r->L;
  r->out.n = 0;
  text_add(&r->out, "return ");
  text_addn(&r->out, chunk, n);
  if (luaL_loadbufferx(L, r->out.s, r->out.n, "=stdin", "t") == LUA_OK) return EVAL_DONE;
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

static void warn_of_locals(Repl *r, const char *chunk) {
  chunk += strspn(chunk, " \t\n");
  if (r->warned || strncmp(chunk, "local ", 6) != 0) return;
  r->warned = true;
  repl_paint(r, "\033[33m", "note: ", &r->out);
  text_add(&r->out, "a local ends with its line; without the word it stays\n");
  repl_flush(r, stderr);
}

EvalResult repl_eval(Repl *r, const char *chunk, size_t n) {
  lua_State *L = r->L;
  int top = lua_gettop(L);
  size_t end = n;
  while (end && strchr(" \t\r\n", chunk[end - 1]))
    end--;
  bool quiet = end && chunk[end - 1] == ';';
  if (!lua_checkstack(L, LUA_MINSTACK)) return EVAL_FAILED;
  EvalResult result = read_chunk(r, chunk, n);
  r->out.n = 0;
  if (result == EVAL_FAILED) repl_show_error(r);
  if (result == EVAL_DONE) {
    double from = 1e3 * now_s();
    bool good = repl_call(r, 0, LUA_MULTRET);
    double took = 1e3 * now_s() - from;
    good = good && take_results(r, top + 1, quiet);
    if (r->timing) printf("%.2f ms\n", took);
    if (good)
      warn_of_locals(r, chunk);
    else
      result = EVAL_FAILED;
  }
  lua_settop(L, top);
  return result;
}
