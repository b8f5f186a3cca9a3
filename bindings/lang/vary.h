/* vary.h - a loaded plan with other values in some fields. */
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
/* Gives the field of list i its value number choice[i], from 0, and checks the plan as
 * lang_load does. vary_end must follow in any case; until then `lp` must not be used for
 * anything else. Allocates in d->arena. `shared` may be NULL; with it the config of a
 * model must not be changed. */
weft_status vary_begin(LangPlan *lp, int values, const LangShared *shared,
                       const int *choice, int n, Vary *v, Diags *d, weft_error *e);
void vary_end(Vary *v);

#endif
