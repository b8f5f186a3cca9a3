/* schedule_facts.h - what a schedule says about itself, the sizes for which it exists,
 * and its actions. */
#ifndef WEFT_SCHEDULE_FACTS_H
#define WEFT_SCHEDULE_FACTS_H

#include "bindings/plan_table/loaded_plan.h"

typedef struct ScheduleFacts {
  const char *name;
  int chunks; /* stages of a rank, if pp_plan does not say it */
  bool fixed; /* it has no other number of them */
  bool v;     /* their placement */
} ScheduleFacts;
/* Pushes the table of the library's schedule `name`; false, with nothing pushed, if there
 * is none. */
bool schedule_push(lua_State *L, const char *name, ScheduleFacts *f);
/* The same of the plan's own schedule, called `name`: a schedule that is not the
 * library's has nil for a table. */
bool schedule_push_own(lua_State *L, const LangPlan *lp, const char *name,
                       ScheduleFacts *f);
/* Pushes the table of options of the plan's schedule. */
void schedule_options_push(lua_State *L, const LangPlan *lp);
/* Whether the plan's schedule exists for these sizes; if not, which are the nearest. */
void schedule_check_sizes(lua_State *L, LangPlan *lp, const Plan *p, const Mesh *m,
                          int microbatches, Diags *d);
/* The least number of microbatches, not below `from`, for which the plan's schedule
 * exists on so many ranks; `from` if there is none near. */
weft_status schedule_fewest(LangPlan *lp, const Plan *p, int ranks, int from, int *found,
                            weft_error *e);

/* ---- schedule_call.c ---- */
/* Calls the plan's schedule once per pp rank; the lists lie in the arena of `d`. */
weft_status lang_schedule(LangPlan *lp, const Mesh *m, int microbatches, Schedule *s,
                          Diags *d, weft_error *e);
/* The same with a schedule of the library ("1f1b") instead of the plan's. */
weft_status lang_schedule_named(LangPlan *lp, const char *name, const Mesh *m,
                                int microbatches, Schedule *s, Diags *d, weft_error *e);

#endif
