/* schedule_call.c - calls a schedule function once per pp rank with the object `s` and
 * collects its actions. */
#include "schedule_facts.h"

#define SCHEDULE_TYPE "weft.schedule"

/* The userdata `s`. Its user value 1 is the buffer of actions. */
typedef struct Recorder {
  Schedule *schedule; /* NULL after the function has returned */
  Action *at;         /* the current action, in the buffer */
  int n, cap, limit, rank;
  bool lines; /* the schedule function is the plan's, so its lines are recorded */
} Recorder;

static Recorder *self(lua_State *L) {
  Recorder *r = luaL_testudata(L, 1, SCHEDULE_TYPE);
  if (!r) luaL_error(L, "s comes before a colon: s:F(chunk, microbatch)");
  if (!r->schedule) luaL_error(L, "s is used after the schedule function has ended");
  return r;
}

/* ---- recording ---- */

/* The innermost line in the file of the schedule function, which may call functions of
 * other files: a schedule has the lines of one file. */
static int caller_line(lua_State *L, const char *in) {
  lua_Debug ar;
  for (int level = 1; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    const char *file = ar.currentline > 0 ? chunk_file(ar.source) : NULL;
    if (file && strcmp(file, in) == 0) return ar.currentline;
  }
  return 0;
}

static void record(lua_State *L, Recorder *r, Action a) {
  if (r->n >= r->limit)
    luaL_error(L, "the schedule of rank %d has more than %d actions", r->rank, r->limit);
  if (r->n == r->cap) {
    int cap = r->cap ? 2 * r->cap : 64;
    Action *at = lua_newuserdatauv(L, sizeof *at * (size_t)cap, 0);
    if (r->n) memcpy(at, r->at, sizeof *at * (size_t)r->n);
    lua_setiuservalue(L, 1, 1);
    r->at = at;
    r->cap = cap;
  }
  if (r->lines) a.line = caller_line(L, r->schedule->file);
  r->at[r->n++] = a;
}

/* Argument `arg`, an integer from 0 to below n. */
static int index_arg(lua_State *L, int arg, const char *what, int n) {
  lua_Integer v = luaL_checkinteger(L, arg);
  if (v < 0 || v >= n)
    luaL_error(L, "%s %d does not exist: there are %d, counted from 0", what,
               (int)MAX(MIN(v, INT32_MAX), INT32_MIN), n);
  return (int)v;
}

/* s:F(c, mb), s:I, s:W, s:B. Upvalue: the kind. */
static int compute(lua_State *L) {
  Recorder *r = self(L);
  int kind = (int)lua_tointeger(L, lua_upvalueindex(1));
  int c = index_arg(L, 2, "chunk", r->schedule->virtual_stages);
  int mb = index_arg(L, 3, "microbatch", r->schedule->microbatches);
  record(L, r, (Action){.kind = (uint8_t)kind, .chunk = (int16_t)c, .mb = mb});
  return 0;
}

/* s:overlap(cf, mf, cb, mb): a forward and a backward at the same time. */
static int overlap(lua_State *L) {
  Recorder *r = self(L);
  int chunks = r->schedule->virtual_stages, mbs = r->schedule->microbatches;
  Action a = {.kind = ACT_OVERLAP,
              .chunk = (int16_t)index_arg(L, 2, "chunk", chunks),
              .mb = index_arg(L, 3, "microbatch", mbs),
              .chunk2 = (int16_t)index_arg(L, 4, "chunk", chunks),
              .mb2 = index_arg(L, 5, "microbatch", mbs)};
  record(L, r, a);
  return 0;
}

/* s:unshard(c), s:reshard(c), s:reduce_grad(c). Upvalue: the kind. */
static int parameters(lua_State *L) {
  Recorder *r = self(L);
  int kind = (int)lua_tointeger(L, lua_upvalueindex(1));
  int c = index_arg(L, 2, "chunk", r->schedule->virtual_stages);
  record(L, r, (Action){.kind = (uint8_t)kind, .chunk = (int16_t)c, .mb = -1});
  return 0;
}

static int stage(lua_State *L) {
  Recorder *r = self(L);
  int c = index_arg(L, 2, "chunk", r->schedule->virtual_stages);
  lua_pushinteger(L, schedule_stage(r->schedule, r->rank, c));
  return 1;
}

/* ---- the object ---- */

static const char *const member_names[] = {
    "rank", "ranks", "virtual", "stages",  "microbatches", "stage",   "F",
    "I",    "W",     "B",       "overlap", "unshard",      "reshard", "reduce_grad"};

/* Upvalue: the methods. */
static int member(lua_State *L) {
  Recorder *r = self(L);
  const char *key = luaL_checkstring(L, 2);
  const Schedule *s = r->schedule;
  const struct {
    const char *name;
    int value;
  } fields[] = {{"rank", r->rank},
                {"ranks", s->ranks},
                {"virtual", s->virtual_stages},
                {"stages", s->ranks * s->virtual_stages},
                {"microbatches", s->microbatches}};
  for (int i = 0; i < LEN(fields); i++)
    if (strcmp(key, fields[i].name) == 0) {
      lua_pushinteger(L, fields[i].value);
      return 1;
    }
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  const char *near = name_suggest(key, member_names, LEN(member_names));
  if (near) return luaL_error(L, "s has no '%s' (did you mean '%s'?)", key, near);
  return luaL_error(L, "s has no '%s'", key);
}

static int assign(lua_State *L) { return luaL_error(L, "s cannot be changed"); }

static void add_method(lua_State *L, const char *name, lua_CFunction fn, int kind) {
  lua_pushinteger(L, kind);
  lua_pushcclosure(L, fn, 1);
  lua_setfield(L, -2, name);
}

static void push_metatable(lua_State *L) {
  if (!luaL_newmetatable(L, SCHEDULE_TYPE)) return;
  lua_newtable(L);
  add_method(L, "F", compute, ACT_F);
  add_method(L, "I", compute, ACT_I);
  add_method(L, "W", compute, ACT_W);
  add_method(L, "B", compute, ACT_B);
  add_method(L, "overlap", overlap, 0);
  add_method(L, "unshard", parameters, ACT_UNSHARD);
  add_method(L, "reshard", parameters, ACT_RESHARD);
  add_method(L, "reduce_grad", parameters, ACT_REDUCE_GRAD);
  add_method(L, "stage", stage, 0);
  lua_pushcclosure(L, member, 1);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, assign);
  lua_setfield(L, -2, "__newindex");
  lua_pushliteral(L, SCHEDULE_TYPE);
  lua_setfield(L, -2, "__metatable");
}

/* ---- calling ---- */

typedef struct StartJob {
  LangPlan *lp;
  const char *name; /* of a library schedule; NULL: a function of the plan */
  Schedule *schedule;
  Diags *d;
  bool with_options; /* pass the plan's options */
  int fn, options;   /* registry references */
  bool found, lines;
} StartJob;

/* Pushes the function, and what its table says about the schedule. */
static void start_job(lua_State *L, void *ud) {
  StartJob *j = ud;
  Schedule *s = j->schedule;
  if (j->name) {
    ScheduleFacts f;
    if (!schedule_push(L, j->name, &f)) return;
    if (!s->virtual_stages) s->virtual_stages = f.chunks;
    s->v_placement = f.v;
    field_push(L, -1, "run");
    if (j->with_options)
      schedule_options_push(L, j->lp);
    else
      lua_newtable(L);
    j->options = luaL_ref(L, LUA_REGISTRYINDEX);
  } else {
    lua_Debug ar;
    lua_rawgeti(L, LUA_REGISTRYINDEX, j->lp->schedule);
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &ar);
    const char *file = chunk_file(ar.source);
    s->file = file ? arena_str(j->d->arena, file) : NULL;
    j->lines = file != NULL;
  }
  j->fn = luaL_ref(L, LUA_REGISTRYINDEX);
  j->found = true;
}

typedef struct PushJob {
  StartJob *start;
  int rank, ref;
} PushJob;

/* Pushes the object `s` for a rank. */
static void push_job(lua_State *L, void *ud) {
  PushJob *j = ud;
  const Schedule *s = j->start->schedule;
  Recorder *r = lua_newuserdatauv(L, sizeof *r, 1);
  int64_t limit = (int64_t)16 * s->virtual_stages * s->microbatches + 64;
  *r = (Recorder){.schedule = j->start->schedule,
                  .rank = j->rank,
                  .limit = (int)MIN(limit, (int64_t)INT32_MAX / 2),
                  .lines = j->start->lines};
  push_metatable(L);
  lua_setmetatable(L, -2);
  j->ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* Steps beyond a plan's limit for a library schedule, whose work grows with the number of
 * actions of all ranks and, for each, with the ranks. */
static int64_t steps_for(const Schedule *s) {
  int64_t actions = (int64_t)s->ranks * s->virtual_stages * s->microbatches;
  return MIN(actions, (int64_t)1 << 40) * (1000 + 40 * (int64_t)MIN(s->ranks, 1 << 16));
}

static weft_status call_rank(StartJob *start, int rank, weft_error *e) {
  LangState *st = start->lp->state;
  lua_State *L = st->L;
  PushJob push = {start, rank, LUA_NOREF};
  TRY(state_protect(st, push_job, &push, e));
  lua_rawgeti(L, LUA_REGISTRYINDEX, start->fn);
  lua_rawgeti(L, LUA_REGISTRYINDEX, push.ref);
  Recorder *r = lua_touserdata(L, -1);
  if (start->name) lua_rawgeti(L, LUA_REGISTRYINDEX, start->options);
  st->more = start->name ? steps_for(start->schedule) : 0;
  weft_status status = state_call(st, start->name ? 2 : 1, 0, "schedule", start->d, e);
  st->more = 0;
  if (status == WEFT_OK) {
    Schedule *s = start->schedule;
    s->n[rank] = r->n;
    s->list[rank] = NEW_N(start->d->arena, Action, r->n + 1);
    if (r->n) memcpy(s->list[rank], r->at, sizeof *r->at * (size_t)r->n);
  }
  r->schedule = NULL;
  luaL_unref(L, LUA_REGISTRYINDEX, push.ref);
  return status;
}

static weft_status call_all(StartJob *j, weft_error *e) {
  TRY(state_protect(j->lp->state, start_job, j, e));
  if (!j->found) return err_set(e, WEFT_EPLAN, "there is no schedule \"%s\"", j->name);
  Schedule *s = j->schedule;
  s->list = NEW_N(j->d->arena, Action *, s->ranks);
  s->n = NEW_N(j->d->arena, int, s->ranks);
  weft_status st = WEFT_OK;
  for (int rank = 0; rank < s->ranks && st == WEFT_OK; rank++) st = call_rank(j, rank, e);
  luaL_unref(j->lp->state->L, LUA_REGISTRYINDEX, j->fn);
  luaL_unref(j->lp->state->L, LUA_REGISTRYINDEX, j->options);
  if (st == WEFT_EPLAN) lang_locate(j->lp, j->d);
  return st;
}

weft_status lang_schedule_named(LangPlan *lp, const char *name, const Mesh *m,
                                int microbatches, Schedule *s, Diags *d, weft_error *e) {
  *s = (Schedule){.ranks = m->size[AXIS_PP], .microbatches = microbatches, .name = name};
  StartJob j = {.lp = lp,
                .name = name,
                .schedule = s,
                .d = d,
                .fn = LUA_NOREF,
                .options = LUA_NOREF};
  return call_all(&j, e);
}

weft_status lang_schedule(LangPlan *lp, const Mesh *m, int microbatches, Schedule *s,
                          Diags *d, weft_error *e) {
  const Schedule *csv = lp->schedule_csv;
  *s = (Schedule){.ranks = m->size[AXIS_PP],
                  .microbatches = microbatches,
                  .virtual_stages = plan_virtual(&lp->plan),
                  .name = lp->plan.schedule,
                  .v_placement = lp->schedule_v};
  if (csv) {
    if (csv->ranks != s->ranks || csv->microbatches != microbatches)
      return err_set(e, WEFT_EPLAN, "%s does not fit the mesh", csv->file);
    *s = *csv;
    return WEFT_OK;
  }
  StartJob j = {.lp = lp,
                .name = lp->from_plan ? NULL : lp->plan.schedule,
                .schedule = s,
                .d = d,
                .with_options = true,
                .fn = LUA_NOREF,
                .options = LUA_NOREF};
  return call_all(&j, e);
}
