/* check_ckpt_shared.c - checkpoints and exports of processes that do not see one folder,
 * as on the disks of two machines: two processes in two folders, over TCP. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/harness/port.h"
#include "tests/harness/process.h"

static const char plan_text[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'llama', hidden_size = 16, num_hidden_layers = 2,\n"
    "    num_attention_heads = 2, num_key_value_heads = 2, intermediate_size = 32,\n"
    "    vocab_size = 32 },\n"
    "  mesh = { tp = 2 },\n"
    "  batch = { global = 2, micro = 1, seq = 8 },\n"
    "  data = weft.synthetic {},\n"
    "  train = { steps = 3, log_every = 1 },\n"
    "}\n";

enum { PROCESSES = 2 };

static void setup(void) {
  scratch_setup();
  scratch_put("plan.lua", plan_text, sizeof plan_text - 1);
  Outcome o = process_run(10, "sh -c 'mkdir a b && cp plan.lua a && cp plan.lua b'");
  ck_assert_msg(o.code == 0, "%s", o.err);
}

/* The first one is in the folder a. */
static void start(Process p[PROCESSES], const char *second, const char *args) {
  int port = port_free();
  for (int r = 0; r < PROCESSES; r++)
    p[r] = process_start(60,
                         "sh -c 'cd %s && RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
                         "MASTER_PORT=%d WEFT_SECRET=w exec $weft run plan.lua "
                         "--threads 1 %s'",
                         r ? second : "a", r, port, args);
}

static const char *temporary(void) {
  return process_run(10, "find a b -name '*.tmp'").out;
}

static const struct {
  const char *args, *said;
} ways[] = {
    {"--set checkpoint.dir=runs --set checkpoint.every=1000",
     "runs: is not the same folder on rank 1 (host "},
    {"--export out", "out: is not the same folder on rank 1 (host "},
};

START_TEST(what_is_not_shared_is_found_at_once) {
  Process p[PROCESSES];
  start(p, "b", ways[_i].args);
  for (int r = 0; r < PROCESSES; r++) {
    Outcome o = process_end(&p[r]);
    ck_assert_msg(o.code == 2, "rank %d: %d: %s", r, o.code, o.err);
    ck_assert_msg(r || strstr(o.err, ways[_i].said), "%s", o.err);
    ck_assert_msg(r || strstr(o.err, "that all ranks share"), "%s", o.err);
    ck_assert_msg(!strstr(o.out, "step "), "%s", o.out);
  }
  ck_assert_str_eq(temporary(), "");
}
END_TEST

/* Links are the same folder, and of what was looked for nothing is left. */
START_TEST(what_is_shared_is_written) {
  Process p[PROCESSES];
  ck_assert_int_eq(process_run(10, "ln -s a c").code, 0);
  start(p, "c", ways[_i].args);
  for (int r = 0; r < PROCESSES; r++) {
    Outcome o = process_end(&p[r]);
    ck_assert_msg(o.code == 0, "rank %d: %d: %s", r, o.code, o.err);
  }
  const char *made = _i ? "a/out/config.json" : "a/runs/latest";
  ck_assert_msg(access(scratch_path(made), F_OK) == 0, "%s", made);
  ck_assert_str_eq(temporary(), "");
}
END_TEST

/* A folder that comes later is not looked for in all processes: what cannot become a
 * checkpoint there, each of them removes from its own. */
START_TEST(lost_checkpoints_leave_nothing) {
  Process p[PROCESSES];
  scratch_put("a/runs", "x", 1);
  start(p, "b",
        "--set checkpoint.dir=runs --set checkpoint.every=1 --steps 100000000 --quiet");
  ck_assert(process_wait_for(&p[0], p[0].err, "checkpoints cannot be written"));
  ck_assert_int_eq(unlink(scratch_path("a/runs")), 0);
  ck_assert(process_wait_for(&p[0], p[0].err, "must be a folder that all ranks share"));
  kill(p[0].pid, SIGTERM);
  for (int r = 0; r < PROCESSES; r++) {
    Outcome o = process_end(&p[r]);
    ck_assert_msg(o.code != 0, "rank %d: %s", r, o.err);
  }
  ck_assert_msg(access(scratch_path("b/runs"), F_OK) == 0, "rank 1 has written nothing");
  ck_assert_str_eq(temporary(), "");
}
END_TEST

Suite *ckpt_shared_suite(void);
Suite *ckpt_shared_suite(void) {
  Suite *s = suite_create("ckpt_shared");
  TCase *t = tcase_create("two folders");
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, what_is_not_shared_is_found_at_once, 0, LEN(ways));
  tcase_add_loop_test(t, what_is_shared_is_written, 0, LEN(ways));
  tcase_add_test(t, lost_checkpoints_leave_nothing);
  suite_add_tcase(s, t);
  return s;
}
