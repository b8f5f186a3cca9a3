/* lang_fixture.h - loads plans for tests: from files or from strings. */
#ifndef WEFT_TEST_LANG_FIXTURE_H
#define WEFT_TEST_LANG_FIXTURE_H

#include "bindings/lang/plan_load.h"
#include "scratch.h"

typedef struct LangTest {
  Arena *arena;
  Diags d;
  LangOptions o;
  LangPlan *lp;
  weft_error e;
  char printed[512]; /* output of print() */
} LangTest;

/* Fixtures; they create and remove the scratch folder. */
void lang_test_begin(LangTest *t);
void lang_test_end(LangTest *t);
/* Writes a file into the scratch folder. */
void lang_test_file(const char *name, const char *text);
/* Loads `text` as plan.lua of the scratch folder. */
weft_status lang_test_text(LangTest *t, const char *text);
weft_status lang_test_path(LangTest *t, const char *path);
/* The report without `dir` and its slash; in the arena. */
const char *lang_test_report(LangTest *t, const char *dir);

/* Loads a valid plan; fails the test with its errors. */
const Plan *lang_test_good(LangTest *t, const char *text);
/* Loads a plan that must have exactly this error report. */
void lang_test_bad(LangTest *t, const char *text, const char *report);

#define HEAD "local weft = require 'weft'\n"
#define GOOD                                                                             \
  "return weft.plan { model = weft.model 'llama-tiny', "                                 \
  "batch = { global = 8, seq = 16 } }\n"

#endif
