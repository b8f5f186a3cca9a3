/* check_parity.c - a fixed sample of random plans against one rank: losses, gradient
 * norms, every gradient and parameter within 1e-5. `./dev fuzz N` runs more. */
#include <check.h>
#include <stdio.h>

#include "tests/lib/random_plan.h"

enum { SAMPLE = 48, EXPERTS = 24 };

START_TEST(plan_agrees_with_one_rank) {
  Text t = {0};
  bool ok = parity_holds(2026, (uint64_t)_i, 3, 1e-5, &t);
  ck_assert_msg(ok, "%s", t.s);
  text_free(&t);
}
END_TEST

START_TEST(experts_agree_with_one_rank) {
  Text t = {0};
  bool ok = experts_hold((uint64_t)_i, 3, 1e-5, &t);
  ck_assert_msg(ok, "%s", t.s);
  text_free(&t);
}
END_TEST

/* The sample must reach what it is for. */
START_TEST(sample_is_wide) {
  int tp4 = 0, pp4 = 0, dp3 = 0, sp = 0, odd = 0, chunks = 0, kinds = 0;
  bool seen[SCHEDULES] = {false};
  for (int i = 0; i < SAMPLE; i++) {
    RandomPlan p;
    random_plan(2026, (uint64_t)i, &p);
    tp4 += p.tp == 4, pp4 += p.pp == 4, dp3 += p.dp == 3;
    sp += p.sp && p.tp > 1, odd += p.microbatches % 2, chunks += p.virtual_stages > 1;
    for (int k = 0; k < SCHEDULES; k++)
      seen[k] |= strcmp(p.schedule, schedule_picks[k].name) == 0;
  }
  for (int k = 0; k < SCHEDULES; k++) kinds += seen[k];
  ck_assert_int_eq(kinds, SCHEDULES);
  ck_assert_int_ge(chunks, 16);
  ck_assert_int_ge(tp4, 8);
  ck_assert_int_ge(pp4, 8);
  ck_assert_int_ge(dp3, 8);
  ck_assert_int_ge(sp, 8);
  ck_assert_int_ge(odd, 8);
}
END_TEST

Suite *parity_suite(void) {
  Suite *s = suite_create("parity");
  TCase *tc = tcase_create("plans");
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, sample_is_wide);
  tcase_add_loop_test(tc, plan_agrees_with_one_rank, 0, SAMPLE);
  tcase_add_loop_test(tc, experts_agree_with_one_rank, 0, EXPERTS);
  suite_add_tcase(s, tc);
  return s;
}
