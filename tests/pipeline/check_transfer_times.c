/* check_transfer_times.c - on the clock of the schedule, a compiled pipeline is as fast
 * as its schedule: receives are posted and sends waited for where that delays nothing. */
#include <check.h>

#include "tests/generate/random_schedule.h"
#include "tests/generate/schedule_text.h"
#include "tests/generate/small_llama.h"
#include "tests/harness/schedule_fixture.h"
#include "vm/pipeline/timeline.h"

static Arena *arena;
static Toy toy;

static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) {
  toy_free(&toy);
  arena_free(arena);
}

/* A transfer: the actions of the sender in which it is started and waited for, and when
 * its receive was posted. */
typedef struct Sent {
  int started, waited; /* -1: after all actions */
  int64_t posted;
} Sent;

typedef VEC(Sent) SentList;

/* Which action of which round of a rank's list an instruction belongs to. Receives are
 * posted an action ahead. */
typedef struct ListPlace {
  int action, round;
} ListPlace;

/* When the calls of each action began and ended, and how long sends were waited for. */
typedef struct Times {
  const Schedule *s;
  int rounds;
  TimelineSlot **slot;      /* [pp][action of all rounds]; start -1: none yet */
  int64_t *cost[8];         /* [pp][position in main] of its calls */
  ListPlace at[8];          /* [pp] */
  const Instr **started[8]; /* [pp][handle] */
  int *number[8];           /* [pp][handle]: of the send in its list */
  SentList sent[8][8];      /* [pp][peer] */
  int received[8][8];       /* [pp][peer]: how many receives were posted */
  int64_t send_waits, waits;
} Times;

/* In the order of time, as if transfers shared links, of which they take nothing. */
static bool timed;
static void no_load(void *ud, int pp, const Instr *in, LinkLoad *out) {
  *out = (LinkLoad){0};
}

/* -1: in no action. */
static int action_number(ListPlace *at, const Schedule *s, int pp, const Instr *in) {
  if (!in->action) return -1;
  at->round += in->action < at->action;
  at->action = in->action;
  return at->round * s->n[pp] + in->action - 1;
}

/* The first call of an action's forward costs 1 and that of its backward 1 for each of I
 * and W; all others, and transfers, cost nothing. */
static void price(Times *x, int pp) {
  const Program *p = &toy.compiled->prog[pp];
  const Schedule *s = x->s;
  x->cost[pp] = NEW_N(arena, int64_t, p->nmain);
  uint8_t *seen = NEW_N(arena, uint8_t, s->n[pp] * x->rounds);
  ListPlace at = {0};
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *in = &p->code[i];
    if (in->code != I_CALL || !in->action) continue;
    int k = action_number(&at, s, pp, in);
    int bit = p->body[p->call[in->call].body].phase == PH_F ? PART_F : PART_I;
    if (seen[k] & bit) continue;
    seen[k] |= (uint8_t)bit;
    int kind = s->list[pp][in->action - 1].kind;
    x->cost[pp][i] = bit == PART_F || kind == ACT_I || kind == ACT_W ? 1 : 2;
  }
}

static int64_t unit_cost(void *ud, int pp, const Instr *in) {
  const Times *x = ud;
  int64_t at = in - toy.compiled->prog[pp].code;
  return in->code == I_CALL ? x->cost[pp][at] : 0;
}

static void note_call(Times *x, int pp, const Instr *in, int64_t from, int64_t to) {
  int k = action_number(&x->at[pp], x->s, pp, in);
  if (k < 0) return;
  TimelineSlot *slot = &x->slot[pp][k];
  if (slot->start < 0) slot->start = from;
  slot->end = to;
}

/* Either may come first; the n-th receive is that of the n-th send. */
static Sent *transfer_number(SentList *l, int n) {
  while (l->n <= n) *VEC_PUSH(arena, *l) = (Sent){-1, -1, -1};
  return &l->at[n];
}

static void note_send(Times *x, int pp, const Instr *in) {
  SentList *l = &x->sent[pp][in->peer];
  int n = 0;
  while (n < l->n && l->at[n].started >= 0) n++;
  transfer_number(l, n)->started = action_number(&x->at[pp], x->s, pp, in);
  x->number[pp][in->handle] = n;
}

static void note_wait(Times *x, int pp, const Instr *in, int64_t time) {
  const Instr *of = x->started[pp][in->handle];
  if (of->code != I_SEND) return;
  SentList *l = &x->sent[pp][of->peer];
  int n = x->number[pp][in->handle], k = action_number(&x->at[pp], x->s, pp, in);
  l->at[n].waited = k;
  if (k < 0) return;
  ck_assert_msg(n + 1 < l->n && l->at[n + 1].started >= 0,
                "the last send is waited for too early");
  x->waits++;
  x->send_waits += time;
}

static void note(void *ud, int pp, const Instr *in, int64_t from, int64_t to) {
  Times *x = ud;
  if (instr_is[in->code] & INSTR_STARTS) x->started[pp][in->handle] = in;
  if (in->code == I_CALL) note_call(x, pp, in, from, to);
  if (in->code == I_SEND) note_send(x, pp, in);
  if (in->code == I_WAIT) note_wait(x, pp, in, to - from);
  if (in->code == I_RECV)
    transfer_number(&x->sent[in->peer][pp], x->received[pp][in->peer]++)->posted = from;
}

/* Runs what the schedule was compiled to. */
static Times run(const Schedule *s, int rounds) {
  Times x = {.s = s, .rounds = rounds, .slot = NEW_N(arena, TimelineSlot *, s->ranks)};
  RankTime t[8];
  for (int pp = 0; pp < s->ranks; pp++) {
    const Program *p = &toy.compiled->prog[pp];
    price(&x, pp);
    x.started[pp] = NEW_N(arena, const Instr *, p->nhandle);
    x.number[pp] = NEW_N(arena, int, p->nhandle);
    x.slot[pp] = NEW_N(arena, TimelineSlot, s->n[pp] * rounds);
    for (int i = 0; i < s->n[pp] * rounds; i++) x.slot[pp][i] = (TimelineSlot){-1, -1};
  }
  RunCosts costs = {.ud = &x, .cost = unit_cost, .ran = note, .in_order = true};
  if (timed) costs.load = no_load;
  weft_status st = run_costs(toy.compiled, &costs, t, &toy.err);
  ck_assert_msg(st == WEFT_OK, "%s", toy.err.text);
  return x;
}

static Timeline clock_of(const Schedule *s) {
  Timeline line;
  ck_assert_int_eq(timeline_run(s, TIMELINE_UNIT, arena, &line, &toy.err), WEFT_OK);
  return line;
}

static void compile_it(const Schedule *s, int rounds) {
  ToyOptions o = toy_default();
  o.schedule = s;
  o.pp = s->ranks;
  o.layers = MAX(s->ranks * s->virtual_stages, 2);
  o.microbatches = s->microbatches;
  o.rounds = rounds;
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
  compile_it(s, 1);
  Times x = run(s, 1);
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

/* The action before which rank `pp` may wait for a transfer: the first one that computes,
 * begins when the receive is there, and comes after the next send to the same peer. */
static int wait_place(const Times *x, int pp, const SentList *l, int n) {
  if (n + 1 == l->n) return -1;
  for (int k = l->at[n + 1].started + 1; k < x->s->n[pp]; k++)
    if (action_per_microbatch(&x->s->list[pp][k]) &&
        x->slot[pp][k].start >= l->at[n].posted)
      return k;
  return -1;
}

/* A buffer that is sent is given back as early as it can be: that is memory. */
static void waits_as_early_as_it_can(const Times *x) {
  for (int pp = 0; pp < x->s->ranks; pp++)
    for (int peer = 0; peer < x->s->ranks; peer++) {
      const SentList *l = &x->sent[pp][peer];
      for (int n = 0; n < l->n; n++) {
        int want = wait_place(x, pp, l, n);
        ck_assert_msg(l->at[n].waited == want,
                      "rank %d waits for its send %d to rank %d before action %d, not %d",
                      pp, n, peer, l->at[n].waited, want);
      }
    }
}

START_TEST(random_schedules) {
  Dice d = dice((uint64_t)_i, "transfer times");
  timed = throw_dice(&d, 2);
  int ranks = 2 + throw_dice(&d, 4), v = 1 + throw_dice(&d, 2);
  Schedule s = sched_random(arena, &d, ranks, v, 1 + throw_dice(&d, 8),
                            v == 2 && throw_dice(&d, 2));
  Times x = as_fast_as_its_schedule(&s);
  if (!has_pairs(&s)) waits_as_early_as_it_can(&x);
}
END_TEST

/* Every schedule of the library, on both walks: the bubble of a simulated step is that of
 * its table. */
START_TEST(library) {
  static const struct {
    const char *name;
    int virtual_stages, microbatches;
  } list[] = {{"gpipe", 1, 6},       {"1f1b", 1, 8},  {"eager_1f1b", 1, 8},
              {"zero_bubble", 1, 8}, {"zb_h2", 1, 8}, {"interleaved_1f1b", 2, 8},
              {"looped_bfs", 2, 8},  {"zbv", 2, 8},   {"dualpipe_v", 2, 8},
              {"v_half", 2, 8},      {"v_min", 2, 8}};
  LangTest t;
  lang_test_begin(&t);
  schedule_load(&t, arena_printf(arena, "'%s'", list[_i].name), list[_i].virtual_stages);
  Schedule s = schedule_table(&t, arena, 4, list[_i].microbatches);
  for (int i = 0; i < 2; i++) {
    timed = i;
    if (i) toy_free(&toy);
    as_fast_as_its_schedule(&s);
  }
  timed = false;
  lang_test_end(&t);
}
END_TEST

/* Rank 0 runs ahead of rank 1, which posts one receive ahead: most sends wait for theirs
 * for some actions, in every round. No such wait may take time. */
START_TEST(sends_are_waited_for_in_time) {
  Schedule s = sched_text(arena,
                          "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n"
                          "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3",
                          1, 4, false);
  Times x = as_fast_as_its_schedule(&s);
  waits_as_early_as_it_can(&x);
  ck_assert_int_ge(x.waits, 4);
  toy_free(&toy);
  compile_it(&s, 3);
  Times more = run(&s, 3);
  ck_assert_int_gt(more.waits, 2 * x.waits);
  ck_assert_int_eq(x.send_waits, 0);
  ck_assert_int_eq(more.send_waits, 0);
}
END_TEST

/* The stage before needs the gradient of its output; nobody waits for those of the
 * weights of the unit that made it. */
START_TEST(a_gradient_leaves_before_the_weights_have_theirs) {
  Schedule s = sched_text(arena, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", 1, 2, false);
  compile_it(&s, 1);
  const Program *p = &toy.compiled->prog[1];
  int sends = 0;
  for (uint32_t i = 0; i < p->nmain; i++) {
    if (p->code[i].code != I_SEND) continue;
    const Instr *next = &p->code[i + 1];
    ck_assert(i + 1 < p->nmain && next->code == I_CALL);
    ck_assert_int_eq(p->body[p->call[next->call].body].phase, PH_W);
    ck_assert_int_eq(next->action, p->code[i].action);
    sends++;
  }
  ck_assert_int_eq(sends, 2);
}
END_TEST

Suite *transfer_times_suite(void) {
  Suite *s = suite_create("transfer_times");
  TCase *tc = tcase_create("clock");
  tcase_set_timeout(tc, 60);
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_loop_test(tc, random_schedules, 0, 40);
  tcase_add_loop_test(tc, library, 0, 11);
  tcase_add_test(tc, sends_are_waited_for_in_time);
  tcase_add_test(tc, a_gradient_leaves_before_the_weights_have_theirs);
  suite_add_tcase(s, tc);
  return s;
}
