/* check_packed_parts.c - what finds a column, a row or a head by its number, where a rank
 * of tp has a piece of each part of a tensor and no run of it: losses, logits of a
 * sample, sinks and dropout of heads, rows of a table. */
#include <check.h>

#include "tests/harness/process.h"

#define PLAN WEFT_SOURCE_DIR "/tests/shard/packed_parts.lua "

/* The same step as on one rank. */
START_TEST(numbers_of_one_rank) {
  static const char *const kind[] = {"head", "sinks", "dropout"};
  for (int i = 0; i < LEN(kind); i++) {
    Outcome o = process_run(60, "$weft verify " PLAN "-D kind=%s", kind[i]);
    ck_assert_msg(o.code == 0, "%s: %s%s", kind[i], o.out, o.err);
  }
}
END_TEST

START_TEST(samples_of_one_rank) {
  const char *out[2];
  process_run(10, "cp " PLAN "plan.lua");
  Outcome o = process_run(60, "$weft run plan.lua --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
  for (int tp = 1; tp <= 2; tp++) {
    o = process_run(60,
                    "$weft sample plan.lua --ckpt ck --greedy --tokens 1,2,3 "
                    "--max-tokens 8 --set mesh.tp=%d",
                    tp);
    ck_assert_msg(o.code == 0, "%s", o.err);
    out[tp - 1] = o.out;
  }
  ck_assert_str_eq(out[0], out[1]);
}
END_TEST

START_TEST(rows_of_a_table_are_one_run) {
  Outcome o = process_run(60, "$weft check " PLAN "-D kind=table");
  ck_assert_msg(o.code == 1 &&
                    strstr(o.err, "the rows of t are packed from 2 parts: a rank that "
                                  "has a piece of each"),
                "%d: %s", o.code, o.err);
}
END_TEST

Suite *packed_parts_suite(void);
Suite *packed_parts_suite(void) {
  Suite *s = suite_create("packed_parts");
  TCase *t = tcase_create("packed_parts");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, numbers_of_one_rank);
  tcase_add_test(t, samples_of_one_rank);
  tcase_add_test(t, rows_of_a_table_are_one_run);
  suite_add_tcase(s, t);
  return s;
}
