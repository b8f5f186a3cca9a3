/* check_prove_bytes.c - prove(): nobody touches bytes that are under way, and a body's
 * slots do not lie over each other. */
#include <check.h>

#include "tests/harness/proof_fixture.h"

/* Rank 0 sends bytes 1024..1088, then runs a kernel, then waits. */
static Build *send_beside_kernel(Operand in, Operand out) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  build_send(b, 0, 1, 0, f32_at(0, KIB, 16), "F0 out");
  build_kernel(b, 0, OP_scale, in, out);
  build_wait(b, 0, 0);
  build_recv(b, 1, 0, 0, f32_at(0, KIB, 16), "F0 in");
  build_wait(b, 1, 0);
  return b;
}

START_TEST(buffer_overwritten_while_it_is_sent) {
  FAILS(send_beside_kernel(f32_at(0, 4 * KIB, 16), f32_at(0, KIB + 60, 16)),
        "pp rank 0 main[1] scale writes bytes 1084..1148 of the arena, while bytes "
        "1024..1088 are read by pp rank 0 main[0] SEND to pp rank 1",
        "\"F0 out\"");
}
END_TEST

START_TEST(buffer_read_while_it_is_sent) {
  proof_passes(send_beside_kernel(f32_at(0, KIB, 16), f32_at(0, KIB + 64, 16)));
}
END_TEST

START_TEST(receive_into_a_buffer_that_is_read) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  build_send(b, 0, 1, 0, f32_at(0, KIB, 16), "out");
  build_wait(b, 0, 0);
  build_recv(b, 1, 0, 0, f32_at(0, KIB, 16), "in");
  build_kernel(b, 1, OP_scale, f32_at(0, KIB, 4), f32_at(0, 2 * KIB, 4));
  build_wait(b, 1, 0);
  FAILS(b, "pp rank 1 main[1] scale reads bytes 1024..1040",
        "1024..1088 are written by pp rank 1 main[0] RECV from pp rank 0");
}
END_TEST

START_TEST(receive_into_a_buffer_that_is_sent) {
  Build *b = build_new(proof_arena, 2, 1, 8 * KIB);
  for (int pp = 0; pp < 2; pp++) {
    build_send(b, pp, 1 - pp, 0, f32_at(0, KIB, 16), "out");
    build_recv(b, pp, 1 - pp, 1, f32_at(0, pp ? 2 * KIB : KIB + 32, 16), "in");
    build_wait(b, pp, 0);
    build_wait(b, pp, 1);
  }
  FAILS(b, "pp rank 0 main[1] RECV from pp rank 1", "\"in\" writes bytes 1056..1120",
        "are read by pp rank 0 main[0] SEND to pp rank 1", "\"out\"");
}
END_TEST

/* The body reads slot 2, writes slots 1 and 3; a receive is in flight beside it. */
static Build *call_beside_receive(uint64_t recv) {
  Build *b = build_new(proof_arena, 2, 2, 32 * KIB);
  build_comm(b, "tp", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  int unit = build_unit(b, 0, "layers.4", &(uint64_t){4 * KIB}, 1);
  int body = proof_body(b, 0, "layer:F", PH_F, 2);
  build_recv(b, 0, 1, 0, f32_at(0, recv, 16), "next");
  build_call(b, 0, body, unit, 1, "F1", (uint64_t[]){20 * KIB, 21 * KIB}, 2);
  build_wait(b, 0, 0);
  build_send(b, 1, 0, 0, f32_at(0, recv, 16), "out");
  build_wait(b, 1, 0);
  return b;
}

START_TEST(receive_into_an_input_of_a_call) {
  FAILS(call_beside_receive(20 * KIB + 512),
        "pp rank 0 main[1] calling layer:F (layers.4, microbatch 1) at [0] scale reads",
        "are written by pp rank 0 main[0] RECV from pp rank 1", "\"next\"");
}
END_TEST

START_TEST(receive_into_a_parameter_of_a_call) {
  FAILS(call_beside_receive(4 * KIB + 1024),
        "pp rank 0 main[1] calling layer:F (layers.4, microbatch 1) at [4] "
        "all_reduce on tp",
        "reads bytes 5120..6144");
}
END_TEST

START_TEST(receive_beside_a_call) { proof_passes(call_beside_receive(8 * KIB)); }
END_TEST

/* Inside a body: the all_reduce of slot 1 is in flight while a kernel writes slot 1. */
START_TEST(body_overwrites_its_collective) {
  Build *b = build_new(proof_arena, 1, 2, 8 * KIB);
  build_comm(b, "tp", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  int body = build_body(b, 0, "layer:F", PH_F, 3);
  build_coll(b, 0, 0, COLL_ALL_REDUCE, 0, f32_at(1, 0, 16), f32_at(1, 0, 16), "mlp");
  build_kernel(b, 0, OP_scale, f32_at(2, 0, 16), f32_at(1, 32, 16));
  build_wait(b, 0, 0);
  build_main(b, 0);
  int unit = build_unit(b, 0, "layers.0", (uint64_t[]){KIB, 2 * KIB}, 2);
  build_call(b, 0, body, unit, 0, "F0", NULL, 0);
  FAILS(b, "at [1] scale writes bytes 1056..1120", "at [0] all_reduce on tp", "\"mlp\"");
}
END_TEST

/* Two slots of a body are fine by themselves, but the second call binds them to common
 * bytes. */
START_TEST(call_binds_two_slots_to_common_bytes) {
  Build *b = build_new(proof_arena, 1, 2, 8 * KIB);
  build_comm(b, "tp", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  int body = build_body(b, 0, "layer:F", PH_F, 3);
  build_coll(b, 0, 0, COLL_ALL_REDUCE, 0, f32_at(1, 0, 16), f32_at(1, 0, 16), "mlp");
  build_kernel(b, 0, OP_scale, f32_at(0, 0, 4), f32_at(2, 0, 16));
  build_wait(b, 0, 0);
  build_main(b, 0);
  build_call(b, 0, body, 0, 0, "F0", (uint64_t[]){KIB, 2 * KIB}, 2);
  build_call(b, 0, body, 0, 1, "F1", (uint64_t[]){KIB, KIB + 32}, 2);
  FAILS(b,
        "pp rank 0 main[1] calling layer:F (none, microbatch 1) at [1] scale "
        "writes bytes "
        "1056..1120",
        "while bytes 1024..1088 are", "at [0] all_reduce on tp");
}
END_TEST

START_TEST(result_over_input) {
  Build *b = build_new(proof_arena, 1, 2, 8 * KIB);
  build_comm(b, "tp", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  Operand in = f32_at(0, KIB, 16), out = f32_at(0, KIB + 4, 16);
  build_coll(b, 0, 0, COLL_ALL_REDUCE, 0, in, out, "x");
  build_wait(b, 0, 0);
  FAILS(b, "pp rank 0 main[0] all_reduce on tp",
        "\"x\" writes its result over its input");
}
END_TEST

/* ---- rows that are counted ---- places of slot 1, counts in slots 2 and 3, places of
 * slot 4, which a body exchanges while a kernel writes `touched` */

static Build *counted(Operand touched, Operand counts, Operand out) {
  Build *b = build_new(proof_arena, 1, 2, 8 * KIB);
  build_comm(b, "ep", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  int body = build_body(b, 0, "layer:F", PH_F, 5);
  Operand o[] = {f32_at(1, 0, 2), counts, typed_at(DT_I32, 3, 0, 4), out};
  o[0].ndim = 2, o[0].dim[1] = 8; /* of one row */
  build_rows(b, 0, 0, 0, o, "experts");
  build_kernel(b, 0, OP_scale, f32_at(1, 32, 4), touched);
  build_wait(b, 0, 0);
  build_main(b, 0);
  uint64_t slot[] = {KIB, 2 * KIB, 3 * KIB, 4 * KIB};
  int unit = build_unit(b, 0, "layers.0", slot, 4);
  build_call(b, 0, body, unit, 0, "F0", NULL, 0);
  return b;
}

/* It moves the places at most, and its operands are its own until it was waited for. */
START_TEST(counts_stay_until_the_wait) {
  const Operand counts = typed_at(DT_I32, 2, 0, 4), out = f32_at(4, 0, 16);
  Build *b = counted(f32_at(4, 64, 4), counts, out);
  Compiled *c = build_done(b);
  c->flow = NEW_N(proof_arena, Flow, flow_room(c));
  ck_assert_int_eq(prove(c, &proof, &proof_error), WEFT_OK);
  ck_assert_int_eq(flow_of(c, 0, 0, COLL_ALL_TO_ALL_V)->count, 1);
  ck_assert_uint_eq(flow_of(c, 0, 0, COLL_ALL_TO_ALL_V)->bytes, 64);
  for (uint16_t slot = 1; slot <= 4; slot++) {
    b = counted(f32_at(slot, 0, 4), counts, out);
    const char *held = slot < 4 ? "are read by" : "are written by";
    FAILS(b, "at [1] scale writes bytes", held, "at [0] all_to_all_v on ep, 64 bytes");
    err_clear(&proof_error);
  }
}
END_TEST

/* The result lies over the input, or over counts: in one slot, or in two. */
START_TEST(result_over_counts) {
  const Operand far = f32_at(4, 64, 4), counts = typed_at(DT_I32, 2, 0, 4);
  const Operand over[] = {f32_at(1, 0, 16), f32_at(2, 8, 16), f32_at(3, 0, 16)};
  for (int i = 0; i < LEN(over); i++) {
    FAILS(counted(far, counts, over[i]), "all_to_all_v on ep",
          "writes its result over its input");
    err_clear(&proof_error);
  }
  FAILS(counted(far, typed_at(DT_I32, 1, 3 * KIB + 4, 4), f32_at(4, 0, 16)),
        "all_to_all_v on ep", "writes its result over its input");
}
END_TEST

Suite *prove_bytes_suite(void);
Suite *prove_bytes_suite(void) {
  const ProofCases cases[] = {
      {"bytes",
       {buffer_overwritten_while_it_is_sent, buffer_read_while_it_is_sent,
        receive_into_a_buffer_that_is_read, receive_into_a_buffer_that_is_sent,
        receive_into_an_input_of_a_call, receive_into_a_parameter_of_a_call,
        receive_beside_a_call, body_overwrites_its_collective, counts_stay_until_the_wait,
        result_over_counts, call_binds_two_slots_to_common_bytes, result_over_input}},
  };
  return proofs_suite("prove_bytes", cases, LEN(cases));
}
