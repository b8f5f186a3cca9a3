/* check_cost_table.c - tables of measured times: what they answer on paper, and steps of
 * plans by tables that were made by hand. */
#include <check.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/scratch.h"
#include "tests/generate/tiny_plan.h"
#include "vm/calibrate/calibrate.h"
#include "vm/sim/step_clock.h"

/* ---- on paper ---- */

static const Cluster sheet = {.f32 = 100, .hbm_bandwidth = 50};

static KernelRow product(double m, double n, double k, double seconds) {
  return (KernelRow){.op = OP_linear,
                     .shape = "",
                     .work = {.kind = WORK_PRODUCT,
                              .dtype = DT_F32,
                              .m = m,
                              .n = n,
                              .k = k,
                              .flops = 2 * m * n * k},
                     .seconds = seconds};
}

static KernelWork size_of(double m, double n, double k) {
  return product(m, n, k, 1).work;
}

/* Of two sizes, one takes twice its roofline and one eight times: in the middle four
 * times. */
START_TEST(kernels_between_rows) {
  KernelRow row[] = {product(16, 10, 10, 2 * 32), product(64, 10, 10, 8 * 128)};
  row[0].shape = "small", row[1].shape = "large";
  CostTable t = {.kernel = {row, 2, 2}};
  KernelWork w = size_of(32, 10, 10);
  Cost c = table_kernel_cost(&t, &sheet, OP_linear, "middle", &w);
  ck_assert_int_eq(c.from, COST_INTERPOLATED);
  ck_assert_double_eq_tol(c.seconds, 4 * 64, 1e-3);
  w = size_of(64, 10, 10);
  c = table_kernel_cost(&t, &sheet, OP_linear, "large", &w);
  ck_assert_int_eq(c.from, COST_MEASURED);
  ck_assert_double_eq(c.seconds, 8 * 128);
  w = size_of(16.0001, 10, 10);
  c = table_kernel_cost(&t, &sheet, OP_linear, "as good as small", &w);
  ck_assert_double_eq_tol(c.seconds, 2 * 32, 0.01);
}
END_TEST

/* Measured while all experts got the same rows: twice the rows take twice as long. */
START_TEST(experts_with_more_rows) {
  KernelRow row = product(16, 10, 10, 64);
  row.shape = "experts", row.work.kind = WORK_GROUPED;
  CostTable t = {.kernel = {&row, 1, 1}};
  KernelWork even = row.work, busy = size_of(32, 10, 10);
  busy.kind = WORK_GROUPED;
  Cost c = table_kernel_cost(&t, &sheet, OP_linear, "experts", &even);
  ck_assert_double_eq(c.seconds, 64);
  c = table_kernel_cost(&t, &sheet, OP_linear, "experts", &busy);
  ck_assert_int_eq(c.from, COST_MEASURED);
  ck_assert_double_eq_tol(c.seconds, 128, 1e-9);
}
END_TEST

/* Other ops, other types and sizes that are far away say nothing. */
START_TEST(kernels_without_rows) {
  KernelRow row = product(16, 10, 10, 64);
  CostTable t = {.kernel = {&row, 1, 1}};
  KernelWork w = size_of(16, 10, 10), far = size_of(16, 10, 100), half = w;
  half.dtype = DT_BF16;
  ck_assert_int_eq(table_kernel_cost(&t, &sheet, OP_linear, "x", &w).from,
                   COST_INTERPOLATED);
  ck_assert_int_eq(table_kernel_cost(&t, &sheet, OP_linear_dw, "x", &w).from, COST_SHEET);
  ck_assert_int_eq(table_kernel_cost(&t, &sheet, OP_linear, "x", &far).from, COST_SHEET);
  ck_assert_int_eq(table_kernel_cost(&t, &sheet, OP_linear, "x", &half).from, COST_SHEET);
}
END_TEST

/* Ranks of one machine were measured: others take what the network takes. */
START_TEST(transfers_over_the_network) {
  MoveRow rows[] = {{COLL_ALL_REDUCE, DT_F32, 8, 1000, 7}};
  CostTable t = {.move = {rows, 1, 1}};
  Cluster k = {.gpus = 8,
               .nvlink_bandwidth = 100,
               .nvlink_latency = 1,
               .network_bandwidth = 10,
               .network_latency = 2};
  CostSource s = {.cluster = &k, .rates = sheet_roofline(), .table = &t};
  MoveWork w = {.kind = COLL_ALL_REDUCE, .link = LINK_NVLINK, .bytes = 1000};
  w.over = (Link){100, 1, 8, 100, 100, 1};
  MoveCost near = cost_of_move(&s, &w, DT_F32);
  ck_assert_int_eq(near.from, COST_MEASURED);
  ck_assert_double_eq(near.seconds, 7);
  w.link = LINK_NETWORK, w.over = (Link){10, 2, 8, 10, 10, 1};
  MoveCost far = cost_of_move(&s, &w, DT_F32);
  ck_assert_int_eq(far.from, COST_SHEET);
  ck_assert_double_eq_tol(far.seconds, 2 * 7 * 1000 / 8.0 / 10 + 2 * 6 * 2, 1e-9);
}
END_TEST

START_TEST(transfers_between_rows) {
  MoveRow row[] = {{COLL_ALL_REDUCE, DT_F32, 2, 100, 10},
                   {COLL_ALL_REDUCE, DT_F32, 2, 300, 20},
                   {COLL_ALL_REDUCE, DT_F32, 4, 300, 70}};
  CostTable t = {.move = {row, 3, 3}};
  const struct {
    int ranks;
    double bytes, seconds;
    CostFrom from;
  } want[] = {{2, 100, 10, COST_MEASURED},
              {2, 200, 15, COST_INTERPOLATED},
              {2, 500, 30, COST_INTERPOLATED},
              {2, 20, 10, COST_INTERPOLATED},
              {4, 100, 70, COST_INTERPOLATED},
              {4, 600, 0, COST_SHEET},
              {2, 2400, 125, COST_INTERPOLATED},
              {2, 2401, 0, COST_SHEET},
              {2, 12, 0, COST_SHEET},
              {4, 2, 0, COST_SHEET},
              {8, 100, 0, COST_SHEET}};
  for (int i = 0; i < LEN(want); i++) {
    Cost c = table_move_cost(&t, COLL_ALL_REDUCE, DT_F32, want[i].ranks, want[i].bytes);
    ck_assert_int_eq(c.from, want[i].from);
    ck_assert_double_eq_tol(c.seconds, want[i].seconds, 1e-12);
  }
  ck_assert_int_eq(table_move_cost(&t, COLL_ALL_GATHER, DT_F32, 2, 100).from, COST_SHEET);
}
END_TEST

/* ---- steps by tables that were made by hand ---- */

static const double KERNEL_S = 1e-3, MOVE_S = 5e-3;

/* Every kernel takes a millisecond and every transfer five. */
static CostTable flat_table(const Compiled *c, int cores, Arena *a) {
  Wanted w = {0};
  CostTable t = {.machine = "paper",
                 .f32 = 1e9,
                 .bf16 = 1e9,
                 .bandwidth = 1e9,
                 .threads = 1,
                 .cores = cores};
  wanted_add(&w, c, &t, a);
  for (int i = 0; i < w.kernel.n; i++) {
    const WantedKernel *x = &w.kernel.at[i];
    *VEC_PUSH(a, t.kernel) = (KernelRow){.op = x->in->op,
                                         .shape = x->shape,
                                         .work = kernel_work(x->p, x->in, x->even),
                                         .seconds = KERNEL_S};
  }
  for (int i = 0; i < w.move.n; i++)
    *VEC_PUSH(a, t.move) =
        (MoveRow){w.move.at[i].kind, w.move.at[i].dtype, w.move.at[i].ranks,
                  (double)w.move.at[i].bytes, MOVE_S};
  return t;
}

/* Kernels of a step on the ranks of all pp ranks, one of each. */
static int64_t launched(const SimReport *r) {
  int64_t n = 0;
  for (int i = 0; i < r->nop; i++) n += r->op[i].op >= 0 ? r->op[i].count : 0;
  return n;
}

static SimReport step_of(Job *j, const char *const *set, int n, int cores) {
  SimReport r;
  weft_error e;
  err_clear(&e);
  const char *path = scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  const Compiled *c = compiled_job(j, scratch_arena, path, set, n);
  CostTable t = flat_table(c, cores, scratch_arena);
  table_cluster(&t, c->mesh.world, &j->plan.cluster);
  SimOptions o = {.rates = sheet_rates(RATES_USUAL), .table = &t};
  ck_assert_int_eq(simulate(c, &j->plan, &o, scratch_arena, &r, &e), WEFT_OK);
  ck_assert_double_eq(r.from[COST_SHEET] + r.from[COST_INTERPOLATED], 0);
  return r;
}

static void parts_add_up(const SimReport *r) {
  for (int pp = 0; pp < r->npp; pp++) {
    const SimRank *k = &r->rank[pp];
    double sum = k->bubble + k->shared;
    for (int i = 0; i < WORK_N; i++) sum += k->kernels[i];
    for (int i = 0; i < SIM_AXES; i++) sum += k->exposed[i];
    ck_assert_double_eq_tol(sum, r->seconds, 1e-6 * r->seconds);
  }
}

START_TEST(one_rank_takes_its_kernels) {
  Job j;
  SimReport r = step_of(&j, NULL, 0, 2);
  ck_assert_int_gt(launched(&r), 50);
  ck_assert_double_eq_tol(r.seconds, (double)launched(&r) * KERNEL_S, 1e-9);
  ck_assert_double_eq(r.rank[0].shared, 0);
  job_free(&j);
}
END_TEST

/* Four ranks that do the same on two cores take twice as long as on four; their
 * collectives, which were measured on all cores, take what they took. */
START_TEST(ranks_share_cores) {
  const char *set[] = {"mesh.world=4", "mesh.tp=4"};
  Job j;
  SimReport wide = step_of(&j, set, 2, 4);
  job_free(&j);
  SimReport narrow = step_of(&j, set, 2, 2);
  job_free(&j);
  double kernels = (double)launched(&wide) * KERNEL_S;
  double moves = wide.seconds - kernels;
  ck_assert_double_gt(moves, MOVE_S);
  ck_assert_double_eq_tol(narrow.seconds, 2 * kernels + moves, 1e-6);
  ck_assert_double_ge(narrow.rank[0].shared, kernels - 1e-6);
  ck_assert_double_le(narrow.rank[0].shared, kernels + moves / 2 + 1e-6);
  parts_add_up(&wide);
  parts_add_up(&narrow);
}
END_TEST

/* On one core there is no bubble: while a rank waits, the other has all of it. */
START_TEST(a_pipeline_on_one_core) {
  const char *set[] = {"mesh.world=2", "mesh.pp=2"};
  Job j;
  SimReport two = step_of(&j, set, 2, 2);
  job_free(&j);
  SimReport one = step_of(&j, set, 2, 1);
  job_free(&j);
  double work = (double)launched(&one) * KERNEL_S, moved = 0;
  for (int i = 0; i < one.nop; i++)
    moved += one.op[i].op < 0 ? one.op[i].seconds[COST_MEASURED] : 0;
  ck_assert_double_gt(two.seconds, work / 2);
  ck_assert_double_ge(one.seconds, work - 1e-9);
  ck_assert_double_le(one.seconds, work + moved + 1e-9);
  parts_add_up(&two);
  parts_add_up(&one);
}
END_TEST

/* A kernel that takes longer makes the step longer by as much as it runs. */
START_TEST(one_row_counts_as_often_as_it_runs) {
  Job j;
  const char *path = scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  const Compiled *c = compiled_job(&j, scratch_arena, path, NULL, 0);
  CostTable t = flat_table(c, 2, scratch_arena);
  table_cluster(&t, 1, &j.plan.cluster);
  SimOptions o = {.rates = sheet_rates(RATES_USUAL), .table = &t};
  SimReport before, after;
  ck_assert_int_eq(simulate(c, &j.plan, &o, scratch_arena, &before, &j.e), WEFT_OK);
  for (int i = 0; i < t.kernel.n; i++)
    if (t.kernel.at[i].op == OP_attention) t.kernel.at[i].seconds += KERNEL_S;
  ck_assert_int_eq(simulate(c, &j.plan, &o, scratch_arena, &after, &j.e), WEFT_OK);
  enum { LAYERS = 4, MICROBATCHES = 4 };
  ck_assert_double_eq_tol(after.seconds - before.seconds,
                          LAYERS * MICROBATCHES * KERNEL_S, 1e-9);
  job_free(&j);
}
END_TEST

Suite *cost_table_suite(void) {
  const TTest *paper[] = {kernels_between_rows, experts_with_more_rows,
                          kernels_without_rows, transfers_between_rows,
                          transfers_over_the_network};
  const TTest *steps[] = {one_rank_takes_its_kernels, ranks_share_cores,
                          a_pipeline_on_one_core, one_row_counts_as_often_as_it_runs};
  Suite *s = suite_create("cost_table");
  TCase *c = tcase_create("on paper"), *p = tcase_create("steps");
  for (int i = 0; i < LEN(paper); i++) tcase_add_test(c, paper[i]);
  for (int i = 0; i < LEN(steps); i++) tcase_add_test(p, steps[i]);
  tcase_add_checked_fixture(p, scratch_setup, scratch_teardown);
  suite_add_tcase(s, c);
  suite_add_tcase(s, p);
  return s;
}
