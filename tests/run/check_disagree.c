/* check_disagree.c - weft run under mpirun with one rank that was started otherwise: all
 * end soon, and the rank and what differs are named.
 *
 * WEFT_DISAGREE=N (./dev mpi-disagree N) runs N such jobs, each of which must end within
 * ten seconds, instead of one of each kind. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/ranks/mpirun.h"
#include "tests/harness/process.h"
#include "vm/io/io.h"
#include "vm/run/run_int.h"

enum { RANKS = 4, PROMISED_S = 10, PATIENCE_S = 100 };

static const char plan_text[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'llama', num_hidden_layers = 2, hidden_size = 16,\n"
    "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 24,\n"
    "    vocab_size = 128 },\n"
    "  mesh = { tp = 2, pp = 2 },\n"
    "  batch = { global = 4, micro = 1, seq = 8 },\n"
    "  optimizer = weft.adamw { lr = weft.vars.lr },\n"
    "  data = weft.text { weft.vars.file },\n"
    "  train = { steps = 1000000, log_every = 1000000 },\n"
    "}\n";

/* What the odd rank gets after `weft run`, and what must be said. `program`: what it runs
 * instead of the others' program. */
static const struct {
  const char *name, *args, *said, *program;
} ways[] = {
    {"lr", "plan.lua -D lr=0.002 -D file=a.txt", "plan.optimizer.lr.max: 0.001", NULL},
    {"seed", "plan.lua -D lr=0.001 -D file=a.txt --set train.seed=7",
     "plan.train.seed: 0 on ranks", NULL},
    {"other data", "plan.lua -D lr=0.001 -D file=b.txt", "data: 1 file, 1.0 k bytes (",
     NULL},
    {"longer data", "plan.lua -D lr=0.001 -D file=c.txt", "data: 1 file, 1.0 k bytes (",
     NULL},
    {"binary", "plan.lua -D lr=0.001 -D file=a.txt", "weft: 0.1.0, build ", "./odd"},
    {"model", "plan.lua -D lr=0.001 -D file=a.txt --set model.intermediate_size=28",
     "the plan's other fields: ", NULL},
    {"mesh", "plan.lua -D lr=0.001 -D file=a.txt --set mesh.tp=1 --set mesh.dp=2",
     "plan.mesh.tp: 2 on ranks", NULL},
    {"schedule", "plan.lua -D lr=0.001 -D file=a.txt --set schedule=gpipe",
     "plan.schedule: ", NULL},
    {"steps", "plan.lua -D lr=0.001 -D file=a.txt --steps 5",
     "--steps: not given on ranks", NULL},
    {"export", "plan.lua -D lr=0.001 -D file=a.txt --export out",
     "--export: not given on ranks", NULL},
    {"trace", "plan.lua -D lr=0.001 -D file=a.txt --trace t.json",
     "--trace: not given on ranks", NULL},
    {"instructions", "plan.lua -D lr=0.001 -D file=a.txt",
     "instructions and libraries: ", "env WEFT_CPU=plain $weft"},
    {"no plan", "gone.lua -D lr=0.001 -D file=a.txt", "cannot be opened: No such file",
     NULL},
    {"wrong plan", "plan.lua -D lr=-1 -D file=a.txt",
     "plan.optimizer.lr: expected a number from 0 to 1000", NULL},
};

/* The program with another build id: its last byte is another. Modules are found beside
 * it. */
static void put_other_build(void) {
  static const char note[] = "\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU";
  char command[1024], *s;
  size_t n, at = 0;
  ck_assert_int_eq(
      file_read(NULL, WEFT_BINARY_DIR "/weft", FILE_OWN_MAX, &s, &n, &scratch_error),
      WEFT_OK);
  while (at + 16 < n && memcmp(s + at, note, 16) != 0) at++;
  ck_assert_uint_lt(at + 36, n);
  s[at + 16] ^= 1;
  scratch_put("odd", s, n);
  mem_free(NULL, s, n + 1);
  snprintf(command, sizeof command, "chmod +x %s/odd && ln -s %s/*.so %s", scratch_dir,
           WEFT_BINARY_DIR, scratch_dir);
  ck_assert_int_eq(system(command), 0);
}

static void put_files(void) {
  char text[1025];
  memset(text, 'a', sizeof text);
  scratch_put("plan.lua", plan_text, strlen(plan_text));
  scratch_put("a.txt", text, 1024);
  scratch_put("c.txt", text, 1025);
  text[7] = 'b';
  scratch_put("b.txt", text, 1024);
}

static Outcome start(const char *odd_program, const char *odd_args, int odd) {
  char script[1024];
  put_files();
  snprintf(
      script, sizeof script,
      "if [ $OMPI_COMM_WORLD_RANK = %d ]; then exec %s run %s --threads 1 --quiet; fi\n"
      "exec $weft run plan.lua -D lr=0.001 -D file=a.txt --threads 1 --quiet\n",
      odd, odd_program, odd_args);
  scratch_put("start.sh", script, strlen(script));
  /* How soon is a figure; a machine that does other things is no error of the suite. */
  int seconds = getenv("WEFT_DISAGREE") ? PROMISED_S : PATIENCE_S;
  return process_run(seconds, MPIRUN " sh start.sh", RANKS);
}

START_TEST(one_rank_disagrees) {
  int way = _i % LEN(ways), odd = (_i + 1 + _i / LEN(ways)) % RANKS;
  char rank[16];
  if (!mpirun_present()) return;
  const char *program = ways[way].program ? ways[way].program : "$weft";
  if (strcmp(program, "./odd") == 0) put_other_build();
  Outcome o = start(program, ways[way].args, odd);
  ck_assert_msg(o.code != 0, "%s on rank %d: exit code 0", ways[way].name, odd);
  ck_assert_msg(strstr(o.err, ways[way].said) != NULL, "%s on rank %d:\n%s",
                ways[way].name, odd, o.err);
  snprintf(rank, sizeof rank, "on rank %d", odd);
  bool compared = strstr(o.err, "were started with different settings") != NULL;
  ck_assert_msg(!compared || strstr(o.err, rank), "%s on rank %d:\n%s", ways[way].name,
                odd, o.err);
  snprintf(rank, sizeof rank, "rank %d: ", odd);
  ck_assert_msg(compared || odd == 0 || strstr(o.err, rank), "%s on rank %d:\n%s",
                ways[way].name, odd, o.err);
}
END_TEST

/* Machines need not have equally many cores for each rank. */
START_TEST(numbers_of_threads_are_told) {
  if (!mpirun_present()) return;
  put_files();
  static const char script[] =
      "exec $weft run plan.lua -D lr=0.001 -D file=a.txt --steps 1 --quiet "
      "--threads $((1 + OMPI_COMM_WORLD_RANK / 3))\n";
  scratch_put("start.sh", script, strlen(script));
  Outcome o = process_run(PATIENCE_S, MPIRUN " sh start.sh", RANKS);
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(
      strstr(o.err, "warning: threads of a rank: 1 on ranks 0-2; 2 on rank 3 (") != NULL,
      "%s", o.err);
}
END_TEST

/* Those of one machine are left out. */
START_TEST(nccl_is_told_in_order) {
  char *const some[] = {"PATH=/bin",      "NCCL_PROTO=Simple", "NCCL_SOCKET_IFNAME=eth0",
                        "NCCL_ALGO=Ring", "NCCL_IB_HCA=mlx5",  "NCCL_DEBUG_FILE=f",
                        "XNCCL_ALGO=1",   "NCCL_HOSTID=a",     NULL};
  static const char *const want[] = {"NCCL_ALGO=Ring NCCL_PROTO=Simple", "none"};
  for (int i = 0; i < 2; i++) {
    Text t = {0};
    nccl_variables(i ? some + 8 : some, &t);
    ck_assert_str_eq(t.s, want[i]);
    text_free(&t);
  }
}
END_TEST

/* ---- files of values ---- */

/* What each process reads by itself, from files of the same shapes. `made`: how the
 * folder "made" is written, with another seed for the odd rank. */
static const struct {
  const char *name, *fields, *made, *command;
} copies[] = {
    {"model", "model = weft.hf 'made'", "", "run"},
    {"adapter", "model = weft.hf 'base', adapter = { 'lora', rank = 2, from = 'made' }",
     ", adapter = { 'lora', rank = 2 }", "run"},
    {"teacher", "model = weft.hf 'base', loss = { 'distill', teacher = 'made' }", "",
     "run"},
    {"eval", "model = weft.hf 'base'", "", "eval --weights made"},
};

static void put_copy_plan(const char *name, const char *fields) {
  const char *text = arena_printf(
      scratch_arena,
      "local weft = require 'weft'\nreturn weft.plan { %s, mesh = { tp = 2, pp = 2 },\n"
      "  batch = { global = 4, micro = 1, seq = 8 }, data = weft.text { 'a.txt' },\n"
      "  train = { steps = 2 } }\n",
      fields);
  scratch_put(name, text, strlen(text));
}

static void make_folder(const char *fields, int seed, const char *folder) {
  put_copy_plan("make.lua", fields);
  Outcome o = process_run(PATIENCE_S,
                          "$weft run make.lua --steps 1 --threads 1 --quiet "
                          "--set train.seed=%d --export %s",
                          seed, folder);
  ck_assert_msg(o.code == 0, "%s", o.err);
}

/* The odd rank has a folder of its own, as on the disk of another machine. */
START_TEST(copies_of_files_disagree) {
  static const char model[] =
      "model = weft.model { 'llama', num_hidden_layers = 2, hidden_size = 16,\n"
      "  num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 24,\n"
      "  vocab_size = 128 }";
  static const char script[] = "if [ $OMPI_COMM_WORLD_RANK = 2 ]; then cd other; fi\n"
                               "exec $weft \"$@\" copy.lua --threads 1\n";
  if (!mpirun_present()) return;
  put_files();
  make_folder(model, 1, "base");
  const char *of = *copies[_i].made ? "model = weft.hf 'base'" : model;
  of = arena_printf(scratch_arena, "%s%s", of, copies[_i].made);
  put_copy_plan("copy.lua", copies[_i].fields);
  make_folder(of, 2, "made");
  Outcome o = process_run(PATIENCE_S, "sh -c 'mkdir other; cp -r base made copy.lua "
                                      "a.txt other'");
  ck_assert_int_eq(o.code, 0);
  scratch_put("start.sh", script, strlen(script));
  o = process_run(PATIENCE_S, MPIRUN " sh start.sh %s", RANKS, copies[_i].command);
  ck_assert_msg(o.code == 0, "%s: %s", copies[_i].name, o.err);
  o = process_run(PATIENCE_S, "rm -r other/made");
  ck_assert_int_eq(o.code, 0);
  make_folder(of, 3, "other/made");
  o = process_run(PATIENCE_S, MPIRUN " sh start.sh %s", RANKS, copies[_i].command);
  ck_assert_msg(o.code == 2, "%s: %d: %s", copies[_i].name, o.code, o.err);
  ck_assert_msg(strstr(o.err, "values of the weights: ") && strstr(o.err, "on rank 2"),
                "%s: %s", copies[_i].name, o.err);
  ck_assert_msg(!strstr(o.err, "plan."), "%s: %s", copies[_i].name, o.err);
}
END_TEST

Suite *disagree_suite(void);
Suite *disagree_suite(void) {
  const char *more = getenv("WEFT_DISAGREE");
  Suite *s = suite_create("disagree");
  TCase *t = tcase_create("mpirun");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, one_rank_disagrees, 0, more ? atoi(more) : LEN(ways));
  if (!more) tcase_add_test(t, numbers_of_threads_are_told);
  if (!more) tcase_add_test(t, nccl_is_told_in_order);
  if (!more) tcase_add_loop_test(t, copies_of_files_disagree, 0, LEN(copies));
  suite_add_tcase(s, t);
  return s;
}
