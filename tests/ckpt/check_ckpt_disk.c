/* check_ckpt_disk.c - checkpoints that cannot be written, or not all of them: the run
 * goes on, and says so. */
#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/harness/ckpt_cli.h"

/* The checkpoint is there all the same, and the run has gone well. */
START_TEST(what_cannot_be_removed_is_a_warning) {
  run(0, "--steps 2");
  scratch_put("runs/step-00000002/mine", "x", 1);
  Outcome o = run(0, "--resume auto --set checkpoint.keep=1");
  has(o.err,
      "warning: checkpoints before that of step 4 were not all removed: runs/step-");
  has(o.err, "checkpoint of step 4 in runs");
  ck_assert_msg(!strstr(o.err, "was not written"), "%s", o.err);
  ck_assert_str_eq(listed("runs"), "latest step-00000002 step-00000006 ");
}
END_TEST

/* The checkpoint is whole, and the run goes on. */
START_TEST(weights_that_cannot_be_written_are_a_warning) {
  Outcome o = process_run(20, "sh -c 'mkdir -p runs/weights-00000002.0-0.tmp/x "
                              "runs/weights-00000002/x'");
  o = run(0, "--set checkpoint.save_consolidated=every --set checkpoint.keep=0");
  has(o.err, "warning: the weights of step 2 were not written beside its checkpoint: "
             "runs/weights-00000002: exists and is not empty");
  has(o.err, "checkpoint of step 6 in runs");
  o = process_run(20, "ls runs/step-00000002/manifest.json runs/weights-00000006");
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

START_TEST(a_second_run_in_the_folder_is_refused) {
  Process p = process_start(50, "$weft run plan.lua --threads 1 --steps 100000000");
  ck_assert(process_wait_for(&p, p.err, "checkpoint of step 2"));
  Outcome o = run(2, "--resume auto");
  has(o.err, "runs: error: another run writes its checkpoints there");
  process_run(10, "kill -TERM %d", (int)p.pid);
  process_end(&p);
}
END_TEST

/* A file where the folder should be: nobody can make it, not even root. */
START_TEST(a_folder_that_cannot_be_is_a_warning) {
  scratch_put("runs", "x", 1);
  Outcome o = run(1, "");
  has(o.err, "warning: checkpoints cannot be written: runs: ");
  has(o.err, "warning: the checkpoint of step 2 was not written: ");
  has(o.err, "the run goes on");
  has(o.out, "step      5/6");
  has(o.err, "weft: the last checkpoint, of step 6, was not written: ");
}
END_TEST

START_TEST(a_read_only_folder_is_a_warning) {
  if (geteuid() == 0) {
    printf("skipped: root writes to any folder\n");
    return;
  }
  run(0, "--steps 2");
  process_run(10, "chmod 500 runs");
  Outcome o = run(1, "--resume auto");
  process_run(10, "chmod 700 runs");
  has(o.err, "warning: the checkpoint of step 4 was not written: ");
  has(scratch_get(scratch_path("runs/latest")), "step-00000002");
}
END_TEST

/* The state is saved without it, and --resume finds it. */
START_TEST(a_latest_that_cannot_be_written_is_a_warning) {
  run(0, "--steps 2");
  process_run(10, "sh -c 'rm runs/latest; mkdir runs/latest'");
  Outcome o = run(0, "--resume auto --steps 4 --set checkpoint.keep=1");
  has(o.err, "warning: the checkpoint of step 4 is there, but \"latest\" does not name "
             "it: runs/latest: cannot be written: ");
  ck_assert_str_eq(listed("runs"), "latest step-00000004 ");
  has(run(0, "--resume auto --steps 5").err, "resumes from step 4 ");
  o = process_run(50, "sh -c 'mkdir -p one/latest; $weft ckpt convert plan.lua plan.lua "
                      "runs one --json'");
  ck_assert_int_eq(o.code, 0);
  has(o.out, "\\\"latest\\\" does not name it: one/latest: cannot be written");
}
END_TEST

/* On a small file system: the third checkpoint has no room. */
START_TEST(a_full_disk_is_a_warning) {
  const char *disk = scratch_path("disk");
  Outcome m = process_run(
      10, "sh -c 'mkdir disk && mount -t tmpfs -o size=220k tmpfs disk 2>/dev/null'");
  if (m.code != 0) {
    printf("skipped: this user cannot mount a small file system\n");
    return;
  }
  Process p = process_start(50,
                            "$weft run plan.lua --threads 1 --set checkpoint.dir=%s "
                            "--set checkpoint.keep=0 --steps 12",
                            disk);
  Outcome o = process_end(&p);
  const char *latest = scratch_get(scratch_path("disk/latest"));
  Outcome list = process_run(10, "ls disk");
  process_run(10, "umount disk");
  ck_assert_msg(o.code == 1, "%s", o.err);
  has(o.err, "No space left on device; the run goes on");
  has(o.err, "weft: the last checkpoint, of step 12, was not written: ");
  has(o.out, "step     11/12");
  has(latest, "step-0000000");
  ck_assert_msg(!strstr(list.out, ".tmp"), "%s", list.out);
}
END_TEST

Suite *ckpt_disk_suite(void) {
  Suite *s = suite_create("ckpt_disk");
  TCase *c = tcase_create("weft run");
  tcase_set_timeout(c, 180);
  tcase_add_checked_fixture(c, ckpt_cli_setup, scratch_teardown);
  tcase_add_test(c, what_cannot_be_removed_is_a_warning);
  tcase_add_test(c, weights_that_cannot_be_written_are_a_warning);
  tcase_add_test(c, a_second_run_in_the_folder_is_refused);
  tcase_add_test(c, a_folder_that_cannot_be_is_a_warning);
  tcase_add_test(c, a_read_only_folder_is_a_warning);
  tcase_add_test(c, a_latest_that_cannot_be_written_is_a_warning);
  tcase_add_test(c, a_full_disk_is_a_warning);
  suite_add_tcase(s, c);
  return s;
}
