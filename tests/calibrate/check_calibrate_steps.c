/* check_calibrate_steps.c - kernels are timed in steps of ranks that run without the
 * others: which plans fit, that each kernel is found, and what a rank gets from the
 * others that are not there. No time is compared. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "tests/generate/tiny_plan.h"
#include "tests/harness/compiled_job.h"
#include "tests/harness/scratch.h"
#include "vm/calibrate/calibrate.h"
#include "vm/calibrate/lone_comm.h"

/* ---- plans ---- */

#define EXPERTS                                                                          \
  "model=weft.model { 'mixtral', hidden_size = 16, num_hidden_layers = 2, "              \
  "num_attention_heads = 4, num_key_value_heads = 4, intermediate_size = 32, "           \
  "vocab_size = 64, num_local_experts = 4, num_experts_per_tok = 2 }"

static const char *const plans[][4] = {
    {"mesh.world=1"},
    {"mesh.world=2", "mesh.tp=2", "recompute=full"},
    {"mesh.world=2", "mesh.pp=2", "schedule=zero_bubble"},
    {"mesh.world=2", "mesh.cp=2"},
    {"mesh.world=4", "strategy={ 'fsdp2' }", "batch.global=8"},
    {"mesh.world=4", "strategy={ 'zero', stage = 2 }", "batch.global=8"},
    {"mesh.world=2", "optimizer=weft.muon { lr = 1e-3 }", "batch.global=8"},
    {"mesh.world=2", "precision=bf16", "batch.global=8"},
    {"mesh.world=4", EXPERTS, "mesh.ep=2", "moe={ dispatcher = 'alltoall' }"},
    {"mesh.world=1", "model.hidden_size=64", "model.intermediate_size=64",
     "adapter={ 'lora', rank = 2, base = 'nf4' }"},
    {"mesh.world=16", "batch.global=16"},
};

static Bench bench(int ranks) {
  weft_error e = NO_ERROR;
  Bench b = {.seconds = 1e-5};
  ck_assert_int_eq(bench_open(&b, device_kind("cpu", &e), 1, ranks, &e), WEFT_OK);
  b.f32 = b.bf16 = 1e10;
  return b;
}

static const Compiled *compiled(int i) {
  const char *path = scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  int n = 0;
  while (n < LEN(plans[i]) && plans[i][n]) n++;
  return compiled_job(&job, arena, path, plans[i], n);
}

/* Each kernel that a program needs has a time, of the ranks that run here. */
START_TEST(kernels_are_found) {
  const Compiled *c = compiled(_i);
  CostTable none = {0};
  Wanted w = {0};
  weft_error e = NO_ERROR;
  wanted_add(&w, c, &none, arena);
  Bench b = bench(c->mesh.world);
  int n = w.kernel.n;
  double *seconds = NEW_N(arena, double, n);
  ck_assert_int_gt(n, 10);
  ck_assert_int_eq(ranks_in_steps(&b, c), MIN(c->mesh.world, 8));
  ck_assert_int_eq(kernels_together(&b, w.kernel.at, n), n);
  weft_status st = time_in_steps(&b, w.kernel.at, n, seconds, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  for (int i = 0; i < n; i++)
    ck_assert_msg(seconds[i] >= 0 && seconds[i] < 60, "%s %s: %g",
                  op_info[w.kernel.at[i].in->op].name, w.kernel.at[i].shape, seconds[i]);
  job_free(&job);
}
END_TEST

/* Ranks of several threads are timed by the clock of the machine, so they do not share
 * cores. */
START_TEST(ranks_with_threads_have_cores) {
  const Compiled *c = compiled(4);
  weft_error e = NO_ERROR;
  Bench b = {.seconds = 1e-5, .f32 = 1e10, .bf16 = 1e10};
  ck_assert_int_eq(c->mesh.world, 4);
  ck_assert_int_eq(bench_open(&b, device_kind("cpu", &e), bench_cores() + 1, 4, &e),
                   WEFT_OK);
  ck_assert_int_eq(ranks_in_steps(&b, c), 1);
  job_free(&job);
}
END_TEST

/* By turns where a step would take minutes, and where nobody knows how long. */
START_TEST(long_steps_are_not_run) {
  const Compiled *c = compiled(0);
  CostTable none = {0};
  Wanted w = {0};
  wanted_add(&w, c, &none, arena);
  Bench b = bench(1);
  double seconds = 0;
  weft_error e = NO_ERROR;
  ck_assert(ranks_in_steps(&b, c));
  b.f32 = b.bf16 = c->prog[0].flops / 1000;
  ck_assert(!ranks_in_steps(&b, c));
  b.f32 = b.bf16 = 0;
  ck_assert(!ranks_in_steps(&b, c));
  ck_assert_int_le(kernels_together(&b, w.kernel.at, w.kernel.n), 64);
  ck_assert_int_eq(time_kernels(&b, w.kernel.at, 1, &seconds, &e), WEFT_OK);
  ck_assert(seconds > 0);
  job_free(&job);
}
END_TEST

START_TEST(steps_are_interrupted) {
  const Compiled *c = compiled(0);
  CostTable none = {0};
  Wanted w = {0};
  StopFlag stop = 1;
  weft_error e = NO_ERROR;
  wanted_add(&w, c, &none, arena);
  Bench b = bench(1);
  b.stop = &stop;
  double *seconds = NEW_N(arena, double, w.kernel.n);
  ck_assert_int_eq(time_in_steps(&b, w.kernel.at, w.kernel.n, seconds, &e), WEFT_EINTR);
  job_free(&job);
}
END_TEST

/* ---- a rank alone ---- */

enum { MEMBERS = 3 };
static const int members[MEMBERS] = {0, 1, 2};
static const CommGroup group = {.rank = members, .n = MEMBERS, .in_flight = 1};
static const CommNeeds needs = {.group = &group, .ngroup = 1, .nhandle = 1};

/* What comes of four numbers, of one for each member and a fourth. */
static void gives(CollKind kind, uint64_t count, const float *want, int n) {
  const float in[] = {1, 2, 3, 4};
  float out[2 * MEMBERS] = {0};
  int32_t rows[MEMBERS] = {1, 0, 1};
  weft_error e = NO_ERROR;
  Comm c;
  ck_assert_int_eq(lone_comm_open(&c, 1, MEMBERS, &needs, &e), WEFT_OK);
  CommOp op = {.coll = (uint8_t)kind,
               .dtype = DT_F32,
               .by = 1,
               .group = kind == COLL_SEND || kind == COLL_RECV ? -1 : 0,
               .peer = 0,
               .in = kind == COLL_RECV ? NULL : in,
               .out = kind == COLL_SEND ? NULL : out,
               .count = count};
  if (coll_info[kind].is & COLL_COUNTED)
    op.give = op.take = rows, op.members = MEMBERS, op.each = 1, op.row = 1;
  ck_assert_int_eq(comm_start(&c, &op, 0, (DeviceEvent){0}, &e), WEFT_OK);
  ck_assert_int_eq(comm_wait(&c, 0, &e), WEFT_OK);
  for (int i = 0; i < n; i++)
    ck_assert_msg(out[i] == want[i], "%s: %d: %g", coll_info[kind].name, i, out[i]);
  lone_comm_close(&c);
}

START_TEST(a_rank_gets_what_it_gives) {
  gives(COLL_ALL_REDUCE, 4, (float[]){1, 2, 3, 4, 0}, 5);
  gives(COLL_SHIFT, 4, (float[]){1, 2, 3, 4, 0}, 5);
  gives(COLL_ALL_GATHER, 2, (float[]){1, 2, 1, 2, 1, 2}, 6);
  gives(COLL_REDUCE_SCATTER, 1, (float[]){1, 0, 0}, 3);
  gives(COLL_ALL_TO_ALL, 1, (float[]){1, 2, 3, 0}, 4);
  gives(COLL_ALL_TO_ALL_V, 1, (float[]){1, 0, 3, 0}, 4);
  gives(COLL_SEND, 4, (float[]){0}, 1);
}
END_TEST

/* Of other pipeline ranks come numbers, neither zeros nor large ones. */
START_TEST(small_numbers_are_received) {
  float out[64] = {0};
  weft_error e = NO_ERROR;
  Comm c;
  ck_assert_int_eq(lone_comm_open(&c, 1, MEMBERS, &needs, &e), WEFT_OK);
  CommOp op = {.coll = COLL_RECV, .dtype = DT_F32, .group = -1, .out = out, .count = 64};
  ck_assert_int_eq(comm_start(&c, &op, 0, (DeviceEvent){0}, &e), WEFT_OK);
  int zeros = 0;
  for (int i = 0; i < 64; i++) {
    zeros += out[i] == 0;
    ck_assert(fabsf(out[i]) <= 0.5f);
  }
  ck_assert_int_le(zeros, 1);
  lone_comm_close(&c);
}
END_TEST

Suite *calibrate_steps_suite(void);
Suite *calibrate_steps_suite(void) {
  Suite *s = suite_create("calibrate_steps");
  TCase *t = tcase_create("steps");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, job_setup, job_teardown);
  tcase_add_loop_test(t, kernels_are_found, 0, LEN(plans));
  tcase_add_test(t, ranks_with_threads_have_cores);
  tcase_add_test(t, long_steps_are_not_run);
  tcase_add_test(t, steps_are_interrupted);
  suite_add_tcase(s, t);
  TCase *c = tcase_create("comm");
  tcase_add_test(c, a_rank_gets_what_it_gives);
  tcase_add_test(c, small_numbers_are_received);
  suite_add_tcase(s, c);
  return s;
}
