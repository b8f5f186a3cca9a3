/* check_ckpt_place.c - where checkpoints may go: below the plan's folder, with no link on
 * the way, or to the folder that the command line names. */
#include <check.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/codes.h"
#include "tests/harness/process.h"
#include "tests/harness/scratch.h"

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
    "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
    "  vocab_size = 32 }, batch = { global = 2, micro = 1, seq = 8 },\n"
    "  data = weft.synthetic {}, train = { steps = 2 },\n"
    "  checkpoint = { dir = weft.var('dir', 'runs'), every = 2 } }\n";

/* Plans in plans/, and beside it what they may not reach. */
static void setup(void) {
  scratch_setup();
  ck_assert_int_eq(mkdir(scratch_path("plans"), 0700), 0);
  ck_assert_int_eq(mkdir(scratch_path("other"), 0700), 0);
  scratch_put("plans/plan.lua", plan, strlen(plan));
}

static Outcome run(int code, const char *args) {
  Outcome o = process_run(50, "$weft run plans/plan.lua --threads 1 %s", args);
  ck_assert_msg(o.code == code, "%s: %d: %s%s", args, o.code, o.out, o.err);
  return o;
}

static const char *found(void) {
  return process_run(20, "find . -name manifest.json").out;
}

static void has(const char *text, const char *part) {
  ck_assert_msg(strstr(without_codes(text), part) != NULL, "\"%s\" is not in: %s", part,
                text);
}

#define FILE_IN(dir) "./" dir "/step-00000002/manifest.json\n"

START_TEST(a_plan_writes_below_its_folder) {
  const char *args[] = {"", "-D dir=a/./b//c", "-D dir=%s/plans/runs", "-D dir=."};
  const char *want[] = {FILE_IN("plans/runs"), FILE_IN("plans/a/b/c"),
                        FILE_IN("plans/runs"), FILE_IN("plans")};
  run(0, arena_printf(scratch_arena, args[_i], scratch_dir));
  ck_assert_str_eq(found(), want[_i]);
}
END_TEST

START_TEST(a_plan_writes_nowhere_else) {
  const char *args[] = {"../other", "a/../../other", "%s/other", "%s/plans/../other",
                        "%s/plans2"};
  const char *dir = arena_printf(scratch_arena, args[_i], scratch_dir);
  Outcome o = run(1, arena_printf(scratch_arena, "-D dir=%s", dir));
  has(o.err, arena_printf(
                 scratch_arena,
                 "plans/plan.lua:6: error: plan.checkpoint.dir: \"%s\" is outside of the "
                 "plan's folder; give the folder that it may be on the command line: "
                 "--set checkpoint.dir=DIR\n",
                 dir));
  ck_assert_str_eq(found(), "");
}
END_TEST

/* Below the plan's folder no link leads on, wherever it leads. */
START_TEST(links_of_a_plan_are_not_followed) {
  const char *dirs[] = {"link", "link/runs", "here", "a/up", "gone", "loop"};
  process_run(10, "sh -c 'cd plans && ln -s ../other link && ln -s . here && mkdir a && "
                  "ln -s .. a/up && ln -s nothing gone && ln -s loop loop'");
  Outcome o = run(2, arena_printf(scratch_arena, "-D dir=%s", dirs[_i]));
  has(o.err, "error: cannot be made: it is a link, and links are neither followed nor "
             "replaced: remove it, or name what it leads to; --set checkpoint.dir=DIR "
             "names a folder that may be reached by links\n");
  ck_assert_str_eq(found(), "");
  ck_assert_str_eq(process_run(10, "ls other").out, "");
}
END_TEST

/* What the command line names is the user's, links and all; so is the plan's folder. */
START_TEST(what_the_user_names_is_resolved_once) {
  const char *args[] = {
      "--set checkpoint.dir=link/runs", "--set plan.checkpoint.dir=link/runs",
      "--set 'checkpoint={dir=\"link/runs\"}'", "--set checkpoint.dir=%s/link/runs"};
  process_run(10, "ln -s other link");
  run(0, arena_printf(scratch_arena, args[_i], scratch_dir));
  ck_assert_str_eq(found(), FILE_IN("other/runs"));
}
END_TEST

START_TEST(the_folder_of_the_plan_may_be_a_link) {
  process_run(10, "ln -s plans link");
  Outcome o = process_run(50, "$weft run link/plan.lua --threads 1");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_str_eq(found(), FILE_IN("plans/runs"));
  /* Both the path that was given and the one that it leads to are below it. */
  o = process_run(50, "$weft run %s/link/plan.lua -D dir=%s/link/b", scratch_dir,
                  scratch_dir);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(50, "$weft run link/plan.lua -D dir=%s/plans/c", scratch_dir);
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

/* A --set of another field does not make the plan's folder the user's. */
START_TEST(other_fields_of_the_command_line_change_nothing) {
  Outcome o = run(1, "-D dir=../other --set checkpoint.every=1");
  has(o.err, "is outside of the plan's folder");
}
END_TEST

/* The folder is held: one that takes its place meanwhile gets nothing. */
START_TEST(a_folder_that_is_swapped_is_not_written) {
  Process p = process_start(50, "$weft run plans/plan.lua --threads 1 --steps 100000000 "
                                "--set checkpoint.keep=1");
  ck_assert(process_wait_for(&p, p.err, "checkpoint of step 4"));
  process_run(10, "sh -c 'mv plans/runs plans/moved && ln -s ../other plans/runs'");
  Outcome k = process_run(20, "sh -c 'a=$(cat plans/moved/latest); i=0; while [ \"$a\" = "
                              "\"$(cat plans/moved/latest)\" -a $i -lt 500 ]; do sleep "
                              "0.02; i=$((i+1)); done; echo $i'");
  process_run(10, "kill -TERM %d", (int)p.pid);
  Outcome o = process_end(&p);
  ck_assert_msg(!strstr(k.out, "500"), "%s", o.err);
  ck_assert_str_eq(process_run(10, "ls other").out, "");
}
END_TEST

START_TEST(a_read_only_file_system_is_called_so) {
  Outcome m = process_run(
      10, "sh -c 'mkdir disk && mount -t tmpfs -o ro tmpfs disk 2>/dev/null'");
  if (m.code != 0) {
    printf("skipped: this user cannot mount a file system\n");
    return;
  }
  Outcome a = run(1, "--set checkpoint.dir=disk");
  Outcome b = run(1, "--set checkpoint.dir=disk/a/b");
  process_run(10, "umount disk");
  has(a.err, "warning: checkpoints cannot be written: disk: cannot be written: Read-only "
             "file system\n");
  has(a.err, "warning: the checkpoint of step 2 was not written: disk/step-00000002.tmp: "
             "cannot be made: Read-only file system\n");
  has(a.err, "the last checkpoint, of step 2, was not written");
  has(b.err,
      "checkpoints cannot be written: disk/a: cannot be made: Read-only file system");
}
END_TEST

Suite *ckpt_place_suite(void) {
  Suite *s = suite_create("ckpt_place");
  TCase *c = tcase_create("weft run");
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, setup, scratch_teardown);
  tcase_add_loop_test(c, a_plan_writes_below_its_folder, 0, 4);
  tcase_add_loop_test(c, a_plan_writes_nowhere_else, 0, 5);
  tcase_add_loop_test(c, links_of_a_plan_are_not_followed, 0, 6);
  tcase_add_loop_test(c, what_the_user_names_is_resolved_once, 0, 4);
  tcase_add_test(c, the_folder_of_the_plan_may_be_a_link);
  tcase_add_test(c, other_fields_of_the_command_line_change_nothing);
  tcase_add_test(c, a_folder_that_is_swapped_is_not_written);
  tcase_add_test(c, a_read_only_file_system_is_called_so);
  suite_add_tcase(s, c);
  return s;
}
