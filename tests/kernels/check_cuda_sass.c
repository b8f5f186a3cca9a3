/* check_cuda_sass.c - the compiled kernels as tests/gpu/sass.py reads their SASS: against
 * kernels/cuda/sass_table.txt, and what that says of a step. Needs nvcc, or a module with
 * SASS for 9.0, and a disassembler; says what is missing otherwise. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/process.h"

#define SASS                                                                             \
  "env WEFT_CUDA_MODULE=" WEFT_BINARY_DIR                                                \
  "/weft_cuda.so %s ${PYTHON:-python3} " WEFT_SOURCE_DIR "/tests/gpu/sass.py "
#define FOLDER WEFT_BINARY_DIR "/sass"

/* The first one compiles the kernels, where the module has none for 9.0. */
enum { SECONDS = 600, SKIPPED = 77, NO_PROGRAM = 127 };

static bool is_skipped(const Outcome *o) {
  if (o->code == SKIPPED) printf("cuda_sass: %s", o->out);
  if (o->code == NO_PROGRAM) printf("cuda_sass: skipped: there is no python3\n");
  return o->code == SKIPPED || o->code == NO_PROGRAM;
}

START_TEST(kernels_are_what_the_table_says) {
  Outcome o = process_run(SECONDS, SASS "check " FOLDER, "");
  if (!is_skipped(&o)) {
    ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
    ck_assert_ptr_nonnull(strstr(o.out, " 0 faults"));
  }
}
END_TEST

/* Kernels that read two bytes at a time, that have no tensor cores, need more registers
 * than a row allows, or are not there. */
START_TEST(faults_of_kernels_show) {
  static const char *const row[] = {
      "activation.cu | map_elements<true, __nv_bfloat16, __nv_bfloat16, 1, 1, Gelu> | "
      "255 "
      "| 128 | wide |",
      "activation.cu | map_elements<false, __nv_bfloat16, __nv_bfloat16, 1, 1, Gelu> | "
      "255 | 128 | mma |",
      "activation.cu | map_elements<false, __nv_bfloat16, __nv_bfloat16, 1, 1, Gelu> | 4 "
      "| "
      "128 | wide |",
      "activation.cu | map_elements<false, int> | 255 | 128 | wide |",
      "activation.cu | map_elements<false, __nv_bfloat16, __nv_bfloat16, 1, 1, Gelu> | "
      "255 | 128 | wgmma |"};
  static const char *const says[] = {"loads of one or two bytes", "no tensor cores",
                                     "registers, at most 4", "there is no such kernel",
                                     "no products of a warpgroup"};
  scratch_put("table.txt", row[_i], strlen(row[_i]));
  Outcome o = process_run(SECONDS, SASS "check " FOLDER, "SASS_TABLE=table.txt");
  if (!is_skipped(&o)) {
    ck_assert_int_eq(o.code, 1);
    ck_assert_msg(strstr(o.out, says[_i]) != NULL, "%s", o.out);
  }
}
END_TEST

/* What a step of 1.1 billion parameters moves takes at most 1.2 of the least time. */
START_TEST(a_step_moves_little_more_than_it_must) {
  Outcome o = process_run(60, "$weft show " WEFT_SOURCE_DIR
                              "/tests/gpu/llama_1b.lua program 0 > program.txt");
  ck_assert_int_eq(o.code, 0);
  o = process_run(SECONDS, SASS "model program.txt " FOLDER, "");
  if (!is_skipped(&o)) ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
}
END_TEST

START_TEST(products_of_experts_are_on_tensor_cores) {
  Outcome o = process_run(60, "$weft show " WEFT_SOURCE_DIR
                              "/tests/gpu/qwen3_moe_layer.lua program 0 > program.txt");
  ck_assert_int_eq(o.code, 0);
  o = process_run(SECONDS, SASS "products program.txt " FOLDER, "");
  if (!is_skipped(&o)) {
    ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
    ck_assert_ptr_nonnull(strstr(o.out, "grouped_linear_dw"));
  }
}
END_TEST

Suite *cuda_sass_suite(void) {
  Suite *s = suite_create("cuda_sass");
  TCase *tc = tcase_create("sm_90");
  tcase_set_timeout(tc, SECONDS);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, kernels_are_what_the_table_says);
  tcase_add_loop_test(tc, faults_of_kernels_show, 0, 5);
  tcase_add_test(tc, a_step_moves_little_more_than_it_must);
  tcase_add_test(tc, products_of_experts_are_on_tensor_cores);
  suite_add_tcase(s, tc);
  return s;
}
