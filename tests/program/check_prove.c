/* check_prove.c - prove(): programs that end, and one program for every way to fail.
 * Each failure must name both sides: the tests compare what the message says. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/harness/proof_fixture.h"

/* ---- pipelines that are right ---- */

/* Where the edges of microbatch `mb` lie: four KiB for each, reused every `window`. */
static uint64_t edge(int mb, int window, int kind) {
  return (uint64_t)(16 + (mb % window) * 4 + kind) * KIB;
}

enum { FWD_IN, FWD_OUT, BWD_IN, BWD_OUT };

typedef struct Pipe {
  Build *b;
  int npp, mbs, window, fwd, bwd;
} Pipe;

static void pipe_step(Pipe *p, int pp, int mb, bool forward) {
  int in = forward ? FWD_IN : BWD_IN, out = in + 1;
  int from = forward ? pp - 1 : pp + 1, to = forward ? pp + 1 : pp - 1;
  Operand i = f32_at(0, edge(mb, p->window, in), 256);
  Operand o = f32_at(0, edge(mb, p->window, out), 256);
  build_line(p->b, 100 + mb);
  if (from >= 0 && from < p->npp) {
    build_recv(p->b, pp, from, in, i, forward ? "F in" : "B in");
    build_wait(p->b, pp, in);
  }
  uint64_t dyn[] = {i.off, o.off};
  build_call(p->b, pp, forward ? p->fwd : p->bwd, 1, mb, forward ? "F" : "B", dyn, 2);
  if (to >= 0 && to < p->npp) {
    /* Two sends may be in flight: handles 4..7 by direction and parity. */
    int h = 4 + 2 * forward + mb % 2;
    if (mb >= 2) build_wait(p->b, pp, h);
    build_send(p->b, pp, to, h, o, forward ? "F out" : "B out");
  }
}

/* 1F1B on `npp` ranks of tp = 2. */
static Build *pipeline(int npp, int mbs, int pairs) {
  Pipe p = {.npp = npp, .mbs = mbs, .window = npp + 3};
  p.b = build_new(proof_arena, npp, 2, 16 * KIB + (uint64_t)p.window * 4 * KIB);
  build_comm(p.b, "tp", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  for (int pp = 0; pp < npp; pp++) {
    uint64_t work = KIB;
    build_unit(p.b, pp, "layers.0", &work, 1);
    p.fwd = proof_body(p.b, pp, "layer:F", PH_F, pairs);
    p.bwd = proof_body(p.b, pp, "layer:I", PH_I, pairs);
    int ahead = MIN(npp - 1 - pp, mbs);
    for (int i = 0; i < mbs + ahead; i++) {
      if (i < mbs) pipe_step(&p, pp, i, true);
      if (i >= ahead) pipe_step(&p, pp, i - ahead, false);
    }
    for (int i = MAX(mbs - 2, 0); i < mbs; i++) {
      if (pp > 0) build_wait(p.b, pp, 4 + i % 2);
      if (pp < npp - 1) build_wait(p.b, pp, 6 + i % 2);
    }
  }
  return p.b;
}

START_TEST(pipeline_of_two) {
  proof_passes(pipeline(2, 3, 2));
  ck_assert_int_eq(proof.transfers, 2 * 3);
  ck_assert_int_eq(proof.collectives, 2 * 3 * 2 * 2);
  ck_assert_int_eq(proof.communicators, 1);
  /* calls, their bodies, and start + wait on both sides of each transfer */
  ck_assert_int_eq(proof.instructions, 12 + 12 * (2 + 2 * 3) + 6 * 4);
}
END_TEST

START_TEST(pipeline_of_four) {
  proof_passes(pipeline(4, 9, 1));
  ck_assert_int_eq(proof.transfers, 2 * 3 * 9);
}
END_TEST

START_TEST(one_rank_without_transfers) {
  proof_passes(pipeline(1, 2, 3));
  ck_assert_int_eq(proof.transfers, 0);
}
END_TEST

/* 64 ranks with 8,000 calls each. The time is for people to look at. */
START_TEST(large_pipeline) {
  Build *b = pipeline(64, 4000, 19);
  Compiled *c = build_done(b);
  struct timespec a, z;
  clock_gettime(CLOCK_MONOTONIC, &a);
  weft_status st = prove(c, &proof, &proof_error);
  clock_gettime(CLOCK_MONOTONIC, &z);
  ck_assert_msg(st == WEFT_OK, "%s", proof_error.text);
  ck_assert_int_eq(proof.transfers, 2 * 63 * 4000);
  ck_assert_int_eq(proof.collectives, 64LL * 8000 * 19);
  printf("prove: 64 ranks x 8000 calls, %lld instructions in %.0f ms\n",
         (long long)proof.instructions,
         (double)(z.tv_sec - a.tv_sec) * 1e3 + (double)(z.tv_nsec - a.tv_nsec) / 1e6);
}
END_TEST

/* ---- transfers between ranks ---- */

START_TEST(crossed_sends_waited_too_early) {
  Build *b = build_new(proof_arena, 2, 1, 4 * KIB);
  for (int pp = 0; pp < 2; pp++) {
    build_line(b, 10 + pp);
    build_send(b, pp, 1 - pp, 0, f32_at(0, KIB, 16), "F0 out");
    build_wait(b, pp, 0);
    build_recv(b, pp, 1 - pp, 1, f32_at(0, 2 * KIB, 16), "F0 in");
    build_wait(b, pp, 1);
  }
  FAILS(b, "deadlock",
        "pp rank 0 main[1] WAIT for main[0] SEND to pp rank 1, 64 bytes of f32, "
        "handle 0, "
        "\"F0 out\", line 10 needs pp rank 1 main[2] RECV from pp rank 0, 64 bytes "
        "of f32, "
        "handle 1, \"F0 in\", line 11",
        "pp rank 1 main[1] WAIT for main[0] SEND to pp rank 0, 64 bytes of f32, "
        "handle 0, "
        "\"F0 out\", line 11 needs pp rank 0 main[2] RECV from pp rank 1");
  ck_assert_int_eq(proof_error.line, 10);
}
END_TEST

/* Where the programs come from a schedule, its actions are named. */
START_TEST(deadlock_in_actions) {
  Build *b = build_new(proof_arena, 2, 1, 4 * KIB);
  Action f = {.kind = ACT_F, .mb = 3, .line = 21}, back = {.kind = ACT_B, .mb = 2};
  Action *list[2] = {&f, &back};
  for (int pp = 0; pp < 2; pp++) {
    build_send(b, pp, 1 - pp, 0, f32_at(0, KIB, 16), "out")->action = 1;
    build_wait(b, pp, 0)->action = 1;
    build_recv(b, pp, 1 - pp, 1, f32_at(0, 2 * KIB, 16), "in")->action = 1;
    build_wait(b, pp, 1);
  }
  Compiled *c = build_done(b);
  c->schedule = (Schedule){.ranks = 2,
                           .virtual_stages = 1,
                           .microbatches = 4,
                           .list = list,
                           .n = (int[]){1, 1}};
  FAILS(b, "pp rank 0 step 0 (F of microbatch 3, line 21), main[1] WAIT for main[0] SEND",
        "needs pp rank 1 step 0 (B of microbatch 2), main[2] RECV from pp rank 0",
        "pp rank 1 step 0 (B of microbatch 2), main[1] WAIT for main[0] SEND");
  c->schedule.n = (int[]){0, 1};
  err_clear(&proof_error);
  ck_assert_int_eq(prove(c, &proof, &proof_error), WEFT_EINTERNAL);
  ck_assert_ptr_nonnull(strstr(proof_error.text, "action 1 is not in the schedule"));
}
END_TEST

/* The same programs end if the wait comes after the receive was posted. */
START_TEST(crossed_sends_waited_late) {
  Build *b = build_new(proof_arena, 2, 1, 4 * KIB);
  for (int pp = 0; pp < 2; pp++) {
    build_send(b, pp, 1 - pp, 0, f32_at(0, KIB, 16), "F0 out");
    build_recv(b, pp, 1 - pp, 1, f32_at(0, 2 * KIB, 16), "F0 in");
    build_wait(b, pp, 0);
    build_wait(b, pp, 1);
  }
  proof_passes(b);
  ck_assert_int_eq(proof.transfers, 2);
}
END_TEST

/* Three ranks in a ring and a fourth that only waits for one of them. */
START_TEST(ring_of_three_and_a_bystander) {
  Build *b = build_new(proof_arena, 4, 1, 4 * KIB);
  for (int pp = 0; pp < 3; pp++) {
    build_recv(b, pp, (pp + 2) % 3, 0, f32_at(0, KIB, 16), "in");
    build_wait(b, pp, 0);
    build_send(b, pp, (pp + 1) % 3, 0, f32_at(0, KIB, 16), "out");
    build_wait(b, pp, 0);
  }
  build_send(b, 2, 3, 0, f32_at(0, KIB, 16), "last");
  build_wait(b, 2, 0);
  build_recv(b, 3, 2, 0, f32_at(0, KIB, 16), "end");
  build_wait(b, 3, 0);
  FAILS(b, "pp rank 0 main[1] WAIT for main[0] RECV from pp rank 2",
        "needs pp rank 2 main[2] SEND to pp rank 0",
        "pp rank 1 main[1] WAIT for main[0] RECV from pp rank 0",
        "pp rank 2 main[1] WAIT for main[0] RECV from pp rank 1",
        "pp rank 3 main[1] WAIT for main[0] RECV from pp rank 2, 64 bytes of f32, "
        "handle 0, "
        "\"end\" needs pp rank 2 main[4] SEND to pp rank 3");
}
END_TEST

/* More ranks than the message has room for: it says how many it leaves out. */
START_TEST(ring_of_many) {
  enum { N = 40 };
  Build *b = build_new(proof_arena, N, 1, 4 * KIB);
  for (int pp = 0; pp < N; pp++) {
    build_recv(b, pp, (pp + 1) % N, 0, f32_at(0, KIB, 16), "in");
    build_wait(b, pp, 0);
    build_send(b, pp, (pp + N - 1) % N, 0, f32_at(0, KIB, 16), "out");
    build_wait(b, pp, 0);
  }
  FAILS(b, "\n  pp rank 0 main[1] WAIT", "\n  pp rank 1 main[1] WAIT", "\n  and 3",
        " more in this cycle");
  ck_assert_str_eq(proof_error.text + strlen(proof_error.text) - 5, "cycle");
}
END_TEST

START_TEST(missing_receive) {
  Build *b = build_new(proof_arena, 2, 1, 4 * KIB);
  for (int i = 0; i < 3; i++) {
    build_line(b, 20 + i);
    build_send(b, 0, 1, i, f32_at(0, KIB, 16), "out");
    build_wait(b, 0, i);
    if (i == 2) break;
    build_recv(b, 1, 0, i, f32_at(0, KIB, 16), "in");
    build_wait(b, 1, i);
  }
  FAILS(b, "pp rank 0 main[5] WAIT for main[4] SEND to pp rank 1", "line 22 never ends",
        "it is number 3 on this channel, but pp rank 1 has only 2 RECVs from pp rank 0");
}
END_TEST

START_TEST(missing_send) {
  Build *b = build_new(proof_arena, 2, 1, 4 * KIB);
  build_recv(b, 1, 0, 0, f32_at(0, KIB, 16), "in");
  build_wait(b, 1, 0);
  FAILS(b, "pp rank 1 main[1] WAIT for main[0] RECV from pp rank 0",
        "number 1 on this channel, but pp rank 0 has only 0 SENDs to pp rank 1");
}
END_TEST

START_TEST(bytes_differ) {
  Build *b = build_new(proof_arena, 2, 1, 4 * KIB);
  build_send(b, 0, 1, 0, f32_at(0, KIB, 16), "out");
  build_wait(b, 0, 0);
  build_recv(b, 1, 0, 0, f32_at(0, KIB, 32), "in");
  build_wait(b, 1, 0);
  FAILS(b, "transfer 1 from pp rank 0 to pp rank 1 differs",
        "64 bytes of f32 in pp rank 0 main[0] SEND",
        "128 bytes of f32 in pp rank 1 main[0]");
}
END_TEST

START_TEST(types_differ) {
  Build *b = build_new(proof_arena, 2, 1, 4 * KIB);
  build_send(b, 0, 1, 0, f32_at(0, KIB, 16), "out");
  build_wait(b, 0, 0);
  build_recv(b, 1, 0, 0, typed_at(DT_BF16, 0, KIB, 32), "in");
  build_wait(b, 1, 0);
  FAILS(b, "64 bytes of f32 in pp rank 0", "64 bytes of bf16 in pp rank 1");
}
END_TEST

/* A backend that matches by tags could run this; a FIFO per ordered pair cannot. */
START_TEST(only_tags_could_match) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  for (int i = 0; i < 2; i++) {
    build_send(b, 0, 1, i, f32_at(0, (uint64_t)(i + 1) * KIB, i ? 32 : 16), "out");
    build_recv(b, 1, 0, i, f32_at(0, (uint64_t)(i + 1) * KIB, i ? 16 : 32), "in");
  }
  for (int i = 0; i < 2; i++) build_wait(b, 0, i), build_wait(b, 1, i);
  FAILS(b, "transfer 1 from pp rank 0 to pp rank 1 differs: 64 bytes of f32",
        "128 bytes of f32 in pp rank 1 main[0] RECV");
}
END_TEST

/* Each direction has a queue of its own: with one for both, the send of each rank would
 * come before the receive that the other one's first transfer needs. */
START_TEST(both_directions_at_once) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  for (int pp = 0; pp < 2; pp++) {
    build_send(b, pp, 1 - pp, 0, f32_at(0, KIB, 16), "out");
    build_recv(b, pp, 1 - pp, 1, f32_at(0, 2 * KIB, 16), "in");
    build_wait(b, pp, 1);
    build_wait(b, pp, 0);
  }
  proof_passes(b);
}
END_TEST

/* A body that sends is run instruction by instruction; the message names the call. */
START_TEST(transfer_inside_a_body) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  int body = build_body(b, 0, "layer:F", PH_F, 2);
  build_send(b, 0, 1, 0, f32_at(1, 0, 16), "out");
  build_wait(b, 0, 0);
  build_main(b, 0);
  int unit = build_unit(b, 0, "layers.7", NULL, 0);
  for (int i = 0; i < 2; i++) {
    build_call(b, 0, body, unit, i, "F", &(uint64_t){(uint64_t)(i + 1) * KIB}, 1);
    build_recv(b, 1, 0, 0, f32_at(0, KIB, i ? 32 : 16), "in");
    build_wait(b, 1, 0);
  }
  FAILS(b, "transfer 2 from pp rank 0",
        "pp rank 0 main[1] calling layer:F (layers.7, microbatch 1) at [0] SEND",
        "128 bytes of f32 in pp rank 1 main[2] RECV");
}
END_TEST

/* ---- collectives over pp ranks ---- */

static void tie(Build *b, int pp, int comm, int h, int64_t n, const char *what) {
  Operand o = f32_at(0, (uint64_t)(h + 1) * KIB, n);
  build_coll(b, pp, comm, COLL_ALL_REDUCE, h, o, o, what);
}

START_TEST(tie_group) {
  Build *b = build_new(proof_arena, 4, 2, 4 * KIB);
  int c = build_comm(b, "tie(0,3)", AXIS_BIT(AXIS_PP), 1, (int[]){0, 3}, 2);
  for (int pp = 0; pp < 4; pp += 3) tie(b, pp, c, 0, 16, "embed"), build_wait(b, pp, 0);
  proof_passes(b);
  ck_assert_int_eq(proof.collectives, 1);
}
END_TEST

START_TEST(tie_group_of_unequal_sequences) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  int c = build_comm(b, "tie(0,1)", AXIS_BIT(AXIS_PP), 2, (int[]){0, 1}, 2);
  for (int pp = 0; pp < 2; pp++) {
    tie(b, pp, c, 0, pp ? 32 : 16, pp ? "pos" : "embed");
    tie(b, pp, c, 1, pp ? 16 : 32, pp ? "embed" : "pos");
    build_wait(b, pp, 0);
    build_wait(b, pp, 1);
  }
  FAILS(b, "collective 1 on tie(0,1) differs",
        "all_reduce of 64 bytes of f32 in pp rank 0 main[0] all_reduce on tie(0,1)",
        "\"embed\"; all_reduce of 128 bytes of f32 in pp rank 1 main[0]", "\"pos\"");
}
END_TEST

START_TEST(tie_group_of_unequal_kinds) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  int c = build_comm(b, "world", AXES_ALL, 2, NULL, 0);
  tie(b, 0, c, 0, 16, "norm");
  tie(b, 1, c, 0, 16, "norm");
  build_wait(b, 0, 0);
  build_wait(b, 1, 0);
  tie(b, 0, c, 0, 16, "max");
  build_wait(b, 0, 0);
  Operand o = f32_at(0, KIB, 16);
  build_coll(b, 1, c, COLL_ALL_REDUCE, 0, o, o, "max")->red = RED_MAX;
  build_wait(b, 1, 0);
  FAILS(b, "collective 2 on world differs",
        "all_reduce of 64 bytes of f32 in pp rank 0 main[2]",
        "all_reduce (max) of 64 bytes of f32 in pp rank 1 main[2]");
}
END_TEST

START_TEST(missing_member) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  int c = build_comm(b, "world", AXES_ALL, 1, NULL, 0);
  tie(b, 1, c, 0, 16, "norm");
  build_wait(b, 1, 0);
  FAILS(b, "pp rank 1 main[1] WAIT for main[0] all_reduce on world", "\"norm\"",
        "pp rank 0 has only 0 collectives on world");
}
END_TEST

/* Two communicators, each with a FIFO of its own, may be started in any order; ranks that
 * run all collectives on one stream may not. */
START_TEST(two_communicators_in_two_orders) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  int x = build_comm(b, "tie(0,1)", AXIS_BIT(AXIS_PP), 1, (int[]){0, 1}, 2);
  int y = build_comm(b, "world", AXES_ALL, 1, NULL, 0);
  for (int pp = 0; pp < 2; pp++) {
    tie(b, pp, pp ? y : x, pp, 16, pp ? "norm" : "embed");
    tie(b, pp, pp ? x : y, 1 - pp, 16, pp ? "embed" : "norm");
    build_wait(b, pp, 0);
    build_wait(b, pp, 1);
  }
  FAILS(b, "deadlock if the collectives of a rank run in one order",
        "pp rank 0 main[0] all_reduce on tie(0,1)",
        "needs pp rank 1 main[1] all_reduce on tie(0,1)",
        "pp rank 1 main[0] all_reduce on world",
        "needs pp rank 0 main[1] all_reduce on world");
}
END_TEST

/* The tp collective of a body comes after one over pp on the same stream, and what would
 * let the peer reach its part is sent only after the body. */
START_TEST(a_body_behind_a_collective_of_the_stream) {
  Build *b = build_new(proof_arena, 2, 2, 32 * KIB);
  int tp = build_comm(b, "tp", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  int world = build_comm(b, "world", AXES_ALL, 1, NULL, 0);
  ck_assert_int_eq(tp, 0);
  int unit = build_unit(b, 0, "layers.0", &(uint64_t){4 * KIB}, 1);
  int body = proof_body(b, 0, "layer:F", PH_F, 1);
  tie(b, 0, world, 0, 16, "norm");
  build_call(b, 0, body, unit, 0, "F0", (uint64_t[]){20 * KIB, 21 * KIB}, 2);
  build_send(b, 0, 1, 1, f32_at(0, 21 * KIB, 16), "out");
  build_wait(b, 0, 1);
  build_wait(b, 0, 0);
  build_recv(b, 1, 0, 1, f32_at(0, 21 * KIB, 16), "in");
  build_wait(b, 1, 1);
  tie(b, 1, world, 0, 16, "norm");
  build_wait(b, 1, 0);
  FAILS(b, "deadlock if the collectives of a rank run in one order",
        "pp rank 0 main[1] CALL, \"F0\" waits for the collectives of this rank",
        "next collective of pp rank 0 main[0] all_reduce on world",
        "needs pp rank 1 main[2] all_reduce on world",
        "pp rank 1 main[1] WAIT for main[0] RECV from pp rank 0, 64 bytes of f32, "
        "handle 1, "
        "\"in\" needs pp rank 0 main[2] SEND to pp rank 1");
}
END_TEST

/* ---- handles ---- */

START_TEST(handle_reused) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  for (int i = 0; i < 2; i++) {
    build_send(b, 0, 1, 0, f32_at(0, KIB, 16), i ? "second" : "first");
    build_recv(b, 1, 0, i, f32_at(0, (uint64_t)(i + 1) * KIB, 16), "in");
  }
  build_wait(b, 0, 0);
  build_wait(b, 1, 0);
  build_wait(b, 1, 1);
  FAILS(b, "pp rank 0 main[1] SEND to pp rank 1", "\"second\" reuses a handle",
        "in flight since pp rank 0 main[0] SEND", "\"first\"");
}
END_TEST

/* A handle of main that a body would use while it is in flight. */
START_TEST(handle_reused_by_a_body) {
  Build *b = build_new(proof_arena, 1, 2, 32 * KIB);
  int tp = build_comm(b, "tp", AXIS_BIT(AXIS_TP), 2, NULL, 0);
  int unit = build_unit(b, 0, "layers.0", &(uint64_t){4 * KIB}, 1);
  int body = proof_body(b, 0, "layer:F", PH_F, 1);
  Operand o = f32_at(0, KIB, 16);
  build_coll(b, 0, tp, COLL_ALL_REDUCE, 8, o, o, "grad");
  build_call(b, 0, body, unit, 5, "F5", (uint64_t[]){20 * KIB, 21 * KIB}, 2);
  build_wait(b, 0, 8);
  FAILS(b,
        "pp rank 0 main[1] calling layer:F (layers.0, microbatch 5) at [1] "
        "all_reduce on tp",
        "reuses a handle that is in flight since pp rank 0 main[0]", "\"grad\"");
}
END_TEST

START_TEST(handle_never_waited_for) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  build_line(b, 7);
  build_send(b, 0, 1, 3, f32_at(0, KIB, 16), "out");
  build_recv(b, 1, 0, 0, f32_at(0, KIB, 16), "in");
  build_wait(b, 1, 0);
  FAILS(b, "pp rank 0 main[0] SEND to pp rank 1, 64 bytes of f32, handle 3, "
           "\"out\", line 7 is "
           "never waited for");
  ck_assert_int_eq(proof_error.line, 7);
}
END_TEST

START_TEST(wait_for_nothing) {
  Build *b = build_new(proof_arena, 1, 1, 8 * KIB);
  build_wait(b, 0, 2);
  FAILS(b, "pp rank 0 main[0] WAIT waits for handle 2, but nothing was started with it");
}
END_TEST

START_TEST(more_in_flight_than_the_communicator_takes) {
  Build *b = build_new(proof_arena, 1, 2, 8 * KIB);
  int tp = build_comm(b, "tp", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  for (int i = 0; i < 2; i++) tie(b, 0, tp, i, 16, "grad");
  for (int i = 0; i < 2; i++) build_wait(b, 0, i);
  FAILS(b, "pp rank 0 main[1] all_reduce on tp", "has 2 transfers of tp in flight",
        "made for 1");
}
END_TEST

/* A proof starts with the structure: a broken index is a bug of the compiler. */
START_TEST(broken_program) {
  Build *b = build_new(proof_arena, 1, 1, KIB);
  build_kernel(b, 0, OP_scale, f32_at(0, 0, 4), f32_at(0, KIB - 8, 4));
  ck_assert_int_eq(prove(build_done(b), &proof, &proof_error), WEFT_EINTERNAL);
}
END_TEST

/* The allocator fails at the n-th request, for every n: the proof says so and leaves
 * nothing behind. */
typedef struct Failing {
  int left;
  long long balance;
} Failing;

static void *failing(void *ud, void *p, size_t old, size_t n) {
  Failing *f = ud;
  f->balance += (long long)n - (long long)old;
  if (n == 0) {
    free(p);
    return NULL;
  }
  if (f->left-- > 0) return realloc(p, n);
  f->balance -= (long long)n - (long long)old;
  return NULL;
}

START_TEST(out_of_memory) {
  Compiled *c = build_done(pipeline(4, 9, 1));
  Failing f = {.left = 1 << 30};
  c->arena = arena_new(&(weft_alloc){failing, &f});
  long long before = f.balance;
  weft_status st = WEFT_ENOMEM;
  int n = 0;
  for (; st == WEFT_ENOMEM && n < 100; n++) {
    f.left = n;
    err_clear(&proof_error);
    st = prove(c, &proof, &proof_error);
    ck_assert_int_eq(f.balance, before);
    ck_assert_int_eq(st, proof_error.code);
  }
  ck_assert_int_eq(st, WEFT_OK);
  ck_assert_int_gt(n, 2);
  arena_free(c->arena);
}
END_TEST

Suite *prove_suite(void) {
  const ProofCases cases[] = {
      {"pipelines",
       {pipeline_of_two, pipeline_of_four, one_rank_without_transfers, large_pipeline}},
      {"transfers",
       {crossed_sends_waited_too_early, crossed_sends_waited_late, deadlock_in_actions,
        ring_of_three_and_a_bystander, ring_of_many, missing_receive, missing_send,
        bytes_differ, types_differ, only_tags_could_match, both_directions_at_once,
        transfer_inside_a_body}},
      {"collectives",
       {tie_group, tie_group_of_unequal_sequences, tie_group_of_unequal_kinds,
        missing_member, two_communicators_in_two_orders,
        a_body_behind_a_collective_of_the_stream}},
      {"handles",
       {handle_reused, handle_reused_by_a_body, handle_never_waited_for, wait_for_nothing,
        more_in_flight_than_the_communicator_takes}},
      {"failures", {broken_program, out_of_memory}},
  };
  return proofs_suite("prove", cases, LEN(cases));
}
