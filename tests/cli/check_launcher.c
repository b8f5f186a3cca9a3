/* check_launcher.c - weft run --procs as a user calls it: as threads, what a shell has
 * left in variables, signals, errors. */
#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/harness/launched.h"
#include "tests/harness/port.h"
#include "tests/harness/process.h"
#include "tests/ranks/mpirun.h"
#include "vm/comm/supervisor/rendezvous.h"

static double last_loss(const char *json_text) {
  json_t *all = json_loads(json_text, 0, NULL);
  ck_assert_msg(all != NULL, "%s", json_text);
  double loss =
      json_number_value(json_object_get(json_object_get(all, "result"), "loss"));
  json_decref(all);
  return loss;
}

/* The same sums in the same order. */
START_TEST(processes_are_as_threads) {
  launched_plan();
  Outcome a = process_run(60, "$weft run plan.lua --steps 3 --threads 1 --json -q");
  Outcome b =
      process_run(60, "$weft run plan.lua --steps 3 --threads 1 --json -q --procs 4");
  ck_assert_msg(a.code == 0 && b.code == 0, "%s%s", a.err, b.err);
  ck_assert_double_eq(last_loss(a.out), last_loss(b.out));
}
END_TEST

START_TEST(another_number_is_refused) {
  launched_plan();
  Outcome o = process_run(60, "$weft run plan.lua --steps 1 --threads 1 --procs 3");
  ck_assert_int_eq(o.code, 2);
  static const char want[] = "weft: --procs 3, but the plan's mesh (pp=2 tp=2) has 4 "
                             "ranks: --procs 4, or change the mesh\n";
  ck_assert_msg(str_eq(o.err, want), "%s", o.err);
  o = process_run(60, "env RANK=0 WORLD_SIZE=2 $weft run plan.lua --procs 4");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "--procs starts processes itself"), "%s", o.err);
}
END_TEST

/* As in `srun --pty bash`, on platforms that set RANK and WORLD_SIZE everywhere, and in
 * shells from which a cluster is used. */
START_TEST(what_a_shell_has_left_does_no_harm) {
  static const char *const ways[] = {
      "RANK=0 WORLD_SIZE=1", "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1",
      "SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_NTASKS=16",
      "WEFT_HOST=no-such-host.invalid MASTER_ADDR=no-such-host.invalid WEFT_DOOR=99 "
      "TORCHELASTIC_USE_AGENT_STORE=True LOCAL_RANK=0"};
  launched_plan();
  for (int i = 0; i < LEN(ways); i++) {
    Outcome o = process_run(
        60, "env %s $weft run plan.lua --steps 2 --threads 1 --procs 4", ways[i]);
    ck_assert_msg(o.code == 0 && strstr(o.err, "4 ranks (tcp)"), "%s: %d: %s", ways[i],
                  o.code, o.err);
  }
  for (int i = 0; i < 3; i++) {
    Outcome o =
        process_run(60, "env %s $weft run plan.lua --steps 2 --threads 1", ways[i]);
    ck_assert_msg(o.code == 0 && strstr(o.err, "4 ranks (local)"), "%s: %d: %s", ways[i],
                  o.code, o.err);
    o = process_run(60, "env %s $weft calibrate plan.lua --threads 1 -q -o c%d.lua",
                    ways[i], i);
    ck_assert_msg(o.code == 0, "%s: %d: %s", ways[i], o.code, o.err);
  }
#define HIDES "RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
  Outcome o = process_run(60, "env " HIDES "$weft run plan.lua --procs 4");
  ck_assert_msg(o.code == 2 && strstr(o.err, "hide the 2 ranks of mpirun"), "%d: %s",
                o.code, o.err);
  o = process_run(60, "env WEFT_LAUNCHER=env " HIDES "$weft run plan.lua --steps 1");
  ck_assert_msg(o.code == 0, "%d: %s", o.code, o.err);
  o = process_run(60, "env RANK=0 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=5 "
                      "OMPI_COMM_WORLD_SIZE=8 $weft run plan.lua --steps 1");
  ck_assert_msg(o.code == 2 && strstr(o.err, "MASTER_ADDR"), "%d: %s", o.code, o.err);
}
END_TEST

/* MPI has numbers of its own, so that nobody meets by those of the shell: each process
 * would be rank 0. The second time only MPI knows better. */
START_TEST(a_shell_has_left_the_rank_of_all) {
  static const char *const ways[] = {"", "TORCHELASTIC_RUN_ID=x"};
  launched_plan();
  if (!mpirun_present()) return;
  for (int i = 0; i < LEN(ways); i++) {
    Outcome o = process_run(60,
                            "env RANK=0 WORLD_SIZE=4 %s " MPIRUN
                            " $weft run plan.lua --comm mpi --steps 2 --threads 1 "
                            "--log run.jsonl",
                            ways[i], 4);
    ck_assert_msg(o.code == 2 && strstr(o.err, "RANK"), "%d: %s%s", o.code, o.out, o.err);
    ck_assert_msg(!strstr(o.out, "step "), "%s", o.out);
    ck_assert_ptr_null(
        strstr(scratch_get(scratch_path("run.jsonl")), "\"event\":\"start\""));
  }
}
END_TEST

/* As by mpiexec of MPICH, of which Open MPI knows nothing. */
START_TEST(another_mpi_is_told) {
  launched_plan();
  if (!mpirun_present()) return;
  Outcome o = process_run(60, "env OMPI_ALLOW_RUN_AS_ROOT=1 PMI_RANK=0 PMI_SIZE=4 "
                              "ASAN_OPTIONS=detect_leaks=0 $weft run plan.lua --steps 1");
  ck_assert_msg(o.code == 2 && strstr(o.err, "weft_mpi.so is of another MPI"), "%d: %s",
                o.code, o.err);
}
END_TEST

/* Rank 0 fails before it listens, and nobody waits for it: they would for MEET_S. */
START_TEST(an_error_of_rank_0_ends_all_at_once) {
  launched_plan();
  double begun = now_s();
  Outcome o = process_run(
      60, "$weft run plan.lua --steps 1 --threads 1 --procs 4 --log none/run.jsonl");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "none/run.jsonl: ") && !strstr(o.err, "[rank "), "%s",
                o.err);
  ck_assert_msg(now_s() - begun < MEET_S - 5, "%.1f s", now_s() - begun);
}
END_TEST

/* A launcher ends all when the first process fails, and only rank 0 says why: the others
 * wait until it has. */
START_TEST(rank_0_reports_before_others_end) {
  static const char *const ways[] = {"--frobnicate", ""};
  launched_plan();
  for (int i = 0; i < LEN(ways); i++) {
    double begun = now_s();
    Outcome o = process_run(60,
                            "env RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost "
                            "MASTER_PORT=29500 WEFT_SECRET=x $weft run plan.lua %s",
                            ways[i]);
    ck_assert_msg(o.code == 2 && !*o.err, "%s: %d: %s", ways[i], o.code, o.err);
    ck_assert_msg(now_s() - begun >= 1.9, "%s: %.2f s", ways[i], now_s() - begun);
  }
}
END_TEST

/* SIGINT to the one that was started reaches all: code 130, and nobody is left. */
START_TEST(signals_are_passed_on) {
  launched_plan();
  Process p = process_start(60, "$weft run plan.lua --threads 1 --procs 4");
  ck_assert(process_wait_for(&p, p.out, "step"));
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 130, "code %d: %s", o.code, o.err);
}
END_TEST

/* It executes itself again, under another name. */
static bool is_weft(pid_t pid) {
  char path[64], program[600];
  snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
  ssize_t n = readlink(path, program, sizeof program - 1);
  program[MAX(n, 0)] = 0;
  return str_eq(program, WEFT_BINARY_DIR "/weft");
}

/* Also one that comes while they are being started. */
START_TEST(an_early_signal_is_passed_on) {
  launched_plan();
  for (int i = 0; i < 8; i++) {
    Process p = process_start(60, "$weft run plan.lua --threads 1 --procs 4");
    while (!is_weft(p.pid)) usleep(500);
    usleep(5000 * (useconds_t)i);
    kill(p.pid, SIGINT);
    Outcome o = process_end(&p);
    ck_assert_msg(o.code == 130, "code %d: %s", o.code, o.err);
  }
}
END_TEST

/* The first one ends the run after a step on all ranks, the second one at once: a step of
 * 100000 samples would take minutes. */
START_TEST(the_second_signal_ends_a_step) {
  launched_plan();
  const char *const ways[] = {"", "--procs 4"};
  for (int i = 0; i < LEN(ways); i++) {
    Process p = process_start(60, "$weft run plan.lua --threads 1 %s", ways[i]);
    ck_assert(process_wait_for(&p, p.out, "step"));
    kill(p.pid, SIGINT);
    Outcome o = process_end(&p);
    ck_assert_msg(o.code == 130, "code %d: %s", o.code, o.err);
    ck_assert_msg(strstr(o.err, "weft: interrupted after ") != NULL, "%s", o.err);
  }
  Process p =
      process_start(60, "$weft run plan.lua --threads 1 --set batch.global=100000");
  ck_assert(process_wait_for(&p, p.err, "4 ranks (local)"));
  kill(p.pid, SIGINT);
  process_took(p.pid, SIGINT);
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 128 + SIGINT, "code %d: %s", o.code, o.err);
}
END_TEST

/* An error that all processes hear of has the name of its file, as on threads. */
START_TEST(files_of_errors_are_named) {
  launched_plan();
  static const struct {
    const char *args, *said;
  } ways[] = {
      {"--set 'checkpoint.dir=\"runs\"' --set checkpoint.every=1",
       "runs: has checkpoints already, the last one of step 1: "},
      {"--trace /dev/full", "/dev/full: cannot be written: No space left on device"},
  };
  Outcome o = process_run(60, "$weft run plan.lua --threads 1 --steps 1 --set "
                              "'checkpoint.dir=\"runs\"'");
  ck_assert_msg(o.code == 0, "%d: %s", o.code, o.err);
  for (int i = 0; i < LEN(ways); i++) {
    o = process_run(60, "$weft run plan.lua --threads 1 --steps 1 --procs 4 %s",
                    ways[i].args);
    ck_assert_msg(o.code == 2 && strstr(o.err, ways[i].said), "%d: %s", o.code, o.err);
  }
}
END_TEST

START_TEST(what_is_not_set_is_told) {
  static const struct {
    const char *env, *said;
  } ways[] = {
      {"WEFT_SECRET=x", "MASTER_ADDR is not set"},
      {"MASTER_ADDR=localhost", "MASTER_PORT is not set"},
      {"MASTER_ADDR=localhost MASTER_PORT=29500", "WEFT_SECRET is not set"},
      {"MASTER_ADDR=localhost MASTER_PORT=29500 WEFT_SECRET=x WEFT_JOIN_S=soon",
       "WEFT_JOIN_S=soon in the environment: must be a positive number"},
      {"MASTER_ADDR=no-such-host.invalid MASTER_PORT=29500 WEFT_SECRET=x WEFT_JOIN_S=1",
       "cannot reach rank 0 at no-such-host.invalid:29500"},
      {"MASTER_ADDR=localhost MASTER_PORT=65535 WEFT_SECRET=x "
       "TORCHELASTIC_USE_AGENT_STORE=True",
       "MASTER_PORT=65535: torchrun listens there"},
  };
  launched_plan();
  for (int i = 0; i < LEN(ways); i++) {
    Outcome o =
        process_run(60, "env RANK=1 WORLD_SIZE=4 %s $weft run plan.lua", ways[i].env);
    ck_assert_int_eq(o.code, 2);
    ck_assert_msg(strstr(o.err, ways[i].said), "%s: %s", ways[i].env, o.err);
  }
}
END_TEST

/* Rank 0 says once that TCP between machines is not for training. Addresses of the
 * loopback are two machines here; on one there is nothing to say. */
START_TEST(tcp_between_machines_is_warned_of) {
  static const char warning[] = "weft: warning: --comm tcp carries data between machines";
  static const char *const other[] = {"", "WEFT_HOST=127.0.0.2"};
  launched_plan();
  for (int i = 0; i < LEN(other); i++) {
    Outcome o = process_run(
        60,
        "bash -c 'export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
        "WEFT_SECRET=w; "
        "for r in 1 2; do RANK=$r $weft run plan.lua --threads 1 --steps 2 -q & done; "
        "RANK=3 %s $weft run plan.lua --threads 1 --steps 2 -q & "
        "RANK=0 exec $weft run plan.lua --threads 1 --steps 2 --log run.jsonl'",
        port_free(), other[i]);
    ck_assert_msg(o.code == 0, "%s", o.err);
    const char *said = strstr(o.err, warning);
    ck_assert_msg(!said == !i, "%s", o.err);
    ck_assert_msg(!said || !strstr(said + 1, warning), "%s", o.err);
    ck_assert_msg(!said || strstr(o.err, "weft launch --mpirun"), "%s", o.err);
    ck_assert_int_eq(!strstr(scratch_get(scratch_path("run.jsonl")), "--comm tcp"),
                     !said);
    ck_assert_int_eq(remove(scratch_path("run.jsonl")), 0);
  }
}
END_TEST

Suite *launcher_suite(void);
Suite *launcher_suite(void) {
  Suite *s = suite_create("launcher");
  TCase *t = tcase_create("program");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, processes_are_as_threads);
  tcase_add_test(t, another_number_is_refused);
  tcase_add_test(t, what_a_shell_has_left_does_no_harm);
  tcase_add_test(t, a_shell_has_left_the_rank_of_all);
  tcase_add_test(t, another_mpi_is_told);
  tcase_add_test(t, an_error_of_rank_0_ends_all_at_once);
  tcase_add_test(t, rank_0_reports_before_others_end);
  tcase_add_test(t, signals_are_passed_on);
  tcase_add_test(t, an_early_signal_is_passed_on);
  tcase_add_test(t, the_second_signal_ends_a_step);
  tcase_add_test(t, files_of_errors_are_named);
  tcase_add_test(t, what_is_not_set_is_told);
  tcase_add_test(t, tcp_between_machines_is_warned_of);
  suite_add_tcase(s, t);
  return s;
}
