/* plan_object.h - plans as Lua objects, from files, tables of a script, or changed copies
 * of others; compiled when a method first needs it. */
#ifndef WEFT_PLAN_OBJECT_H
#define WEFT_PLAN_OBJECT_H

#include <lauxlib.h>
#include <lua.h>

#include "bindings/api/api.h"
#include "result.h"

/* weft.load(path [, { define = {...} }]) and weft.plan { ... } */
int plan_object_load(lua_State *L);
int plan_object_make(lua_State *L);

/* Pushes an object for a plan that somebody else owns and has compiled as far as the
 * methods need that will be called; the state may not outlive it. */
void plan_object_borrow(lua_State *L, weft_plan *plan);

/* The handle of the object at idx, or NULL. It lives as long as the object is not
 * collected or closed. */
weft_plan *plan_object_test(lua_State *L, int idx);
/* The handle of the object at 1, for methods; raises. */
weft_plan *plan_object_self(lua_State *L);
/* The same, compiled; raises all reasons if that is not possible. */
const Job *plan_object_compiled(lua_State *L);
/* Raises what a call with a handle gave. */
int plan_object_raise(lua_State *L, const weft_plan *p, weft_status st,
                      const weft_error *e);

/* The handle of the other plan at idx; raises. */
weft_plan *plan_object_at(lua_State *L, int idx);
/* The same, compiled; NULL if that is not possible. */
const Job *plan_object_try(lua_State *L, int idx);

/* ---- methods ---- */
int plan_match(lua_State *L); /* plan_params.c */
int plan_shards(lua_State *L);
int plan_figures(lua_State *L);
int plan_program(lua_State *L); /* plan_program.c */
int plan_memory(lua_State *L);
int plan_comm(lua_State *L);
int plan_stages(lua_State *L);
int plan_schedule(lua_State *L);
int plan_verify(lua_State *L); /* plan_act.c */
int plan_run(lua_State *L);

#endif
