/* plan_key.h - keys made of a plan's fields, for comparing plans, and what the points of
 * a grid have in common. */
#ifndef WEFT_PLAN_KEY_H
#define WEFT_PLAN_KEY_H

#include "bindings/plan_table/loaded_plan.h"

/* Appends the values of all fields that influence one of these parts (FOR_UNITS ... of
 * schema.h): plans with equal keys have equal parts. Functions are identified within one
 * Lua state, as long as they live. WEFT_EPLAN: a table cannot be written as a key. */
weft_status plan_key(LangPlan *lp, unsigned what, Text *out, weft_error *e);
/* Whether such keys tell a value by its address, as functions: it says nothing once the
 * value is gone. */
weft_status plan_key_addressed(LangPlan *lp, bool *yes, weft_error *e);
/* Appends the fields without a place in Plan (schema_tells) as they were written: lists,
 * tables, functions by code and all that they lead to. Equal in every process.
 * WEFT_EPLAN: a value cannot be written as a key. */
weft_status plan_key_others(LangPlan *lp, Text *out, weft_error *e);
/* Appends a value in the same way: the one that `push` pushes; the plan's table is at
 * PLAN_INDEX. */
weft_status plan_key_value(LangPlan *lp, void (*push)(lua_State *L, void *ud), void *ud,
                           Text *out, weft_error *e);
/* Calls each(ud, field, text) for the fields of plan_key_others, each by itself, for
 * people; NULL: it is not written. Fields of builders and names that the plan does not
 * have are not written. */
struct Field;
typedef void WrittenField(void *ud, const struct Field *f, const char *text);
weft_status plan_written(LangPlan *lp, WrittenField *each, void *ud, weft_error *e);
/* Appends the contents of files that the plan names and its figures depend on, and those
 * that values of a grid name (vary_take, or LUA_NOREF): config.json of models in folders,
 * tables of schedules. */
weft_status plan_key_files(LangPlan *lp, int values, Text *out, weft_error *e);
/* Appends all fields. */
weft_status plan_key_text(LangPlan *lp, Text *out, weft_error *e);
/* What all points that change these fields alone have in common, which is checked once;
 * lies in lp->arena. NULL: nothing, as a table cannot be written as a key. */
weft_status plan_share(LangPlan *lp, int values, const LangShared **out, weft_error *e);

#endif
