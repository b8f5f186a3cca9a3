/* schedule.h - the checks of a schedule's actions and of pp_plan. */
#ifndef WEFT_SCHEDULE_H
#define WEFT_SCHEDULE_H

#include "timeline.h"
#include "vm/plan/plan.h"

/* schedule.c: every action once, in an order that its own rank and the others can follow.
 * Problems become diagnostics that name rank, step (the index in the rank's list) and the
 * actions; at most a screen of them. */
bool schedule_check(const Schedule *s, Diags *d);
/* The same, and when its actions run; texts on the way lie in `a`. */
bool schedule_ready(const Schedule *s, Diags *d, Arena *a, Timeline *when);
/* schedule_forward.c: what is left of a table without backward, in the same order. What
 * it says of parameters is between forward and backward and left out. */
Schedule schedule_forward(const Schedule *s, Arena *a);
/* For ranks that have their parameters whole: what it says of these does nothing. */
void schedule_warn_of_parameters(const Schedule *s, Diags *d);

/* stage_layers.c: the layers of each of ranks * chunks stages, by all fields of pp_plan
 * but `modules` and `by_cost`; every problem becomes a diagnostic. With layers = -1
 * (unknown) only whether a list has one entry per stage is looked at. */
bool stage_layers(const PpPlan *pp, int ranks, int chunks, int layers, int *out,
                  Diags *d);
/* How many stages layers_per_stage asks for. */
int64_t stage_count_asked(const PpPlan *pp, int64_t layers);

#endif
