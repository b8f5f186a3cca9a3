/* check_user_schedules.c - schedules that a plan's own function gives, of random legal
 * orders, under strategies, ties, experts and layers for further tokens, against one
 * rank. */
#include <check.h>

#include "bindings/api/job.h"
#include "tests/harness/scratch.h"

enum { SEEDS = 40 };

START_TEST(random_orders) {
  Job j;
  JobVerify v = {.steps = 2};
  const char *define = arena_printf(scratch_arena, "seed=%d", 1 + _i);
  weft_status st =
      job_load(&j, scratch_arena, &(LangOptions){.define = &define, .ndefine = 1},
               WEFT_SOURCE_DIR "/tests/generate/random_user_schedule.lua");
  ck_assert_msg(st == WEFT_OK, "%s: %s", define, j.e.text);
  st = job_verify(&j, &v);
  ck_assert_msg(st == WEFT_OK && v.report.ok, "%s: %s%s", define, j.e.text,
                v.report.first_bad);
  ck_assert_int_gt(v.report.tensors, 0);
  job_free(&j);
}
END_TEST

Suite *user_schedules_suite(void) {
  Suite *s = suite_create("user_schedules");
  TCase *tc = tcase_create("random");
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_loop_test(tc, random_orders, 0, SEEDS);
  suite_add_tcase(s, tc);
  return s;
}
