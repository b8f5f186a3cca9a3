/* state.c - a private Lua state for one plan: its allocator with a cap, the hook that
 * counts instructions, and calls whose errors become diagnostics.
 *
 * One count holds all work: instructions by the hook, steps inside of C functions by
 * state_charge, bytes by the allocator. An instruction that compares, converts or hashes
 * texts costs by the longest text that there was: long ones make the hook come sooner. */
#include "lang.h"
#include "length.h"

#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

#include "vm/io/io.h"

enum {
  HOOK_STEP = 1000,  /* instructions between two looks at the count, */
  THREAD_STEP = 100, /* in a coroutine, whose first ones are not noticed */
  FREE_TEXT = 1024,  /* bytes of a text that an instruction may look at */
  STEP_BYTES = 64    /* whose allocation is a step */
};
static const size_t default_memory = (size_t)256 << 20;
static const int64_t default_instructions = 50 * 1000 * 1000;

LangState *state_of(lua_State *L) {
  return *(LangState **)lua_getextraspace(L);
}

/* Lua allows to set a hook at any time, and goes through all calls that are running. */
void state_watch(LangState *s, lua_State *L) {
  int step = MAX((L == s->L ? HOOK_STEP : THREAD_STEP) / s->price, 1);
  int mask = LUA_MASKCOUNT | (L == s->L && s->recording ? LUA_MASKLINE | LUA_MASKRET : 0);
  if (s->stop == STOP_NONE && (lua_gethookcount(L) != step || lua_gethookmask(L) != mask))
    lua_sethook(L, state_hook, mask, step);
}

/* ---- memory ---- */

/* After a refusal Lua collects garbage and asks for the same again. If that is refused
 * too, or something else is asked for, the plan does not fit: the error that Lua raises
 * may be caught, the stop is final. */
static bool refuse(LangState *s, void *p, size_t n) {
  bool again = s->refused == n && s->refused_at == p;
  if (again && s->stop == STOP_NONE) s->stop = STOP_MEMORY;
  s->refused = n;
  s->refused_at = p;
  return true;
}

/* For a new block Lua says in `old` what it is for. */
static void count_bytes(LangState *s, bool text, size_t old, size_t n) {
  s->left -= (int64_t)((n - old) / STEP_BYTES);
  if (!text || n / FREE_TEXT < (size_t)s->price) return;
  s->price = (int)MIN(n / FREE_TEXT + 1, (size_t)INT32_MAX);
  if (s->armed) state_watch(s, s->running);
}

static void *allocate(void *ud, void *p, size_t old, size_t n) {
  LangState *s = ud;
  bool text = !p && old == LUA_TSTRING;
  if (!p) old = 0;
  if (n > old) {
    bool other = s->refused && (s->refused != n || s->refused_at != p);
    if (other && s->stop == STOP_NONE) s->stop = STOP_MEMORY;
    if (s->used - old + n > s->cap && refuse(s, p, n)) return NULL;
    s->refused = 0;
  }
  void *q = mem_resize(s->opt->alloc, p, old, n);
  if (n && !q) return NULL;
  s->used = s->used - old + n;
  if (n > old) count_bytes(s, text, old, n);
  return q;
}

/* ---- instructions ---- */

static int64_t limit_of(const LangState *s) {
  int64_t limit = s->opt->instruction_limit;
  return (limit ? limit : default_instructions) + s->more;
}

static const char *stop_text(LangState *s, char *buf, size_t n) {
  if (s->stop == STOP_INSTRUCTIONS)
    snprintf(buf, n, "the plan was stopped after %lld instructions",
             (long long)limit_of(s));
  else if (s->stop == STOP_MEMORY)
    snprintf(buf, n, "the plan needs more than its limit of %zu MiB of memory",
             s->cap >> 20);
  else
    snprintf(buf, n, "interrupted");
  return buf;
}

/* A refusal that nothing came after was caught, for example by pcall. */
static void note_refusal(LangState *s) {
  if (s->refused && s->stop == STOP_NONE) s->stop = STOP_MEMORY;
}

void state_rethrow(lua_State *L) {
  LangState *s = state_of(L);
  char buf[96];
  note_refusal(s);
  if (s->stop != STOP_NONE) luaL_error(L, "%s", stop_text(s, buf, sizeof buf));
}

/* The innermost line of Lua that is running. */
static void note_place(lua_State *L, LangState *s) {
  lua_Debug ar;
  for (int level = 0; !s->line && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue;
    snprintf(s->file, sizeof s->file, "%s", ar.source + (*ar.source == '@'));
    s->line = ar.currentline;
  }
}

/* Once a limit is hit, the hook is set to fire at every line and instruction of this
 * thread and of the main one, so that no coroutine or pcall goes on. */
static void halt(lua_State *L, LangState *s) {
  int mask = LUA_MASKLINE | LUA_MASKCOUNT;
  lua_sethook(L, state_hook, mask, 1);
  lua_sethook(s->L, state_hook, mask, 1);
  note_place(L, s);
  state_rethrow(L);
}

void state_charge(lua_State *L, int64_t steps) {
  LangState *s = state_of(L);
  s->left -= steps;
  if (s->stop == STOP_NONE && s->left <= 0) s->stop = STOP_INSTRUCTIONS;
  if (s->stop == STOP_NONE && s->opt->stop && *s->opt->stop) s->stop = STOP_INTERRUPT;
  if (s->stop != STOP_NONE) halt(L, s);
}

void state_hook(lua_State *L, lua_Debug *ar) {
  LangState *s = state_of(L);
  if (ar->event == LUA_HOOKCOUNT) {
    int64_t steps = (int64_t)lua_gethookcount(L) * s->price;
    state_watch(s, L);
    state_charge(L, steps);
  } else if (s->stop != STOP_NONE) {
    halt(L, s);
  } else if (s->recording) {
    replay_event(L, ar, s->replay);
  }
}

/* What stopped an earlier call does not stop this one. */
static void arm(LangState *s, bool recording) {
  s->refused = 0;
  s->stop = STOP_NONE;
  s->left = limit_of(s);
  s->line = 0;
  s->file[0] = 0;
  s->recording = recording;
  s->armed = true;
  s->running = s->L;
  state_watch(s, s->L);
}

void state_arm(LangState *s) {
  arm(s, s->replay != NULL);
}

void state_disarm(LangState *s) {
  s->armed = s->recording = false;
  lua_sethook(s->L, NULL, 0, 0);
}

weft_status state_stopped(LangState *s, weft_error *e) {
  char buf[96];
  weft_status st = s->stop == STOP_INTERRUPT ? WEFT_EINTR : WEFT_ELIMIT;
  err_clear(e);
  return err_file(e, st, s->file[0] ? s->file : s->path, s->line, "%s",
                  stop_text(s, buf, sizeof buf));
}

/* ---- errors ---- */

const char *chunk_file(const char *source) {
  bool named = *source == '@' || (*source == '=' && strcmp(source, "=[C]") != 0);
  return named && strncmp(source, "@stdlib/", 8) != 0 ? source + 1 : NULL;
}

static void remember(LangState *s, const char *file, int line) {
  snprintf(s->file, sizeof s->file, "%s", file);
  s->line = line;
}

/* Finds the frame that the prefix "file:line: " of a message speaks of; returns the
 * length of the prefix. Without one, the innermost Lua frame is where it happened. */
static int find_frame(lua_State *L, LangState *s, const char *msg) {
  lua_Debug ar;
  bool first = true;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    char prefix[LUA_IDSIZE + 16];
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue;
    int n = snprintf(prefix, sizeof prefix, "%s:%d: ", ar.short_src, ar.currentline);
    bool match = strncmp(msg, prefix, (size_t)n) == 0;
    if (match || first) remember(s, ar.source + (*ar.source == '@'), ar.currentline);
    if (match) return n;
    first = false;
  }
  return 0;
}

/* For errors that crossed a coroutine, which puts its own place in front, or come from
 * the parser: the stack is gone, the message still begins with the place. */
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

/* The parser's messages begin with the chunk's short name: all of a name that fits,
 * else its end after three dots. */
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
    msg = lua_pushfstring(L, "the error is a %s, not a text", luaL_typename(L, 1));
  int skip = find_frame(L, s, msg);
  skip += parse_place(s, msg + skip);
  lua_pushstring(L, msg + skip);
  return 1;
}

/* What a failed lua_pcall means. The message, whose first `skip` bytes are a place, is on
 * the stack and is popped. */
static weft_status failure(LangState *s, int status, int skip, const char *path, Diags *d,
                           weft_error *e) {
  const char *file = s->file[0] ? s->file : s->path;
  if ((status == LUA_ERRMEM || s->no_memory) && s->stop == STOP_NONE) {
    lua_pop(s->L, 1);
    return err_set(e, WEFT_ENOMEM, "out of memory while evaluating %s", s->path);
  }
  if (s->stop != STOP_NONE) {
    lua_pop(s->L, 1);
    return state_stopped(s, e);
  }
  const char *msg = lua_tostring(s->L, -1);
  Diag *g = diag_error(d, status == LUA_ERRSYNTAX ? "syntax" : "runtime", path, "%s",
                       msg ? msg + skip : "error in error handling");
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
  state_arm(s);
  int status = lua_pcall(s->L, nargs, nresults, base);
  state_disarm(s);
  lua_remove(s->L, base);
  note_refusal(s);
  if (status == LUA_OK && s->stop == STOP_NONE) return WEFT_OK;
  if (status != LUA_OK) return failure(s, status, 0, path, d, e);
  lua_settop(s->L, base - 1);
  return state_stopped(s, e);
}

/* The registry key of the plan's table. */
static const char plan_key = 'p';

void state_keep_plan(LangState *s) {
  lua_rawsetp(s->L, LUA_REGISTRYINDEX, &plan_key);
}

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
  arm(s, false);
  lua_pushcfunction(s->L, run_job);
  lua_pushlightuserdata(s->L, &job);
  int status = lua_pcall(s->L, 1, 0, 0);
  state_disarm(s);
  memcpy(arena_guard(s->arena), &saved, sizeof saved);
  if (status == LUA_OK) return WEFT_OK;
  const char *msg = lua_tostring(s->L, -1);
  bool memory = status == LUA_ERRMEM || s->no_memory;
  weft_status st = s->stop != STOP_NONE
                       ? state_stopped(s, e)
                       : err_set(e, memory ? WEFT_ENOMEM : WEFT_EINTERNAL, "%s: %s",
                                 s->path, msg ? msg : "unknown error");
  lua_pop(s->L, 1);
  return st;
}

/* ---- life ---- */

/* The plan's place in the registry is made here, where it may fail: state_keep_plan is
 * not protected. */
static void open_globals(lua_State *L, void *ud) {
  sandbox_open(L);
  lua_pushboolean(L, 0);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &plan_key);
}

weft_status state_new(const LangOptions *o, Arena *a, const char *path, const char *dir,
                      Replay *replay, LangState **out, weft_error *e) {
  LangState *s = mem_new(o->alloc, sizeof *s);
  if (!s) return err_set(e, WEFT_ENOMEM, "out of memory for the Lua state");
  s->opt = o;
  s->arena = a;
  s->path = path;
  s->dir = dir;
  s->cap = o->memory_limit ? o->memory_limit : default_memory;
  s->price = 1;
  s->replay = replay;
  s->quiet = replay != NULL;
  s->L = lua_newstate(allocate, s);
  if (!s->L) {
    weft_status st = s->stop == STOP_MEMORY ? WEFT_ELIMIT : WEFT_ENOMEM;
    mem_free(o->alloc, s, sizeof *s);
    return err_set(e, st, "not enough memory for a Lua state");
  }
  *(LangState **)lua_getextraspace(s->L) = s;
  /* Tables of a replay are told apart by their addresses: none may be used twice. */
  if (replay) lua_gc(s->L, LUA_GCSTOP);
  weft_status st = state_protect(s, open_globals, NULL, e);
  if (st != WEFT_OK) state_free(s), s = NULL;
  *out = s;
  return st;
}

void state_free(LangState *s) {
  if (!s) return;
  lua_close(s->L);
  mem_free(s->opt->alloc, s, sizeof *s);
}

/* Argument: the plan's chunk as Lua loaded it. */
static int run_chunk(lua_State *L) {
  length_function(L);
  lua_call(L, 0, 1);
  return 1;
}

weft_status state_run(LangState *s, Diags *d, weft_error *e) {
  char *text;
  size_t n;
  TRY(file_read(s->opt->alloc, s->path, FILE_CODE_MAX, &text, &n, e));
  const char *name = arena_printf(d->arena, "@%s", s->path);
  int status = chunk_load(s->L, text, n, name);
  mem_free(s->opt->alloc, text, n + 1);
  if (status == LUA_OK) {
    lua_pushcfunction(s->L, run_chunk);
    lua_insert(s->L, -2);
    return state_call(s, 1, 1, "", d, e);
  }
  remember(s, s->path, 1);
  int skip = 0;
  if (status == LUA_ERRSYNTAX) skip = syntax_place(s, name, lua_tostring(s->L, -1));
  return failure(s, status, skip, "", d, e);
}
