/* vary.h - a loaded plan with other values in some fields; and keys made of its fields,
 * for comparing plans. */
#ifndef WEFT_VARY_H
#define WEFT_VARY_H

#include "bindings/plan_table/loaded_plan.h"

typedef struct Vary {
  LangPlan plan;
  LangPlan *of;
  int undo; /* registry reference: the old values */
  Arena *arena;
} Vary;
/* Copies a list of { path, value, value, ... } into the state of the plan; WEFT_EPLAN and
 * `d` if a value cannot be copied. */
weft_status vary_take(LangPlan *lp, lua_State *from, int idx, int *values, Diags *d,
                      weft_error *e);
/* What all points that change these fields alone have in common, which is checked once;
 * lies in lp->arena. NULL: nothing, as a table cannot be written as a key. */
weft_status vary_share(LangPlan *lp, int values, const LangShared **out, weft_error *e);
/* Gives the field of list i its value number choice[i], from 0, and checks the plan as
 * lang_load does. vary_end must follow in any case; until then `lp` must not be used for
 * anything else. Allocates in d->arena. `shared` may be NULL; with it the config of a
 * model must not be changed. */
weft_status vary_begin(LangPlan *lp, int values, const LangShared *shared,
                       const int *choice, int n, Vary *v, Diags *d, weft_error *e);
void vary_end(Vary *v);
/* Appends the values of all fields that influence one of these parts (FOR_UNITS ... of
 * schema.h): plans with equal keys have equal parts. Functions are identified within one
 * Lua state, as long as they live. WEFT_EPLAN: a table cannot be written as a key. */
weft_status vary_key(LangPlan *lp, unsigned what, Text *out, weft_error *e);
/* Whether such keys tell a value by its address, as functions: it says nothing once the
 * value is gone. */
weft_status vary_addressed(LangPlan *lp, bool *yes, weft_error *e);
/* Appends the fields without a place in Plan (schema_tells) as they were written: lists,
 * tables, functions by code and captured values. Equal in every process. WEFT_EPLAN: a
 * value cannot be written as a key. */
weft_status vary_others(LangPlan *lp, Text *out, weft_error *e);
/* Appends a value in the same way: the one that `push` pushes; the plan's table is at
 * PLAN_INDEX. */
weft_status vary_value(LangPlan *lp, void (*push)(lua_State *L, void *ud), void *ud,
                       Text *out, weft_error *e);
/* Appends all fields. */
weft_status vary_text(LangPlan *lp, Text *out, weft_error *e);

#endif
