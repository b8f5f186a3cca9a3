/* check_costs.c - run_costs(): programs written by hand whose times are known on paper,
 * on both backends. */
#include <check.h>

#include "tests/generate/program_builder.h"

enum { KIB = 1024 };

static Arena *arena;
static weft_error err;
static RankTime t[8];
static Text said, waits;

static void setup(void) {
  arena = arena_new(NULL);
  err_clear(&err);
}
static void teardown(void) {
  arena_free(arena);
  text_free(&said);
  text_free(&waits);
}

/* What an instruction costs is its line. */
static int64_t line_of(void *ud, int pp, const Instr *in) { return in->line; }

static void tell(void *ud, int pp, const Instr *in, int64_t from, int64_t to) {
  text_printf(&said, "%d %s %lld-%lld; ", pp, instr_name[in->code], (long long)from,
              (long long)to);
}

static void run(Build *b, bool in_order) {
  Compiled *c = build_done(b);
  weft_status st = prove(c, NULL, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
  st = run_costs(c, &(RunCosts){.cost = line_of, .ran = tell, .in_order = in_order}, t,
                 &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
}

static void is(int pp, int64_t end, int64_t busy) {
  ck_assert_int_eq(t[pp].end, end);
  ck_assert_int_eq(t[pp].busy, busy);
  ck_assert_int_eq(t[pp].waited, end - busy);
}

static Operand cell(int i) { return f32_at(0, (uint64_t)(i + 1) * KIB, 16); }

static void kernel(Build *b, int pp, int cost) {
  build_kernel(b, pp, OP_scale, cell(0), cell(1))->line = cost;
}
static void coll(Build *b, int pp, int comm, int handle, int cost) {
  Operand o = cell(2 + handle);
  build_coll(b, pp, comm, COLL_ALL_REDUCE, handle, o, o, "sum")->line = cost;
}

/* tp and dp within the pp ranks, and one communicator between them. */
enum { TP, DP, WORLD };
static Build *machine(int pp) {
  Build *b = build_new(arena, pp, 2, 32 * KIB);
  build_comm(b, "tp", AXIS_BIT(AXIS_TP), 3, NULL, 0);
  build_comm(b, "dp", AXES_DP, 3, NULL, 0);
  build_comm(b, "world", AXES_ALL, 3, NULL, 0);
  return b;
}

/* ---- one rank ---- */

START_TEST(kernels_add_up) {
  Build *b = machine(1);
  kernel(b, 0, 3);
  kernel(b, 0, 4);
  run(b, false);
  is(0, 7, 7);
  ck_assert_str_eq(said.s, "0 KERNEL 0-3; 0 KERNEL 3-7; ");
}
END_TEST

/* The longer one of kernel and collective counts. */
START_TEST(beside_a_kernel) {
  for (int i = 0; i < 2; i++) {
    Build *b = machine(1);
    coll(b, 0, TP, 0, 10);
    kernel(b, 0, i ? 4 : 14);
    build_wait(b, 0, 0);
    run(b, false);
    is(0, i ? 10 : 14, i ? 4 : 14);
  }
}
END_TEST

/* Collectives of one communicator follow each other, those of two run side by side unless
 * the backend runs all of a rank in order. */
START_TEST(queues) {
  for (int i = 0; i < 4; i++) {
    Build *b = machine(1);
    coll(b, 0, TP, 0, 3);
    coll(b, 0, i / 2 ? DP : TP, 1, 5);
    build_wait(b, 0, 1);
    build_wait(b, 0, 0);
    run(b, i % 2);
    is(0, i == 2 ? 5 : 8, 0);
  }
}
END_TEST

/* A body of kernel 2, all_reduce 4 beside a kernel of 1, kernel 2: 8 ticks, 5 busy. */
static int body(Build *b, int pp) {
  int body = build_body(b, pp, "layer:F", PH_F, 1);
  kernel(b, pp, 2);
  coll(b, pp, TP, 5, 4);
  kernel(b, pp, 1);
  build_wait(b, pp, 5);
  kernel(b, pp, 2);
  build_main(b, pp);
  return body;
}

START_TEST(calls) {
  Build *b = machine(1);
  int f = body(b, 0);
  for (int i = 0; i < 3; i++) build_call(b, 0, f, 0, i, "F", NULL, 0)->line = 10;
  run(b, false);
  is(0, 3 * 18, 3 * 15);
  ck_assert_str_eq(said.s, "0 CALL 0-18; 0 CALL 18-36; 0 CALL 36-54; ");
}
END_TEST

/* A collective of main on the same communicator holds up the one of the body, on another
 * one only if all run in order. */
START_TEST(calls_behind_a_collective) {
  for (int i = 0; i < 4; i++) {
    Build *b = machine(1);
    int f = body(b, 0);
    coll(b, 0, i / 2 ? DP : TP, 0, 20);
    build_call(b, 0, f, 0, 0, "F", NULL, 0);
    build_wait(b, 0, 0);
    run(b, i % 2);
    is(0, i == 2 ? 20 : 20 + 4 + 2, 5);
    text_free(&said);
  }
}
END_TEST

/* ---- several ranks ---- */

/* Rank 1 has posted its receive long before: the data is there 2 after it was made. */
START_TEST(send_to_one_that_waits) {
  Build *b = machine(2);
  Operand o = cell(2);
  kernel(b, 0, 5);
  build_send(b, 0, 1, 0, o, "F0")->line = 2;
  build_wait(b, 0, 0);
  build_recv(b, 1, 0, 0, o, "F0");
  build_wait(b, 1, 0);
  kernel(b, 1, 3);
  run(b, true);
  is(0, 7, 5);
  is(1, 10, 3);
}
END_TEST

/* Posted late: the sender, which waits, waits until then. */
START_TEST(send_to_one_that_is_busy) {
  Build *b = machine(2);
  Operand o = cell(2);
  kernel(b, 0, 5);
  build_send(b, 0, 1, 0, o, "F0")->line = 2;
  kernel(b, 0, 1);
  build_wait(b, 0, 0);
  kernel(b, 1, 9);
  build_recv(b, 1, 0, 0, o, "F0")->line = 1;
  build_wait(b, 1, 0);
  run(b, true);
  is(0, 11, 6);
  is(1, 11, 9);
  ck_assert_ptr_nonnull(strstr(said.s, "0 WAIT 6-11; "));
}
END_TEST

/* All members wait for the last one. */
START_TEST(collective_of_all) {
  Build *b = machine(4);
  for (int pp = 0; pp < 4; pp++) {
    kernel(b, pp, 1 + pp * pp);
    coll(b, pp, WORLD, 0, 6);
    kernel(b, pp, 1);
    build_wait(b, pp, 0);
  }
  run(b, true);
  for (int pp = 0; pp < 4; pp++) is(pp, 16, 2 + pp * pp);
}
END_TEST

/* In order, the sum over rank 0's tp comes after the one over the world, for which that
 * has to wait. */
START_TEST(in_order_behind_the_world) {
  for (int i = 0; i < 2; i++) {
    Build *b = machine(2);
    kernel(b, 1, 30);
    for (int pp = 0; pp < 2; pp++) coll(b, pp, WORLD, 0, 2);
    coll(b, 0, TP, 1, 3);
    build_wait(b, 0, 1);
    kernel(b, 0, 7);
    build_wait(b, 0, 0);
    build_wait(b, 1, 0);
    run(b, i);
    is(0, i ? 32 + 3 + 7 : 32, 7);
    is(1, 32, 30);
  }
}
END_TEST

/* 1F1B with forwards of 1 and backwards of 2 takes (m + p - 1) * 3 if nothing else costs;
 * if each transfer takes 1, the first microbatch has p - 1 of them on each way, and of
 * those that follow it a rank waits for the way to its neighbour and back. */
START_TEST(pipeline_of_1f1b) {
  enum { P = 4, M = 8 };
  for (int cost = 0; cost < 2; cost++) {
    Build *b = machine(P);
    for (int pp = 0; pp < P; pp++) {
      int ahead = P - 1 - pp;
      for (int i = 0; i < M + ahead; i++)
        for (int back = 0; back < 2; back++) {
          int mb = back ? i - ahead : i, from = back ? pp + 1 : pp - 1;
          int to = back ? pp - 1 : pp + 1, h = 2 * (mb % 8) + 16 * back;
          if (mb < 0 || mb >= M) continue;
          if (from >= 0 && from < P) {
            build_recv(b, pp, from, 0, cell(2 + back), "in");
            build_wait(b, pp, 0);
          }
          kernel(b, pp, 1 + back);
          if (to >= 0 && to < P)
            build_send(b, pp, to, 1 + h, cell(4 + back), "out")->line = cost;
        }
      for (int i = 0; i < M; i++) {
        if (pp + 1 < P) build_wait(b, pp, 1 + 2 * (i % 8));
        if (pp > 0) build_wait(b, pp, 1 + 2 * (i % 8) + 16);
      }
    }
    run(b, true);
    if (cost == 0) ck_assert_int_eq(t[0].end, (M + P - 1) * 3);
    if (cost == 1) ck_assert_int_gt(t[0].end, (M + P - 1) * 3 + 2 * (P - 1) - 1);
    for (int pp = 0; pp < P; pp++) ck_assert_int_eq(t[pp].busy, 3 * M);
    text_free(&said);
  }
}
END_TEST

/* ---- transfers that share links ---- */

static double share = 1, beside;

/* tp uses NVLink, dp and transfers between ranks the network. */
static void load_of(void *ud, int pp, const Instr *in, LinkLoad *out) {
  bool near = instr_is[in->code] & INSTR_COLL && in->comm == TP;
  out->link[near ? LINK_NVLINK : LINK_NETWORK] = share;
  out->beside = beside;
}

static void tell_wait(void *ud, int pp, const RankWait *w) {
  if (w->ended > w->came)
    text_printf(&waits, "%d %s %lld-%lld-%lld x%lld; ", pp, instr_name[w->what->code],
                (long long)w->came, (long long)MAX(w->came, w->began),
                (long long)w->ended, (long long)w->times);
}

static void run_shared(Build *b) {
  Compiled *c = build_done(b);
  RunCosts costs = {.cost = line_of, .ran = tell, .load = load_of, .waited = tell_wait};
  ck_assert_msg(prove(c, NULL, &err) == WEFT_OK, "%s", err.text);
  text_free(&said), text_free(&waits);
  ck_assert_msg(run_costs(c, &costs, t, &err) == WEFT_OK, "%s", err.text);
}

static Build *pair_of_ranks(int first, int second, bool both) {
  Build *b = machine(2);
  for (int pp = 0; pp < 2; pp++) {
    if (pp == 0 || both) coll(b, pp, DP, 0, first);
    Operand o = cell(20);
    if (pp == 0)
      build_send(b, 0, 1, 1, o, "x")->line = second;
    else
      build_recv(b, 1, 0, 1, o, "x")->line = second;
    build_wait(b, pp, 1);
    if (pp == 0 || both) build_wait(b, pp, 0);
  }
  return b;
}

/* A collective of 10 and a send of 6 on the card of rank 0: each at half its speed until
 * the send ends after 12; then the collective has 4 left. With half of the card each they
 * do not meet. */
START_TEST(half_of_a_link_each) {
  share = 1, beside = 0;
  run_shared(pair_of_ranks(10, 6, false));
  is(0, 16, 0);
  is(1, 12, 0);
  share = 0.5;
  run_shared(pair_of_ranks(10, 6, false));
  is(0, 10, 0);
  is(1, 6, 0);
}
END_TEST

/* With 3/4 of the link each they get half of it each, which is 2/3 of their speed: 6 take
 * 9; then the other one has 4 of 10 left. */
START_TEST(fair_shares) {
  share = 0.75, beside = 0;
  run_shared(pair_of_ranks(10, 6, false));
  is(1, 9, 0);
  is(0, 13, 0);
}
END_TEST

/* Different links do not share. */
START_TEST(links_are_apart) {
  share = 1, beside = 0;
  Build *b = machine(1);
  coll(b, 0, TP, 0, 10);
  coll(b, 0, DP, 1, 6);
  build_wait(b, 0, 1);
  build_wait(b, 0, 0);
  run_shared(b);
  is(0, 10, 0);
  ck_assert_str_eq(waits.s, "0 COLL 0-0-6 x1; 0 COLL 6-6-10 x1; ");
}
END_TEST

/* A send that is posted while a kernel runs slows it down from then on: rank 1 has posted
 * its receive and works 20; rank 0 sends after 5 for 8 ticks, in which kernels do half as
 * much (2 ticks for 1): 5 + 8 + 11 = 24. Rank 0 works 2 beside it, of which 2 take 4. */
START_TEST(kernels_beside_transfers) {
  share = 1, beside = 1;
  Build *b = machine(2);
  Operand o = cell(20);
  build_recv(b, 1, 0, 0, o, "x")->line = 8;
  kernel(b, 1, 20);
  build_wait(b, 1, 0);
  kernel(b, 0, 5);
  build_send(b, 0, 1, 0, o, "x")->line = 8;
  kernel(b, 0, 2);
  build_wait(b, 0, 0);
  run_shared(b);
  is(1, 24, 24);
  is(0, 13, 9);
}
END_TEST

/* The time of a wait before its transfer moves is not the transfer's. */
START_TEST(waits_for_others) {
  share = 1, beside = 0;
  Build *b = machine(2);
  Operand o = cell(20);
  kernel(b, 0, 5);
  build_send(b, 0, 1, 0, o, "x")->line = 8;
  build_wait(b, 0, 0);
  build_recv(b, 1, 0, 0, o, "x")->line = 8;
  build_wait(b, 1, 0);
  run_shared(b);
  is(1, 13, 0);
  ck_assert_str_eq(waits.s, "0 SEND 5-5-13 x1; 1 RECV 0-5-13 x1; ");
}
END_TEST

/* Calls of a body are one step each while nothing of the rank is on its links, and what
 * they wait for is told at the end; else they are run one instruction at a time, to the
 * same result if nothing is in the way. */
START_TEST(bodies_in_one_step) {
  for (int i = 0; i < 3; i++) {
    share = 1, beside = 0;
    Build *b = machine(1);
    int f = body(b, 0);
    if (i) coll(b, 0, i == 1 ? DP : TP, 0, 20);
    for (int k = 0; k < 2; k++) build_call(b, 0, f, 0, k, "F", NULL, 0);
    if (i) build_wait(b, 0, 0);
    run_shared(b);
    /* On another link: 2 * 8. On the same communicator the body's sum comes behind. */
    is(0, i == 0 ? 16 : i == 1 ? 20 : 20 + 4 + 2 + 8, 10);
    if (i == 0) ck_assert_str_eq(waits.s, "0 COLL 0-0-3 x2; ");
  }
}
END_TEST

/* Without loads that meet, the order of time gives what the order of events gives. */
START_TEST(same_as_without_links) {
  share = 0.01, beside = 0;
  for (int i = 0; i < 2; i++) {
    Build *b = pair_of_ranks(7, 3, true);
    if (i)
      run_shared(b);
    else
      run(b, false);
    is(0, 7, 0);
    is(1, 7, 0);
  }
}
END_TEST

Suite *costs_suite(void) {
  const TTest *test[] = {kernels_add_up,
                         beside_a_kernel,
                         queues,
                         calls,
                         calls_behind_a_collective,
                         send_to_one_that_waits,
                         send_to_one_that_is_busy,
                         collective_of_all,
                         in_order_behind_the_world,
                         pipeline_of_1f1b,
                         half_of_a_link_each,
                         fair_shares,
                         links_are_apart,
                         kernels_beside_transfers,
                         waits_for_others,
                         bodies_in_one_step,
                         same_as_without_links};
  Suite *s = suite_create("costs");
  TCase *tc = tcase_create("on paper");
  tcase_add_checked_fixture(tc, setup, teardown);
  for (int i = 0; i < LEN(test); i++) tcase_add_test(tc, test[i]);
  suite_add_tcase(s, tc);
  return s;
}
