/* run_log.c - see run_log.h. */
#include <check.h>
#include <stdio.h>

#include "process.h"
#include "run_log.h"
#include "scratch.h"

int log_steps(const char *log, json_t **step, int most) {
  char line[4096];
  int n = 0;
  FILE *f = fopen(scratch_path(log), "r");
  ck_assert_ptr_nonnull(f);
  while (fgets(line, sizeof line, f)) {
    json_t *j = json_loads(line, 0, NULL);
    if (json_object_get(j, "loss")) {
      ck_assert_int_lt(n, most);
      step[n++] = j;
    } else {
      json_decref(j);
    }
  }
  fclose(f);
  return n;
}

int run_logged(const char *plan, const char *log, const char *more, json_t **step,
               int most) {
  Outcome o =
      process_run(120, "$weft run %s --threads 1 --quiet --log %s %s", plan, log, more);
  ck_assert_msg(o.code == 0, "%s", o.err);
  return log_steps(log, step, most);
}
