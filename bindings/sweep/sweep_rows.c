/* sweep_rows.c - rows of a sweep as tables: what came of each point, and how many came to
 * what. */
#include "bindings/object/result.h"
#include "sweep.h"

static const char *const states[] = {
    [POINT_OK] = "ok", [POINT_ILLEGAL] = "illegal", [POINT_MEMORY] = "memory"};

/* The figures of a row, by the names that lines of JSON have, too. */
static const struct {
  const char *table, *name;
  size_t at;
  bool count; /* an int, else a double */
} figures[] = {{NULL, "dp", offsetof(PointRow, dp), true},
               {NULL, "microbatches", offsetof(PointRow, microbatches), true},
               {NULL, "worst_rank", offsetof(PointRow, worst), true},
               {NULL, "peak_bytes", offsetof(PointRow, bytes), false},
               {NULL, "mean_fixed_bytes", offsetof(PointRow, mean_fixed), false},
               {NULL, "even_seconds", offsetof(PointRow, even), false},
               {NULL, "bubble", offsetof(PointRow, bubble), false},
               {NULL, "flop", offsetof(PointRow, flops), false},
               {NULL, "flop_recomputed", offsetof(PointRow, recomputed), false},
               {"comm_bytes", "tp", offsetof(PointRow, tp), false},
               {"comm_bytes", "cp", offsetof(PointRow, cp), false},
               {"comm_bytes", "ep", offsetof(PointRow, ep), false},
               {"comm_bytes", "ep_even", offsetof(PointRow, ep_even), false},
               {"comm_bytes", "dp", offsetof(PointRow, dp_bytes), false},
               {"comm_bytes", "pp", offsetof(PointRow, pp), false}};

void sweep_push_why(lua_State *L, const PointReason *w) {
  lua_createtable(L, 0, 3);
  set_text(L, "code", w->code);
  set_text(L, "path", w->path);
  set_text(L, "summary", w->text);
}

int sweep_row(lua_State *L) {
  const Sweep *s = sweep_at(L, 1);
  int64_t i = sweep_index(L, s, 2);
  if (!s->ready[i]) return 0;
  const PointRow *r = &s->row[i];
  lua_settop(L, 2);
  lua_pushstring(L, states[r->state]);
  lua_createtable(L, 0, 12);
  if (r->state == POINT_ILLEGAL) {
    if (s->why[i]) sweep_push_why(L, s->why[i]);
    return s->why[i] ? 3 : 2;
  }
  for (int k = 0; k < LEN(figures); k++) {
    const char *at = (const char *)r + figures[k].at;
    if (figures[k].table) luaL_getsubtable(L, 4, figures[k].table);
    if (figures[k].count)
      set_integer(L, figures[k].name, *(const int *)at);
    else
      set_number(L, figures[k].name, *(const double *)at);
    lua_settop(L, 4);
  }
  if (r->state == POINT_OK && r->seconds > 0) set_number(L, "step_ms", r->seconds * 1e3);
  return 2;
}

int sweep_put(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  int64_t i = sweep_index(L, s, 2);
  const char *state = luaL_checkstring(L, 3);
  PointRow *r = &s->row[i];
  PointReason w;
  snprintf(w.code, sizeof w.code, "%s", luaL_optstring(L, 5, ""));
  snprintf(w.path, sizeof w.path, "%s", luaL_optstring(L, 6, ""));
  snprintf(w.text, sizeof w.text, "%s", luaL_optstring(L, 7, ""));
  *r = (PointRow){.state = POINT_OK};
  while (r->state < POINT_MEMORY && strcmp(state, states[r->state]) != 0) r->state++;
  lua_settop(L, 4);
  for (int k = 0; r->state != POINT_ILLEGAL && k < LEN(figures); k++) {
    char *at = (char *)r + figures[k].at;
    if (figures[k].table) luaL_getsubtable(L, 4, figures[k].table);
    lua_getfield(L, -1, figures[k].name);
    if (figures[k].count)
      *(int *)at = (int)lua_tonumber(L, -1);
    else
      *(double *)at = lua_tonumber(L, -1);
    lua_settop(L, 4);
  }
  if (r->state == POINT_OK && lua_getfield(L, 4, "step_ms") == LUA_TNUMBER)
    r->seconds = lua_tonumber(L, -1) / 1e3;
  sweep_note(s, i, &w);
  return 0;
}

/* Threads may be at work: what they count is copied while none does. */
int sweep_counts(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  SweepReason *reason = lua_newuserdatauv(L, sizeof s->reason, 0);
  pthread_mutex_lock(&s->lock);
  int64_t legal = s->nlegal, illegal = s->nillegal, memory = s->nmemory;
  int n = s->nreason;
  memcpy(reason, s->reason, sizeof *reason * (size_t)n);
  pthread_mutex_unlock(&s->lock);
  lua_createtable(L, 0, 6);
  set_integer(L, "judged", legal + illegal + memory);
  set_integer(L, "legal", legal);
  set_integer(L, "illegal", illegal);
  set_integer(L, "memory", memory);
  set_boolean(L, "interrupted", s->interrupted);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    const SweepReason *r = &reason[i];
    lua_createtable(L, 0, 5);
    set_text(L, "code", r->why.code);
    set_text(L, "path", r->why.path);
    set_text(L, "message", r->why.text);
    set_integer(L, "count", r->count);
    set_integer(L, "first", r->first);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "reasons");
  return 1;
}
