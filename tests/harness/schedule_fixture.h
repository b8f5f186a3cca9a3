/* schedule_fixture.h - schedules of plans for tests, for many sizes of one plan. */
#ifndef WEFT_TESTS_SCHEDULE_FIXTURE_H
#define WEFT_TESTS_SCHEDULE_FIXTURE_H

#include "bindings/schedule/schedule_csv.h"
#include "lang_fixture.h"

/* Loads a plan with this value of `schedule`, of two ranks and 64 layers, which the sizes
 * below are then tried on; 0: the schedule's own number of virtual stages. */
void schedule_load(LangTest *t, const char *schedule, int virtual_stages);
/* False if the schedule refuses these sizes; `d`, whose arena is given, says why. */
bool schedule_legal(LangTest *t, int ranks, int microbatches, Diags *d);
/* The table for these sizes, whatever schedule_legal says. */
Schedule schedule_table(LangTest *t, Arena *a, int ranks, int microbatches);
/* As --csv prints it. */
const char *schedule_text(Arena *a, const Schedule *s, bool comms);

#endif
