/* check_schedule_rules.c - what is wrong with a table of actions, in the words that users
 * read. Tables are written as PyTorch writes them. */
#include <check.h>

#include "tests/generate/schedule_text.h"
#include "vm/pipeline/schedule.h"

static Arena *arena;
static Diags diags;

static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) { arena_free(arena); }

/* All diagnostics, one a line: "severity code: text". */
static const char *told(void) {
  char *all = arena_str(arena, "");
  for (int i = 0; i < diags.list.n; i++) {
    const Diag *d = &diags.list.at[i];
    ck_assert_str_eq(d->path, "schedule");
    all = arena_printf(arena, "%s%s%s\n", all,
                       d->severity == DIAG_WARNING ? "warning: " : "", d->summary);
  }
  return all;
}

static bool check_it(const Schedule *s) {
  diags = (Diags){.arena = arena};
  return schedule_check(s, &diags);
}

static void right(const char *text, int virtual_stages, int m, bool v, const char *say) {
  Schedule s = sched_text(arena, text, virtual_stages, m, v);
  ck_assert_msg(check_it(&s), "%s", told());
  ck_assert_str_eq(told(), say);
}

static void wrong(const char *text, int virtual_stages, int m, bool v, const char *say) {
  Schedule s = sched_text(arena, text, virtual_stages, m, v);
  ck_assert(!check_it(&s));
  ck_assert_str_eq(told(), say);
}

START_TEST(right_ones) {
  right("0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1I1,1W1,1W0", 1, 2, false, "");
  right("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0", 2, 1, false, "");
  right("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0", 2, 1, true, "");
  right("0F0,(0F1;0B0)OVERLAP_F_B,0B1", 1, 2, false, "");
  right("(0F0;0B0)OVERLAP_F_B", 1, 1, false, "");
}
END_TEST

START_TEST(missing) {
  wrong("0F0,0F1,0B0,0I1\n1F0,1B0", 1, 2, false,
        "rank 0, step 3: I of microbatch 1 has no W\n"
        "rank 1: F and B of microbatch 1 are missing\n");
  wrong("0F0,0F1,0W0,0B1\n1B0,1F1", 1, 2, false,
        "rank 0, step 2: W of microbatch 0 has no I\n"
        "rank 1, step 0: B of microbatch 0 has no F: that of microbatch 0 is missing\n"
        "rank 1, step 1: F of microbatch 1 has no backward: B, or I and W, is missing\n");
  wrong("0F0,0B0,2F0\n1F0,3F0,3B0,1B0", 2, 1, false,
        "rank 0, step 2: F of microbatch 0, chunk 1 (stage 2) has no backward: B, or I "
        "and W, is missing\n");
  Schedule s = sched_text(arena, "0F0,0B0\n1F0,1B0", 1, 1, false);
  s.n[1] = 0;
  ck_assert(!check_it(&s));
  ck_assert_str_eq(told(), "rank 1: the schedule gives it nothing to do\n");
}
END_TEST

/* Many problems are cut short. */
START_TEST(many) {
  Schedule s = sched_text(arena, "0F0,0B0", 1, 40, false);
  ck_assert(!check_it(&s));
  ck_assert_int_eq(diags.list.n, 17);
  ck_assert_str_eq(diags.list.at[0].summary,
                   "rank 0: F and B of microbatch 1 are missing");
  ck_assert_str_eq(diags.list.at[16].summary, "23 more actions are wrong or missing");
}
END_TEST

START_TEST(twice_and_mixed) {
  wrong("0F0,0F0,0B0,0F1,0B1,0B0", 1, 2, false,
        "rank 0, step 1: F of microbatch 0 is emitted twice, first at step 0\n"
        "rank 0, step 5: B of microbatch 0 is emitted twice, first at step 2\n");
  wrong("0F0,0I0,0I0,0W0,0W0", 1, 1, false,
        "rank 0, step 2: I of microbatch 0 is emitted twice, first at step 1\n"
        "rank 0, step 4: W of microbatch 0 is emitted twice, first at step 3\n");
#define MIXED ": a backward is one B, or an I and a W\n"
  wrong("0F0,0I0,0W0,0B0", 1, 1, false,
        "rank 0, step 3: B of microbatch 0 does what I of microbatch 0 at step 1 "
        "does" MIXED);
  wrong("0F0,0B0,0W0", 1, 1, false,
        "rank 0, step 2: W of microbatch 0 does what B of microbatch 0 at step 1 "
        "does" MIXED);
  wrong("0F0,0W0,0B0", 1, 1, false,
        "rank 0, step 2: B of microbatch 0 does what W of microbatch 0 at step 1 "
        "does" MIXED);
}
END_TEST

START_TEST(order) {
  wrong("0B0,0F0,0F1,0W1,0I1", 1, 2, false,
        "rank 0, step 0: B of microbatch 0 comes before F of microbatch 0 at step 1\n"
        "rank 0, step 3: W of microbatch 1 comes before I of microbatch 1 at step 4\n");
  wrong("(0F0;0B0)OVERLAP_F_B\n1F0,1B0", 1, 1, false,
        "rank 0, step 0: the pair F of microbatch 0 with B of microbatch 0 needs its own "
        "F, which comes back through later stages\n");
}
END_TEST

START_TEST(not_there) {
  wrong("0F0,0F2,1F1,0B0,(0F1;0B7)OVERLAP_F_B,0REDUCE_GRAD,7UNSHARD", 1, 2, false,
        "rank 0, step 1: F of microbatch 2 is not there: the schedule has 2 "
        "microbatches, from 0\n"
        "rank 0, step 2: F of microbatch 1 names chunk -1, but a rank has 1 chunk, "
        "from 0\n"
        "rank 0, step 4: the pair F of microbatch 1 with B of microbatch 7 is not there: "
        "the schedule has 2 microbatches, from 0\n"
        "rank 0, step 6: UNSHARD of chunk -1 names chunk -1, but a rank has 1 chunk, "
        "from 0\n");
}
END_TEST

START_TEST(parameters) {
  right("0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0RESHARD,0REDUCE_GRAD", 1, 1, false, "");
  right("0F0,0B0,0REDUCE_GRAD", 1, 1, false, "");
  right("0UNSHARD,0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0", 2, 1, false, "");
  wrong("0F0,0UNSHARD,0B0", 1, 1, false,
        "rank 0, step 0: F of microbatch 0 comes before the UNSHARD of its chunk\n");
  wrong("0UNSHARD,0F0,0RESHARD,0B0", 1, 1, false,
        "rank 0, step 3: B of microbatch 0 comes after the RESHARD of its chunk at step "
        "2\n");
  wrong("0UNSHARD,0UNSHARD,0F0,0B0", 1, 1, false,
        "rank 0, step 1: UNSHARD of chunk 0 repeats the one at step 0\n");
  wrong("0F0,0B0,0RESHARD", 1, 1, false,
        "rank 0, step 2: RESHARD of chunk 0 has no UNSHARD before it\n");
  wrong("0F0,0I0,0REDUCE_GRAD,0W0", 1, 1, false,
        "rank 0, step 2: REDUCE_GRAD of chunk 0 comes before W of microbatch 0 at step "
        "3\n");
  wrong("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD", 1, 1, false,
        "rank 0, step 3: REDUCE_GRAD of chunk 0 is emitted twice, first at step 2\n");
}
END_TEST

/* Rank 0 waits for B of 0 on rank 1, which waits for F of 1 on rank 0. */
START_TEST(deadlock) {
  Schedule s = sched_text(arena,
                          "0F0,0B0,0F1,0B1\n"
                          "1F0,1F1,1B0,1B1\n"
                          "2F0,2F1,2B0,2B1",
                          1, 2, false);
  s.file = "plan.lua";
  s.list[0][1].line = 7;
  s.list[1][1].line = 8;
  ck_assert(!check_it(&s));
  ck_assert_str_eq(
      told(), "deadlock, these actions wait for each other:\n"
              "  rank 0, step 1 (line 7): B of microbatch 0 waits for B of microbatch 0 "
              "of rank 1, step 2\n"
              "  rank 1, step 1 (line 8): F of microbatch 1 waits for F of microbatch 1 "
              "of rank 0, step 2\n"
              "  1 more rank waits for them\n");
  ck_assert_str_eq(diags.list.at[0].code, "deadlock");
  ck_assert_str_eq(diags.list.at[0].file, "plan.lua");
  ck_assert_int_eq(diags.list.at[0].line, 7);
}
END_TEST

/* On a V a rank can wait for itself. */
START_TEST(deadlock_of_one) {
  wrong(
      "0F0,3F0,3B0,0B0\n2F0,1F0,2B0,1B0", 2, 1, true,
      "deadlock, these actions wait for each other:\n"
      "  rank 1, step 0: F of microbatch 0, chunk 1 (stage 2) waits for F of microbatch "
      "0, chunk 0 (stage 1) of rank 1, step 1\n"
      "  1 more rank waits for them\n");
}
END_TEST

/* Twelve ranks that begin with their second stage, which needs all first ones. */
START_TEST(deadlock_of_many) {
  enum { P = 12 };
  Text t = {0};
  for (int r = 0; r < P; r++)
    text_printf(&t, "%dF0,%dF0,%dB0,%dB0\n", P + r, r, P + r, r);
  Schedule s = sched_text(arena, t.s, 2, 1, false);
  text_free(&t);
  ck_assert(!check_it(&s));
  ck_assert_ptr_nonnull(strstr(told(), "\n  rank 7, step 0"));
  ck_assert_ptr_nonnull(strstr(told(), "\n  and 4 more in this cycle\n"));
}
END_TEST

/* Those that only wait for a circle are counted. */
START_TEST(deadlock_of_two) {
  Text t = {0};
  for (int r = 0; r < 24; r++) /* each wants its forward of 1 before its backward of 0 */
    text_printf(&t, r ? "%dF0,%dF1,%dB0,%dB1\n" : "%dF0,%dB0,%dF1,%dB1\n", r, r, r, r);
  Schedule s = sched_text(arena, t.s, 1, 2, false);
  text_free(&t);
  ck_assert(!check_it(&s));
  ck_assert_ptr_nonnull(strstr(told(), "\n  22 more ranks wait for them\n"));
}
END_TEST

START_TEST(lines) {
  Schedule s = sched_text(arena, "0F0,0B0,0B0", 1, 1, false);
  s.file = "plan.lua";
  s.list[0][1].line = 17;
  s.list[0][2].line = 18;
  ck_assert(!check_it(&s));
  ck_assert_str_eq(told(), "rank 0, step 2: B of microbatch 0 is emitted twice, first at "
                           "step 1 (line 17)\n");
  ck_assert_str_eq(diags.list.at[0].file, "plan.lua");
  ck_assert_int_eq(diags.list.at[0].line, 18);
}
END_TEST

Suite *schedule_rules_suite(void) {
  Suite *s = suite_create("schedule_rules");
  TCase *tc = tcase_create("rules");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_test(tc, right_ones);
  tcase_add_test(tc, missing);
  tcase_add_test(tc, many);
  tcase_add_test(tc, twice_and_mixed);
  tcase_add_test(tc, order);
  tcase_add_test(tc, not_there);
  tcase_add_test(tc, parameters);
  tcase_add_test(tc, deadlock);
  tcase_add_test(tc, deadlock_of_one);
  tcase_add_test(tc, deadlock_of_many);
  tcase_add_test(tc, deadlock_of_two);
  tcase_add_test(tc, lines);
  suite_add_tcase(s, tc);
  return s;
}
