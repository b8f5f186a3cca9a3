/* schedule.h - the checks of a schedule's actions and of pp_plan. */
#ifndef WEFT_SCHEDULE_H
#define WEFT_SCHEDULE_H

#include "timeline.h"
#include "vm/plan/plan.h"

/* schedule.c: every action once, in an order that its own rank and all others can
 * execute. Problems become diagnostics that name rank, step (the index in the rank's
 * list) and actions; at most a screenful. */
bool schedule_check(const Schedule *s, Diags *d);
/* schedule_check, and when the actions run; strings are allocated in `a`. */
bool schedule_ready(const Schedule *s, Diags *d, Arena *a, Timeline *when);
/* schedule_forward.c: a schedule without its backward actions, in the same order. Actions
 * on parameters are left out, too. */
Schedule schedule_forward(const Schedule *s, Arena *a);
/* schedule_rounds.c: lists that run once for each round, with microbatches that go on.
 * Strings and, of one round, lists are those of `s`. */
Schedule schedule_of_step(const Schedule *s, int rounds, Arena *a);
/* Warns about actions on parameters where these are replicated: they have no effect. */
void schedule_warn_of_parameters(const Schedule *s, Diags *d);

/* stage_layers.c: the layers of each of ranks * chunks stages, by all fields of pp_plan
 * except `modules` and `by_cost`; every problem becomes a diagnostic. With layers = -1
 * (unknown) only checks that a list has one entry per stage. */
bool stage_layers(const PpPlan *pp, int ranks, int chunks, int layers, int *out,
                  Diags *d);
/* The number of stages that layers_per_stage results in on so many pipeline ranks. */
int64_t stage_count_asked(const PpPlan *pp, int64_t layers, int ranks);

#endif
