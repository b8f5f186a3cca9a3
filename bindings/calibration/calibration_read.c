/* calibration_read.c - evaluates a calibration in a sandbox of its own; each call is
 * checked where it stands, so that an error has its line. See calibration.h. */
#include "calibration.h"

#include <lauxlib.h>
#include <math.h>

#include "bindings/sandbox/sandbox.h"
#include "vm/comm/world.h"

typedef struct Reading {
  CostTable *to;
  Arena *a;
  bool has_machine;
} Reading;

static Reading *reading(lua_State *L) { return lua_touserdata(L, lua_upvalueindex(1)); }

/* ---- fields of the table at 1 ---- */

/* Raises for a key that is none of these, which end with NULL. */
static void only(lua_State *L, const char *const *known) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushnil(L);
  while (lua_next(L, 1)) {
    bool found = lua_type(L, -2) == LUA_TNUMBER;
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    for (int i = 0; known[i]; i++) found |= strcmp(known[i], key) == 0;
    if (!found) luaL_error(L, "unknown field \"%s\"", key);
    lua_pop(L, 1);
  }
}

static const char *text_at(lua_State *L, const char *name) {
  if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "%s: a string is missing", name);
  const char *s = arena_str(reading(L)->a, lua_tostring(L, -1));
  lua_pop(L, 1);
  return s;
}

static const char *text_field(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  return text_at(L, name);
}

static const char *text_of(lua_State *L, int i, const char *name) {
  lua_rawgeti(L, 1, i);
  return text_at(L, name);
}

/* A number from `least` on; `needed`: it has to be there. Products of two stay finite. */
static double number(lua_State *L, const char *name, double least, bool needed) {
  const double most = 1e30;
  double v = 0;
  if (lua_getfield(L, 1, name) == LUA_TNUMBER)
    v = lua_tonumber(L, -1);
  else if (needed || !lua_isnil(L, -1))
    luaL_error(L, "%s: a number is missing", name);
  if ((needed || !lua_isnil(L, -1)) && !(v >= least && v <= most))
    luaL_error(L, "%s: %f is no number from %f to %f", name, v, least, most);
  lua_pop(L, 1);
  return v;
}

static int whole(lua_State *L, const char *name, int least) {
  double v = number(L, name, least, true);
  if (v != floor(v) || v > 1e6) luaL_error(L, "%s: %f is no count", name, v);
  return (int)v;
}

static DType dtype_of(lua_State *L) {
  const char *name = text_of(L, 2, "the type");
  DType t = dtype_named(name);
  if (t == DT_ACT) luaL_error(L, "there is no type \"%s\"", name);
  return t;
}

static double seconds_of(lua_State *L) {
  const double day = 86400e9;
  double ns = number(L, "ns", 0, true);
  if (!(ns > 0 && ns <= day)) luaL_error(L, "ns: has to be above 0, and at most a day");
  return ns / 1e9;
}

/* ---- the three functions ---- */

static int machine(lua_State *L) {
  static const char *const known[] = {"device",    "way",   "name",  "version", "date",
                                      "threads",   "cores", "ranks", "f32",     "bf16",
                                      "bandwidth", "comm",  NULL};
  Reading *r = reading(L);
  CostTable *t = r->to;
  only(L, known);
  if (r->has_machine) return luaL_error(L, "a calibration is of one machine");
  r->has_machine = true;
  t->device = text_field(L, "device");
  t->way = text_field(L, "way");
  t->machine = text_field(L, "name");
  lua_getfield(L, 1, "comm");
  bool threads = lua_isnil(L, -1); /* the only ones that older files know */
  lua_pop(L, 1);
  t->comm = threads ? "local" : text_field(L, "comm");
  if (!world_kind(t->comm, NULL)) luaL_error(L, "nothing moves data by \"%s\"", t->comm);
  t->version = text_field(L, "version");
  t->date = text_field(L, "date");
  t->threads = whole(L, "threads", 1);
  t->cores = whole(L, "cores", 0);
  t->ranks = (int)fmin(number(L, "ranks", 0, false), 1e6);
  t->f32 = number(L, "f32", 1, true);
  t->bf16 = number(L, "bf16", 1, true);
  t->bandwidth = number(L, "bandwidth", 1, true);
  return 0;
}

static uint16_t op_named(lua_State *L, const char *name) {
  int op = op_parse(name);
  if (op < 0) luaL_error(L, "this version of weft has no op \"%s\"", name);
  return (uint16_t)op;
}

static WorkClass class_named(lua_State *L, const char *name) {
  for (int i = 0; i < WORK_N; i++)
    if (strcmp(work_name[i], name) == 0) return (WorkClass)i;
  luaL_error(L, "there is no class of kernels \"%s\"", name);
  return WORK_MOVE;
}

static int kernel(lua_State *L) {
  static const char *const known[] = {"class", "m",     "n",     "k",
                                      "heads", "flops", "bytes", "between",
                                      "added", "fp8",   "ns",    NULL};
  Reading *r = reading(L);
  only(L, known);
  KernelRow row = {.op = op_named(L, text_of(L, 1, "the op")),
                   .work = {.dtype = dtype_of(L),
                            .kind = class_named(L, text_field(L, "class")),
                            .m = number(L, "m", 0, false),
                            .n = number(L, "n", 0, false),
                            .k = number(L, "k", 0, false),
                            .heads = number(L, "heads", 0, false),
                            .flops = number(L, "flops", 0, false),
                            .bytes = number(L, "bytes", 0, false),
                            .between = number(L, "between", 0, false),
                            .added = number(L, "added", 0, false),
                            .fp8 = number(L, "fp8", 0, false) > 0},
                   .shape = text_of(L, 3, "the shape"),
                   .seconds = seconds_of(L)};
  if (table_kernel(r->to, row.op, row.shape))
    return luaL_error(L, "a second row of %s %s", op_info[row.op].name, row.shape);
  *VEC_PUSH(r->a, r->to->kernel) = row;
  return 0;
}

static CollKind kind_named(lua_State *L, const char *name) {
  for (int i = 0; i < COLL_RECV; i++)
    if (strcmp(coll_info[i].name, name) == 0) return (CollKind)i;
  luaL_error(L, "there is no collective \"%s\"", name);
  return COLL_SEND;
}

static int move(lua_State *L) {
  static const char *const known[] = {"ranks", "bytes", "ns", NULL};
  Reading *r = reading(L);
  only(L, known);
  MoveRow row = {.kind = kind_named(L, text_of(L, 1, "the collective")),
                 .dtype = dtype_of(L),
                 .ranks = whole(L, "ranks", 2),
                 .bytes = number(L, "bytes", 1, true),
                 .seconds = seconds_of(L)};
  if (table_move(r->to, row.kind, row.dtype, row.ranks, row.bytes))
    return luaL_error(L, "a second row of %s of %d ranks and %d bytes",
                      coll_info[row.kind].name, row.ranks,
                      (int)MIN(row.bytes, INT32_MAX));
  *VEC_PUSH(r->a, r->to->move) = row;
  return 0;
}

/* ---- the file ---- */

static const luaL_Reg functions[] = {
    {"kernel", kernel}, {"machine", machine}, {"move", move}};

static void provide(lua_State *L, void *ud) {
  for (int i = 0; i < LEN(functions); i++) {
    lua_pushlightuserdata(L, ud);
    lua_pushcclosure(L, functions[i].func, 1);
    lua_pushglobaltable(L);
    lua_insert(L, -2);
    lua_pushstring(L, functions[i].name);
    lua_insert(L, -2);
    lua_rawset(L, -3);
    lua_pop(L, 1);
  }
}

static int is_plan(lua_State *L) {
  return luaL_error(L,
                    "is no calibration, but a plan: weft calibrate writes calibrations, "
                    "which have no weft.%s",
                    luaL_tolstring(L, 2, NULL));
}

/* What uses the library is a plan, whatever it uses first. */
static void no_library(lua_State *L, const LangOptions *o) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, is_plan);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
}

static weft_status evaluate(LangState *s, Reading *r, Diags *d, weft_error *e) {
  TRY(state_protect(s, provide, r, e));
  TRY(state_run(s, d, e));
  lua_pop(s->L, 1);
  if (r->has_machine) return WEFT_OK;
  Diag *g =
      diag_error(d, "calibration", "", "is no calibration: it names no machine { }");
  g->file = arena_str(d->arena, s->path);
  g->line = 1;
  return WEFT_EPLAN;
}

weft_status calibration_read(const char *path, Arena *a, CostTable *out, Diags *d,
                             weft_error *e) {
  LangOptions o = {0};
  StateHost host = {.push_weft = no_library};
  Reading r = {.to = out, .a = a};
  LangState *s;
  *out = (CostTable){0};
  TRY(state_new(&o, a, path, "", &host, &s, e));
  weft_status st = evaluate(s, &r, d, e);
  state_free(s);
  return st;
}
