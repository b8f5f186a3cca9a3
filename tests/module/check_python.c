/* check_python.c - the Python package: its structs are those of weft.h, it finds the
 * library and the program, and its own tests pass. PYTHON names an interpreter; skipped,
 * with the reason, where there is none, or no pytest. */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/process.h"
#include "vm/weft.h"

static bool usable(const char *needs) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  printf("python: skipped: a sanitizer must be in the process from its start\n");
  return false;
#endif
  Outcome o = process_run(30,
                          "sh -c '${PYTHON:-python3} -c \"import %s, sys; "
                          "sys.exit(sys.version_info < (3, 9))\"'",
                          needs);
  if (o.code != 0)
    printf("python: skipped: ${PYTHON:-python3} has no %s, or is older than 3.9\n",
           needs);
  return o.code == 0;
}

#define PYTHON                                                                           \
  "env WEFT_BUILD=" WEFT_BINARY_DIR " WEFT_LIBRARY=" WEFT_BINARY_DIR                     \
  "/libweftlua.so WEFT_PROGRAM=" WEFT_BINARY_DIR "/weft PYTHONDONTWRITEBYTECODE=1 "      \
  "PYTHONPATH=" WEFT_SOURCE_DIR "/python ${PYTHON:-python3} "

#define STRUCT(name, type)                                                               \
  { #name, sizeof(type) }
#define MEMBER(type, member)                                                             \
  { #member, offsetof(type, member) }

/* Of each struct its size, then where its members are. */
static const struct {
  const char *name;
  size_t at;
} layout[] = {
    STRUCT(Error, weft_error),
    MEMBER(weft_error, code),
    MEMBER(weft_error, line),
    MEMBER(weft_error, rank),
    MEMBER(weft_error, file),
    MEMBER(weft_error, text),
    STRUCT(PlanOptions, weft_plan_options),
    MEMBER(weft_plan_options, size),
    MEMBER(weft_plan_options, alloc),
    MEMBER(weft_plan_options, set),
    MEMBER(weft_plan_options, define),
    MEMBER(weft_plan_options, stop),
    MEMBER(weft_plan_options, memory_limit),
    MEMBER(weft_plan_options, instruction_limit),
    MEMBER(weft_plan_options, print),
    MEMBER(weft_plan_options, ud),
    MEMBER(weft_plan_options, data),
    MEMBER(weft_plan_options, compile_limit),
    MEMBER(weft_plan_options, cpu_limit),
    STRUCT(Param, weft_param),
    MEMBER(weft_param, name),
    MEMBER(weft_param, ndim),
    MEMBER(weft_param, dim),
    MEMBER(weft_param, count),
    STRUCT(Proof, weft_proof),
    MEMBER(weft_proof, transfers),
    MEMBER(weft_proof, collectives),
    MEMBER(weft_proof, instructions),
    MEMBER(weft_proof, communicators),
    STRUCT(RunOptions, weft_run_options),
    MEMBER(weft_run_options, size),
    MEMBER(weft_run_options, comm),
    MEMBER(weft_run_options, threads),
    MEMBER(weft_run_options, stop),
    MEMBER(weft_run_options, patience_s),
    STRUCT(Step, weft_step),
    MEMBER(weft_step, step),
    MEMBER(weft_step, tokens),
    MEMBER(weft_step, loss),
    MEMBER(weft_step, grad_norm),
    MEMBER(weft_step, lr),
    MEMBER(weft_step, ms),
    MEMBER(weft_step, loss_scale),
    MEMBER(weft_step, skipped),
    STRUCT(VerifyOptions, weft_verify_options),
    MEMBER(weft_verify_options, size),
    MEMBER(weft_verify_options, ranks),
    MEMBER(weft_verify_options, steps),
    MEMBER(weft_verify_options, tolerance),
    MEMBER(weft_verify_options, stop),
    STRUCT(VerifyResult, weft_verify_result),
    MEMBER(weft_verify_result, ranks),
    MEMBER(weft_verify_result, steps),
    MEMBER(weft_verify_result, tensors),
    MEMBER(weft_verify_result, loss),
    MEMBER(weft_verify_result, grad_norm),
    MEMBER(weft_verify_result, grad),
    MEMBER(weft_verify_result, param),
    MEMBER(weft_verify_result, tolerance),
    MEMBER(weft_verify_result, worst),
    MEMBER(weft_verify_result, not_covered),
    MEMBER(weft_verify_result, rounding),
};

START_TEST(structs_are_those_of_the_header) {
  static const char ask[] =
      "import ctypes\nfrom weft import _native\n"
      "for s in (_native.Error, _native.PlanOptions, _native.Param, _native.Proof,\n"
      "          _native.RunOptions, _native.Step, _native.VerifyOptions,\n"
      "          _native.VerifyResult):\n"
      "    print(s.__name__, ctypes.sizeof(s))\n"
      "    for f in s._fields_: print(f[0], getattr(s, f[0]).offset)\n";
  if (!usable("ctypes")) return;
  scratch_put("ask.py", ask, strlen(ask));
  Outcome o = process_run(30, PYTHON "ask.py");
  const char *want = "";
  for (int i = 0; i < LEN(layout); i++)
    want = arena_printf(scratch_arena, "%s%s %zu\n", want, layout[i].name, layout[i].at);
  ck_assert_str_eq(o.err, "");
  ck_assert_str_eq(o.out, want);
}
END_TEST

START_TEST(a_plan_is_checked) {
  static const char ask[] =
      "import sys, weft\n"
      "print(weft.check(sys.argv[1]).name)\n"
      "try: weft.check(sys.argv[1], set={'mesh.tp': 3})\n"
      "except weft.PlanError as e: print(e.diagnostics[0].path)\n"
      "print(len(weft.sweep(sys.argv[1], over={'mesh.tp': [1, 2]})))\n";
  if (!usable("ctypes")) return;
  scratch_put("ask.py", ask, strlen(ask));
  Outcome o = process_run(60, PYTHON "ask.py " WEFT_SOURCE_DIR "/plans/quickstart.lua");
  ck_assert_str_eq(o.err, "");
  ck_assert_str_eq(o.out, "quickstart\nmesh.tp\n2\n");
}
END_TEST

/* The program is in the place of Python, with its exit code and its output. */
START_TEST(the_program_starts) {
  if (!usable("ctypes")) return;
  Outcome o = process_run(30, PYTHON "-m weft --version");
  ck_assert_msg(o.code == 0 && strncmp(o.out, "weft ", 5) == 0, "%s%s", o.out, o.err);
  o = process_run(30, PYTHON "-m weft chekc");
  ck_assert_int_eq(o.code, 2);
  o = process_run(30,
                  "env WEFT_PROGRAM=/no/weft " PYTHON "-c 'import weft._native as n; "
                  "import os; os.environ.pop(\"WEFT_PROGRAM\"); os.environ[\"PATH\"] = "
                  "\"/no\"; n.HERE = n.Path(\"/no\"); n.program()'");
  ck_assert_msg(o.code == 1 && strstr(o.err, "the program weft is not there: install"),
                "%s", o.err);
}
END_TEST

START_TEST(its_tests_pass) {
  if (!usable("pytest")) return;
  Outcome o = process_run(200, PYTHON "-m pytest -q -p no:cacheprovider " WEFT_SOURCE_DIR
                                      "/tests/python");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
}
END_TEST

Suite *python_suite(void) {
  Suite *s = suite_create("python");
  TCase *t = tcase_create("python");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 300);
  tcase_add_test(t, structs_are_those_of_the_header);
  tcase_add_test(t, a_plan_is_checked);
  tcase_add_test(t, the_program_starts);
  tcase_add_test(t, its_tests_pass);
  suite_add_tcase(s, t);
  return s;
}
