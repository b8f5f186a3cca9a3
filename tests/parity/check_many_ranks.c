/* check_many_ranks.c - 64 virtual ranks in one process, however few cores there are. */
#include <check.h>

#include "tests/harness/process.h"
#include "vm/run/run_int.h"

START_TEST(sixty_four_ranks) {
  Outcome o = process_run(60, "$weft run " WEFT_SOURCE_DIR "/tests/run/ranks_64.lua "
                              "--steps 2 --log log");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(strstr(o.err, "tp=4, 64 ranks (local)"), "%s", o.err);
  ck_assert_msg(strstr(o.out, "step      1/2  loss   "), "%s", o.out);
}
END_TEST

/* One process has all of them: its cores are shared out among ranks, of which so many
 * have no room for two threads each. */
START_TEST(one_process_shares_out_its_cores) {
  Outcome o = process_run(60, "$weft run " WEFT_SOURCE_DIR "/tests/run/ranks_64.lua "
                              "--procs 1 --steps 1 --set mesh.dp=20 --set "
                              "batch.global=160");
  ck_assert_msg(o.code == 0 && strstr(o.err, "320 ranks (local)"), "%s", o.err);
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

/* Threads of a process share the cores that it may use; processes may be bound to cores
 * of their own. */
START_TEST(cores_are_shared_out) {
  static const struct {
    int machine, process, ranks;
    bool shared;
    int threads;
  } list[] = {{64, 4, 4, true, 1},  {8, 8, 4, true, 2},   {64, 64, 1, true, 64},
              {2, 2, 64, true, 1},  {64, 8, 8, false, 8}, {64, 64, 8, false, 8},
              {64, 1, 8, false, 1}, {2, 2, 8, false, 1}};
  for (int i = 0; i < (int)(sizeof list / sizeof *list); i++)
    ck_assert_int_eq(
        threads_of_rank(list[i].machine, list[i].process, list[i].ranks, list[i].shared),
        list[i].threads);
}
END_TEST

Suite *many_ranks_suite(void) {
  Suite *s = suite_create("many_ranks");
  TCase *t = tcase_create("run");
  tcase_set_timeout(t, 900);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, cores_are_shared_out);
  tcase_add_test(t, sixty_four_ranks);
  tcase_add_test(t, one_process_shares_out_its_cores);
  tcase_add_test(t, sixty_four_ranks_agree_with_one);
  suite_add_tcase(s, t);
  return s;
}
