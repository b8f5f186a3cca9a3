/* sim_timeline.h - a simulated step as a timeline of the actions of its schedule, in the
 * form in which vm/draw takes one. */
#ifndef WEFT_SIM_TIMELINE_H
#define WEFT_SIM_TIMELINE_H

#include "step_clock.h"
#include "vm/pipeline/timeline.h"

/* The actions of all rounds of a step, and when they run: from the start of an action's
 * first body to the end of its last, with what bodies wait for inside. One rank for each
 * pipeline rank. `table`: measured times, or NULL. */
weft_status sim_timeline(const Compiled *c, const Plan *plan, const CostTable *table,
                         Arena *a, Schedule *s, Timeline *t, weft_error *e);

#endif
