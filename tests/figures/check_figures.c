/* check_figures.c - bytes, traffic and the clock of plans, beside those of figures.txt: a
 * commit that moves a figure shows it in its diff. */
#include <check.h>

#include "tests/harness/process.h"

START_TEST(figures_are_those_of_before) {
  Outcome o = process_run(300, "sh -c 'cd " WEFT_SOURCE_DIR " && exec \"$weft\" lua "
                               "tests/figures/figures.lua tests/figures/figures.txt'");
  ck_assert_msg(o.code == 0, "%d: %s%s", o.code, o.out, o.err);
}
END_TEST

/* The comparison itself: a figure, a word, a line that is missing, and a plan. */
START_TEST(others_are_seen) {
  Outcome o = process_run(
      300,
      "sh -c 'sed \"0,/low=[0-9]/s//low=4/; 0,/all_gather/s//broadcast/; 0,/^wait "
      "6/{/^wait 6/d}; "
      "s/^== sweep of mixtral/== sweep of x/\" " WEFT_SOURCE_DIR
      "/tests/figures/figures.txt >changed && here=$PWD && cd " WEFT_SOURCE_DIR
      " && WEFT_ROWS=0/38 exec \"$weft\" lua tests/figures/figures.lua $here/changed'");
  ck_assert_msg(o.code == 1, "%d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.out, "3 lines differ, 1 plans are new") != NULL, "%s", o.out);
  ck_assert_msg(strstr(o.out, "tp broadcast over the node") != NULL, "%s", o.out);
}
END_TEST

Suite *figures_suite(void);
Suite *figures_suite(void) {
  Suite *s = suite_create("figures");
  TCase *t = tcase_create("figures");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 300);
  tcase_add_test(t, figures_are_those_of_before);
  tcase_add_test(t, others_are_seen);
  suite_add_tcase(s, t);
  return s;
}
