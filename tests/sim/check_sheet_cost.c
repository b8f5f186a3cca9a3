/* check_sheet_cost.c - what kernels and collectives cost by the figures of a machine and
 * the shares that stacks reach of them, against sums on paper. */
#include <check.h>
#include <math.h>

#include "vm/sim/step_clock.h"

static const Cluster sheet = {.gpu = "gpu",
                              .gpus = 8,
                              .bf16 = 1000,
                              .f32 = 100,
                              .hbm_bandwidth = 50,
                              .nvlink_bandwidth = 20,
                              .nvlink_latency = 0.25};

START_TEST(kernels_at_the_roofline) {
  SheetRates r = sheet_roofline();
  KernelWork w = {.kind = WORK_PRODUCT, .dtype = DT_BF16, .m = 10, .n = 20, .k = 30};
  w.flops = 2 * 10 * 20 * 30, w.bytes = 100;
  ck_assert_double_eq_tol(sheet_kernel(&sheet, &r, &w), 12, 1e-12);
  w.dtype = DT_F32;
  ck_assert_double_eq_tol(sheet_kernel(&sheet, &r, &w), 120, 1e-12);
  w.bytes = 10000;
  ck_assert_double_eq_tol(sheet_kernel(&sheet, &r, &w), 200, 1e-12);
  w.kind = WORK_MOVE, w.bytes = 100;
  ck_assert_double_eq_tol(sheet_kernel(&sheet, &r, &w), 2, 1e-12);
}
END_TEST

/* What the GPU's figures say that products reach, or the usual share; few tiles leave
 * multiprocessors idle. */
START_TEST(products_reach_what_was_measured) {
  SheetRates r = {.products = 1, .memory = 1};
  Cluster k = sheet;
  KernelWork w = {.kind = WORK_PRODUCT, .dtype = DT_BF16, .m = 256, .n = 256, .k = 100};
  w.flops = 1000;
  ck_assert_double_eq_tol(sheet_kernel(&k, &r, &w), 1 / 0.8, 1e-12);
  k.reached = 500;
  ck_assert_double_eq_tol(sheet_kernel(&k, &r, &w), 2, 1e-12);
  k.sms = 8, r.tile = 128;
  ck_assert_double_eq_tol(sheet_kernel(&k, &r, &w), 4, 1e-12);
  w.k = 4096;
  ck_assert_double_eq_tol(sheet_kernel(&k, &r, &w), 2, 1e-12);
  w.dtype = DT_F32;
  ck_assert_double_eq_tol(sheet_kernel(&k, &r, &w), 10 / 0.8, 1e-12);
}
END_TEST

/* Scores of 3 heads, 10 queries, 20 keys: two products of all, and six passes of 2 bytes
 * at 50 bytes/s; backward four and nine. */
START_TEST(stored_scores) {
  SheetRates r = sheet_roofline();
  KernelWork w = {.kind = WORK_ATTENTION, .dtype = DT_BF16, .m = 10, .n = 20, .k = 5};
  w.heads = 3, w.flops = 2 * 600 * 5;
  ck_assert_double_eq_tol(sheet_kernel(&sheet, &r, &w), 6, 1e-12);
  r.scores = 1;
  ck_assert_double_eq_tol(sheet_kernel(&sheet, &r, &w), 12 + 144, 1e-9);
  w.kind = WORK_ATTENTION_DX;
  ck_assert_double_eq_tol(sheet_kernel(&sheet, &r, &w), 24 + 216, 1e-9);
}
END_TEST

/* What a kernel leaves alone of its operands it does not move. */
START_TEST(bytes_that_are_moved) {
  Operand big = {.ndim = 2, .dim = {1, 1000}, .dtype = DT_F32}, part = big;
  part.dim[0] = 2, part.dim[1] = 5;
  static const struct {
    int op, nin;
    bool big[3];
    double bytes;
  } list[] = {{OP_slice, 1, {true, false}, 80},
              {OP_matrix_take, 2, {true, false, false}, 80},
              {OP_matrix_put, 2, {false, true, true}, 80},
              {OP_add, 2, {true, true, true}, 12000}};
  for (int i = 0; i < LEN(list); i++) {
    Operand o[3];
    OpAttr attr = {0};
    Instr in = {.code = I_KERNEL, .nin = (uint8_t)list[i].nin, .nout = 1};
    in.op = (uint16_t)list[i].op;
    for (int k = 0; k <= list[i].nin; k++) o[k] = list[i].big[k] ? big : part;
    Program p = {.operand = o, .attr = &attr, .code = &in, .ncode = 1};
    ck_assert_double_eq(kernel_work(&p, &in, &(EvenList){0}).bytes, list[i].bytes);
  }
}
END_TEST

/* Half of the peak; and what a size leaves of it. */
START_TEST(kernels_reach_a_share) {
  SheetRates r = sheet_roofline();
  KernelWork w = {.kind = WORK_PRODUCT, .dtype = DT_BF16, .m = 64, .n = 64, .k = 128};
  w.flops = 1000;
  Cluster half = sheet;
  half.reached = 500, r.products = 1, r.launch = 3;
  ck_assert_double_eq_tol(sheet_kernel(&half, &r, &w), 2 + 3, 1e-12);
  r.product_depth = 128, r.product_edge = 64;
  ck_assert_double_eq_tol(sheet_kernel(&half, &r, &w), 2 * 8 + 3, 1e-12);
  w.kind = WORK_ATTENTION_DX, w.n = 1000, w.k = 128;
  r.attention_dx = 0.5, r.attention_depth = 1000, r.attention_head = 24;
  ck_assert_double_eq_tol(sheet_kernel(&sheet, &r, &w), 2 * 2 + 3, 1e-12);
  w.k = 24; /* heads of 128 reach 128 / 152 of what has no end, these 1 / 2 */
  ck_assert_double_eq_tol(sheet_kernel(&sheet, &r, &w), 2 * 4 * 128.0 / 152 + 3, 1e-12);
}
END_TEST

/* Kernels of a stack of 2022 and of one before take longer than those of today, in the
 * share that their rows have. */
START_TEST(attention_of_older_stacks) {
  KernelWork w = {.kind = WORK_ATTENTION, .dtype = DT_BF16, .heads = 8, .k = 128};
  w.m = w.n = 100000, w.flops = 2 * w.heads * w.m * w.n * w.k;
  double seconds[ATTENTION_SCORES + 1];
  for (int i = ATTENTION_FUSED; i <= ATTENTION_SCORES; i++) {
    SheetRates r = sheet_rates(RATES_USUAL);
    sheet_attention(&r, (AttentionKind)i);
    r.launch = 0;
    seconds[i] = sheet_kernel(&sheet, &r, &w);
  }
  SheetRates r = sheet_rates(RATES_USUAL);
  const double *flash1 = &seconds[ATTENTION_FLASH_1],
               *flash2 = &seconds[ATTENTION_FLASH_2];
  ck_assert_double_eq_tol(*flash1 / seconds[0], r.attention / r.attention_1, 1e-9);
  ck_assert_double_gt(seconds[ATTENTION_SCORES], *flash1);
  ck_assert_double_eq_tol(*flash2, seconds[0], 1e-12);
  Cluster newer = sheet; /* whose peak such kernels reach half as well */
  newer.mma = 0.5;
  sheet_attention(&r, ATTENTION_FLASH_2);
  r.launch = 0;
  ck_assert_double_eq_tol(sheet_kernel(&newer, &r, &w), 2 * *flash2, 1e-9);
  sheet_attention(&r, ATTENTION_FUSED);
  ck_assert_double_eq_tol(sheet_kernel(&newer, &r, &w), seconds[0], 1e-12);
  ck_assert_int_eq(sheet_attention_kind("flash1"), ATTENTION_FLASH_1);
  ck_assert_int_eq(sheet_attention_kind("flash"), -1);
}
END_TEST

/* Gradients of 4 bytes that are added to are read and written: what is lost for a result
 * of 2 bytes is lost four times, and their bytes count where memory is the limit. */
START_TEST(sums_of_gradients) {
  SheetRates r = {.products = 1, .product_depth = 128, .memory = 1};
  Cluster half = sheet;
  half.reached = 500;
  KernelWork w = {.kind = WORK_PRODUCT, .dtype = DT_BF16, .m = 64, .n = 64, .k = 512};
  w.flops = 1000, w.cell = 2;
  ck_assert_double_eq_tol(sheet_kernel(&half, &r, &w), 2 * 1.25, 1e-12);
  w.cell = 8;
  ck_assert_double_eq_tol(sheet_kernel(&half, &r, &w), 2 * 2, 1e-12);
  w.bytes = 200, w.added = 50;
  ck_assert_double_eq_tol(sheet_kernel(&half, &r, &w), 5, 1e-12);
}
END_TEST

START_TEST(collectives) {
  SheetRates r = sheet_roofline();
  MoveWork w = {.link = LINK_NVLINK, .bytes = 800, .over = link_near(&sheet, 4)};
  w.kind = COLL_ALL_GATHER; /* 3/4 of 800 at 20, and 3 steps */
  ck_assert_double_eq_tol(sheet_move(&r, &w), 30 + 3 * 0.25, 1e-12);
  w.kind = COLL_ALL_REDUCE;
  ck_assert_double_eq_tol(sheet_move(&r, &w), 2 * (30 + 3 * 0.25), 1e-12);
  w.kind = COLL_SEND;
  ck_assert_double_eq_tol(sheet_move(&r, &w), 40 + 0.25, 1e-12);
  r.nvlink = 0.5, r.start = 7;
  ck_assert_double_eq_tol(sheet_move(&r, &w), 80 + 0.25 + 7, 1e-12);
  ck_assert_double_eq_tol(sheet_move_full(&r, &w), 80, 1e-12);
  w.over.n = 1;
  ck_assert_double_eq(sheet_move(&r, &w), 0);
}
END_TEST

/* Of 64 ranks in a ring only the first steps follow each other for small messages. */
START_TEST(small_messages_take_a_tree) {
  SheetRates r = sheet_roofline();
  Cluster k = sheet;
  k.domain = 64;
  MoveWork w = {.kind = COLL_ALL_GATHER, .link = LINK_NVLINK, .over = link_near(&k, 64)};
  ck_assert_double_eq_tol(sheet_move(&r, &w), 12 * 0.25, 1e-12);
}
END_TEST

Suite *sheet_cost_suite(void) {
  const TTest *all[] = {kernels_at_the_roofline,
                        bytes_that_are_moved,
                        kernels_reach_a_share,
                        products_reach_what_was_measured,
                        stored_scores,
                        attention_of_older_stacks,
                        collectives,
                        small_messages_take_a_tree,
                        sums_of_gradients};
  Suite *s = suite_create("sheet_cost");
  TCase *c = tcase_create("on paper");
  for (int i = 0; i < LEN(all); i++) tcase_add_test(c, all[i]);
  suite_add_tcase(s, c);
  return s;
}
