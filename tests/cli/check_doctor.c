/* check_doctor.c - weft doctor, and how the program has OpenMP wait. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/levels.h"
#include "tests/harness/process.h"

static json_t *doctor(const char *level) {
  Outcome o = process_run(60, "env WEFT_CPU=%s $weft doctor --json", level);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  json_t *all = json_loads(o.out, 0, NULL);
  ck_assert_ptr_nonnull(json_object_get(all, "result"));
  return all;
}

static const char *text_at(const json_t *all, const char *key) {
  return json_string_value(json_object_get(json_object_get(all, "result"), key));
}

START_TEST(doctor_says_what_this_cpu_gets) {
  CpuLevel best = cpu_best();
  json_t *all = doctor(cpu_level_name(best));
  json_t *r = json_object_get(all, "result");
  ck_assert_str_eq(text_at(all, "level"), cpu_level_name(best));
  ck_assert_str_eq(text_at(all, "kernels"), cpu_set_of(best)->name);
  ck_assert_int_ge(json_integer_value(json_object_get(r, "cores")), 1);
  ck_assert_int_gt(json_integer_value(json_object_get(r, "memory_bytes")), 1 << 28);
  static const char *const types[] = {"f32", "bf16"};
  for (int i = 0; i < LEN(types); i++) {
    json_t *rate = json_object_get(r, types[i]);
    ck_assert_double_gt(json_number_value(json_object_get(rate, "flops")), 1e6);
  }
  ck_assert_int_ge(json_integer_value(json_object_get(r, "gpus")), 0);
  ck_assert_int_eq((int)json_object_size(json_object_get(r, "gpu_libraries")), 5);
  char want[96];
  gemm_has("onednn", want, sizeof want);
  const char *got =
      json_string_value(json_object_get(json_object_get(r, "parts"), "oneDNN"));
  ck_assert_str_eq(got ? got : "", want);
  json_decref(all);
}
END_TEST

START_TEST(doctor_at_a_level_held_down) {
  json_t *all = doctor("plain");
  ck_assert_str_eq(text_at(all, "level"), "plain");
  ck_assert_str_eq(text_at(all, "kernels"), "plain");
  json_t *bf16 = json_object_get(json_object_get(all, "result"), "bf16");
  ck_assert(json_is_true(json_object_get(bf16, "widened")) ==
            (gemm_has("onednn", NULL, 0) || gemm_has("openblas", NULL, 0)));
  json_decref(all);
  Outcome o = process_run(30, "env WEFT_CPU=avx9 $weft doctor");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "WEFT_CPU = \"avx9\": this CPU supports the levels plain"),
                "%s", o.err);
}
END_TEST

START_TEST(doctor_for_people) {
  Outcome o = process_run(60, "$weft doctor");
  ck_assert_int_eq(o.code, 0);
  static const char *const want[] = {"\n  cpu ", "\n  level ", "\n  threads ",
                                     "GFLOP/s on all cores", "\n  bf16 "};
  for (int i = 0; i < LEN(want); i++)
    ck_assert_msg(strstr(o.out, want[i]), "%s: %s", want[i], o.out);
  o = process_run(30, "$weft doctor plan.lua");
  ck_assert(o.code == 2 && strstr(o.err, "doctor takes no arguments, got plan.lua"));
}
END_TEST

/* A program with none of its modules beside it, and one that is no library. */
START_TEST(doctor_tells_not_built_from_not_whole) {
  Outcome o =
      process_run(60, "sh -c 'cp $weft weft; echo x >weft_mpi.so; exec ./weft doctor'");
  ck_assert_int_eq(o.code, 0);
  ck_assert_msg(strstr(o.out,
                       "\n  missing  MPI (ranks on several machines): weft_mpi.so is "
                       "there and cannot be opened: install the libraries of "
                       "libopenmpi-dev openmpi-bin\n"),
                "%s", o.out);
  ck_assert_msg(strstr(o.out,
                       "\n  missing  libedit (a prompt with a history): this build has "
                       "no weft_edit.so; ./dev build makes it where libedit-dev is "
                       "installed\n"),
                "%s", o.out);
}
END_TEST

/* The setting must be there when libgomp is loaded, so the program starts itself again.
 */
START_TEST(openmp_waits_as_the_user_or_the_program_says) {
  static const struct {
    const char *env, *prints;
  } c[] = {
      {"", "20000 nil"},
      {"GOMP_SPINCOUNT=7", "7 nil"},
      {"OMP_WAIT_POLICY=active", "nil active"},
  };
  static const char script[] =
      "print(os.getenv 'GOMP_SPINCOUNT', os.getenv 'OMP_WAIT_POLICY', ...)";
  const char *path = scratch_put("s.lua", script, sizeof script - 1);
  for (int i = 0; i < LEN(c); i++) {
    Outcome o =
        process_run(30, "env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY %s $weft lua %s 'a b'",
                    c[i].env, path);
    char want[64];
    snprintf(want, sizeof want, "%.*s\t%s\ta b\n", (int)strcspn(c[i].prints, " "),
             c[i].prints, strchr(c[i].prints, ' ') + 1);
    ck_assert_msg(o.code == 0 && strcmp(o.out, want) == 0, "%s: %s%s", c[i].env, o.out,
                  o.err);
  }
}
END_TEST

Suite *doctor_suite(void) {
  Suite *s = suite_create("doctor");
  TCase *tc = tcase_create("doctor");
  tcase_set_timeout(tc, 120);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, doctor_says_what_this_cpu_gets);
  tcase_add_test(tc, doctor_at_a_level_held_down);
  tcase_add_test(tc, doctor_tells_not_built_from_not_whole);
  tcase_add_test(tc, doctor_for_people);
  tcase_add_test(tc, openmp_waits_as_the_user_or_the_program_says);
  suite_add_tcase(s, tc);
  return s;
}
