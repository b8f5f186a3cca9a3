/* plan_fixture.h - loads a plan of tests/ with values from the test, in an arena that is
 * freed with it. */
#ifndef WEFT_TESTS_PLAN_FIXTURE_H
#define WEFT_TESTS_PLAN_FIXTURE_H

#include "bindings/lang/plan_load.h"

typedef struct PlanFixture {
  Arena *arena;
  Diags d;
  LangPlan *lp;
  weft_error e;
} PlanFixture;

/* `file` is relative to the source folder; `define` and `set` are NULL-terminated lists
 * as of -D and --set, or NULL. Diagnostics are located. */
weft_status fixture_open(PlanFixture *f, const char *file, const char *const *define,
                         const char *const *set);
void fixture_close(PlanFixture *f);
/* Builds the graph for B sequences of T tokens. */
weft_status fixture_graph(PlanFixture *f, int64_t B, int64_t T, Graph **g);
/* All diagnostics and the error as a string in the arena, for messages of tests. */
const char *fixture_report(PlanFixture *f);

#endif
