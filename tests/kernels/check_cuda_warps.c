/* check_cuda_warps.c - the instructions of kernels/cuda/mma.cuh and wgmma.cuh as the
 * emulator does them, against what the PTX ISA says about who has what. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "tests/harness/emulated.h"
#include "tests/standin/warp_ops.h"

#ifdef WEFT_EMULATED_CUDA

START_TEST(fragments_of_a_product) {
  float a[16 * 16], b[16 * 8], c[16 * 8], d[16 * 8];
  for (int i = 0; i < 16 * 16; i++) a[i] = (float)(i * 7 % 256 - 100);
  for (int i = 0; i < 16 * 8; i++) b[i] = (float)(i * 11 % 128 - 50), c[i] = (float)i;
  warp_multiply(a, b, c, d);
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 8; j++) {
      float want = c[i * 8 + j]; /* whole numbers: exact */
      for (int k = 0; k < 16; k++) want += a[i * 16 + k] * b[k * 8 + j];
      ck_assert_msg(d[i * 8 + j] == want, "[%d][%d] is %g, not %g", i, j,
                    (double)d[i * 8 + j], (double)want);
    }
}
END_TEST

START_TEST(rows_of_matrices) {
  uint16_t from[256], got[256];
  for (int i = 0; i < 256; i++) from[i] = (uint16_t)(1000 + i);
  warp_load(from, got, _i, 0);
  for (int m = 0; m < 4; m++)
    for (int i = 0; i < 8; i++)
      for (int j = 0; j < 8; j++)
        ck_assert_uint_eq(got[m * 64 + i * 8 + j],
                          from[m * 64 + (_i ? j * 8 + i : i * 8 + j)]);
}
END_TEST

/* What is being copied is not there before it was waited for. */
START_TEST(copies_take_their_time) {
  uint32_t from[32], before[32], after[32];
  for (uint32_t i = 0; i < 32; i++) from[i] = 100 + i;
  warp_copy(from, before, after);
  for (uint32_t i = 0; i < 32; i++) {
    uint32_t other = 31 - i;
    ck_assert_uint_eq(before[i], 77);
    ck_assert_uint_eq(after[i], other % 2 ? 0 : from[other]);
  }
}
END_TEST

START_TEST(a_copy_that_is_forgotten) {
  uint32_t from[32] = {0};
  warp_forget(from);
}
END_TEST

/* By two bytes, and by a row that is not there. */
START_TEST(a_row_that_cannot_be_loaded) {
  uint16_t from[256] = {0}, got[256];
  warp_load(from, got, false, _i ? 16 : 2);
}
END_TEST

/* In shared memory by rows of k, from each step of 16 columns, and in registers times
 * rows of n. */
START_TEST(fragments_of_a_warpgroup) {
  static const struct {
    int n, k0;
    bool registers, adds;
  } how[] = {{64, 0, false, false}, {64, 16, false, true}, {64, 32, false, true},
             {64, 48, false, true}, {64, 0, true, true},   {128, 0, true, true}};
  enum { M = 64, K = 16, N_MOST = 128 };
  static float a[M * K], b[K * N_MOST], c[M * N_MOST], d[M * N_MOST];
  int n = how[_i].n;
  for (int i = 0; i < M * K; i++) a[i] = (float)(i * 7 % 256 - 100);
  for (int i = 0; i < K * n; i++) b[i] = (float)(i * 11 % 127 - 50);
  for (int i = 0; i < M * n; i++) c[i] = how[_i].adds ? (float)i : 0;
  group_multiply(a, b, how[_i].adds ? c : NULL, d, n, how[_i].registers, how[_i].k0);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < n; j++) {
      float want = c[i * n + j]; /* whole numbers: exact */
      for (int k = 0; k < K; k++) want += a[i * K + k] * b[k * n + j];
      ck_assert_msg(d[i * n + j] == want, "[%d][%d] is %g, not %g", i, j,
                    (double)d[i * n + j], (double)want);
    }
}
END_TEST

START_TEST(sums_take_their_time) {
  float before = 0, after = 0;
  group_waits(&before, &after);
  ck_assert(isnan(before));
  ck_assert(after == 16);
}
END_TEST

START_TEST(a_warpgroup_without_mistakes) { group_errs(GROUP_NO_MISTAKE); }
END_TEST

START_TEST(mistakes_of_a_warpgroup) { group_errs(_i); }
END_TEST

Suite *cuda_warps_suite(void) {
  Suite *s = suite_create("cuda_warps");
  TCase *tc = tcase_create("emulated");
  tcase_add_test(tc, fragments_of_a_product);
  tcase_add_loop_test(tc, rows_of_matrices, 0, 2);
  tcase_add_test(tc, copies_take_their_time);
  tcase_add_test_raise_signal(tc, a_copy_that_is_forgotten, SIGABRT);
  tcase_add_loop_test(tc, fragments_of_a_warpgroup, 0, 6);
  tcase_add_test(tc, sums_take_their_time);
  tcase_add_test(tc, a_warpgroup_without_mistakes);
  tcase_add_loop_test_raise_signal(tc, mistakes_of_a_warpgroup, SIGABRT,
                                   GROUP_NO_MISTAKE + 1, GROUP_MISTAKES);
  tcase_add_loop_test_raise_signal(tc, a_row_that_cannot_be_loaded, SIGABRT, 0, 2);
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *cuda_warps_suite(void) { return emulated_suite_without("cuda_warps"); }

#endif
