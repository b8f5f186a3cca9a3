/* check_levels.c - levels of instructions: the suites whose results hang on them, run
 * once more with the level held down to what a CPU of another kind has. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/levels.h"
#include "tests/harness/process.h"
#include "tests/reference/kernel_cases.h"
#include "vm/graph/graph.h"

/* Kernels at each level, then whole models, half of them at each, and a sample of random
 * plans. Sanitizers see what kernels do with memory, in a sixth of the cases at each
 * level, and not what plans compute. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SIXTH(k) "WEFT_ROWS=" #k "/6"
#else
#define SIXTH(k) ""
#endif
static const struct {
  CpuLevel level;
  const char *suites, *cases; /* of the suites; "": all */
} held[] = {
    {CPU_plain, "kernels fused_kernels", SIXTH(0)},
#if defined __x86_64__ && !defined WEFT_PLAIN_KERNELS
    {CPU_avx2, "kernels fused_kernels", SIXTH(1)},
    {CPU_avx512, "kernels fused_kernels", SIXTH(2)},
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    {CPU_avx2, "oracle", "WEFT_ROWS=0/2"},
    {CPU_avx2, "parity", "CK_RUN_CASE=sample"},
    {CPU_avx512, "oracle", "WEFT_ROWS=1/2"},
#endif
#endif
};

static bool multiplies(int op) { return strstr(op_info[op].name, "linear") != NULL; }

static bool multiplies_back(const GradCase *g) {
  for (int i = 0; i < kernel_cases; i++)
    if (multiplies(kernel_case[i].op) && grad_case_is_of(g, &kernel_case[i])) return true;
  return false;
}

/* A file of the checks whose results hang on a level that has the kernels of this
 * machine: products ask libraries for the level themselves. */
static const char *products(void) {
  Text t = {0};
  for (int i = 0; i < kernel_cases; i++)
    if (multiplies(kernel_case[i].op)) text_printf(&t, "kernels:forward_case:%d\n", i);
  for (int i = 0; i < grad_cases; i++)
    if (multiplies_back(&grad_case[i]))
      text_printf(&t, "kernels:backward_case:%d\nkernels:gradients_of_16_bits:%d\n", i,
                  i);
  text_add(&t, "kernels:gemm_backend_agrees\nkernels:a_product_of_no_terms\n"
               "kernels:ranks_multiply_at_the_same_time\n"
               "kernels:bf16_is_widened_where_the_cpu_has_no_units\nfused_kernels\n");
  const char *path = scratch_put("products", t.s, t.n);
  text_free(&t);
  return arena_printf(scratch_arena, "@%s", path);
}

START_TEST(suites_pass_held_down) {
  CpuLevel here;
  ck_assert_int_eq(cpu_level(&here, NULL), WEFT_OK);
  if (held[_i].level >= here) {
    printf("skipped: %s at %s, as this run is at %s\n", held[_i].suites,
           cpu_level_name(held[_i].level), cpu_level_name(here));
    return;
  }
  bool same = cpu_set_of(held[_i].level) == cpu_set_here();
  bool kernels = strncmp(held[_i].suites, "kernels ", 8) == 0;
  Outcome o = process_run(900, "env WEFT_CPU=%s %s %s/weft-tests %s",
                          cpu_level_name(held[_i].level), held[_i].cases, WEFT_BINARY_DIR,
                          same && kernels ? products() : held[_i].suites);
  ck_assert_msg(o.code == 0 && strstr(o.out, " passed, 0 failed"), "%s", o.out);
}
END_TEST

START_TEST(levels_rise_and_have_kernels) {
  CpuLevel best = cpu_best(), l;
  weft_error e = {0};
  ck_assert_int_eq(unsetenv("WEFT_CPU"), 0);
  ck_assert(cpu_level(&l, &e) == WEFT_OK && l == best);
  for (int i = 0; i <= (int)best; i++) {
    ck_assert_int_eq(setenv("WEFT_CPU", cpu_level_name((CpuLevel)i), 1), 0);
    ck_assert(cpu_level(&l, &e) == WEFT_OK && (int)l == i);
    ck_assert_ptr_eq(cpu_set_here(), cpu_set_of((CpuLevel)i));
    ck_assert(cpu_set_here()->kernel[OP_linear].run != NULL);
  }
}
END_TEST

START_TEST(what_the_cpu_has_not_is_an_error) {
  Device d;
  weft_error e = {0};
  ck_assert_int_eq(setenv("WEFT_CPU", "avx9", 1), 0);
  ck_assert_int_eq(device_open(&d, &device_cpu, NULL, 0, 0, 1, &e), WEFT_EUSAGE);
  ck_assert_msg(strstr(e.text, "WEFT_CPU = \"avx9\": this CPU supports the levels plain"),
                "%s", e.text);
  if (cpu_best() + 1 == CPU_LEVELS) return;
  err_clear(&e);
  setenv("WEFT_CPU", cpu_level_name((CpuLevel)(cpu_best() + 1)), 1);
  ck_assert_int_eq(device_open(&d, &device_cpu, NULL, 0, 0, 1, &e), WEFT_EUSAGE);
}
END_TEST

Suite *levels_suite(void) {
  Suite *s = suite_create("levels");
  TCase *tc = tcase_create("levels");
  tcase_set_timeout(tc, 900);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, levels_rise_and_have_kernels);
  tcase_add_test(tc, what_the_cpu_has_not_is_an_error);
  tcase_add_loop_test(tc, suites_pass_held_down, 0, LEN(held));
  suite_add_tcase(s, tc);
  return s;
}
