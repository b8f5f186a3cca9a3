/* check_many_ranks.c - 64 virtual ranks in one process, however few cores there are. */
#include <check.h>

#include "tests/harness/process.h"

START_TEST(sixty_four_ranks) {
  Outcome o = process_run(60, "$weft run " WEFT_SOURCE_DIR "/tests/run/ranks_64.lua "
                              "--steps 2 --log log");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(strstr(o.err, "tp=4, 64 ranks (local)"), "%s", o.err);
  ck_assert_msg(strstr(o.out, "step      1/2  loss   "), "%s", o.out);
}
END_TEST

/* The same plan on one rank: the losses of both steps agree. */
START_TEST(sixty_four_ranks_agree_with_one) {
  Outcome o = process_run(120, "$weft verify " WEFT_SOURCE_DIR "/tests/run/ranks_64.lua "
                               "--ranks 64");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "pp=4 dp=4 tp=4 against one rank"), "%s", o.out);
  ck_assert_msg(strstr(o.out, "the same (tolerance 1e-05)"), "%s", o.out);
}
END_TEST

Suite *many_ranks_suite(void) {
  Suite *s = suite_create("many_ranks");
  TCase *t = tcase_create("run");
  tcase_set_timeout(t, 900);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, sixty_four_ranks);
  tcase_add_test(t, sixty_four_ranks_agree_with_one);
  suite_add_tcase(s, t);
  return s;
}
