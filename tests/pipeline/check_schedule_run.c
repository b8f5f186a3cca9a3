/* check_schedule_run.c - schedules of every kind, run against one rank: random legal
 * ones, and changes of legal ones, which are either refused with a reason or run right.
 */
#include <check.h>

#include "tests/harness/one_rank_pair.h"
#include "tests/generate/random_schedule.h"
#include "tests/generate/schedule_cases.h"

static Arena *arena;

static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) { arena_free(arena); }

static ToyOptions options(const Schedule *s) {
  ToyOptions o = toy_default();
  o.layers = s->ranks * s->virtual_stages;
  o.pp = s->ranks;
  o.microbatches = s->microbatches;
  o.schedule = s;
  return o;
}

/* ---- random legal schedules ---- */

static Schedule draw(Dice *d, ToyOptions *o) {
  int v = 1 + throw_dice(d, 3), ranks = 1 + throw_dice(d, 4);
  Schedule *s = NEW(arena, Schedule);
  *s = sched_random(arena, d, ranks, v, 1 + throw_dice(d, 7), v == 2 && throw_dice(d, 2));
  *o = options(s);
  o->overlap = throw_dice(d, 2);
  o->tied = throw_dice(d, 3) == 0;
  o->rounds = 1 + throw_dice(d, 8) / 7;
  return *s;
}

/* Whatever can run is proven: transfers block nothing that the actions do not. */
START_TEST(legal_is_proven) {
  Dice d = dice((uint64_t)_i, "legal");
  for (int i = 0; i < 40; i++) {
    ToyOptions o;
    Toy t;
    Schedule s = draw(&d, &o);
    weft_status st = toy_compile(&t, &o, NULL);
    ck_assert_msg(st == WEFT_OK, "schedule %d of %d: P=%d v=%d m=%d: %s%s", i, _i,
                  s.ranks, s.virtual_stages, s.microbatches, t.err.text, toy_diags(&t));
    toy_free(&t);
  }
}
END_TEST

START_TEST(legal_agrees) {
  Dice d = dice((uint64_t)_i, "agrees");
  ToyOptions o;
  draw(&d, &o);
  o.dp = 1 + throw_dice(&d, 2);
  pair_agrees(&o);
}
END_TEST

/* ---- the library's schedules: `./dev fuzz-schedules` runs all cases ---- */

enum { EVERY = 9, CHANGES = 1000, RUN = 10 };

START_TEST(library_agrees) {
  Text t = {0};
  double worst = 0;
  ck_assert_msg(case_holds(_i * EVERY, 1e-5, &worst, &t), "%s", t.s);
  text_free(&t);
}
END_TEST

/* All that are refused, because these are cheap. */
START_TEST(illegal_is_refused) {
  int refused = 0;
  for (int i = 0; i < CASES; i++) {
    if (schedule_case(i).legal) continue;
    Text t = {0};
    double worst = 0;
    ck_assert_msg(case_holds(i, 1e-5, &worst, &t), "%s", t.s);
    text_free(&t);
    refused++;
  }
  ck_assert_int_ge(refused, 24);
}
END_TEST

/* ---- changes: all are compiled, one of RUN is also run ---- */

START_TEST(change_is_refused_or_right) {
  int refused = 0, proven = 0;
  for (int i = _i * CHANGES / 10; i < (_i + 1) * CHANGES / 10; i++) {
    Text t = {0};
    double worst = 0;
    MutantFate f = mutant_holds(1, i, i % RUN == 0, &worst, &t);
    ck_assert_msg(f != MUTANT_BAD, "%s", t.s);
    text_free(&t);
    refused += f == MUTANT_REFUSED;
    proven += f == MUTANT_PROVEN;
  }
  ck_assert_int_ge(refused, 30);
  ck_assert_int_ge(proven, 10);
}
END_TEST

Suite *schedule_run_suite(void) {
  Suite *s = suite_create("schedule_run");
  TCase *tc = tcase_create("legal");
  tcase_set_timeout(tc, 60);
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_loop_test(tc, legal_is_proven, 0, 5);
  tcase_add_loop_test(tc, legal_agrees, 0, 24);
  suite_add_tcase(s, tc);
  tc = tcase_create("library");
  tcase_set_timeout(tc, 60);
  tcase_add_loop_test(tc, library_agrees, 0, (CASES + EVERY - 1) / EVERY);
  tcase_add_test(tc, illegal_is_refused);
  suite_add_tcase(s, tc);
  tc = tcase_create("changes");
  tcase_set_timeout(tc, 60);
  tcase_add_loop_test(tc, change_is_refused_or_right, 0, 10);
  suite_add_tcase(s, tc);
  return s;
}
