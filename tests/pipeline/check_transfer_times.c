/* check_transfer_times.c - on the clock of the schedule, a compiled pipeline is as fast
 * as its schedule: receives are posted and sends waited for where that delays nothing. */
#include <check.h>

#include "tests/lib/sched_random.h"
#include "tests/lib/sched_text.h"
#include "tests/lib/toy.h"
#include "vm/pipeline/timeline.h"

static Arena *arena;
static Toy toy;

static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) {
  toy_free(&toy);
  arena_free(arena);
}

/* When the calls of each action began and ended, and how long sends were waited for. */
typedef struct Times {
  TimelineSlot **slot;   /* [pp][action]; start -1: none yet */
  int64_t *cost[8];      /* [pp][position in main] of its calls */
  const Instr **started[8];  /* [pp][handle] */
  const Instr *sent[8][8];   /* [pp][peer]: the last one */
  int64_t send_waits, sends;
} Times;

/* The first call of an action's forward costs 1 and that of its backward 1 for each of I
 * and W; all others, and transfers, cost nothing. */
static void price(Times *x, const Schedule *s, int pp) {
  const Program *p = &toy.compiled->prog[pp];
  x->cost[pp] = NEW_N(arena, int64_t, p->nmain);
  x->started[pp] = NEW_N(arena, const Instr *, p->nhandle);
  uint8_t *seen = NEW_N(arena, uint8_t, s->n[pp]);
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *in = &p->code[i];
    if (in->code != I_CALL || !in->action) continue;
    int bit = p->body[p->call[in->call].body].phase == PH_F ? PART_F : PART_I;
    if (seen[in->action - 1] & bit) continue;
    seen[in->action - 1] |= (uint8_t)bit;
    int kind = s->list[pp][in->action - 1].kind;
    x->cost[pp][i] = bit == PART_F || kind == ACT_I || kind == ACT_W ? 1 : 2;
  }
}

static int64_t unit_cost(void *ud, int pp, const Instr *in) {
  const Times *x = ud;
  int64_t at = in - toy.compiled->prog[pp].code;
  return in->code == I_CALL ? x->cost[pp][at] : 0;
}

static void note(void *ud, int pp, const Instr *in, int64_t from, int64_t to) {
  Times *x = ud;
  if (instr_is[in->code] & INSTR_STARTS) x->started[pp][in->handle] = in;
  if (in->code == I_SEND) x->sent[pp][in->peer] = in;
  if (in->action && in->code == I_CALL) {
    TimelineSlot *slot = &x->slot[pp][in->action - 1];
    if (slot->start < 0) slot->start = from;
    slot->end = to;
  }
  const Instr *of = in->code == I_WAIT ? x->started[pp][in->handle] : in;
  if (in->action && in != of && of->code == I_SEND) {
    ck_assert_msg(x->sent[pp][of->peer] != of, "the last send is waited for too early");
    x->sends++;
    x->send_waits += to - from;
  }
}

/* Runs what the schedule was compiled to. */
static Times run(const Schedule *s) {
  Times x = {.slot = NEW_N(arena, TimelineSlot *, s->ranks)};
  RankTime t[8];
  for (int pp = 0; pp < s->ranks; pp++) {
    price(&x, s, pp);
    x.slot[pp] = NEW_N(arena, TimelineSlot, s->n[pp]);
    for (int i = 0; i < s->n[pp]; i++) x.slot[pp][i] = (TimelineSlot){-1, -1};
  }
  RunCosts costs = {.ud = &x, .cost = unit_cost, .ran = note, .in_order = true};
  weft_status st = run_costs(toy.compiled, &costs, t, &toy.err);
  ck_assert_msg(st == WEFT_OK, "%s", toy.err.text);
  return x;
}

static Timeline clock_of(const Schedule *s) {
  Timeline line;
  ck_assert_int_eq(timeline_run(s, TIMELINE_UNIT, arena, &line, &toy.err), WEFT_OK);
  return line;
}

static void compile_it(const Schedule *s) {
  ToyOptions o = toy_default();
  o.schedule = s;
  o.pp = s->ranks;
  o.layers = MAX(s->ranks * s->virtual_stages, 2);
  o.microbatches = s->microbatches;
  weft_status st = toy_compile(&toy, &o, NULL);
  ck_assert_msg(st == WEFT_OK, "%d: %s", st, toy.err.text);
}

static bool has_pairs(const Schedule *s) {
  for (int r = 0; r < s->ranks; r++)
    for (int i = 0; i < s->n[r]; i++)
      if (s->list[r][i].kind == ACT_OVERLAP) return true;
  return false;
}

/* Actions run when the clock of the schedule says; with pairs, whose two parts the clock
 * keeps together, none ends later. */
static Times as_fast_as_its_schedule(const Schedule *s) {
  compile_it(s);
  Times x = run(s);
  Timeline line = clock_of(s);
  bool pairs = has_pairs(s);
  for (int r = 0; r < s->ranks; r++)
    for (int i = 0; i < s->n[r]; i++) {
      const TimelineSlot *is = &x.slot[r][i], *want = &line.slot[r][i];
      if (!action_per_microbatch(&s->list[r][i])) continue;
      if (pairs)
        ck_assert_int_le(is->end, want->end);
      else
        ck_assert_msg(is->start == want->start && is->end == want->end,
                      "rank %d action %d: %lld-%lld, not %lld-%lld", r, i,
                      (long long)is->start, (long long)is->end, (long long)want->start,
                      (long long)want->end);
    }
  return x;
}

START_TEST(random_schedules) {
  Dice d = dice((uint64_t)_i, "transfer times");
  int ranks = 2 + throw_dice(&d, 4), v = 1 + throw_dice(&d, 2);
  Schedule s = sched_random(arena, &d, ranks, v, 1 + throw_dice(&d, 8),
                            v == 2 && throw_dice(&d, 2));
  as_fast_as_its_schedule(&s);
}
END_TEST

/* Two ranks, four microbatches: all sends but the last one to a peer are waited for among
 * the actions, and none of these waits takes time. */
START_TEST(sends_are_waited_for_in_time) {
  Schedule s = sched_text(arena, "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
                                 "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3", 1, 4, false);
  Times x = as_fast_as_its_schedule(&s);
  ck_assert_int_ge(x.sends, 4);
  ck_assert_int_eq(x.send_waits, 0);
}
END_TEST

Suite *transfer_times_suite(void) {
  Suite *s = suite_create("transfer_times");
  TCase *tc = tcase_create("clock");
  tcase_set_timeout(tc, 60);
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_loop_test(tc, random_schedules, 0, 40);
  tcase_add_test(tc, sends_are_waited_for_in_time);
  suite_add_tcase(s, tc);
  return s;
}
