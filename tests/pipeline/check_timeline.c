/* check_timeline.c - when actions run: dependencies, idle shares, peaks, and what
 * happens with tables that cannot run. */
#include <check.h>
#include <stdio.h>

#include "tests/generate/schedule_text.h"
#include "vm/pipeline/timeline.h"

static Arena *arena;
static weft_error err;

static void setup(void) {
  arena = arena_new(NULL);
  err_clear(&err);
}
static void teardown(void) { arena_free(arena); }

static Timeline run(const Schedule *s, TimelineCost cost) {
  Timeline t;
  weft_status st = timeline_run(s, cost, arena, &t, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
  return t;
}

static Timeline run_text(const char *text, int virtual_stages, int m, bool v) {
  Schedule s = sched_text(arena, text, virtual_stages, m, v);
  return run(&s, TIMELINE_UNIT);
}

/* All F, then all B; or F and B in turn after a warm-up. */
static Schedule simple(int ranks, int m, bool in_turn) {
  Schedule s = {.ranks = ranks,
                .virtual_stages = 1,
                .microbatches = m,
                .list = NEW_N(arena, Action *, ranks),
                .n = NEW_N(arena, int, ranks)};
  for (int r = 0; r < ranks; r++) {
    int warm = in_turn ? MIN(m, ranks - r) : m, f = 0, b = 0;
    Action *a = s.list[r] = NEW_N(arena, Action, 2 * m);
    while (b < m) {
      bool forward = f < m && f - b < warm;
      *a++ = (Action){.kind = forward ? ACT_F : ACT_B, .mb = forward ? f++ : b++};
    }
    s.n[r] = (int)(a - s.list[r]);
  }
  return s;
}

static void slot_is(const Timeline *t, int rank, int i, int64_t start, int64_t end) {
  ck_assert_msg(t->slot[rank][i].start == start && t->slot[rank][i].end == end,
                "rank %d action %d: %lld..%lld", rank, i,
                (long long)t->slot[rank][i].start, (long long)t->slot[rank][i].end);
}

START_TEST(slots_follow_their_dependencies) {
  Timeline t = run_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", 1, 2, false);
  slot_is(&t, 0, 0, 0, 1);
  slot_is(&t, 0, 1, 1, 2);
  slot_is(&t, 1, 0, 1, 2);
  slot_is(&t, 1, 1, 2, 4);
  slot_is(&t, 1, 2, 4, 5);
  slot_is(&t, 1, 3, 5, 7);
  slot_is(&t, 0, 2, 4, 6);
  slot_is(&t, 0, 3, 7, 9);
  ck_assert_int_eq(t.makespan, 9);
  ck_assert_int_eq(t.busy[0], 6);
  ck_assert_int_eq(t.first[1], 1);
  ck_assert_int_eq(t.last[1], 7);
  ck_assert_int_eq(t.peak[0], 2);
  ck_assert_int_eq(t.peak[1], 1);
  ck_assert_double_eq(timeline_bubble(&t), 6.0 / 18);
  ck_assert_double_eq(timeline_bubble_own(&t), 3.0 / 15);
}
END_TEST

/* A split backward hands on its gradient at the end of I, a whole one at its own end. */
START_TEST(w_is_not_waited_for) {
  Timeline t = run_text("0F0,0I0,0W0\n1F0,1I0,1W0", 1, 1, false);
  slot_is(&t, 0, 1, 3, 4);
  slot_is(&t, 0, 2, 4, 5);
  slot_is(&t, 1, 2, 3, 4);
  t = run_text("0F0,0B0\n1F0,1B0", 1, 1, false);
  slot_is(&t, 0, 1, 4, 6);
}
END_TEST

START_TEST(w_frees_the_chunk) {
  Timeline t = run_text("0F0,0I0,0F1,0I1,0W0,0W1", 1, 2, false);
  ck_assert_int_eq(t.peak[0], 2);
  t = run_text("0F0,0I0,0W0,0F1,0I1,0W1", 1, 2, false);
  ck_assert_int_eq(t.peak[0], 1);
}
END_TEST

/* On a V the turn is on one rank; the pair is one slot. */
START_TEST(overlapped_pairs_are_one_slot) {
  Timeline t = run_text("0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,1B1,0B0,0B1", 2, 2, true);
  slot_is(&t, 0, 2, 2, 5);
  slot_is(&t, 0, 3, 5, 6);
  ck_assert_int_eq(t.makespan, 12);
  ck_assert_int_eq(t.peak[0], 3);
  ck_assert_double_eq(timeline_bubble(&t), 0);
}
END_TEST

START_TEST(costs_are_free_to_choose) {
  Schedule s = simple(3, 4, true);
  Timeline t = run(&s, (TimelineCost){3, 5, 2});
  for (int r = 0; r < 3; r++) {
    ck_assert_int_eq(t.busy[r], 4 * 10);
    ck_assert_int_eq(t.makespan - t.busy[r], 2 * 10);
  }
}
END_TEST

static Timeline of_stages(const Schedule *s, const StageTicks *cost) {
  Timeline t, ran = run(s, TIMELINE_UNIT);
  timeline_of_stages(s, &ran, cost, arena, &t);
  return t;
}

/* Two stages of F 1, I 2, W 3 and F 4, I 5, W 6; 10 ticks on the way there, 20 back. */
START_TEST(stages_have_their_own_costs) {
  static const StageTicks cost[] = {{1, 2, 3, 10, 0, 0}, {4, 5, 6, 0, 20, 0}};
  Schedule s =
      sched_text(arena, "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1", 1, 2, false);
  Timeline t = of_stages(&s, cost);
  /* F0 on rank 1 from 11 to 15, I0 to 20, F1 to 24, I1 to 29; I1 of rank 0 from 49 */
  ck_assert_int_eq(t.last[1], 29 + 2 * 6);
  ck_assert_int_eq(t.last[0], 29 + 20 + 2 + 2 * 3);
  ck_assert_int_eq(t.busy[0], 2 * 6);
  ck_assert_int_eq(t.busy[1], 2 * 15);
  static const StageTicks half[] = {{1, 2, 3, 10, 0, 0}, {4, 5, 6, 0, 10, 0}};
  ck_assert_int_eq(of_stages(&s, half).last[0], t.last[0] - 10);
  /* F and I of rank 0 in each other's place: rank 1 works while it does */
  static const StageTicks few[] = {{1, 5, 0, 0, 0, 0}, {4, 0, 0, 0, 0, 0}};
  static const StageTicks swapped[] = {{5, 1, 0, 0, 0, 0}, {4, 0, 0, 0, 0, 0}};
  Schedule gpipe = simple(2, 2, false);
  ck_assert_int_eq(of_stages(&gpipe, few).makespan, 1 + 2 * 4 + 2 * 5);
  ck_assert_int_eq(of_stages(&gpipe, swapped).makespan, 2 * 5 + 4 + 2 * 1);
}
END_TEST

/* Of a B of I 2 and W 3 one tick is behind the send, which the stage before need not wait
 * for; the rank itself is busy. */
START_TEST(w_behind_the_send) {
  static const StageTicks cost[] = {{1, 2, 3, 0, 0, 0}, {1, 2, 3, 0, 10, 1}};
  Schedule s = sched_text(arena, "0F0,0B0\n1F0,1B0", 1, 1, false);
  Timeline t = of_stages(&s, cost);
  ck_assert_int_eq(t.last[1], 2 + 5);
  ck_assert_int_eq(t.last[0], 2 + 4 + 10 + 5);
  ck_assert_int_eq(t.last_w[1], 2);
  ck_assert_int_eq(t.last_w[0], 2 + 4 + 10);
}
END_TEST

/* Of each chunk the last W in the list, whatever its microbatch. */
START_TEST(chunks_begin_their_last_w) {
  static const StageTicks cost[] = {{1, 2, 3, 0, 0, 0}, {1, 2, 3, 0, 0, 0}};
  Schedule s = sched_text(arena, "0F0,0F1,1F0,1F1,1B0,1B1,0I0,0I1,0W1,0W0", 2, 2, false);
  Timeline t = of_stages(&s, cost);
  ck_assert_int_eq(t.last_w[0], 4 + 10 + 4 + 3);
  ck_assert_int_eq(t.last_w[1], 4 + 5);
}
END_TEST

/* The forward of a pair does not wait for what its backward needs. */
START_TEST(pairs_run_one_after_the_other) {
  static const StageTicks cost[] = {
      {1, 1, 1, 0, 0, 0}, {1, 1, 1, 0, 0, 0}, {1, 1, 1, 0, 0, 0}, {1, 1, 1, 0, 0, 0}};
  const char *text = "0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,1B1,0B0,0B1";
  Schedule s = sched_text(arena, text, 2, 2, true);
  Timeline t = of_stages(&s, cost), line = run(&s, TIMELINE_UNIT);
  ck_assert_int_eq(t.makespan, line.makespan);
  ck_assert_int_eq(t.busy[0], line.busy[0]);
  Schedule two =
      sched_text(arena, "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2",
                 1, 3, false);
  static const StageTicks slow[] = {{1, 1, 1, 0, 0, 0}, {9, 1, 1, 0, 0, 0}};
  ck_assert_int_eq(run(&two, TIMELINE_UNIT).slot[0][2].start, 3);
  Timeline apart = of_stages(&two, slow);
  /* Rank 1 is never idle: F2 was there in time. */
  ck_assert_int_eq(apart.last[1], 1 + 3 * 11);
  ck_assert_int_eq(apart.busy[0], 3 * 3);
}
END_TEST

START_TEST(other_actions_take_no_time) {
  Timeline t = run_text("0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD", 1, 1, false);
  slot_is(&t, 0, 0, 0, 0);
  slot_is(&t, 0, 3, 3, 3);
  ck_assert_int_eq(t.makespan, 3);
}
END_TEST

/* (P-1)(F+I+W) idle on each rank, for both; the peak is where they differ. */
START_TEST(gpipe_and_1f1b_have_their_bubble) {
  static const int sizes[][2] = {{1, 1},  {2, 4}, {4, 8},   {8, 16},
                                 {5, 23}, {7, 3}, {64, 512}};
  for (int k = 0; k < LEN(sizes); k++) {
    int ranks = sizes[k][0], m = sizes[k][1];
    for (int turn = 0; turn < 2; turn++) {
      Schedule s = simple(ranks, m, turn);
      Timeline t = run(&s, TIMELINE_UNIT);
      for (int r = 0; r < ranks; r++) {
        ck_assert_int_eq(t.makespan - t.busy[r], 3 * (ranks - 1));
        ck_assert_int_eq(t.peak[r], turn ? MIN(m, ranks - r) : m);
      }
      ck_assert_double_eq_tol(timeline_bubble(&t), (ranks - 1.0) / (m + ranks - 1),
                              1e-12);
    }
  }
}
END_TEST

/* ---- what cannot run ---- */

static void refused(const char *text, int virtual_stages, int m, const char *want) {
  Timeline t;
  Schedule s = sched_text(arena, text, virtual_stages, m, false);
  err_clear(&err);
  ck_assert_int_eq(timeline_run(&s, TIMELINE_UNIT, arena, &t, &err), WEFT_EPLAN);
  ck_assert_msg(strstr(err.text, want), "%s", err.text);
}

START_TEST(wrong_tables_are_refused) {
  refused("0F0,0B0\n1B0,1F0", 1, 1, "rank 0 waits for ever before action 1");
  refused("0F0,0B0\n1F0", 1, 1, "rank 0 waits for ever before action 1");
  refused("0W0,0F0,0I0", 1, 1, "rank 0 waits for ever before action 0");
  refused("0F0,0B0,0F1,0B1", 1, 1, "action 2: its chunk or microbatch is not there");
  refused("1F0,0B0", 1, 1, "action 0: its chunk or microbatch is not there");
  refused("0F0,(0F1;1B0)OVERLAP_F_B", 1, 2, "action 1: its chunk or microbatch");
}
END_TEST

Suite *timeline_suite(void) {
  Suite *s = suite_create("timeline");
  TCase *tc = tcase_create("timeline");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_test(tc, slots_follow_their_dependencies);
  tcase_add_test(tc, w_is_not_waited_for);
  tcase_add_test(tc, w_frees_the_chunk);
  tcase_add_test(tc, overlapped_pairs_are_one_slot);
  tcase_add_test(tc, costs_are_free_to_choose);
  tcase_add_test(tc, stages_have_their_own_costs);
  tcase_add_test(tc, w_behind_the_send);
  tcase_add_test(tc, chunks_begin_their_last_w);
  tcase_add_test(tc, pairs_run_one_after_the_other);
  tcase_add_test(tc, other_actions_take_no_time);
  tcase_add_test(tc, gpipe_and_1f1b_have_their_bubble);
  tcase_add_test(tc, wrong_tables_are_refused);
  suite_add_tcase(s, tc);
  return s;
}
