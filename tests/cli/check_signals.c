/* check_signals.c - signals to weft run: which of them it leaves as whoever started it
 * wants them, which end it at once, and Ctrl-Z of several processes. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/endless_run.h"
#include "tests/harness/process.h"

/* Bytes of the lines of steps. */
static long long printed(const Process *p) {
  struct stat st;
  return stat(p->out, &st) == 0 ? (long long)st.st_size : 0;
}

/* Until it has taken some more steps. */
static void wait_for_steps(Process *p) {
  long long from = printed(p);
  for (int i = 0; printed(p) == from; i++) {
    ck_assert_msg(i < 6000, "no more steps: %s", scratch_get(p->err));
    usleep(5000);
  }
}

static void saved(const Outcome *o) {
  ck_assert_msg(strstr(o->err, "checkpoint of step ") != NULL, "%s", o->err);
}

static void ends_saved(Process *p, int code) {
  Outcome o = process_end(p);
  ck_assert_msg(o.code == code, "%d: %s", o.code, o.err);
  saved(&o);
}

/* ---- ignored ones ---- */

static const struct {
  int signal;
  const char *name, *args;
} ignored[] = {
    {SIGINT, "INT", ""},
    {SIGINT, "INT", "--procs 2"},
    {SIGHUP, "HUP", ""}, /* nohup */
    {SIGHUP, "HUP", "--procs 2"},
};

START_TEST(what_was_ignored_stays_so) {
  Process p =
      process_start(60, "bash -c 'trap \"\" %s; exec $weft run plan.lua --threads 1 %s'",
                    ignored[_i].name, ignored[_i].args);
  ck_assert(process_wait_for(&p, p.out, "step     10/"));
  for (int i = 0; i < 3; i++) {
    kill(p.pid, ignored[_i].signal);
    wait_for_steps(&p);
  }
  kill(p.pid, SIGTERM);
  ends_saved(&p, 143);
}
END_TEST

/* ---- several ---- */

/* Signals that come in one step, 0 after the last. */
static const int several[][5] = {
    {SIGUSR1, SIGTERM, SIGTERM, 0}, /* Slurm: a warning, the limit, a grace period */
    {SIGTERM, SIGINT, SIGUSR1, SIGHUP, 0},
    {SIGINT, SIGTERM, SIGHUP, SIGTERM, 0}, /* Ctrl-C, and the terminal is closed */
    {SIGHUP, SIGTERM, SIGHUP, 0},
};

/* Where it is not Ctrl-C twice, the step ends and its state is saved. The code is that of
 * the signal that was taken first: on a busy machine several wait, in no order. */
START_TEST(only_the_second_ctrl_c_ends_at_once) {
  Process p = process_start(60, "$weft run plan.lua --threads 1 --steps 40 --set "
                                "batch.global=1500");
  ck_assert(process_wait_for(&p, p.out, "step      0/"));
  for (const int *s = several[_i]; *s; s++) {
    kill(p.pid, *s);
    usleep(5000);
  }
  Outcome o = process_end(&p);
  bool one = false;
  for (const int *s = several[_i]; *s; s++) one |= o.code == 128 + *s;
  ck_assert_msg(one, "%d: %s", o.code, o.err);
  saved(&o);
}
END_TEST

/* ---- Ctrl-Z ---- */

/* The processes of weft run --procs, it first. */
static int processes_of(const Process *p, int pid[4]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)p->pid, (int)p->pid);
  const char *s = scratch_get(path);
  int n = 0;
  pid[n++] = p->pid;
  for (char *end; n < 4 && (pid[n] = (int)strtol(s, &end, 10)) > 0; s = end) n++;
  return n;
}

static bool is_stopped(int pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const char *end = strrchr(scratch_get(path), ')');
  return end && end[2] == 'T';
}

/* Whether all of them get there. */
static bool all_are(const Process *p, bool stopped) {
  int pid[4], n = processes_of(p, pid), there = 0;
  ck_assert_int_eq(n, 3);
  for (int i = 0; i < 2000 && there < n; i++) {
    usleep(5000);
    there = 0;
    for (int k = 0; k < n; k++) there += is_stopped(pid[k]) == stopped;
  }
  return there == n;
}

START_TEST(ctrl_z_stops_all_processes) {
  Process p = process_start(60, "$weft run plan.lua --threads 1 --procs 2");
  ck_assert(process_wait_for(&p, p.out, "step     10/"));
  for (int i = 0; i < 2; i++) {
    kill(p.pid, SIGTSTP);
    ck_assert_msg(all_are(&p, true), "not all processes are stopped");
    long long before = printed(&p);
    usleep(50000);
    ck_assert_int_eq(printed(&p), before);
    kill(p.pid, SIGCONT);
    ck_assert_msg(all_are(&p, false), "not all processes go on");
    wait_for_steps(&p);
  }
  kill(p.pid, SIGINT);
  ends_saved(&p, 130);
}
END_TEST

Suite *signals_suite(void);
Suite *signals_suite(void) {
  Suite *s = suite_create("signals");
  TCase *t = tcase_create("weft run");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, endless_setup, scratch_teardown);
  tcase_add_loop_test(t, what_was_ignored_stays_so, 0, LEN(ignored));
  tcase_add_loop_test(t, only_the_second_ctrl_c_ends_at_once, 0, LEN(several));
  tcase_add_test(t, ctrl_z_stops_all_processes);
  suite_add_tcase(s, t);
  return s;
}
