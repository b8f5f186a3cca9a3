/* schedule_fixture.h - schedules of plans for tests, for many sizes of one plan. */
#ifndef WEFT_TESTS_SCHEDULE_FIXTURE_H
#define WEFT_TESTS_SCHEDULE_FIXTURE_H

#include "bindings/schedule/schedule_csv.h"
#include "lang_fixture.h"

/* Loads a plan with this value of `schedule`, two ranks and 64 layers, on which the sizes
 * below are tried; 0: the schedule's own number of virtual stages. */
void schedule_load(LangTest *t, const char *schedule, int virtual_stages);
/* False if the schedule refuses these sizes; `d`, with an arena from the caller, has the
 * reason. */
bool schedule_legal(LangTest *t, int ranks, int microbatches, Diags *d);
/* The table for these sizes, without asking schedule_legal. */
Schedule schedule_table(LangTest *t, Arena *a, int ranks, int microbatches);
/* As --csv prints it. */
const char *schedule_text(Arena *a, const Schedule *s, bool comms);

#endif
