/* check_schedule_run.c - schedules of every kind, run against one rank: random legal ones,
 * and changes of legal ones, which are either refused with a reason or run right. */
#include <check.h>

#include "pair.h"
#include "sched_random.h"
#include "sched_text.h"

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
    ck_assert_msg(st == WEFT_OK, "schedule %d of %d: P=%d v=%d m=%d: %s%s", i, _i, s.ranks,
                  s.virtual_stages, s.microbatches, t.err.text, toy_diags(&t));
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

Suite *schedule_run_suite(void) {
  Suite *s = suite_create("schedule_run");
  TCase *tc = tcase_create("legal");
  tcase_set_timeout(tc, 60);
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_loop_test(tc, legal_is_proven, 0, 10);
  tcase_add_loop_test(tc, legal_agrees, 0, 40);
  suite_add_tcase(s, tc);
  return s;
}
