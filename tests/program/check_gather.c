/* check_gather.c - parameters that every rank has a shard of: GATHER, FREE and SCATTER in
 * programs written by hand, right ones and every way to get them wrong. */
#include <check.h>

#include "tests/generate/program_builder.h"

enum {
  KIB = 1024,
  SHARD0 = KIB,
  SHARD1 = 2 * KIB,
  COPY = 4 * KIB,
  COPY1 = 5 * KIB,
  GRAD = 6 * KIB,
  X = 7 * KIB,
  Y = 8 * KIB,
  END = 16 * KIB
};

static Arena *arena;
static weft_error err;
static Proof proof;
static Build *b;
static int unit[2], body;

/* One pp rank of tp = 2, whose ranks have 16 elements each of two units' parameters. The
 * body reads the parameters (slot 1) and its input, and writes its result. */
static void setup(void) {
  arena = arena_new(NULL);
  err_clear(&err);
  proof = (Proof){0};
  b = build_new(arena, 1, 2, END);
  build_comm(b, "tp", AXIS_BIT(AXIS_TP), 2, NULL, 0);
  static const char *const name[] = {"layers.0", "layers.1"};
  for (int i = 0; i < 2; i++) {
    unit[i] = build_unit(b, 0, name[i], NULL, 0);
    build_bind(b, 0, unit[i], &(Bind){COPY + (uint64_t)(i * KIB), unit[i]}, 1);
  }
  body = build_body(b, 0, "layer:F", PH_F, 4);
  Operand o[] = {f32_at(2, 0, 32), f32_at(1, 0, 32), f32_at(3, 0, 32)};
  build_op(b, 0, OP_mul, o, 2, 1, NULL);
  build_main(b, 0);
}
static void teardown(void) { arena_free(arena); }

static Operand copy(int i) { return f32_at(0, COPY + (uint64_t)(i * KIB), 32); }
static Operand shard(int i) { return f32_at(0, i ? SHARD1 : SHARD0, 16); }
static void gather(int i) { build_gather(b, 0, unit[i], 0, i, shard(i), copy(i)); }
static void wait(int handle) { build_wait(b, 0, handle); }
static void give_up(int i) { build_free(b, 0, unit[i], copy(i)); }
static void call(int i) {
  build_call(b, 0, body, unit[i], 0, "F0", (uint64_t[]){X, Y}, 2);
}

static void passes(void) {
  weft_status st = prove(build_done(b), &proof, &err);
  ck_assert_msg(st == WEFT_OK, "%d: %s", st, err.text);
}

static void fails(weft_status want, const char *const *text) {
  weft_status st = prove(build_done(b), &proof, &err);
  ck_assert_msg(st == want, "%d: %s", st, err.text);
  for (; *text; text++)
    ck_assert_msg(strstr(err.text, *text) != NULL, "\"%s\" is not in: %s", *text,
                  err.text);
}
#define FAILS(...)  fails(WEFT_EPLAN, (const char *const[]){__VA_ARGS__, NULL})
#define BROKEN(...) fails(WEFT_EINTERNAL, (const char *const[]){__VA_ARGS__, NULL})

/* ---- right ---- */

/* The second unit's parameters are gathered while the first one computes, and both are
 * gathered a second time. */
START_TEST(gathered_ahead_of_use) {
  for (int round = 0; round < 2; round++) {
    gather(0);
    wait(0);
    gather(1);
    call(0);
    give_up(0);
    wait(1);
    call(1);
    give_up(1);
  }
  passes();
  ck_assert_int_eq(proof.collectives, 4);
  ck_assert_int_eq(proof.instructions, 2 * (8 + 2));
}
END_TEST

START_TEST(one_place_for_one_copy_after_the_other) {
  build_bind(b, 0, unit[1], &(Bind){COPY, unit[1]}, 1);
  gather(0);
  wait(0);
  call(0);
  give_up(0);
  build_gather(b, 0, unit[1], 0, 1, shard(1), copy(0));
  wait(1);
  call(1);
  build_free(b, 0, unit[1], copy(0));
  passes();
}
END_TEST

/* Calls of one unit may bind what is stored in one place and a copy in another. */
START_TEST(stored_here_and_gathered_there) {
  gather(0);
  wait(0);
  call(0);
  give_up(0);
  build_bind(b, 0, unit[0], &(Bind){GRAD, BIND_STORED}, 1);
  call(0);
  build_bind(b, 0, unit[0], &(Bind){COPY, BIND_STORED}, 1);
  call(0); /* what was the copy's is free for others */
  passes();
}
END_TEST

START_TEST(gradients_are_scattered) {
  Operand sum = f32_at(0, GRAD, 32);
  build_kernel(b, 0, OP_scale, f32_at(0, X, 32), sum);
  build_scatter(b, 0, unit[0], 0, 0, sum, shard(0));
  build_kernel(b, 0, OP_scale, f32_at(0, X, 32), f32_at(0, Y, 32));
  wait(0);
  build_kernel(b, 0, OP_scale, f32_at(0, X, 32), sum);
  passes();
  ck_assert_int_eq(proof.collectives, 1);
}
END_TEST

START_TEST(traffic_counts_them) {
  gather(0);
  wait(0);
  call(0);
  give_up(0);
  build_scatter(b, 0, unit[0], 0, 0, f32_at(0, GRAD, 32), shard(0));
  wait(0);
  Compiled *c = build_done(b);
  c->flow = NEW_N(arena, Flow, flow_room(c));
  ck_assert_int_eq(prove(c, NULL, &err), WEFT_OK);
  ck_assert_int_eq(flow_of(c, 0, 0, COLL_ALL_GATHER)->count, 1);
  ck_assert_int_eq(flow_of(c, 0, 0, COLL_ALL_GATHER)->bytes, 128);
  ck_assert_int_eq(flow_of(c, 0, 0, COLL_REDUCE_SCATTER)->bytes, 128);
  ck_assert_int_eq(traffic(c, arena)[0].collective, 256);
}
END_TEST

/* ---- shards in their places ---- */

/* Of 32 elements that lie whole on every rank, each of the two works on its half. */
static Operand mine(uint64_t off) {
  Operand o = f32_at(0, off, 16);
  o.shard = AXIS_BIT(AXIS_TP);
  return o;
}

static void coll(int handle, CollKind kind, Operand in, Operand out) {
  build_coll(b, 0, 0, kind, handle, in, out, "x");
}

START_TEST(a_shard_is_summed_and_gathered_in_place) {
  coll(0, COLL_REDUCE_SCATTER, f32_at(0, GRAD, 32), mine(GRAD));
  wait(0);
  build_kernel(b, 0, OP_scale, mine(GRAD), mine(X));
  coll(0, COLL_ALL_GATHER, mine(X), f32_at(0, X, 32));
  build_kernel(b, 0, OP_scale, mine(GRAD), mine(Y));
  coll(1, COLL_ALL_REDUCE, mine(Y), mine(Y));
  wait(0);
  wait(1);
  passes();
}
END_TEST

/* What another rank does with its shard counts as well: one stands for all. */
START_TEST(a_shard_is_any_of_them) {
  coll(0, COLL_ALL_REDUCE, mine(GRAD), mine(GRAD));
  build_kernel(b, 0, OP_scale, f32_at(0, X, 16), f32_at(0, GRAD + 64, 16));
  wait(0);
  FAILS("main[1] scale writes bytes 6208..6272", "bytes 6144..6272 are read by pp rank "
                                                 "0 main[0] all_reduce");
}
END_TEST

static const struct {
  CollKind kind;
  AxisSet axes;
  int64_t in, out;
} misfit[] = {{COLL_REDUCE_SCATTER, 0, 32, 16},
              {COLL_REDUCE_SCATTER, AXIS_BIT(AXIS_DP_SHARD), 32, 16},
              {COLL_ALL_GATHER, 0, 16, 32}};

/* In place only as the rank's shard over the axes of the communicator. */
START_TEST(another_place_than_the_shard) {
  Operand in = f32_at(0, GRAD, misfit[_i].in), out = f32_at(0, GRAD, misfit[_i].out);
  (misfit[_i].in < misfit[_i].out ? &in : &out)->shard = misfit[_i].axes;
  coll(0, misfit[_i].kind, in, out);
  wait(0);
  FAILS("writes its result over its input, which is allowed only for the whole of an "
        "all_reduce or for the rank's shard within the whole tensor");
}
END_TEST

/* ---- wrong ---- */

START_TEST(never_gathered) {
  call(0);
  FAILS("pp rank 0 main[0] calling layer:F (layers.0, microbatch 0) at [0] mul uses the "
        "gathered copy of layers.0, but there is none: nothing gathered it, or it was "
        "freed");
}
END_TEST

START_TEST(not_waited_for) {
  gather(0);
  call(0);
  wait(0);
  give_up(0);
  FAILS("main[1] calling layer:F (layers.0, microbatch 0) at [0] mul",
        "but nothing waited yet for pp rank 0 main[0] GATHER of layers.0 on tp, 64 bytes "
        "of f32, handle 0");
}
END_TEST

START_TEST(freed_before_use) {
  gather(0);
  wait(0);
  give_up(0);
  call(0);
  FAILS("main[3] calling layer:F (layers.0", "there is none");
}
END_TEST

START_TEST(never_freed) {
  build_line(b, 9);
  gather(0);
  wait(0);
  call(0);
  FAILS("pp rank 0 main[0] GATHER of layers.0 on tp", "line 9: this copy of layers.0 is "
                                                      "never freed");
  ck_assert_int_eq(err.line, 9);
}
END_TEST

START_TEST(freed_twice) {
  gather(0);
  wait(0);
  give_up(0);
  give_up(0);
  FAILS("pp rank 0 main[3] FREE of layers.0 is to free the gathered copy of layers.0",
        "but there is none");
}
END_TEST

START_TEST(freed_while_it_is_gathered) {
  gather(0);
  give_up(0);
  wait(0);
  FAILS("main[1] FREE of layers.0", "nothing waited yet for pp rank 0 main[0] GATHER");
}
END_TEST

START_TEST(freed_in_part) {
  gather(0);
  wait(0);
  build_free(b, 0, unit[0], f32_at(0, COPY, 16));
  FAILS("what is there is that of layers.0 in bytes 4096..4224, by pp rank 0 main[0]");
}
END_TEST

START_TEST(freed_while_something_reads_it) {
  gather(0);
  wait(0);
  build_coll(b, 0, 0, COLL_ALL_REDUCE, 1, copy(0), f32_at(0, Y, 32), "sum");
  give_up(0);
  wait(1);
  FAILS("pp rank 0 main[3] FREE of layers.0 frees bytes 4096..4224 of the arena, while "
        "bytes 4096..4224 are read by pp rank 0 main[2] all_reduce on tp",
        "which nothing waited for yet");
}
END_TEST

START_TEST(another_copy_is_there) {
  gather(0);
  wait(0);
  give_up(0);
  build_gather(b, 0, unit[1], 0, 1, shard(1), copy(0));
  wait(1);
  call(0);
  FAILS("main[5] calling layer:F (layers.0",
        "uses the gathered copy of layers.0, but "
        "what is there is that of layers.1 in bytes 4096..4224, by pp rank 0 main[3] "
        "GATHER of layers.1");
}
END_TEST

START_TEST(gathered_over_a_copy) {
  gather(0);
  wait(0);
  build_gather(b, 0, unit[1], 0, 1, shard(1), f32_at(0, COPY + 64, 32));
  FAILS("pp rank 0 main[2] GATHER of layers.1 on tp",
        "writes bytes 4160..4288 of the "
        "arena, while bytes 4096..4224 are kept by pp rank 0 main[0] GATHER of layers.0",
        "whose copy is not freed yet");
}
END_TEST

START_TEST(reads_past_the_copy) {
  build_bind(b, 0, unit[0], &(Bind){COPY + 64, unit[0]}, 1);
  gather(0);
  wait(0);
  call(0);
  FAILS("uses the gathered copy of layers.0, but what is there is that of layers.0 in "
        "bytes 4096..4224");
}
END_TEST

START_TEST(copy_is_overwritten) {
  gather(0);
  wait(0);
  build_kernel(b, 0, OP_scale, f32_at(0, X, 16), f32_at(0, COPY + 64, 16));
  FAILS("main[2] scale writes bytes 4160..4224", "are kept by pp rank 0 main[0] GATHER");
}
END_TEST

/* The optimizer may not step while copies of what it steps are in use. */
START_TEST(shard_changes_under_its_copy) {
  gather(0);
  wait(0);
  build_kernel(b, 0, OP_scale, f32_at(0, X, 16), shard(0));
  FAILS("main[2] scale writes bytes 1024..1088", "bytes 1024..1088 are kept by pp rank 0 "
                                                 "main[0] GATHER of layers.0");
}
END_TEST

START_TEST(gradient_changes_while_it_is_scattered) {
  build_scatter(b, 0, unit[0], 0, 0, f32_at(0, GRAD, 32), shard(0));
  build_kernel(b, 0, OP_scale, f32_at(0, X, 16), f32_at(0, GRAD, 16));
  wait(0);
  FAILS("main[1] scale writes bytes 6144..6208", "are read by pp rank 0 main[0] SCATTER "
                                                 "of layers.0 on tp");
}
END_TEST

/* Where the ranks of several pp ranks have shards, they all gather the same. */
START_TEST(members_disagree) {
  Build *two = b = build_new(arena, 2, 1, END);
  build_comm(two, "pp", AXIS_BIT(AXIS_PP), 1, NULL, 0);
  for (int pp = 0; pp < 2; pp++) {
    int u = build_unit(two, pp, "layers.0", NULL, 0), n = pp ? 8 : 16;
    build_gather(two, pp, u, 0, 0, f32_at(0, SHARD0, n), f32_at(0, COPY, 2 * n));
    build_wait(two, pp, 0);
    build_free(two, pp, u, f32_at(0, COPY, 2 * n));
  }
  FAILS("collective 1 on pp differs: all_gather of 64 bytes of f32 in pp rank 0 main[0] "
        "GATHER of layers.0 on pp",
        "all_gather of 32 bytes of f32 in pp rank 1 main[0]");
}
END_TEST

/* ---- broken ---- */

START_TEST(shards_are_padded) {
  build_gather(b, 0, unit[0], 0, 0, shard(0), f32_at(0, COPY, 31));
  BROKEN("pp rank 0, main[0] GATHER: all_gather of 16 elements gives 31 over tp of 2");
}
END_TEST

START_TEST(sums_are_padded) {
  build_scatter(b, 0, unit[0], 0, 0, f32_at(0, GRAD, 31), shard(0));
  BROKEN("main[0] SCATTER: reduce_scatter of 31 elements gives 16 over tp of 2 ranks");
}
END_TEST

START_TEST(gathers_in_main_only) {
  build_body(b, 0, "layer:I", PH_I, 1);
  gather(0);
  build_main(b, 0);
  BROKEN("body layer:I[0] GATHER: it belongs into main");
}
END_TEST

START_TEST(another_collective) {
  build_gather(b, 0, unit[0], 0, 0, shard(0), shard(1))->coll = COLL_ALL_REDUCE;
  BROKEN("main[0] GATHER: its collective is 0, not all_gather");
}
END_TEST

START_TEST(unknown_unit) {
  build_free(b, 0, 7, copy(0));
  BROKEN("main[0] FREE: unit 7 of 3");
}
END_TEST

START_TEST(copy_of_an_unknown_unit) {
  build_bind(b, 0, unit[0], &(Bind){COPY, 3}, 1);
  BROKEN("the unit of a gathered copy is 3, the limit is 3");
}
END_TEST

/* ---- listings ---- */

START_TEST(they_are_listed) {
  gather(0);
  wait(0);
  call(0);
  give_up(0);
  build_scatter(b, 0, unit[0], 0, 0, f32_at(0, GRAD, 32), shard(0));
  static const char *const has[] = {
      "what calls bind to slots 1, 2, ...\n"
      "     0  layers.0: @4096 in the copy of layers.0\n",
      "     0  GATHER h0 layers.0 all_gather on tp, 64 bytes, f32[16] @1024 -> f32[32] "
      "@4096\n",
      "     2  CALL   body 0 layer:F layers.0 mb 0 chunk 0 binds 0 with @7168 @8192  "
      "\"F0\"\n",
      "     3  FREE   layers.0, 128 bytes, f32[32] @4096\n",
      "     4  SCATTER h0 layers.0 reduce_scatter sum on tp, 128 bytes, f32[32] @6144 -> "
      "f32[16] @1024\n"};
  Compiled *c = build_done(b);
  Text t = {0}, j = {0};
  program_print(c, 0, true, &t);
  for (int i = 0; i < LEN(has); i++)
    ck_assert_msg(strstr(t.s, has[i]) != NULL, "%s is not in %s", has[i], t.s);
  program_json(c, 0, &j);
  static const char *const keys[] = {"\"code\": \"GATHER\"", "\"unit\": \"layers.0\"",
                                     "\"copy\": \"layers.0\"", "\"code\": \"FREE\""};
  for (int i = 0; i < LEN(keys); i++)
    ck_assert_msg(strstr(j.s, keys[i]) != NULL, "%s is not in %s", keys[i], j.s);
  text_free(&t);
  text_free(&j);
}
END_TEST

Suite *gather_suite(void) {
  const TTest *test[] = {gathered_ahead_of_use,
                         one_place_for_one_copy_after_the_other,
                         stored_here_and_gathered_there,
                         gradients_are_scattered,
                         traffic_counts_them,
                         a_shard_is_summed_and_gathered_in_place,
                         a_shard_is_any_of_them,
                         never_gathered,
                         not_waited_for,
                         freed_before_use,
                         never_freed,
                         freed_twice,
                         freed_while_it_is_gathered,
                         freed_in_part,
                         freed_while_something_reads_it,
                         another_copy_is_there,
                         gathered_over_a_copy,
                         reads_past_the_copy,
                         copy_is_overwritten,
                         shard_changes_under_its_copy,
                         gradient_changes_while_it_is_scattered,
                         members_disagree,
                         shards_are_padded,
                         sums_are_padded,
                         gathers_in_main_only,
                         another_collective,
                         unknown_unit,
                         copy_of_an_unknown_unit,
                         they_are_listed};
  Suite *s = suite_create("gather");
  TCase *tc = tcase_create("shards");
  tcase_add_checked_fixture(tc, setup, teardown);
  for (int i = 0; i < LEN(test); i++) tcase_add_test(tc, test[i]);
  tcase_add_loop_test(tc, another_place_than_the_shard, 0, LEN(misfit));
  suite_add_tcase(s, tc);
  return s;
}
