/* plan_diff.c - plan:diff(other): the fields that differ, then the figures. */
#include "format.h"
#include "bindings/lang/lang.h"
#include "plan_object.h"
#include "bindings/script/export.h"
#include "bindings/script/script.h"

#include <stdio.h>

enum { MAX_NEST = 20 };

/* ---- fields as texts ---- */

/* Functions are the same if their code is; the place says which one it is. */
static void push_function(lua_State *L, int idx) {
  uint64_t hash;
  const char *place = export_place(L, idx, &hash);
  char text[16];
  snprintf(text, sizeof text, "0x%06x", (unsigned)(hash & 0xffffff));
  lua_pushfstring(L, "function %s (%s)", place, text);
}

/* Pushes the value as one writes it; tables are their builder or {}. */
static void push_shown(lua_State *L, int idx) {
  const char *kind;
  switch (lua_type(L, idx)) {
  case LUA_TSTRING:
    lua_pushfstring(L, "\"%s\"", lua_tostring(L, idx));
    return;
  case LUA_TFUNCTION:
    push_function(L, idx);
    return;
  case LUA_TTABLE:
    kind = mark_kind(L, idx);
    if (kind)
      lua_pushfstring(L, "weft.%s", kind);
    else
      lua_pushliteral(L, "{}");
    return;
  default:
    luaL_tolstring(L, idx, NULL);
  }
}

/* out[path] = text for the table at t and all below. */
static void flatten(lua_State *L, int t, const char *base, int out, Arena *a, int nest) {
  luaL_checkstack(L, 10, NULL);
  for (lua_pushnil(L); nest < MAX_NEST && lua_next(L, t); lua_pop(L, 1)) {
    int value = lua_gettop(L);
    const char *path = path_join(a, base, L, value - 1);
    bool plain = lua_istable(L, value) && !mark_kind(L, value);
    if (!plain || lua_rawlen(L, value) == 0) {
      push_shown(L, value);
      lua_setfield(L, out, path);
    }
    if (lua_istable(L, value)) flatten(L, value, path, out, a, nest + 1);
  }
}

typedef struct FlattenJob {
  lua_State *L;
  int t, out;
  Arena *arena;
} FlattenJob;

static void flatten_job(void *ud) {
  FlattenJob *j = ud;
  flatten(j->L, j->t, "", j->out, j->arena, 0);
}

/* Pushes the flat fields of the plan at idx. */
static int push_fields(lua_State *L, int idx) {
  lua_newtable(L);
  int out = lua_gettop(L);
  FlattenJob j = {.L = L, .out = out, .arena = script_push_arena(L)};
  lang_push_spec(plan_object_at(L, idx)->job.lp, L, idx);
  j.t = lua_gettop(L);
  if (!arena_try(j.arena, flatten_job, &j)) luaL_error(L, "not enough memory");
  lua_settop(L, out);
  return out;
}

/* ---- the result ---- */

/* A row on the list on top; a and b NULL: not there. */
static void add_row(lua_State *L, const char *path, const char *a, const char *b,
                    bool figure, Text *t) {
  text_printf(t, "%s%s: %s -> %s\n", figure ? "= " : "", path, a ? a : "(nothing)",
              b ? b : "(nothing)");
  lua_createtable(L, 0, 4);
  set_text(L, "path", path);
  if (a) set_text(L, "from", a);
  if (b) set_text(L, "to", b);
  lua_pushboolean(L, figure);
  lua_setfield(L, -2, "figure");
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

static void add_figure(lua_State *L, const char *what, const char *a, const char *b,
                       Text *t) {
  if (strcmp(a, b) != 0) add_row(L, what, a, b, true, t);
}

static void add_count(lua_State *L, const char *what, int64_t a, int64_t b, Text *t) {
  if (a == b) return;
  lua_pushfstring(L, "%I", (lua_Integer)a);
  lua_pushfstring(L, "%I", (lua_Integer)b);
  lua_pushvalue(L, -3);
  add_row(L, what, lua_tostring(L, -3), lua_tostring(L, -2), true, t);
  lua_pop(L, 3);
}

/* What follows from the fields, of two plans that compile. */
static void add_figures(lua_State *L, const Job *a, const Job *b, Text *t) {
  char x[96], y[96];
  int pp;
  add_figure(L, "mesh", format_mesh(&a->mesh, x), format_mesh(&b->mesh, y), t);
  add_count(L, "ranks", a->mesh.world, b->mesh.world, t);
  add_count(L, "microbatches", a->microbatches, b->microbatches, t);
  add_count(L, "parameters", (int64_t)a->compiled->params_total,
            (int64_t)b->compiled->params_total, t);
  add_figure(L, "memory", format_bytes((double)job_worst_memory(a, &pp), x),
             format_bytes((double)job_worst_memory(b, &pp), y), t);
}

int plan_diff(lua_State *L) {
  plan_object_self(L);
  plan_object_at(L, 2);
  lua_settop(L, 2);
  int a = push_fields(L, 1), b = push_fields(L, 2);
  /* All paths of both, in order. */
  lua_newtable(L);
  for (int side = a; side <= b; side++)
    for (lua_pushnil(L); lua_next(L, side);) {
      lua_pop(L, 1);
      lua_pushvalue(L, -1);
      lua_pushboolean(L, 1);
      lua_rawset(L, b + 1);
    }
  sorted_keys(L, b + 1);
  int keys = lua_gettop(L);
  Text *t = result_begin(L);
  int list = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, list)) {
    lua_pushvalue(L, -1);
    lua_rawget(L, a);
    lua_pushvalue(L, -2);
    lua_rawget(L, b);
    if (lua_rawequal(L, -1, -2)) continue;
    lua_pushvalue(L, list);
    add_row(L, lua_tostring(L, list + 1), lua_tostring(L, list + 2),
            lua_tostring(L, list + 3), false, t);
  }
  lua_settop(L, list);
  const Job *ja = plan_object_try(L, 1), *jb = plan_object_try(L, 2);
  if (ja && jb)
    add_figures(L, ja, jb, t);
  else
    text_add(t, "figures are not compared: a plan does not compile (plan:check())\n");
  if (!t->n) text_add(t, "the same\n");
  result_end(L);
  return 1;
}
