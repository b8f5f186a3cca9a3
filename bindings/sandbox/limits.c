/* limits.c - what a plan may use: instructions, CPU time, memory; and when its garbage is
 * collected.
 *
 * One count has all work: instructions by a hook, steps inside of C functions by
 * state_charge, bytes by the allocator. The cost of an instruction grows with the longest
 * string that exists, because it may compare, convert or hash it: the hook then fires
 * more often.
 *
 * A count says little about time if single instructions can take long, as along a chain
 * of __index or of keys with equal hashes. So there is a limit of CPU time as well, which
 * the hook checks; where checks are far apart, it fires at every instruction. A table
 * that grows moves all its keys in one instruction, which a limit of keys bounds.
 *
 * Garbage is collected here, all at once, and not in steps by Lua: weak tables, which
 * would show when that happens, are refused before. */
#include "sandbox.h"

#include <stdio.h>
#include <time.h>

enum {
  HOOK_STEP = 100, /* instructions between two checks of the count */
  FREE_TEXT =
      1024, /* bytes of a string that an instruction may inspect at no extra cost */
  STEP_BYTES = 64,  /* bytes whose allocation counts as a step */
  LARGE = 64 << 10, /* after a block of this size the next instruction checks the clock */
  KEY_BYTES = 24,   /* size of a key in the hash part of a table of Lua 5.4 */
  KEYS_MAX = 1 << 18,
  NEXT_STEP = 64 /* keys that state_next reads between two checks of the clock */
};
static const size_t default_memory = (size_t)256 << 20, first_garbage = (size_t)4 << 20;
static const int64_t default_instructions = 50 * 1000 * 1000;
static const double default_cpu = 60, steps_per_second = 10e6, slow = 0.04;

/* ---- the hook of a thread ---- */

/* Lua allows setting a hook at any time; it takes effect in all calls that are running.
 */
void state_watch(LangState *s, lua_State *L) {
  int step = s->slow ? 1 : MAX(HOOK_STEP / s->price, 1);
  int mask = LUA_MASKCOUNT | (L == s->L && s->recording ? LUA_MASKLINE | LUA_MASKRET : 0);
  if (s->stop == STOP_NONE && (lua_gethookcount(L) != step || lua_gethookmask(L) != mask))
    lua_sethook(L, state_hook, mask, step);
}

static void look_soon(LangState *s) {
  s->slow = true;
  if (s->armed) state_watch(s, s->running);
}

/* ---- memory ---- */

/* After a refusal Lua collects garbage and asks for the same block again. If that is
 * refused as well, or another block is asked for, the plan does not fit: the error that
 * Lua raises may be caught, but the stop is final. */
static bool refuse(LangState *s, void *p, size_t n) {
  bool again = s->refused == n && s->refused_at == p;
  if (again && s->stop == STOP_NONE) s->stop = STOP_MEMORY;
  s->refused = n;
  s->refused_at = p;
  s->collected = true;
  look_soon(s);
  return true;
}

/* For a new block Lua passes the kind of its object in `old`. */
static void count_bytes(LangState *s, bool text, size_t old, size_t n) {
  s->left -= (int64_t)((n - old) / STEP_BYTES);
  if (n - old >= LARGE) look_soon(s);
  if (!text || n / FREE_TEXT < (size_t)s->price) return;
  s->price = (int)MIN(n / FREE_TEXT + 1, (size_t)INT32_MAX);
  if (s->armed) state_watch(s, s->running);
}

/* Whether a table has too many keys: its hash part has a power of two of entries. (Lists
 * have that size, too, unless they were created with a size.) */
static bool too_many_keys(const void *p, size_t tag, size_t n) {
  size_t keys = n / KEY_BYTES;
  return !p && tag == 0 && n % KEY_BYTES == 0 && keys > KEYS_MAX && !(keys & (keys - 1));
}

static void *allocate(void *ud, void *p, size_t old, size_t n) {
  LangState *s = ud;
  bool text = !p && old == LUA_TSTRING;
  if (too_many_keys(p, old, n)) {
    if (s->stop == STOP_NONE) s->stop = STOP_KEYS;
    s->refused = n;
    return NULL;
  }
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

/* If a refusal was not followed by another request, its error was caught, for example by
 * pcall. */
static void note_refusal(LangState *s) {
  if (s->refused && s->stop == STOP_NONE) s->stop = STOP_MEMORY;
}

/* ---- garbage ---- */

static const char metatables_key = 'm', mode_key = 'w';

/* Creates in the registry the list of metatables, which does not keep them alive, and the
 * string __mode, because the check must not allocate. */
void garbage_open(lua_State *L) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &metatables_key);
  lua_pushliteral(L, "__mode");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &mode_key);
}

void metatable_note(lua_State *L, int idx) {
  idx = lua_absindex(L, idx);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &metatables_key);
  lua_pushvalue(L, idx);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* Whether a metatable has got a __mode after it was set. */
static bool has_weak_table(lua_State *L) {
  bool found = false;
  int top = lua_gettop(L);
  if (!lua_checkstack(L, 6)) return false;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &metatables_key) == LUA_TTABLE)
    for (lua_pushnil(L); !found && lua_next(L, top + 1); lua_settop(L, top + 2)) {
      lua_rawgetp(L, LUA_REGISTRYINDEX, &mode_key);
      found = lua_rawget(L, top + 2) != LUA_TNIL;
    }
  lua_settop(L, top);
  return found;
}

/* Checks before a collection: no instruction runs between the two. */
static void check_weak(LangState *s, lua_State *L) {
  if (s->stop == STOP_NONE && has_weak_table(L)) s->stop = STOP_WEAK;
}

/* Collects when memory has doubled since the last collection, or half of what is left is
 * used; not below a minimum. While a plan is replayed nothing is collected: tables are
 * identified by their addresses, which must not be reused. */
static void collect(LangState *s, lua_State *L) {
  if (s->collected) check_weak(s, L);
  s->collected = false;
  if (s->used < s->collect_at || s->host.on_line) return;
  check_weak(s, L);
  if (s->stop != STOP_NONE) return;
  lua_gc(L, LUA_GCCOLLECT);
  size_t most = s->used + (s->cap - MIN(s->used, s->cap)) / 2;
  s->collect_at = MAX(MIN(2 * s->used + first_garbage, most), s->used + (1 << 20));
}

/* ---- instructions and time ---- */

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t limit_of(const LangState *s) {
  int64_t limit = s->opt->instruction_limit;
  return (limit ? limit : default_instructions) + s->more;
}

static double cpu_limit_of(const LangState *s) {
  return (s->opt->cpu_limit > 0 ? s->opt->cpu_limit : default_cpu) +
         (double)s->more / steps_per_second;
}

/* Checks the thread's CPU clock, which takes a system call; a coarse clock tells when
 * that is worth it. */
static void look_at_clock(LangState *s, lua_State *L) {
  double coarse = seconds_of(CLOCK_MONOTONIC_COARSE);
  if (coarse == s->coarse) {
    s->slow = false;
    return;
  }
  double now = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  s->slow = now - s->cpu > slow;
  s->coarse = coarse;
  s->cpu = now;
  if (now > s->cpu_end && s->stop == STOP_NONE) s->stop = STOP_TIME;
}

static const char *stop_text(LangState *s, char *buf, size_t n) {
  switch (s->stop) {
  case STOP_INSTRUCTIONS:
    snprintf(buf, n, "the plan was stopped after %lld instructions",
             (long long)limit_of(s));
    break;
  case STOP_TIME:
    snprintf(buf, n, "the plan was stopped after %g seconds of CPU time",
             cpu_limit_of(s));
    break;
  case STOP_MEMORY:
    snprintf(buf, n, "the plan needs more than its limit of %zu MiB of memory",
             s->cap >> 20);
    break;
  case STOP_KEYS:
    snprintf(buf, n, "the plan has a table of more than %d keys besides its list",
             KEYS_MAX);
    break;
  case STOP_WEAK:
    snprintf(buf, n, "a metatable got __mode: weak tables are not available in a plan");
    break;
  default: snprintf(buf, n, "interrupted");
  }
  return buf;
}

void state_rethrow(lua_State *L) {
  LangState *s = state_of(L);
  char buf[96];
  note_refusal(s);
  if (s->stop != STOP_NONE) luaL_error(L, "%s", stop_text(s, buf, sizeof buf));
}

/* Records the innermost line of Lua that is running. */
static void note_place(lua_State *L, LangState *s) {
  lua_Debug ar;
  for (int level = 0; !s->line && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue;
    snprintf(s->file, sizeof s->file, "%s", ar.source + (*ar.source == '@'));
    s->line = ar.currentline;
  }
}

/* After a limit was hit, the hook fires at every line and instruction of this thread and
 * the main one, so that no coroutine or pcall can continue. */
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
  look_at_clock(s, L);
  if (s->stop != STOP_NONE) halt(L, s);
}

bool state_counts(lua_State *L) { return lua_gethook(L) == state_hook; }

int state_next(lua_State *L, int t) {
  if (state_counts(L) && ++state_of(L)->nexts % NEXT_STEP == 0) state_charge(L, 0);
  return lua_next(L, t);
}

void state_hook(lua_State *L, lua_Debug *ar) {
  LangState *s = state_of(L);
  if (ar->event == LUA_HOOKCOUNT) {
    int64_t steps = (int64_t)lua_gethookcount(L) * s->price;
    collect(s, L);
    state_charge(L, steps);
    state_watch(s, L);
  } else if (s->stop != STOP_NONE) {
    halt(L, s);
  } else if (s->recording) {
    s->host.on_line(L, ar, s->host.ud);
  }
}

/* ---- a call ---- */

void state_arm(LangState *s, bool recording) {
  s->refused = 0;
  s->stop = STOP_NONE;
  s->left = limit_of(s);
  s->coarse = 0;
  s->cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  s->cpu_end = s->cpu + cpu_limit_of(s);
  s->slow = false;
  s->line = 0;
  s->file[0] = 0;
  s->recording = recording;
  s->armed = true;
  s->running = s->L;
  state_watch(s, s->L);
}

void state_disarm(LangState *s) {
  s->armed = s->recording = false;
  lua_sethook(s->L, NULL, 0, 0);
  note_refusal(s);
  check_weak(s, s->L);
  collect(s, s->L);
}

weft_status state_stopped(LangState *s, Diags *d, weft_error *e) {
  char buf[96];
  const char *file = s->file[0] ? s->file : s->path;
  stop_text(s, buf, sizeof buf);
  if (s->stop == STOP_WEAK && d) {
    Diag *g = diag_error(d, "runtime", "", "%s", buf);
    g->file = arena_str(d->arena, file);
    g->line = s->line;
    return WEFT_EPLAN;
  }
  err_clear(e);
  return err_file(e, s->stop == STOP_INTERRUPT ? WEFT_EINTR : WEFT_ELIMIT, file, s->line,
                  "%s", buf);
}

void limits_open(LangState *s) {
  size_t limit = s->opt->memory_limit;
  s->cap = limit ? limit : default_memory;
  s->collect_at = first_garbage;
  s->price = 1;
  s->L = lua_newstate(allocate, s);
  if (s->L) lua_gc(s->L, LUA_GCSTOP);
}
