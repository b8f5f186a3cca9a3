/* vary.h - a loaded plan with other values in some fields, for a while; and texts of what
 * its fields are, for comparing plans. */
#ifndef WEFT_VARY_H
#define WEFT_VARY_H

#include "bindings/plan_table/loaded_plan.h"

typedef struct Vary {
  LangPlan plan;
  LangPlan *of;
  int undo; /* registry reference: what the fields were */
  Arena *arena;
} Vary;
/* Takes a list of { path, value, value, ... } along into the state of the plan;
 * WEFT_EPLAN and `d` if a value cannot go there. */
weft_status vary_take(LangPlan *lp, lua_State *from, int idx, int *values, Diags *d,
                      weft_error *e);
/* Gives the field of list i its value number choice[i], from 0, and checks the plan as
 * lang_load does. vary_end must follow whatever the result is; until then nothing else
 * may be done with `lp`. All that is allocated lies in d->arena. */
weft_status vary_begin(LangPlan *lp, int values, const int *choice, int n, Vary *v,
                       Diags *d, weft_error *e);
void vary_end(Vary *v);
/* Adds the values of all fields that influence one of these (FOR_UNITS ... of schema.h):
 * equal texts, equal results. Functions are told apart within a state. WEFT_EPLAN: a
 * table has no such text. */
weft_status vary_key(LangPlan *lp, unsigned what, Text *out, weft_error *e);
/* Adds what no row of the schema tells (schema_tells) as it was written: lists, tables,
 * functions by their code and what they captured. The same in another process.
 * WEFT_EPLAN: there is no such text. */
weft_status vary_others(LangPlan *lp, Text *out, weft_error *e);
/* The same of all fields. */
weft_status vary_text(LangPlan *lp, Text *out, weft_error *e);

#endif
