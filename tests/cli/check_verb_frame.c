/* check_verb_frame.c - how a verb ends whose result could not be made or not be kept: as
 * one that failed, whatever it was about to print. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/cli/cli.h"
#include "tests/harness/process.h"

/* What `fn` writes to the standard streams, and the code it ends with. */
static Outcome in_child(int (*fn)(void)) {
  int status;
  fflush(NULL);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    bool ok = freopen(scratch_path("out"), "w", stdout) != NULL;
    ok = freopen(scratch_path("err"), "w", stderr) != NULL && ok;
    int code = ok ? fn() : 99;
    fflush(NULL);
    _exit(code);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFEXITED(status));
  return (Outcome){.code = WEXITSTATUS(status),
                   .out = scratch_get(scratch_path("out")),
                   .err = scratch_get(scratch_path("err"))};
}

static void unfinished(Json *out, void *ud) {
  Job *j = ud;
  json_int(out, "half", 1);
  err_set(&j->e, WEFT_ENOMEM, "show memory: out of memory");
}

static void finished(Json *out, void *ud) {
  (void)ud;
  json_int(out, "whole", 1);
}

static const Verb verb = {.name = "show"};

static int end_with(void (*result)(Json *out, void *ud)) {
  Job j = {.arena = scratch_arena, .d = {.arena = scratch_arena}, .e = {.rank = -1}};
  err_set(&j.e, WEFT_ERUN, "of something that was tried before");
  Cli cli = {.verb = &verb, .json = true};
  return job_end(&j, &cli, WEFT_OK, result, &j);
}

static int end_unfinished(void) { return end_with(unfinished); }
static int end_finished(void) { return end_with(finished); }

START_TEST(a_result_that_cannot_be_made_is_an_error) {
  Outcome o = in_child(end_unfinished);
  ck_assert_int_eq(o.code, weft_exit_code(WEFT_ENOMEM));
  ck_assert_ptr_null(strstr(o.out, "half"));
  ck_assert_ptr_nonnull(strstr(o.out, "\"summary\": \"show memory: out of memory\""));
  ck_assert_ptr_nonnull(strstr(o.out, "\"result\": null"));
  ck_assert_ptr_nonnull(strstr(o.out, "\"valid\": false"));
}
END_TEST

START_TEST(a_result_that_is_made_is_no_error) {
  Outcome o = in_child(end_finished);
  ck_assert_int_eq(o.code, 0);
  ck_assert_ptr_nonnull(strstr(o.out, "\"whole\": 1"));
  ck_assert_ptr_nonnull(strstr(o.out, "\"valid\": true"));
}
END_TEST

static int print_what_is_lost(void) {
  print_text(stdout, &(Text){.oom = true});
  return 0;
}

START_TEST(a_text_that_memory_did_not_hold_is_an_error) {
  Outcome o = in_child(print_what_is_lost);
  ck_assert_int_eq(o.code, weft_exit_code(WEFT_ENOMEM));
  ck_assert_str_eq(o.out, "");
  ck_assert_str_eq(o.err, "weft: out of memory\n");
}
END_TEST

Suite *verb_frame_suite(void) {
  Suite *s = suite_create("verb_frame");
  TCase *t = tcase_create("ends");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, a_result_that_cannot_be_made_is_an_error);
  tcase_add_test(t, a_result_that_is_made_is_no_error);
  tcase_add_test(t, a_text_that_memory_did_not_hold_is_an_error);
  suite_add_tcase(s, t);
  return s;
}
