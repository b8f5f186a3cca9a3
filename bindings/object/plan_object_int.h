/* plan_object_int.h - what a plan object has, for the files that make and read it. */
#ifndef WEFT_PLAN_OBJECT_INT_H
#define WEFT_PLAN_OBJECT_INT_H

#include "bindings/plan_table/function_export.h"
#include "plan_object.h"

#define PLAN_TYPE "weft.plan"
typedef struct PlanObject {
  ExportOwner owner; /* owner of the functions in plan.spec */
  weft_plan *plan;   /* NULL once it is closed */
  lua_State *L;      /* the thread that uses the plan, in which its print() runs */
  bool compiled, borrowed;
  bool busy; /* print() of the plan is running */
} PlanObject;

/* Pushes an object without a plan. */
PlanObject *plan_object_new(lua_State *L);
/* The object at index 1, for methods; else raises an error. */
PlanObject *plan_object_get(lua_State *L);
weft_status plan_object_compile(lua_State *L, PlanObject *o, weft_error *e);
/* Lua does not count the memory of a plan: makes the collector run sooner. */
void plan_object_account(lua_State *L, const weft_plan *p);

/* ---- plan_make.c ---- */
/* plan:with { field = value, ["mesh.tp"] = 4 }: a compiled copy. */
int plan_object_with(lua_State *L);

#endif
