/* check_streams.c - weft run whose standard streams or files take no more: streams that
 * are closed, pipes whose reader has ended, files that may not grow, a terminal that
 * stops who writes in the background. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/endless_run.h"
#include "tests/harness/process.h"
#include "tests/harness/terminal.h"

static void has(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in: %s", part, text);
}

/* ---- closed ones ---- */

static const char *const closed[] = {
    ">&-", "2>&-", "<&- >&- 2>&-", "--procs 2 >&-", "--procs 2 <&- >&- 2>&-",
};

/* What is printed goes nowhere: not into the log, nor to another process. */
START_TEST(closed_streams_stay_empty) {
  Outcome o = process_run(
      60, "$weft run plan.lua --threads 1 --steps 5 --log run.jsonl %s", closed[_i]);
  ck_assert_msg(o.code == 0, "%d: %s%s", o.code, o.out, o.err);
  int lines = 0;
  for (const char *s = scratch_log(scratch_path("run.jsonl")); *s;
       s += strcspn(s, "\n"), s += *s == '\n', lines++)
    ck_assert_msg(*s == '{', "%s", s);
  ck_assert_int_eq(lines, 6); /* the last one says how the run has ended */
}
END_TEST

/* ---- files that may not grow ---- */

START_TEST(a_log_may_lose_lines) {
  Outcome o = process_run(60, "sh -c 'ulimit -f 4; exec $weft run plan.lua --threads 1 "
                              "--steps 40 -q --set checkpoint=nil --log run.jsonl'");
  ck_assert_msg(o.code == 0, "%d: %s", o.code, o.err);
  has(o.err, "run.jsonl: cannot be written: File too large: the run goes on without "
             "lines of its log");
}
END_TEST

START_TEST(a_trace_that_is_too_large_is_an_error) {
  Outcome o = process_run(60, "sh -c 'ulimit -f 4; exec $weft run plan.lua --threads 1 "
                              "--steps 10 -q --set checkpoint=nil --trace trace.json'");
  ck_assert_msg(o.code == 2, "%d: %s", o.code, o.err);
  has(o.err, "trace.json: error: cannot be written: File too large");
}
END_TEST

/* ---- pipes ---- */

/* A named pipe that is read, so that it can be opened for writing. */
static int open_pipe(const char *name) {
  ck_assert_int_eq(mkfifo(scratch_path(name), 0600), 0);
  int fd = open(scratch_path(name), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  return fd;
}

/* The state is saved when the run is told to end. */
static void goes_on(Process *p, const char *warning) {
  ck_assert_msg(process_wait_for(p, p->err, warning), "%s", scratch_get(p->err));
  kill(p->pid, SIGTERM);
  Outcome o = process_end(p);
  ck_assert_msg(o.code == 143, "%d: %s", o.code, o.err);
  has(o.err, "checkpoint of step ");
}

START_TEST(a_log_that_nobody_reads) {
  int fd = open_pipe("pipe");
  Process p = process_start(60, "$weft run plan.lua --threads 1 --log pipe");
  ck_assert(process_wait_for(&p, p.out, "step      0/"));
  close(fd);
  goes_on(&p, "pipe: cannot be written: Broken pipe: the run goes on without lines of "
              "its log");
}
END_TEST

/* As weft run PLAN | head -2 */
START_TEST(lines_that_nobody_reads) {
  static const char *const ways[] = {"", "--procs 2"};
  for (int i = 0; i < LEN(ways); i++) {
    char first;
    const char *name = i ? "second" : "first";
    int fd = open_pipe(name);
    Process p = process_start(
        60, "$weft run plan.lua --threads 1 --set 'checkpoint.dir=\"%s-runs\"' %s >%s",
        name, ways[i], name);
    while (read(fd, &first, 1) <= 0) usleep(1000);
    close(fd);
    goes_on(&p, "weft: warning: the standard output: cannot be written: Broken pipe: the "
                "run goes on without its lines");
  }
}
END_TEST

/* All steps are taken; that lines of them are lost is an error at the end. */
START_TEST(lines_on_a_full_disk) {
  Outcome o = process_run(60, "$weft run plan.lua --threads 1 --steps 3 >/dev/full");
  ck_assert_msg(o.code == 2, "%d: %s", o.code, o.err);
  has(o.err, "cannot be written: No space left on device: the run goes on without its");
  has(o.err, "checkpoint of step 3");
  has(o.err, "weft: cannot write to the standard output");
}
END_TEST

/* ---- a terminal ---- */

/* Rank 0 has a process group of its own, which the terminal takes for the background. */
START_TEST(a_terminal_that_stops_the_background) {
  Terminal *t = terminal_start(
      arena_printf(scratch_arena,
                   "sh -c 'stty tostop; exec $weft run %s --threads 1 --steps 3 --set "
                   "checkpoint=nil --set train.log_every=1 --procs 2'",
                   scratch_path("plan.lua")));
  terminal_wait(t, "step      2/3");
  ck_assert_int_eq(terminal_end(t), 0);
}
END_TEST

Suite *streams_suite(void);
Suite *streams_suite(void) {
  Suite *s = suite_create("streams");
  TCase *t = tcase_create("weft run");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, endless_setup, scratch_teardown);
  tcase_add_loop_test(t, closed_streams_stay_empty, 0, LEN(closed));
  tcase_add_test(t, a_log_may_lose_lines);
  tcase_add_test(t, a_trace_that_is_too_large_is_an_error);
  tcase_add_test(t, a_log_that_nobody_reads);
  tcase_add_test(t, lines_that_nobody_reads);
  tcase_add_test(t, lines_on_a_full_disk);
  tcase_add_test(t, a_terminal_that_stops_the_background);
  suite_add_tcase(s, t);
  return s;
}
