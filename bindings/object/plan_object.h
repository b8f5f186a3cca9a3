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
/* load(name, text): a plan of a text, as if it were the file `name`, which is not read;
 * nil and the reasons. For the library alone. */
int plan_object_text(lua_State *L);
/* draft(name, text), draft(path, options of weft.load) and draft(fields): the plan
 * without checks of its layout, for searches to try others of it. For the library alone.
 */
int plan_object_draft(lua_State *L);

/* Pushes an object for a plan that another owner has compiled as far as needed; the Lua
 * state must be closed before the plan is freed. */
void plan_object_borrow(lua_State *L, weft_plan *plan);

/* The handle of the object at idx, or NULL. It is valid until the object is collected or
 * closed. */
weft_plan *plan_object_test(lua_State *L, int idx);
/* The handle of the object at index 1, for methods; else raises an error. */
weft_plan *plan_object_self(lua_State *L);
/* The same, compiled; raises all errors if it does not compile. */
const Job *plan_object_compiled(lua_State *L);
/* Raises an error if the method got an argument, of which it has none. */
void plan_object_no_arguments(lua_State *L, const char *method);
/* Argument `arg` of a method as a rank of the mesh; else raises an error. */
int plan_object_rank(lua_State *L, const Job *j, int arg);
/* Raises the error of a call on a handle. */
int plan_object_raise(lua_State *L, const weft_plan *p, weft_status st,
                      const weft_error *e);

/* The handle of another plan at idx; else raises an error. */
weft_plan *plan_object_at(lua_State *L, int idx);
/* The same, compiled; NULL if it does not compile. */
const Job *plan_object_try(lua_State *L, int idx);

/* ---- plan_asks.c ---- */
/* asks(plan): the ranks that a plan is for, as it writes them, and the bounds below. */
int plan_asks(lua_State *L);
/* Sets in the table on top what bounds layouts: ranks of a machine and of an NVLink
 * domain, layers, experts; and, if the plan names its GPU, that and the memory of a rank.
 */
void plan_bounds_set(lua_State *L, const Job *j);

/* ---- methods ---- */
int plan_match(lua_State *L); /* plan_params.c */
int plan_shards(lua_State *L);
int plan_figures(lua_State *L);
int plan_memory(lua_State *L);  /* plan_memory.c */
int plan_program(lua_State *L); /* plan_program.c */
int plan_comm(lua_State *L);
int plan_stages(lua_State *L);
int plan_schedule(lua_State *L);
int plan_sim(lua_State *L);      /* plan_sim.c */
int plan_warnings(lua_State *L); /* plan_asks.c */
int plan_verify(lua_State *L);   /* plan_act.c */
int plan_run(lua_State *L);

#endif
