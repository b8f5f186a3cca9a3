/* check_report_search.c - weft report where it cannot say all: without figures of the
 * GPU, after Ctrl-C, of a plan with several errors; and that what it says of a plan is
 * what weft check says, as do weft best, diff and export. */
#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "tests/harness/terminal.h"
#include "vm/base/diag.h"

enum { SECONDS = 60 };

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

static json_t *json_of(int code, const char *command) {
  Outcome o = process_run(SECONDS, "$weft %s --json", command);
  json_t *v = json_loads(o.out, 0, NULL);
  ck_assert_msg(v && o.code == code, "%s: %d: %s%s", command, o.code, o.out, o.err);
  return v;
}

static const char *text_of(const json_t *v, const char *key) {
  const char *s = json_string_value(json_object_get(v, key));
  return s ? s : "";
}

/* ---- the search ---- */

#define SMALL(gpu)                                                                       \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model 'llama-tiny', mesh = { world = 4 },\n"          \
  "  batch = { global = 16, micro = 4, seq = 128 }, data = weft.synthetic {},\n"         \
  "  cluster = weft.cluster { nodes = 1, gpus = 4, reserve_gib = 0,\n"                   \
  "    gpu = { " gpu ", memory_gib = 0.006 } } }\n"

/* The memory is enough to say what fits. */
START_TEST(a_gpu_of_which_no_rate_is_known) {
  put("all.lua", SMALL("'h100-sxm'"));
  put("memory.lua", SMALL("name = 'mine'"));
  json_t *all = json_of(1, "report all.lua"), *some = json_of(1, "report memory.lua");
  const json_t *a = json_object_get(all, "nearest"),
               *b = json_object_get(some, "nearest");
  ck_assert_uint_gt(json_array_size(a), 0);
  ck_assert_uint_eq(json_array_size(a), json_array_size(b));
  for (size_t i = 0; i < json_array_size(a); i++) {
    const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
    ck_assert(json_equal(json_object_get(x, "changes"), json_object_get(y, "changes")));
    ck_assert(
        json_equal(json_object_get(x, "peak_bytes"), json_object_get(y, "peak_bytes")));
    ck_assert_ptr_null(json_object_get(y, "step_ms"));
  }
  json_decref(all);
  json_decref(some);
}
END_TEST

/* What was not looked at is not said not to fit. */
START_TEST(ctrl_c_ends_the_search) {
  const char *html = arena_printf(scratch_arena, "--html %s", scratch_path("page.html"));
  const char *const ways[] = {"", "--json", html};
  put("large.lua",
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model 'llama3-405b', mesh = { world = 4096 },\n"
      "  batch = { global = 65536, micro = 4, seq = 4096 }, precision = 'bf16',\n"
      "  cluster = weft.cluster { nodes = 512, gpu = { 'h100-sxm', memory_gib = 3 } } "
      "}\n");
  for (int i = 0; i < LEN(ways); i++) {
    Terminal *t = terminal_start(arena_printf(scratch_arena, "$weft report %s %s >%s",
                                              scratch_path("large.lua"), ways[i],
                                              scratch_path("out")));
    terminal_wait(t, " points, "); /* its progress */
    terminal_type(t, "\003");
    int code = terminal_end(t);
    const char *out = scratch_get(scratch_path("out"));
    ck_assert_msg(code == 130, "%s: %d: %s", ways[i], code, out);
    ck_assert_msg(!strstr(out, "of the near layouts fits"), "%s", out);
    const char *page = scratch_get(scratch_path("page.html"));
    ck_assert_ptr_null(strstr(page, "of the near layouts fits"));
  }
}
END_TEST

/* ---- what is wrong with a plan ---- */

static const char wrong[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model 'llama-tiny', mesh = { world = 4, tp = 3 },\n"
    "  batch = { gobal = 16, micro = 4, seq = 128 }, cluster = 'h100-sxm' }\n";

static const char right[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model 'llama-tiny', mesh = { world = 4 },\n"
    "  batch = { global = 16, micro = 4, seq = 128 }, cluster = 'h100-sxm' }\n";

START_TEST(all_errors_are_those_of_check) {
  put("wrong.lua", wrong);
  json_t *check = json_of(1, "check wrong.lua"), *report = json_of(1, "report wrong.lua");
  json_t *best = json_of(1, "best wrong.lua");
  const json_t *want = json_object_get(check, "diagnostics");
  const json_t *has = json_object_get(report, "errors");
  const json_t *searched = json_object_get(best, "diagnostics");
  ck_assert_uint_ge(json_array_size(want), 2);
  ck_assert_uint_eq(json_array_size(has), json_array_size(want));
  ck_assert(json_equal(searched, want));
  for (size_t i = 0; i < json_array_size(want); i++) {
    const json_t *x = json_array_get(want, i), *y = json_array_get(has, i);
    const json_t *at = json_object_get(json_object_get(x, "range"), "start");
    ck_assert_str_eq(text_of(x, "summary"), text_of(y, "message"));
    ck_assert_str_eq(text_of(x, "path"), text_of(y, "path"));
    ck_assert_str_eq(text_of(x, "code"), text_of(y, "code"));
    ck_assert_str_eq(text_of(x, "severity"), text_of(y, "severity"));
    ck_assert(json_equal(json_object_get(at, "line"), json_object_get(y, "line")));
  }
  json_decref(check);
  json_decref(report);
  json_decref(best);
}
END_TEST

/* Each line of an error or a warning ends with a code of diag.def; returns how many. */
static int lines_with_codes(const char *command, const char *said) {
  char *text = arena_str(scratch_arena, said), *rest;
  int n = 0;
  for (char *line = strtok_r(text, "\n", &rest); line;
       line = strtok_r(NULL, "\n", &rest)) {
    if (!strstr(line, ": error: ") && !strstr(line, ": warning: ")) continue;
    char *code = strrchr(line, '['), *end = code ? strchr(code, ']') : NULL;
    ck_assert_msg(end && !end[1], "%s: no code: %s", command, line);
    *end = 0;
    ck_assert_msg(diag_code(code + 1), "%s: no code \"%s\"", command, code + 1);
    n++;
  }
  return n;
}

START_TEST(lines_end_with_codes) {
  static const char *const commands[] = {"check wrong.lua", "report wrong.lua",
                                         "diff wrong.lua right.lua", "best wrong.lua",
                                         "export wrong.lua --to deepspeed"};
  put("wrong.lua", wrong);
  put("right.lua", right);
  for (int i = 0; i < LEN(commands); i++) {
    Outcome o = process_run(SECONDS, "$weft %s", commands[i]);
    ck_assert_msg(o.code == 1, "%s: %d: %s%s", commands[i], o.code, o.out, o.err);
    int n = lines_with_codes(commands[i], o.out) + lines_with_codes(commands[i], o.err);
    ck_assert_msg(n >= 2, "%s: %s%s", commands[i], o.out, o.err);
  }
  Outcome o = process_run(SECONDS, "$weft report wrong.lua --html page.html");
  ck_assert_int_eq(o.code, 1);
  const char *page = scratch_get(scratch_path("page.html"));
  ck_assert_ptr_nonnull(strstr(page, " [unknown-field]</span>"));
  ck_assert_ptr_nonnull(strstr(page, " [divisibility]</span>"));
}
END_TEST

/* A GPU is what weft best cannot do without. */
START_TEST(best_says_which_field_is_missing) {
  put("a.lua", right);
  Outcome o = process_run(SECONDS, "$weft best a.lua --set cluster=nil");
  ck_assert_int_eq(o.code, 1);
  ck_assert_int_eq(lines_with_codes("best", o.out), 1);
}
END_TEST

Suite *report_search_suite(void);
Suite *report_search_suite(void) {
  Suite *s = suite_create("report_search");
  TCase *c = tcase_create("report");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_test(c, a_gpu_of_which_no_rate_is_known);
  tcase_add_test(c, ctrl_c_ends_the_search);
  tcase_add_test(c, all_errors_are_those_of_check);
  tcase_add_test(c, lines_end_with_codes);
  tcase_add_test(c, best_says_which_field_is_missing);
  suite_add_tcase(s, c);
  return s;
}
