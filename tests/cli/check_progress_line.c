/* check_progress_line.c - the line of progress on a terminal takes one row, whatever the
 * terminal's width. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/scratch.h"
#include "tests/harness/terminal.h"
#include "vm/base/terminal_row.h"

#define PLAN                                                                             \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model 'llama-tiny', cluster = 'h100-sxm',\n"          \
  "  batch = { global = 2, micro = 1, seq = 32 }, data = weft.synthetic {},\n"           \
  "  train = { steps = 1000000, log_every = 1000000 } }\n"

#define SCRIPT                                                                           \
  "local weft = require 'weft'\n"                                                        \
  "local rates = { 'optimizer.lr' }\n"                                                   \
  "for i = 1, 100000 do rates[i + 1] = i * 1e-9 end\n"                                   \
  "weft.sweep { plan = 'plan.lua', over = { rates } }\n"

static const struct {
  const char *command, *begin;
} lines[] = {{"$weft run plan.lua --threads 1", "/1000000  loss "},
             {"$weft sweep script.lua", " of 100000 points, "}};

/* On a terminal of 30 columns a row has 29 of the line, which has more. */
START_TEST(it_takes_one_row) {
  scratch_put("plan.lua", PLAN, strlen(PLAN));
  scratch_put("script.lua", SCRIPT, strlen(SCRIPT));
  Terminal *t =
      terminal_start(arena_printf(scratch_arena, "sh -c 'cd %s; stty cols 30; exec %s'",
                                  scratch_dir, lines[_i].command));
  terminal_wait_here(t, lines[_i].begin); /* above it the first step has a row, too */
  const char *row = terminal_row(t, t->row);
  ck_assert_msg(strlen(row) >= 28 && strlen(row) <= 29, "%s", row);
  terminal_type(t, "\x03");
  ck_assert_int_eq(terminal_end(t), 130);
}
END_TEST

/* Characters are not cut in two. */
START_TEST(characters_are_whole) {
  char text[200];
  FILE *f = tmpfile();
  ck_assert_int_eq(terminal_columns(f), 80);
  strcpy(text, "a");
  for (int i = 0; i < 90; i++) strcat(text, "\xc3\xbc");
  terminal_overwrite(f, text);
  rewind(f);
  size_t n = fread(text, 1, sizeof text, f);
  ck_assert_uint_eq(n, strlen("\r") + 1 + 2 * 78 + strlen("\033[K"));
  ck_assert_int_eq(memcmp(text + n - 5, "\xc3\xbc\033[K", 5), 0);
  fclose(f);
}
END_TEST

Suite *progress_line_suite(void);
Suite *progress_line_suite(void) {
  Suite *s = suite_create("progress_line");
  TCase *t = tcase_create("terminal");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, it_takes_one_row, 0, LEN(lines));
  tcase_add_test(t, characters_are_whole);
  suite_add_tcase(s, t);
  return s;
}
