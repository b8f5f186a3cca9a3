/* sweep_api.c - weft.sweep { ... }: reads its options, lets threads judge the points
 * while it shows how far they are, asks the script for scores, and makes the result. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/object/plan_object.h"
#include "bindings/object/reasons.h"
#include "bindings/object/result.h"
#include "sweep_int.h"
#include "vm/io/io.h"

#define SWEEP_TYPE "weft.sweeping"

/* ---- the object that owns all of it ---- */

static int free_sweep(lua_State *L) {
  Sweep *s = luaL_checkudata(L, 1, SWEEP_TYPE);
  weft_error e;
  s->stop = 1;
  sweep_join(s);
  for (int i = 0; i < s->nthread; i++)
    judge_close(&s->judge[i]);
  for (int64_t i = 0; s->why && i < s->ntodo; i++)
    free(s->why[i]);
  err_clear(&e);
  sweep_file_close(s, &e);
  if (s->arena) {
    sweep_caches_free(&s->caches);
    pthread_mutex_destroy(&s->lock);
  }
  arena_free(s->arena);
  memset(s, 0, sizeof *s);
  return 0;
}

static Sweep *push_sweep(lua_State *L) {
  Sweep *s = lua_newuserdatauv(L, sizeof *s, 0);
  memset(s, 0, sizeof *s);
  if (luaL_newmetatable(L, SWEEP_TYPE)) {
    lua_pushcfunction(L, free_sweep);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, free_sweep);
    lua_setfield(L, -2, "__close");
  }
  lua_setmetatable(L, -2);
  /* However the sweep ends, its threads end with it. */
  lua_toclose(L, OBJECT);
  s->arena = arena_new(NULL);
  if (!s->arena) luaL_error(L, "not enough memory");
  sweep_caches_init(&s->caches);
  pthread_mutex_init(&s->lock, NULL);
  return s;
}

/* ---- which points ---- */

static void choose_points(lua_State *L, Sweep *s) {
  s->todo = NEW_N(s->arena, int64_t, s->grid.points);
  for (int64_t p = 0; p < s->grid.points; p++) {
    bool take = true;
    if (!lua_isnil(L, WHERE)) {
      lua_pushvalue(L, WHERE);
      sweep_push_point(L, s, p);
      lua_call(L, 1, 1);
      take = lua_toboolean(L, -1);
      lua_pop(L, 1);
    }
    if (take) s->todo[s->ntodo++] = p;
  }
  if (!s->ntodo)
    luaL_error(L, "weft.sweep: where() leaves none of the %d points",
               (int)s->grid.points);
  s->row = NEW_N(s->arena, PointRow, s->ntodo);
  s->ready = (void *)NEW_N(s->arena, bool, s->ntodo);
  s->score = NEW_N(s->arena, double, s->ntodo);
  s->best = NEW_N(s->arena, int64_t, s->ntodo);
}

/* ---- the plan ---- */

static void open_judges(lua_State *L, Sweep *s) {
  int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
  int64_t want = option_int(L, OPTIONS, "threads", 1, 1024, MAX(cores, 1));
  want = MIN(want, (s->ntodo + 15) / 16);
  s->judge = NEW_N(s->arena, Judge, want);
  for (int i = 0; i < want; i++) {
    LangPlan *lp;
    int values;
    Diags d;
    weft_error e;
    err_clear(&e);
    weft_status st =
        sweep_load_plan(L, PLAN, i ? s->judge[0].lp : NULL, s->arena, &lp, &d, &e);
    if (st != WEFT_OK) reasons_raise(L, st, &d, &e);
    st = vary_take(lp, L, AXES, &values, &d, &e);
    if (st != WEFT_OK) lang_free(lp);
    if (st == WEFT_EPLAN)
      luaL_error(L, "weft.sweep: in the grid %s", d.list.at[0].summary);
    if (st != WEFT_OK) reasons_raise(L, st, NULL, &e);
    s->nthread = i + 1;
    if (judge_open(&s->judge[i], lp, values, &s->caches, s->limit) != WEFT_OK)
      luaL_error(L, "not enough memory");
  }
}

/* Files of another plan or grid are not taken up. */
static void find_key(lua_State *L, Sweep *s) {
  weft_error e;
  Text t = {0};
  err_clear(&e);
  if (!lua_isfunction(L, PLAN)) vary_text(s->judge[0].lp, &t, &e);
  text_printf(&t, "|%llu %lld|", (unsigned long long)s->limit, (long long)s->ntodo);
  for (int i = 0; i < s->grid.n; i++)
    for (int k = 0; k < s->grid.axis[i].n; k++)
      text_printf(&t, "%s=%s,", s->grid.axis[i].path, s->grid.axis[i].text[k]);
  s->key =
      hash_bytes(hash_bytes(0, t.s, t.n), s->todo, sizeof *s->todo * (size_t)s->ntodo);
  text_free(&t);
}

/* ---- scores ---- */

static double score_of(lua_State *L, Sweep *s, int64_t i) {
  if (s->column) return sweep_value(s, i, sweep_column(s->column));
  lua_pushvalue(L, SCORE);
  sweep_push_row(L, s, AXES, i);
  lua_call(L, 1, 1);
  if (!lua_isnil(L, -1) && !lua_isnumber(L, -1))
    luaL_error(L, "weft.sweep: score() returned a %s, not a number or nil",
               luaL_typename(L, -1));
  double v = lua_isnil(L, -1) ? NAN : lua_tonumber(L, -1);
  lua_pop(L, 1);
  return v;
}

/* Without a score: by time where the figures of GPUs are known, else by memory. Before
 * there are rows the plan itself says which it will be. */
static void default_score(lua_State *L, Sweep *s) {
  if (!lua_isnil(L, SCORE)) return;
  const LangPlan *lp = s->judge[0].lp;
  bool time = !s->done && lp && lang_plan(lp)->cluster.gpu;
  for (int64_t i = 0; i < s->ntodo; i++)
    time |= s->row[i].seconds > 0;
  s->column = time ? "step_ms" : "peak_gib";
}

/* Without the figures of a GPU no row would have a time. */
static void check_score(lua_State *L, const Sweep *s) {
  const LangPlan *lp = s->judge[0].lp;
  bool known = !lp || lang_plan(lp)->cluster.gpu;
  if (!s->column || strcmp(s->column, "step_ms") != 0) return;
  for (int i = 0; i < s->grid.n; i++)
    known |= strstr(s->grid.axis[i].path, "cluster") != NULL;
  if (!known) luaL_error(L, "weft.sweep: step_ms needs the GPU's name in plan.cluster");
}

static int by_score(const void *x, const void *y, void *ud) {
  const Sweep *s = ud;
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  if (s->score[a] != s->score[b]) return s->score[a] < s->score[b] ? -1 : 1;
  return a < b ? -1 : a > b;
}

static void rank_rows(lua_State *L, Sweep *s) {
  default_score(L, s);
  for (int64_t i = 0; i < s->ntodo; i++) {
    if (s->row[i].state != POINT_OK) continue;
    s->score[i] = score_of(L, s, i);
    if (isnan(s->score[i]))
      s->ndropped++;
    else
      s->best[s->nbest++] = i;
  }
  qsort_r(s->best, (size_t)s->nbest, sizeof *s->best, by_score, s);
}

/* ---- running ---- */

/* "1200 of 2880 points, 950/s; best step_ms 1234" */
static void show_progress(lua_State *L, Sweep *s, double start, int64_t *seen,
                          double *best) {
  const ScriptHost *h = script_host(L);
  char line[160], more[80] = "";
  if (!h || !h->progress) return;
  for (; *seen < s->ntodo; ++*seen) {
    if (!s->ready[*seen]) break;
    double v = s->row[*seen].state == POINT_OK ? score_of(L, s, *seen) : NAN;
    if (!isnan(v) && !(v >= *best)) *best = v;
  }
  if (!isnan(*best))
    snprintf(more, sizeof more, "; best %s %.4g", s->column ? s->column : "score", *best);
  double seconds = MAX(now_s() - start, 1e-3);
  snprintf(line, sizeof line, "%lld of %lld points, %.0f/s%s", (long long)s->done,
           (long long)s->ntodo, (double)(s->done - s->nresumed) / seconds, more);
  h->progress(h->ud, line);
}

static void raise_file(lua_State *L, Sweep *s, weft_status st, weft_error *e) {
  s->stop = 1;
  sweep_join(s);
  if (st != WEFT_OK) reasons_raise(L, st, NULL, e);
}

static void run(lua_State *L, Sweep *s) {
  const StopFlag *stop = script_stop(L);
  const ScriptHost *h = script_host(L);
  bool given = lua_isfunction(L, PLAN), more = true;
  int64_t seen = 0;
  double start = now_s(), best = NAN;
  weft_error e;
  err_clear(&e);
  raise_file(L, s, sweep_file_open(s, &e), &e);
  s->stop = 0;
  if (!given) sweep_start(s);
  while (more && !s->stop) {
    if (given)
      sweep_given_next(L, s), more = s->next < s->ntodo;
    else
      more = sweep_work(s, &s->judge[0], 0.1);
    if (stop && *stop) s->interrupted = true, s->stop = 1;
    show_progress(L, s, start, &seen, &best);
    weft_status st = sweep_file_add(s, &e);
    if (st != WEFT_OK) raise_file(L, s, st, &e);
  }
  sweep_join(s);
  s->interrupted |= stop && *stop;
  s->seconds = now_s() - start;
  if (h && h->progress) h->progress(h->ud, NULL);
  if (s->st != WEFT_OK) reasons_raise(L, s->st, NULL, &s->e);
  weft_status st = sweep_file_add(s, &e);
  if (st == WEFT_OK) st = sweep_file_close(s, &e);
  raise_file(L, s, st, &e);
  if (s->interrupted && h->kept) h->kept(h->ud);
}

/* ---- the result ---- */

static void raise_none(lua_State *L, Sweep *s) {
  Text *t = script_push_text(L);
  text_printf(t, "weft.sweep: none of the %lld points is a plan\n", (long long)s->ntodo);
  sweep_reasons(s, t);
  script_end_text(L);
  lua_error(L);
}

static void push_reasons(lua_State *L, const Sweep *s) {
  lua_createtable(L, s->nreason, 0);
  for (int i = 0; i < s->nreason; i++) {
    const SweepReason *r = &s->reason[i];
    lua_createtable(L, 0, 4);
    set_text(L, "code", r->why.code);
    set_text(L, "path", r->why.path);
    set_text(L, "message", r->why.text);
    set_integer(L, "count", r->count);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "reasons");
}

static void push_result(lua_State *L, Sweep *s, int64_t keep) {
  enum { SHOWN = 20 };
  Text *t = result_begin(L);
  int64_t all = s->nbest;
  s->nbest = MIN(s->nbest, keep);
  for (int64_t i = 0; i < s->nbest; i++) {
    sweep_push_row(L, s, AXES, s->best[i]);
    lua_rawseti(L, -2, i + 1);
  }
  set_integer(L, "points", s->grid.points);
  set_integer(L, "judged", s->nlegal + s->nillegal + s->nmemory);
  set_integer(L, "legal", s->nlegal);
  set_integer(L, "illegal", s->nillegal);
  set_integer(L, "memory", s->nmemory);
  set_integer(L, "dropped", s->ndropped);
  set_number(L, "seconds", s->seconds);
  lua_pushboolean(L, s->interrupted);
  lua_setfield(L, -2, "interrupted");
  push_reasons(L, s);
  sweep_table(s, keep < all ? keep : SHOWN, t);
  result_end(L);
}

static void write_csv(lua_State *L, const Sweep *s) {
  weft_error e;
  if (!s->csv) return;
  Text *t = script_push_text(L);
  err_clear(&e);
  sweep_csv(s, t);
  weft_status st = t->oom ? err_set(&e, WEFT_ENOMEM, "out of memory in a sweep")
                          : file_write(s->csv, &(FilePart){t->s, t->n}, 1, &e);
  if (st != WEFT_OK) reasons_raise(L, st, NULL, &e);
  lua_pop(L, 1);
}

static void measure(lua_State *L, Sweep *s, int64_t rows) {
  int type = lua_getfield(L, OPTIONS, "measure");
  int steps = type == LUA_TBOOLEAN ? 3 * lua_toboolean(L, -1)
                                   : (int)option_int(L, OPTIONS, "measure", 1, 1000, 0);
  lua_pop(L, 1);
  if (!steps || s->interrupted) return;
  if (lua_isfunction(L, PLAN))
    luaL_error(L, "weft.sweep: measure needs a plan or a file, not a function");
  weft_error e;
  err_clear(&e);
  weft_status st = sweep_measure(s, MIN(rows, s->nbest), steps, script_stop(L), &e);
  if (st != WEFT_OK) reasons_raise(L, st, NULL, &e);
}

int sweep_make(lua_State *L) {
  const ScriptHost *h = script_host(L);
  if (h && h->swept) *h->swept = true;
  luaL_checktype(L, OPTIONS, LUA_TTABLE);
  lua_settop(L, 1);
  Sweep *s = push_sweep(L);
  if (setjmp(*arena_guard(s->arena))) return luaL_error(L, "not enough memory");
  sweep_options(L, s);
  int64_t keep = option_int(L, OPTIONS, "keep", 1, INT32_MAX, INT32_MAX);
  choose_points(L, s);
  if (!lua_isfunction(L, PLAN)) {
    open_judges(L, s);
  } else {
    s->judge = NEW_N(s->arena, Judge, 1);
    if (judge_open(s->judge, NULL, LUA_NOREF, &s->caches, s->limit) != WEFT_OK)
      return luaL_error(L, "not enough memory");
    s->nthread = 1;
  }
  find_key(L, s);
  default_score(L, s);
  check_score(L, s);
  run(L, s);
  if (!s->nlegal && !s->interrupted) raise_none(L, s);
  rank_rows(L, s);
  measure(L, s, keep < INT32_MAX ? keep : 10);
  push_result(L, s, keep);
  write_csv(L, s);
  return 1;
}
