/* lua_state.c - a private Lua state for one plan, and calls whose errors become
 * diagnostics. limits.c bounds what such a call may use. */
#include "sandbox.h"
#include "length.h"

#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "vm/base/absent.h"
#include "vm/base/strict.h"
#include "vm/io/io.h"

LangState *state_of(lua_State *L) { return *(LangState **)lua_getextraspace(L); }

/* ---- errors ---- */

const char *chunk_file(const char *source) {
  bool named = *source == '@' || (*source == '=' && strcmp(source, "=[C]") != 0);
  return named && strncmp(source, "@stdlib/", 8) != 0 ? source + 1 : NULL;
}

static void remember(LangState *s, const char *file, int line) {
  snprintf(s->file, sizeof s->file, "%s", file);
  s->line = line;
}

/* Finds the frame for the prefix "file:line: " of a message; returns the length of the
 * prefix. Without a prefix, the innermost Lua frame is taken. */
static int find_frame(lua_State *L, LangState *s, const char *msg) {
  lua_Debug ar;
  bool first = true;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    char prefix[LUA_IDSIZE + 16];
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue;
    TextBuf t = textbuf(prefix, sizeof prefix);
    textbuf_printf(&t, "%s:%d: ", ar.short_src, ar.currentline);
    bool match = strncmp(msg, t.s, t.n) == 0;
    if (match || first) remember(s, ar.source + (*ar.source == '@'), ar.currentline);
    if (match) return (int)t.n;
    first = false;
  }
  return 0;
}

/* Takes the place from the message itself: for errors that crossed a coroutine, which
 * adds its own place, and for those of the parser. The stack is gone then. */
static int parse_place(LangState *s, const char *msg) {
  const char *dot = strstr(msg, ".lua:");
  char *end;
  if (!dot || strchr(msg, ' ') < dot) return 0;
  long line = strtol(dot + 5, &end, 10);
  if (line <= 0 || strncmp(end, ": ", 2) != 0) return 0;
  char file[256];
  snprintf(file, sizeof file, "%.*s", (int)(dot + 4 - msg), msg);
  if (strncmp(file, "...", 3) != 0 || !s->file[0]) remember(s, file, (int)line);
  s->line = (int)line;
  return (int)(end + 2 - msg);
}

/* The parser's messages begin with a short form of the chunk's name: the whole name if it
 * fits, else its end after three dots. */
static int syntax_place(LangState *s, const char *name, const char *msg) {
  size_t n = MIN(strlen(name + 1), (size_t)LUA_IDSIZE - 1);
  if (strlen(msg) <= n || msg[n] != ':') return 0;
  char *end;
  long line = strtol(msg + n + 1, &end, 10);
  if (line <= 0 || strncmp(end, ": ", 2) != 0) return 0;
  s->line = (int)line;
  return (int)(end + 2 - msg);
}

static int on_error(lua_State *L) {
  LangState *s = state_of(L);
  if (s->stop != STOP_NONE) return 1;
  const char *msg = plain_tostring(L, 1);
  if (lua_type(L, 1) != LUA_TSTRING && lua_type(L, 1) != LUA_TNUMBER &&
      !luaL_getmetafield(L, 1, "__tostring"))
    msg = lua_pushfstring(L, "the error is a %s, not a string", luaL_typename(L, 1));
  int skip = find_frame(L, s, msg);
  skip += parse_place(s, msg + skip);
  lua_pushstring(L, msg + skip);
  return 1;
}

/* Converts the failure of a lua_pcall. Its message, of which the first `skip` bytes are a
 * place, is on the stack and is popped. */
static weft_status failure(LangState *s, int status, int skip, const char *path, Diags *d,
                           weft_error *e) {
  const char *file = s->file[0] ? s->file : s->path;
  if ((status == LUA_ERRMEM || s->no_memory) && s->stop == STOP_NONE) {
    lua_pop(s->L, 1);
    return err_set(e, WEFT_ENOMEM, "out of memory while evaluating %s", s->path);
  }
  if (s->stop != STOP_NONE) {
    lua_pop(s->L, 1);
    return state_stopped(s, d, e);
  }
  const char *msg = lua_tostring(s->L, -1);
  Diag *g = diag_error(d, status == LUA_ERRSYNTAX ? "syntax" : "runtime", path, "%s",
                       msg ? msg + skip : "error in error handling");
  if (status == LUA_ERRSYNTAX && msg) {
    g->suggestion = settings_hint(d->arena, file);
    if (!g->suggestion) g->suggestion = syntax_hint(msg);
  }
  if (s->line) {
    g->file = arena_str(d->arena, file);
    g->line = s->line;
  }
  lua_pop(s->L, 1);
  return WEFT_EPLAN;
}

weft_status state_call(LangState *s, int nargs, int nresults, const char *path, Diags *d,
                       weft_error *e) {
  int base = lua_gettop(s->L) - nargs;
  lua_pushcfunction(s->L, on_error);
  lua_insert(s->L, base);
  state_arm(s, s->host.on_line != NULL);
  int status = lua_pcall(s->L, nargs, nresults, base);
  state_disarm(s);
  lua_remove(s->L, base);
  if (status == LUA_OK && s->stop == STOP_NONE) return WEFT_OK;
  if (status != LUA_OK) return failure(s, status, 0, path, d, e);
  lua_settop(s->L, base - 1);
  return state_stopped(s, d, e);
}

/* The registry key of the plan's table. */
static const char plan_key = 'p';

void state_keep_plan(LangState *s) { lua_rawsetp(s->L, LUA_REGISTRYINDEX, &plan_key); }

bool state_push_plan(LangState *s) {
  if (!lua_checkstack(s->L, 8)) return false;
  lua_rawgetp(s->L, LUA_REGISTRYINDEX, &plan_key);
  return true;
}

typedef struct Job {
  void (*fn)(lua_State *L, void *ud);
  void *ud;
} Job;

static int run_job(lua_State *L) {
  Job *j = lua_touserdata(L, 1);
  LangState *s = state_of(L);
  if (setjmp(*arena_guard(s->arena))) {
    s->no_memory = true;
    return luaL_error(L, "out of memory");
  }
  lua_settop(L, 0);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &plan_key);
  j->fn(L, j->ud);
  return 0;
}

weft_status state_protect(LangState *s, void (*fn)(lua_State *L, void *ud), void *ud,
                          weft_error *e) {
  Job job = {fn, ud};
  jmp_buf saved;
  memcpy(&saved, arena_guard(s->arena), sizeof saved);
  state_arm(s, false);
  lua_pushcfunction(s->L, run_job);
  lua_pushlightuserdata(s->L, &job);
  int status = lua_pcall(s->L, 1, 0, 0);
  state_disarm(s);
  memcpy(arena_guard(s->arena), &saved, sizeof saved);
  if (status == LUA_OK) return WEFT_OK;
  const char *msg = lua_tostring(s->L, -1);
  bool memory = status == LUA_ERRMEM || s->no_memory;
  weft_status st = s->stop != STOP_NONE
                       ? state_stopped(s, NULL, e)
                       : err_set(e, memory ? WEFT_ENOMEM : WEFT_EINTERNAL, "%s: %s",
                                 s->path, msg ? msg : "unknown error");
  lua_pop(s->L, 1);
  return st;
}

/* ---- life ---- */

/* Creates the plan's entry in the registry, because that may fail and state_keep_plan is
 * not protected. */
static void open_globals(lua_State *L, void *ud) {
  garbage_open(L);
  sandbox_open(L);
  lua_pushboolean(L, 0);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &plan_key);
}

weft_status state_new(const LangOptions *o, Arena *a, const char *path, const char *dir,
                      const StateHost *host, LangState **out, weft_error *e) {
  LangState *s = mem_new(o->alloc, sizeof *s);
  if (!s) return err_set(e, WEFT_ENOMEM, "out of memory for the Lua state");
  s->opt = o;
  s->arena = a;
  s->path = path;
  s->dir = dir;
  s->host = *host;
  s->quiet = host->on_line != NULL;
  limits_open(s);
  if (!s->L) {
    weft_status st = s->stop == STOP_MEMORY ? WEFT_ELIMIT : WEFT_ENOMEM;
    mem_free(o->alloc, s, sizeof *s);
    return err_set(e, st, "not enough memory for a Lua state");
  }
  *(LangState **)lua_getextraspace(s->L) = s;
  weft_status st = state_protect(s, open_globals, NULL, e);
  if (st != WEFT_OK) state_free(s), s = NULL;
  *out = s;
  return st;
}

/* What a call leaves on the stack of a plan is one value more with each call, until Lua
 * writes behind its end. */
static void check_stack(const LangState *s) {
  int left = lua_gettop(s->L);
  if (left == 0 || !strict_asked()) return;
  fprintf(stderr, "%s: %d values are left on the stack of the plan, the first a %s\n",
          s->path, left, luaL_typename(s->L, 1));
  abort();
}

void state_free(LangState *s) {
  if (!s) return;
  check_stack(s);
  lua_close(s->L);
  mem_free(s->opt->alloc, s, sizeof *s);
}

/* Argument: the plan's chunk, loaded by Lua. */
static int run_chunk(lua_State *L) {
  length_function(L);
  lua_call(L, 0, 1);
  return 1;
}

/* The text of the plan's file, which is freed by the caller. */
static weft_status read_plan(LangState *s, Arena *a, char **text, size_t *n,
                             weft_error *e) {
  weft_error why = NO_ERROR;
  weft_status st = file_read(s->opt->alloc, s->path, FILE_CODE_MAX, text, n, &why);
  const char *hint = st == WEFT_EFILE ? folder_hint(a, s->path) : NULL;
  if (hint)
    return err_file(e, st, s->path, 0, "is a folder, a plan is a file (%s)", hint);
  bool here = access(s->path, F_OK) == 0;
  const char *near = st == WEFT_EFILE && !here ? absent_nearest(a, s->path) : NULL;
  if (near)
    return err_file(e, st, s->path, 0, "there is no such file (did you mean \"%s\"?)",
                    near);
  if (st != WEFT_OK && e) *e = why;
  return st;
}

weft_status state_run(LangState *s, Diags *d, weft_error *e) {
  const char *own = s->opt->text;
  char *text = NULL;
  size_t n = own ? strlen(own) : 0;
  if (!own) TRY(read_plan(s, d->arena, &text, &n, e));
  const char *name = arena_printf(d->arena, "@%s", s->path);
  state_arm(s, false);
  int status = chunk_load(s->L, own ? own : text, n, name);
  state_disarm(s);
  if (text) mem_free(s->opt->alloc, text, n + 1);
  if (status == LUA_OK && s->stop == STOP_NONE) {
    lua_pushcfunction(s->L, run_chunk);
    lua_insert(s->L, -2);
    return state_call(s, 1, 1, "", d, e);
  }
  remember(s, s->path, 1);
  int skip = 0;
  if (status == LUA_ERRSYNTAX) skip = syntax_place(s, name, lua_tostring(s->L, -1));
  return failure(s, status, skip, "", d, e);
}
