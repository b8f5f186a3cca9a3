/* schedule_facts.h - the properties of a schedule, the sizes for which it exists, and its
 * actions. */
#ifndef WEFT_SCHEDULE_FACTS_H
#define WEFT_SCHEDULE_FACTS_H

#include "bindings/plan_table/loaded_plan.h"

typedef struct ScheduleFacts {
  const char *name;
  int chunks; /* stages per rank, if pp_plan does not set them */
  bool fixed; /* other numbers are not possible */
  bool v;     /* V placement */
} ScheduleFacts;
/* Pushes the table of library schedule `name`; false, with nothing pushed, if there is
 * none. */
bool schedule_push(lua_State *L, const char *name, ScheduleFacts *f);
/* The same for the plan's own schedule, called `name`; pushes nil for a schedule that is
 * not in the library. */
bool schedule_push_own(lua_State *L, const LangPlan *lp, const char *name,
                       ScheduleFacts *f);
/* Pushes the options of the plan's schedule. */
void schedule_options_push(lua_State *L, const LangPlan *lp);
/* Checks that the plan's schedule exists for these sizes; the error names the nearest
 * sizes. */
void schedule_check_sizes(lua_State *L, LangPlan *lp, const Plan *p, const Mesh *m,
                          int microbatches, Diags *d);
/* The smallest number of microbatches, from `from` on, for which the plan's schedule
 * exists on so many ranks; `from` if there is none near. */
weft_status schedule_fewest(LangPlan *lp, const Plan *p, int ranks, int from, int *found,
                            weft_error *e);

/* ---- schedule_call.c ---- */
/* Calls the plan's schedule once per pp rank; its action lists are in the arena of `d`.
 */
weft_status lang_schedule(LangPlan *lp, const Mesh *m, int microbatches, Schedule *s,
                          Diags *d, weft_error *e);
/* The same for a schedule of the library ("1f1b") instead of the plan's. */
weft_status lang_schedule_named(LangPlan *lp, const char *name, const Mesh *m,
                                int microbatches, Schedule *s, Diags *d, weft_error *e);

#endif
