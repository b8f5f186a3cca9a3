/* lang_fixture.h - loads plans for tests: from files or from texts. */
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
  char printed[512]; /* what print() gave */
} LangTest;

/* Fixtures; the scratch folder is made and removed with them. */
void lang_test_begin(LangTest *t);
void lang_test_end(LangTest *t);
/* Writes a file into the scratch folder. */
void lang_test_file(const char *name, const char *text);
/* Loads `text` as plan.lua of the scratch folder. */
weft_status lang_test_text(LangTest *t, const char *text);
weft_status lang_test_path(LangTest *t, const char *path);
/* The report, with `dir` and its slash left out; in the arena. */
const char *lang_test_report(LangTest *t, const char *dir);

/* Loads a plan that must be right; what is wrong is shown. */
const Plan *lang_test_good(LangTest *t, const char *text);
/* Loads a plan that must be wrong in exactly this way. */
void lang_test_bad(LangTest *t, const char *text, const char *report);

#define HEAD "local weft = require 'weft'\n"
#define GOOD                                                                             \
  "return weft.plan { model = weft.model 'llama-tiny', "                                 \
  "batch = { global = 8, seq = 16 } }\n"

#endif
