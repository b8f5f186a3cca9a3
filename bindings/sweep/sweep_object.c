/* sweep_object.c - the points of a sweep as an object of the library: plans, progress,
 * output file; rows are sweep_rows.c. Indices count from 0. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/object/reasons.h"
#include "bindings/script/library.h"
#include "sweep.h"

#define SWEEP_TYPE "weft.sweeping"

/* Running out of the sweep's arena in the function that has this line. */
#define GUARD(L, s)                                                                      \
  if (setjmp(*arena_guard((s)->arena))) return luaL_error(L, "not enough memory")

Sweep *sweep_at(lua_State *L, int idx) {
  Sweep *s = luaL_checkudata(L, idx, SWEEP_TYPE);
  if (!s->arena) luaL_error(L, "this sweep has ended");
  return s;
}

int64_t sweep_index(lua_State *L, const Sweep *s, int idx) {
  lua_Integer i = luaL_checkinteger(L, idx);
  luaL_argcheck(L, i >= 0 && i < s->ntodo, idx, "no such point");
  return i;
}

void sweep_choice(const Sweep *s, int64_t point, int *choice) {
  for (int i = s->naxis - 1; i >= 0; i--) {
    choice[i] = (int)(point % s->size[i]);
    point /= s->size[i];
  }
}

/* ---- the object that owns all of it ---- */

static void stop_threads(Sweep *s) {
  s->stop = 1;
  if (s->given) sweep_end_given(s);
  sweep_join(s);
}

static int free_sweep(lua_State *L) {
  Sweep *s = luaL_checkudata(L, 1, SWEEP_TYPE);
  stop_threads(s);
  for (int i = 0; i < s->nthread; i++) judge_close(&s->judge[i]);
  for (int64_t i = 0; s->why && i < s->ntodo; i++) free(s->why[i]);
  file_end(&s->file);
  sweep_forget(s);
  sweep_free_given(s);
  if (s->arena) {
    sweep_caches_free(&s->caches);
    pthread_cond_destroy(&s->more);
    pthread_mutex_destroy(&s->lock);
  }
  arena_free(s->arena);
  memset(s, 0, sizeof *s);
  s->file.fd = -1;
  return 0;
}

static void push_metatable(lua_State *L);

static Sweep *push_sweep(lua_State *L) {
  Sweep *s = lua_newuserdatauv(L, sizeof *s, 0);
  memset(s, 0, sizeof *s);
  s->file.fd = -1;
  push_metatable(L);
  lua_setmetatable(L, -2);
  s->arena = arena_new(NULL);
  if (!s->arena) luaL_error(L, "not enough memory");
  sweep_caches_init(&s->caches);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->more, NULL);
  return s;
}

/* core.points(sizes, points, max_gib): `points` is a list of their numbers, or how many
 * there are; max_gib may be nil: what the GPU of each plan has. */
int sweep_points(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  bool some = lua_istable(L, 2), limited = !lua_isnoneornil(L, 3);
  Sweep *s = push_sweep(L);
  GUARD(L, s);
  s->naxis = (int)lua_rawlen(L, 1);
  luaL_argcheck(L, s->naxis <= SWEEP_AXES, 1, "too many axes");
  for (int i = 0; i < s->naxis; i++) {
    lua_rawgeti(L, 1, i + 1);
    s->size[i] = (int)MAX(lua_tointeger(L, -1), 1);
    lua_pop(L, 1);
  }
  s->limit = limited ? (uint64_t)(luaL_checknumber(L, 3) * (1 << 30)) : LIMIT_GPU;
  s->ntodo = some ? (int64_t)lua_rawlen(L, 2) : luaL_checkinteger(L, 2);
  luaL_argcheck(L, s->ntodo >= 0 && s->ntodo <= SWEEP_POINTS, 2, "too many points");
  s->todo = NEW_N(s->arena, int64_t, s->ntodo);
  for (int64_t i = 0; i < s->ntodo; i++) {
    if (some) lua_rawgeti(L, 2, i + 1);
    s->todo[i] = some ? lua_tointeger(L, -1) : i;
    if (some) lua_pop(L, 1);
  }
  s->row = NEW_N(s->arena, PointRow, s->ntodo);
  s->ready = (void *)NEW_N(s->arena, bool, s->ntodo);
  s->why = NEW_N(s->arena, PointReason *, s->ntodo);
  return 1;
}

/* ---- the plan ---- */

static void open_judge(lua_State *L, Sweep *s) {
  LangPlan *lp, *copy = s->nthread ? s->judge[0].lp : NULL;
  int values;
  const LangShared *shared = NULL;
  Diags d;
  weft_error e = NO_ERROR;
  weft_status st = sweep_load_plan(L, 2, copy, s->arena, &lp, &d, &e);
  if (st != WEFT_OK) reasons_raise(L, st, &d, &e);
  st = vary_take(lp, L, 3, &values, &d, &e);
  if (st != WEFT_OK) lang_free(lp);
  if (st == WEFT_EPLAN)
    library_error(L, "weft.sweep: in the grid %s", d.list.at[0].summary);
  if (st == WEFT_OK) st = plan_share(lp, values, &shared, &e);
  if (st != WEFT_OK) reasons_raise(L, st, NULL, &e);
  st = judge_open(&s->judge[s->nthread++], lp, values, shared, &s->caches, s->limit);
  if (st != WEFT_OK) luaL_error(L, "not enough memory");
}

/* points:open(plan, axes, threads [, floor [, exact]]): whether the plan names its GPU;
 * without a plan judges whose plans are given, and nil. 0 threads: one for each core, but
 * for few points, unless rows are made exactly as well (`exact`), which takes longer than
 * to load the plan once more; `floor`: bytes and times of rows are lower bounds. */
static int open_plan(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  int64_t want = luaL_checkinteger(L, 4);
  if (!want) want = MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
  want = MIN(want, lua_toboolean(L, 6) ? s->ntodo : (s->ntodo + 15) / 16);
  GUARD(L, s);
  s->judge = NEW_N(s->arena, Judge, MAX(want, 1));
  s->given = lua_isnil(L, 2);
  for (; s->given && s->nthread < MAX(want, 1); s->nthread++)
    if (judge_open(&s->judge[s->nthread], NULL, LUA_NOREF, NULL, &s->caches, s->limit) !=
        WEFT_OK)
      return luaL_error(L, "not enough memory");
  if (s->given) return 0;
  while (s->nthread < want) open_judge(L, s);
  for (int i = 0; i < s->nthread; i++) s->judge[i].floor = lua_toboolean(L, 5);
  lua_pushboolean(L, lang_plan(s->judge[0].lp)->cluster.gpu != NULL);
  return 1;
}

/* points:key(text of the axes): what tells sweeps apart. Rows of another plan or grid, or
 * of files that have changed since, are not taken up. */
static int find_key(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  const char *axes = luaL_checkstring(L, 2);
  weft_error e = NO_ERROR;
  char key[24];
  Text *t = script_push_text(L);
  LangPlan *lp = s->judge[0].lp;
  weft_status st = lp ? plan_key_text(lp, t, &e) : WEFT_OK;
  if (lp && st == WEFT_OK) st = plan_key_files(lp, s->judge[0].values, t, &e);
  if (st != WEFT_OK) return reasons_raise(L, st, NULL, &e);
  text_printf(t, "|%llu %lld|%s", (unsigned long long)s->limit, (long long)s->ntodo,
              axes);
  uint64_t hash =
      hash_bytes(hash_bytes(0, t->s, t->n), s->todo, sizeof *s->todo * (size_t)s->ntodo);
  snprintf(key, sizeof key, "%016llx", (unsigned long long)hash);
  lua_pushstring(L, key);
  return 1;
}

/* ---- running ---- */

void sweep_cut(lua_State *L, Sweep *s) {
  const ScriptHost *h = script_host(L);
  s->interrupted = true;
  stop_threads(s);
  if (h && h->kept) h->kept(h->ud);
}

static bool is_stopped(lua_State *L) {
  const StopFlag *stop = script_stop(L);
  return stop && *stop;
}

/* points:start([n]): on the first n points that are not done; default: all. */
static int start(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  GUARD(L, s);
  s->upto = MIN(luaL_optinteger(L, 2, s->ntodo), s->ntodo);
  s->next = 0;
  s->stop = 0;
  s->all_given = false;
  sweep_start(s);
  return 0;
}

/* points:work(seconds): is there more? */
static int work(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  bool more = sweep_work(s, &s->judge[0], luaL_checknumber(L, 2));
  if (is_stopped(L)) sweep_cut(L, s);
  lua_pushboolean(L, more && !s->stop);
  return 1;
}

/* points:take(): the next one that is not done; nil if there is none or that was cut. */
static int take(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  int64_t i = s->next++;
  while (i < s->ntodo && s->ready[i]) i = s->next++;
  if (i >= s->ntodo || s->stop) return 0;
  lua_pushinteger(L, i);
  return 1;
}

/* points:join(): waits for what is at work, and raises what went wrong. */
static int join(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  if (s->given) sweep_end_given(s);
  if (s->given) sweep_work_given(s, &s->judge[0], false);
  sweep_join(s);
  if (is_stopped(L)) sweep_cut(L, s);
  return s->st == WEFT_OK ? 0 : reasons_raise(L, s->st, NULL, &s->e);
}

static int stop(lua_State *L) {
  stop_threads(sweep_at(L, 1));
  return 0;
}

/* points:ahead(list of rows, whole, clock): what points:whole and points:clock will be
 * asked for, by all threads at once. */
static int ahead(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  int n = (int)lua_rawlen(L, 2);
  weft_error e = NO_ERROR;
  int64_t *list = lua_newuserdatauv(L, sizeof *list * (size_t)(n + 1), 0);
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, 2, k + 1);
    list[k] = sweep_index(L, s, -1);
    lua_pop(L, 1);
  }
  weft_status st = sweep_ahead(s, list, n, lua_toboolean(L, 3), lua_toboolean(L, 4),
                               script_stop(L), &e);
  if (is_stopped(L)) sweep_cut(L, s);
  return reasons_check(L, st, &e);
}

/* points:lanes(): threads. */
static int lanes(lua_State *L) {
  lua_pushinteger(L, sweep_at(L, 1)->nthread);
  return 1;
}

/* points:whole(i): its row, exactly, and not counted again; for rows that are bounds,
 * when no thread works. Nothing after Ctrl-C. */
static int whole(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  int64_t i = sweep_index(L, s, 2);
  ExactRow own = {0};
  if (s->interrupted) return 0;
  const ExactRow *x = sweep_exact(s, i, EXACT_WHOLE, &own);
  weft_status st = x->st[EXACT_WHOLE];
  if (st == WEFT_OK) s->row[i] = x->row;
  if (is_stopped(L)) sweep_cut(L, s);
  if (st == WEFT_EINTR || s->interrupted) return 0;
  return st == WEFT_OK ? sweep_row(L) : reasons_raise(L, st, NULL, &x->e[EXACT_WHOLE]);
}

/* points:clock(i): the plan of row i compiled and on the clock, as plan:sim() gives it;
 * or nil and why it does not compile; nothing after Ctrl-C. */
static int clock_point(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  int64_t i = sweep_index(L, s, 2);
  ExactRow own = {.arena = script_push_arena(L)};
  if (s->interrupted) return 0;
  const ExactRow *x = sweep_exact(s, i, EXACT_CLOCK, &own);
  weft_status st = x->st[EXACT_CLOCK];
  if (is_stopped(L)) sweep_cut(L, s);
  if (st == WEFT_EINTR || s->interrupted) return 0;
  if (st == WEFT_EPLAN) {
    lua_pushnil(L);
    sweep_push_why(L, &x->why[EXACT_CLOCK]);
    return 2;
  }
  if (st != WEFT_OK) return reasons_raise(L, st, NULL, &x->e[EXACT_CLOCK]);
  sim_figures_push(L, &x->figures);
  return 1;
}

/* points:measure(i, steps): tokens per second, or nil. */
static int measure(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  double rate = NAN;
  weft_error e = NO_ERROR;
  weft_status st = sweep_measure(s, sweep_index(L, s, 2), (int)luaL_checkinteger(L, 3),
                                 script_stop(L), &rate, &e);
  if (st != WEFT_OK) return reasons_raise(L, st, NULL, &e);
  if (isnan(rate)) return 0;
  lua_pushnumber(L, rate);
  return 1;
}

/* ---- the file ---- */

/* points:append(path): what points:write(text) adds to, until points:close(). */
static int append(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  weft_error e = NO_ERROR;
  const char *path = luaL_checkstring(L, 2);
  return reasons_check(L, file_extend(NULL, path, 0666, false, &s->file, &e), &e);
}

static int write_text(lua_State *L) {
  const Sweep *s = sweep_at(L, 1);
  size_t n;
  weft_error e = NO_ERROR;
  const char *text = luaL_checklstring(L, 2, &n);
  return reasons_check(L, file_add(&s->file, text, n, &e), &e);
}

static int close_file(lua_State *L) {
  file_end(&sweep_at(L, 1)->file);
  return 0;
}

static void push_metatable(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"__gc", free_sweep}, {"__close", free_sweep}, {"open", open_plan},
      {"key", find_key},    {"start", start},        {"work", work},
      {"take", take},       {"judge", sweep_judge},  {"join", join},
      {"stop", stop},       {"lanes", lanes},        {"ahead", ahead},
      {"whole", whole},     {"clock", clock_point},  {"measure", measure},
      {"row", sweep_row},   {"put", sweep_put},      {"counts", sweep_counts},
      {"append", append},   {"write", write_text},   {"close", close_file},
      {NULL, NULL}};
  if (!luaL_newmetatable(L, SWEEP_TYPE)) return;
  luaL_setfuncs(L, methods, 0);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
}
