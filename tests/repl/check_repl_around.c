/* check_repl_around.c - what lies around the prompt: colours and terminals that have
 * none, the history, scripts on the standard input, and how soon it is there. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "tests/harness/prompt.h"

/* ---- colours, dumb terminals ---- */

START_TEST(colours) {
  Terminal *t = prompt_start("$weft repl");
  prompt_says(t, "{ 1, 'x' }", "{ 1, \"x\" }\n");
  ck_assert_int_gt(t->colours, 4);
  prompt_leave(t);
  t = prompt_repl("");
  prompt_says(t, "{ 1, 'x' }", "{ 1, \"x\" }\n");
  prompt_says(t, "error 'x'", "error: x\n");
  prompt_leave(t);
  ck_assert_int_eq(t->colours, 0);
}
END_TEST

START_TEST(dumb_terminal) {
  Terminal *t = prompt_start("TERM=dumb $weft repl");
  prompt_says(t, "1 + 1", "2\n");
  terminal_type(t, "dropped\003");
  terminal_wait_row(t, t->row, ">");
  prompt_says(t, "3", "3\n");
  terminal_type(t, "io.write 'begun' io.flush() while true do end\n");
  terminal_wait(t, "\nbegun");
  terminal_type(t, "\003");
  terminal_wait(t, "interrupted!");
  prompt_leave(t);
  ck_assert_int_eq(t->colours, 0);
}
END_TEST

/* A Ctrl-C while a chunk is compiled, which takes long here: each jump to the end of a
 * condition is added to a list by going through it. */
START_TEST(ctrl_c_before_the_code) {
  Terminal *t = prompt_repl("");
  Text line = {0};
  for (int i = 0; i < 700; i++) text_add(&line, " and a");
  text_add(&line, "\n");
  terminal_type(t, "if a\n");
  for (int i = 0; i < 12; i++) {
    terminal_wait_row(t, t->row, ">>");
    terminal_type(t, line.s);
  }
  terminal_wait_row(t, t->row, ">>");
  terminal_type(t, "then end while true do end\n");
  terminal_wait(t, "do end\n");
  terminal_wait_signals(t);
  terminal_type(t, "\003");
  terminal_wait(t, "interrupted!");
  terminal_wait_here(t, ">");
  text_free(&line);
  prompt_says(t, "1 + 1", "2\n");
  prompt_leave(t);
}
END_TEST

START_TEST(without_the_editor) {
  const char *weft = scratch_path("weft");
  ck_assert_int_eq(
      system(arena_printf(scratch_arena, "cp " WEFT_BINARY_DIR "/weft %s", weft)), 0);
  Terminal *t = prompt_start(arena_printf(scratch_arena, "NO_COLOR=1 %s repl", weft));
  ck_assert_ptr_nonnull(
      strstr(terminal_rows(t, 0, t->row),
             "weft: no line editing and no completion: weft_edit.so: "));
  prompt_says(t, "1 + 1", "2\n");
  prompt_leave(t);
}
END_TEST

/* ---- history ---- */

static int mode_of(const char *path) {
  struct stat s;
  ck_assert_msg(stat(path, &s) == 0, "%s is not there", path);
  return (int)(s.st_mode & 0777);
}

START_TEST(history) {
  const char *path = scratch_path("history");
  Terminal *t = prompt_repl("");
  prompt_says(t, "'back\\\\slash'", "back\\slash\n");
  terminal_enter(t, "{", ">>");
  prompt_says(t, "1 }", "{ 1 }\n");
  prompt_says(t, "2", "2\n");
  prompt_says(t, "2", "2\n");
  prompt_says(t, ",set", "every field is as in the plan\n");
  /* The same text stands above already. */
  int row = t->row;
  terminal_type(t, "\033[A\033[A\n");
  terminal_wait_row(t, row + 1, ">");
  ck_assert_str_eq(terminal_rows(t, row, t->row), "> 2\n2\n>\n");
  prompt_leave(t);
  ck_assert_str_eq(scratch_get(path), "'back\\\\\\\\slash'\n{\\n1 }\n2\n,set\n2\n");
  ck_assert_int_eq(mode_of(path), 0600);
  /* The next prompt brings it back; a mode that was changed is put right. */
  ck_assert_int_eq(chmod(path, 0644), 0);
  t = prompt_repl("");
  terminal_type(t, "\033[A\n");
  terminal_wait(t, "> 2\n2\n>");
  prompt_says(t, "9", "9\n");
  prompt_leave(t);
  ck_assert_int_eq(mode_of(path), 0600);
}
END_TEST

START_TEST(history_places) {
  const char *home = scratch_dir;
  Terminal *t = prompt_start("-u WEFT_HISTORY -u XDG_STATE_HOME NO_COLOR=1 $weft repl");
  prompt_says(t, "1", "1\n");
  prompt_leave(t);
  const char *path = arena_printf(scratch_arena, "%s/.local/state/weft/history", home);
  ck_assert_int_eq(mode_of(path), 0600);
  ck_assert_int_eq(mode_of(arena_printf(scratch_arena, "%s/.local/state/weft", home)),
                   0700);
  t = prompt_start(
      arena_printf(scratch_arena,
                   "-u WEFT_HISTORY XDG_STATE_HOME=%s/xdg NO_COLOR=1 $weft repl", home));
  prompt_says(t, "1", "1\n");
  prompt_leave(t);
  ck_assert_int_eq(mode_of(arena_printf(scratch_arena, "%s/xdg/weft/history", home)),
                   0600);
  /* Off; and a place that cannot be written is said once. */
  t = prompt_start("WEFT_HISTORY= NO_COLOR=1 $weft repl");
  prompt_says(t, "1", "1\n");
  prompt_leave(t);
  t = prompt_start("WEFT_HISTORY=/dev/full NO_COLOR=1 $weft repl");
  prompt_says(
      t, "1",
      "1\nweft: the history is not kept: /dev/full: cannot be written: No space left "
      "on device\n");
  prompt_says(t, "2", "2\n");
  prompt_leave(t);
  ck_assert_int_eq(
      system(arena_printf(scratch_arena, "rm -r %s/xdg %s/.local", home, home)), 0);
}
END_TEST

START_TEST(long_history_is_cut) {
  Text all = {0};
  for (int i = 0; i < 3000; i++) text_printf(&all, "x = %d\n", i);
  const char *path = scratch_put("history", all.s, all.n);
  text_free(&all);
  Terminal *t = prompt_repl("");
  terminal_type(t, "\033[A");
  terminal_wait(t, "> x = 2999");
  terminal_type(t, "\003");
  terminal_wait_row(t, t->row, ">");
  prompt_leave(t);
  const char *kept = scratch_get(path);
  ck_assert_int_eq(strncmp(kept, "x = 2000\n", 9), 0);
  ck_assert_int_eq(mode_of(path), 0600);
}
END_TEST

/* ---- without a terminal ---- */

static void script(const char *text, const char *args, int code, const char *out,
                   const char *err) {
  scratch_put("script", text, strlen(text));
  Outcome o = process_run(20, "$weft repl %s <script", args);
  ck_assert_msg(o.code == code, "%s: exit %d: %s%s", text, o.code, o.out, o.err);
  ck_assert_str_eq(o.out, out);
  ck_assert_msg(*err ? strstr(o.err, err) != NULL : !*o.err, "%s: %s", text, o.err);
}

START_TEST(piped_input_is_a_script) {
  script("", "", 0, "", "");
  script("local x = 1\nprint(x + 1)\n", "", 0, "2\n", "");
  script("print(weft.version ~= nil)", "", 0, "true\n", "");
  script("print 'before'\nerror 'here'\nprint 'after'\n", "", 1, "before\n",
         "stdin:2: here");
  script("1 +\n", "", 1, "", "stdin:1: ");
  script("print(1)", "no_such_plan.lua", 2, "", "no_such_plan.lua");
  /* Options are those of weft check. */
  prompt_plan("a.lua", 1);
  const char *a = scratch_path("a.lua");
  script("print(plan.mesh.tp)", arena_printf(scratch_arena, "%s -D SEQ=32", a), 0, "2\n",
         "");
  script("print(1)", arena_printf(scratch_arena, "%s --set mesh.tp", a), 2, "",
         "--set mesh.tp: write --set PATH=VALUE");
  Outcome o = process_run(20, "sh -c \"echo 'print(1)' | $weft repl >/dev/full\"");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "cannot write to the standard output"));
}
END_TEST

START_TEST(no_verb) {
  Terminal *t = prompt_start("NO_COLOR=1 $weft");
  prompt_says(t, "1", "1\n");
  prompt_leave(t);
  ck_assert_int_eq(process_run(20, "$weft").code, 2);
  /* Values that go elsewhere are no reason to prompt. */
  t = terminal_start(arena_printf(scratch_arena, "$weft repl >%s", scratch_path("out")));
  terminal_type(t, "print 'quiet'\n\004");
  ck_assert_int_eq(terminal_end(t), 0);
  ck_assert_str_eq(scratch_get(scratch_path("out")), "quiet\n");
}
END_TEST

/* ---- time ---- */

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

START_TEST(first_prompt) {
  double best = 1e9;
  for (int i = 0; i < 7; i++) {
    double from = now_ms();
    Terminal *t = prompt_repl("");
    best = MIN(best, now_ms() - from);
    prompt_leave(t);
  }
  printf("# repl: first prompt after %.1f ms\n", best);
}
END_TEST

Suite *repl_around_suite(void);
Suite *repl_around_suite(void) {
  Suite *s = suite_create("repl_around");
  TCase *t = tcase_create("terminal");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, colours);
  tcase_add_test(t, dumb_terminal);
  tcase_add_test(t, ctrl_c_before_the_code);
  tcase_add_test(t, without_the_editor);
  tcase_add_test(t, history);
  tcase_add_test(t, history_places);
  tcase_add_test(t, long_history_is_cut);
  tcase_add_test(t, piped_input_is_a_script);
  tcase_add_test(t, no_verb);
  tcase_add_test(t, first_prompt);
  suite_add_tcase(s, t);
  return s;
}
