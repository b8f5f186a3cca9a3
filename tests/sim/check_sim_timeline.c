/* check_sim_timeline.c - a simulated step as a timeline: every action of every round has
 * its slot, in the order of the schedule and after what it needs; and the picture of it.
 */
#include <check.h>
#include <stdlib.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/process.h"
#include "vm/sim/sim_timeline.h"

#define PLAN WEFT_SOURCE_DIR "/plans/llama3_8b.lua"

typedef struct Drawn {
  Job j;
  Schedule s;
  Timeline t;
  double seconds; /* of the step, as simulate() has it */
} Drawn;

static void draw(Drawn *d, const char *schedule, const char *rounds) {
  const char *set[] = {"cluster=h100-sxm", "mesh={pp=4,tp=2}", "batch.global=32",
                       "batch.micro=1",    schedule,           rounds};
  weft_error e;
  Arena *a = scratch_arena;
  const Compiled *c = compiled_job(&d->j, a, PLAN, set, LEN(set));
  SimReport r;
  SimOptions o = {.rates = sheet_rates(RATES_USUAL)};
  weft_status st = sim_timeline(c, &d->j.plan, NULL, a, &d->s, &d->t, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  ck_assert_int_eq(simulate(c, &d->j.plan, &o, a, &r, &e), WEFT_OK);
  d->seconds = r.seconds;
}

/* The action by which a rank runs this part of a stage and microbatch; its slot. */
static const Action *action_of(const Drawn *d, int stage, int mb, int bit,
                               TimelineSlot *slot) {
  int rank, chunk;
  ActionPart part[2];
  schedule_where(&d->s, stage, &rank, &chunk);
  for (int i = 0; i < d->s.n[rank]; i++)
    for (int k = action_parts(&d->s.list[rank][i], part); k-- > 0;)
      if (part[k].chunk == chunk && part[k].mb == mb && (part[k].bits & bit)) {
        *slot = d->t.slot[rank][i];
        return &d->s.list[rank][i];
      }
  ck_abort_msg("no slot of stage %d, microbatch %d", stage, mb);
}

/* A stage begins a microbatch before the one that needs what it makes. A pair has one
 * slot for both of its parts: it begins before the other ends. */
static void is_before(const Drawn *d, int bit, int first, int then, int mb) {
  TimelineSlot x, y;
  bool pair = action_of(d, first, mb, bit, &x)->kind == ACT_OVERLAP;
  pair = action_of(d, then, mb, bit, &y)->kind == ACT_OVERLAP || pair;
  ck_assert_msg(x.start < (pair ? y.end : y.start), "stages %d, %d, microbatch %d", first,
                then, mb);
}

static void in_order(const Drawn *d) {
  const Timeline *t = &d->t;
  for (int r = 0; r < t->ranks; r++) {
    int64_t now = 0, busy = 0;
    for (int i = 0; i < d->s.n[r]; i++) {
      TimelineSlot slot = t->slot[r][i];
      if (!action_per_microbatch(&d->s.list[r][i])) continue;
      ck_assert_int_lt(slot.start, slot.end);
      ck_assert_int_ge(slot.start, now);
      now = slot.end, busy += slot.end - slot.start;
    }
    ck_assert_int_gt(t->nafter[r], 0);
    for (int i = 0; i < t->nafter[r]; i++) {
      ck_assert_int_ge(t->after[r][i].start, now);
      now = t->after[r][i].end, busy += now - t->after[r][i].start;
    }
    ck_assert_int_eq(t->last[r], now);
    ck_assert_int_le(now, t->makespan);
    ck_assert_int_eq(t->busy[r], busy);
  }
}

/* F moves down the stages and I back up. */
static void after_what_it_needs(const Drawn *d) {
  int stages = d->s.ranks * d->s.virtual_stages;
  for (int mb = 0; mb < d->s.microbatches; mb++)
    for (int stage = 1; stage < stages; stage++) {
      is_before(d, PART_F, stage - 1, stage, mb);
      is_before(d, PART_I, stage, stage - 1, mb);
    }
}

static const char *const schedules[] = {"schedule=1f1b", "schedule=interleaved_1f1b",
                                        "schedule=zbv", "schedule=dualpipe_v"};

START_TEST(every_action_has_its_slot) {
  Drawn d = {.s = {0}};
  draw(&d, schedules[_i], "batch.rounds=1");
  ck_assert_int_eq(d.t.makespan, (int64_t)(d.seconds * SIM_TICKS + 0.5));
  ck_assert_int_eq(d.s.microbatches, 32);
  in_order(&d);
  after_what_it_needs(&d);
  job_free(&d.j);
}
END_TEST

START_TEST(rounds_follow_each_other) {
  Drawn d = {.s = {0}};
  draw(&d, schedules[_i], "batch.rounds=2");
  ck_assert_int_eq(d.s.microbatches, 32);
  in_order(&d);
  after_what_it_needs(&d);
  job_free(&d.j);
}
END_TEST

START_TEST(a_picture_in_seconds) {
  Outcome o = process_run(
      60, "$weft sim " PLAN " --set cluster=h100-sxm --set batch.global=32 --svg t.svg");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *svg = scratch_get(scratch_path("t.svg"));
  ck_assert_ptr_nonnull(strstr(svg, "<svg xmlns="));
  ck_assert_ptr_nonnull(strstr(svg, " by the clock, "));
  ck_assert_ptr_nonnull(strstr(svg, "reductions, optimizer"));
  ck_assert_ptr_nonnull(strstr(svg, ">0 s</text>"));
  o = process_run(60, "$weft sim " PLAN " --set cluster=h100-sxm --svg /dev/full");
  ck_assert_int_ne(o.code, 0);
}
END_TEST

Suite *sim_timeline_suite(void) {
  Suite *s = suite_create("sim_timeline");
  TCase *c = tcase_create("sim_timeline");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, every_action_has_its_slot, 0, LEN(schedules));
  tcase_add_loop_test(c, rounds_follow_each_other, 0, LEN(schedules));
  tcase_add_test(c, a_picture_in_seconds);
  suite_add_tcase(s, c);
  return s;
}
