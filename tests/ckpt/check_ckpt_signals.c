/* check_ckpt_signals.c - runs with checkpoints that are signalled or killed, as threads
 * and as processes. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/ckpt_cli.h"
#include "tests/harness/port.h"
#include "tests/ranks/killed_runs.h"
#include "tests/ranks/mpirun.h"

static const struct {
  const char *name;
  int code;
} signals[] = {{"TERM", 143}, {"USR1", 138}, {"INT", 130}, {"HUP", 129}};

START_TEST(a_signal_saves_and_ends) {
  Process p = process_start(50, "$weft run plan.lua --threads 1 --steps 100000000 --set "
                                "checkpoint.every=0");
  ck_assert(process_wait_for(&p, p.out, "step      3/"));
  process_run(10, "kill -%s %d", signals[_i].name, (int)p.pid);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == signals[_i].code, "%d: %s", o.code, o.err);
  has(o.err, "checkpoint of step ");
  has(o.err, "interrupted after ");
  long long saved = atoll(strstr(o.err, "checkpoint of step ") + 19);
  ck_assert_int_ge(saved, 4);
  run(0, arena_printf(scratch_arena, "--resume auto --steps %lld", saved + 2));
}
END_TEST

/* Of a state that is lost no code says that it is saved, which scripts would believe. */
START_TEST(a_signal_whose_save_is_lost_is_a_failure) {
  scratch_put("runs", "x", 1);
  Process p = process_start(50,
                            "$weft run plan.lua --threads 1 --steps 100000000 --set "
                            "checkpoint.every=0 %s",
                            _i % 2 ? "--procs 2" : "");
  ck_assert(process_wait_for(&p, p.out, "step      3/"));
  process_run(10, "kill -%s %d", signals[_i].name, (int)p.pid);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 1, "%d: %s", o.code, o.err);
  has(o.err, "weft: the last checkpoint, of step ");
  ck_assert_ptr_null(strstr(o.err, "interrupted after "));
}
END_TEST

/* The folder was not there when the run began, and has another run's checkpoints now: no
 * process writes there. */
START_TEST(another_run_has_taken_the_folder) {
  run(0, "--steps 2 --set checkpoint.dir=other");
  process_run(10, "cp -r other copy");
  scratch_put("runs", "x", 1);
  Process p = process_start(50,
                            "$weft run plan.lua --threads 1 --steps 100000000 --set "
                            "checkpoint.every=0 %s",
                            _i ? "--procs 2" : "");
  ck_assert(process_wait_for(&p, p.out, "step      3/"));
  ck_assert_int_eq(process_run(10, "sh -c 'rm runs; mv other runs'").code, 0);
  kill(p.pid, SIGTERM);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 1, "%d: %s", o.code, o.err);
  has(o.err, "was not written: runs: has checkpoints already, the last one of step 2");
  o = process_run(10, "diff -r copy runs");
  ck_assert_msg(o.code == 0, "%s", o.out);
}
END_TEST

/* One of two processes is told to end, and the other one is lost while both save: which
 * of them it has reached by then is chance, but the code is true. */
START_TEST(a_signal_and_a_lost_process) {
  Process p[2];
  int port = port_free();
  for (int r = 0; r < 2; r++)
    p[r] = process_start(50,
                         "env RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                         "WEFT_SECRET=w $weft run plan.lua --threads 1 --steps 100000000 "
                         "--set checkpoint.every=0 --set model.hidden_size=256",
                         r, port);
  ck_assert(process_wait_for(&p[0], p[0].out, "step      3/"));
  kill(p[0].pid, SIGTERM);
  for (int i = 0; i < 5000 && !strstr(listed("runs"), ".tmp"); i++) usleep(100);
  kill(p[1].pid, SIGKILL);
  Outcome o = process_end(&p[0]), other = process_end(&p[1]);
  bool saved = strstr(listed("runs"), "latest") != NULL;
  ck_assert_msg(o.code == (saved ? 143 : 1), "%d and %d, %s: %s", o.code, other.code,
                saved ? "saved" : "lost", o.err);
}
END_TEST

/* While it waits for the other process; what comes before that ends it by itself. */
START_TEST(a_signal_ends_an_evaluation) {
  run(0, "--steps 2");
  Process p =
      process_start(50,
                    "env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
                    "MASTER_PORT=%d WEFT_SECRET=w $weft eval plan.lua --ckpt runs",
                    port_free());
  usleep(500000);
  kill(p.pid, SIGTERM);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 143, "%d: %s", o.code, o.err);
}
END_TEST

/* One that comes in the last step cuts nothing short. */
START_TEST(a_signal_in_the_last_step_is_no_interruption) {
  Process p = process_start(50, "$weft run plan.lua --threads 1 --steps 1 --set "
                                "batch.global=5000");
  ck_assert(process_wait_for(&p, p.err, "2 ranks (local)"));
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 0, "%d: %s", o.code, o.err);
  has(o.out, "step      0/1");
  has(o.err, "checkpoint of step 1 ");
}
END_TEST

static Outcome processes(int code, const char *args) {
  Outcome o = process_run(90, MPIRUN " $weft run plan.lua --threads 1 %s", 2, args);
  ck_assert_msg(o.code == code, "%d: %s%s", o.code, o.out, o.err);
  return o;
}

START_TEST(processes_write_and_go_on) {
  if (!mpirun_present()) return;
  processes(0, "");
  processes(0, "--set checkpoint.dir=half --steps 4");
  Outcome o = processes(0, "--set checkpoint.dir=half --resume auto");
  has(o.err, "resumes from step 4");
  has(ckpt(0, "diff runs half"), " 0 differ");
  has(ckpt(0, "verify half"), "half/step-00000006: complete, ");
  /* What processes wrote threads read. */
  run(0, "--resume runs/step-00000004 --set checkpoint.dir=there");
  has(ckpt(0, "verify there"), "complete");
  o = processes(2, "");
  has(o.err, "has checkpoints already");
}
END_TEST

/* One of them is told; all save the same step. */
START_TEST(a_signal_to_one_process_ends_all) {
  if (!mpirun_present()) return;
  Process p = process_start(90,
                            MPIRUN " $weft run plan.lua --threads 1 --steps 100000000 "
                                   "--set checkpoint.every=0",
                            2);
  ck_assert(process_wait_for(&p, p.out, "step      3/"));
  Outcome k =
      process_run(10, "sh -c 'read -r a b </proc/%d/task/%d/children; kill -USR1 $b'",
                  (int)p.pid, (int)p.pid);
  Outcome o = process_end(&p);
  ck_assert_msg(k.code == 0 && o.code == 128 + SIGUSR1, "%d %d: %s", k.code, o.code,
                o.err);
  has(o.err, "checkpoint of step ");
  has(ckpt(0, "verify runs"), "complete");
}
END_TEST

static const int kills[KILLED_WAYS - 1] = {9, 9, 3, 3};

START_TEST(killed_runs_go_on) {
  Text report = {0};
  if (_i >= KILLED_MPIRUN && !mpirun_present()) return;
  bool ok = killed_runs(WEFT_BINARY_DIR "/weft", scratch_dir, _i, kills[_i], 3, &report);
  ck_assert_msg(ok, "%s", report.s);
  text_free(&report);
}
END_TEST

Suite *ckpt_signals_suite(void) {
  Suite *s = suite_create("ckpt_signals");
  TCase *c = tcase_create("weft run");
  tcase_set_timeout(c, 180);
  tcase_add_checked_fixture(c, ckpt_cli_setup, scratch_teardown);
  tcase_add_loop_test(c, a_signal_saves_and_ends, 0, LEN(signals));
  tcase_add_loop_test(c, a_signal_whose_save_is_lost_is_a_failure, 0, LEN(signals));
  tcase_add_test(c, a_signal_and_a_lost_process);
  tcase_add_loop_test(c, another_run_has_taken_the_folder, 0, 2);
  tcase_add_test(c, a_signal_ends_an_evaluation);
  tcase_add_test(c, a_signal_in_the_last_step_is_no_interruption);
  tcase_add_test(c, processes_write_and_go_on);
  tcase_add_test(c, a_signal_to_one_process_ends_all);
  tcase_add_loop_test(c, killed_runs_go_on, 0, KILLED_WAYS - 1);
  suite_add_tcase(s, c);
  return s;
}
