/* check_hosts_mpi.c - hosts that are processes of one run: what goes wrong in one of them
 * ends the call in all, with the same error, and the run goes on. This binary under
 * mpirun, with --host-child and the folder of the plan.
 *
 * Skipped, with the reason, where there is no mpirun or no weft_mpi.so. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/scratch.h"
#include "tests/ranks/mpirun.h"
#include "vm/base/base.h"
#include "vm/weft.h"

int host_child(int argc, char **argv);

/* ---- the child: one of the ranks ---- */

typedef struct Host {
  weft_plan *plan;
  weft_run *run;
  int rank;
  weft_error err;
} Host;

static weft_status open_run(Host *h, const char *comm) {
  weft_plan_options none = {.size = sizeof none};
  weft_run_options o = {.size = sizeof o, .comm = comm, .threads = 1};
  TRY(weft_plan_load(&none, "plan.lua", &h->plan, &h->err));
  TRY(weft_plan_compile(h->plan, 0, &h->err));
  TRY(weft_run_open(h->plan, &o, &h->run, &h->err));
  h->rank = weft_run_rank(h->run);
  return weft_run_init(h->run, &h->err);
}

static void close_run(Host *h) {
  weft_run_close(h->run);
  weft_plan_free(h->plan);
}

/* One rank names a file that is not there. */
static weft_status load(Host *h) {
  return weft_run_load(h->run, h->rank == 1 ? "gone.safetensors" : "weights", &h->err);
}

static weft_status resume(Host *h) {
  int64_t step;
  return weft_run_resume(h->run, h->rank == 2 ? "gone" : "ckpt", &step, &h->err);
}

/* Each has a copy of its own, and one of them is another. */
static weft_status load_other(Host *h) {
  return weft_run_load(h->run, h->rank == 2 ? "others" : "weights", &h->err);
}

/* Only the first process looks whose checkpoints the folder has. */
static weft_status save(Host *h) { return weft_run_save(h->run, 0, &h->err); }

/* Only the first process needs room. */
static weft_status get(Host *h) {
  float room[4];
  return weft_run_get(h->run, WEFT_PARAM, "model.norm.weight", room, h->rank ? 16 : 4,
                      &h->err);
}

static weft_status resume_none(Host *h) {
  int64_t step;
  char other[] = "ckpt/step-00000000";
  return weft_run_resume(h->run, h->rank == 3 ? other : "ckpt/step-00000001", &step,
                         &h->err);
}

static const struct Case {
  weft_status (*call)(Host *h);
  const char *name, *text;
} cases[] = {{load, "load", "gone.safetensors"},
             {load_other, "copies", "values of the weights: "},
             {resume, "resume", "gone"},
             {resume_none, "another", "checkpoint"},
             {save, "save", "has checkpoints already"},
             {get, "get", "there is room for 4"}};

static bool ends_in_all(Host *h, const struct Case *c) {
  weft_status st = c->call(h);
  bool ok =
      st != WEFT_OK && (strstr(h->err.text, c->text) || strstr(h->err.file, c->text));
  if (ok) printf("%s ends\n", c->name);
  if (!ok) printf("%s: status %d, %s: %s\n", c->name, st, h->err.file, h->err.text);
  return ok;
}

/* The others need no room, for the gradient of a frozen parameter neither. */
static bool gives_zeros(Host *h) {
  float at_home[16] = {1}, *room = h->rank ? NULL : at_home;
  weft_status st = weft_run_get(h->run, WEFT_GRAD, "model.norm.weight", room,
                                h->rank ? 0 : 16, &h->err);
  bool ok = st == WEFT_OK && (h->rank || at_home[0] == 0);
  printf("%s\n", ok ? "gives zeros" : h->err.text);
  return ok;
}

int host_child(int argc, char **argv) {
  Host h = {.err = {.rank = -1}};
  weft_step step;
  if (argc != 3 || chdir(argv[2]) != 0) return EXIT_FAILURE;
  bool ok = open_run(&h, "mpi") == WEFT_OK;
  if (!ok) printf("%s: %s\n", h.err.file, h.err.text);
  for (int i = 0; ok && i < LEN(cases); i++) ok = ends_in_all(&h, &cases[i]);
  if (ok && (ok = weft_run_init(h.run, &h.err) == WEFT_OK &&
                  weft_run_step(h.run, 0, &step, &h.err) == WEFT_OK))
    printf("loss %.6f\n", step.loss);
  ok = ok && gives_zeros(&h);
  close_run(&h);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- the parent ---- */

static const char plan_text[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'llama', hidden_size = 16, intermediate_size = 24,\n"
    "    num_hidden_layers = 2, num_attention_heads = 2, num_key_value_heads = 2,\n"
    "    vocab_size = 256 },\n"
    "  mesh = { tp = 2, pp = 2 }, batch = { global = 4, micro = 1, seq = 8 },\n"
    "  optimizer = weft.adamw { lr = 1e-2, clip = 1 },\n"
    "  data = weft.text { 'a.txt' },\n"
    "  checkpoint = { dir = 'ckpt' }, freeze = { 'model.norm' },\n"
    "  train = { steps = 4, seed = 7 },\n"
    "}\n";

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *s = text; (s = strstr(s, what)); s += strlen(what)) n++;
  return n;
}

/* Another run of threads leaves checkpoints and weights, which the children find. */
START_TEST(what_one_finds_ends_all) {
  char text[600], loss[40];
  Host h = {.err = {.rank = -1}};
  weft_step step;
  if (!mpirun_present()) return;
  for (int i = 0; i < LEN(text); i++) text[i] = (char)('a' + i * i % 23);
  scratch_put("a.txt", text, sizeof text);
  scratch_put("plan.lua", plan_text, sizeof plan_text - 1);
  ck_assert_int_eq(chdir(scratch_path("")), 0);
  ck_assert_msg(open_run(&h, NULL) == WEFT_OK, "%s", h.err.text);
  ck_assert_int_eq(weft_run_export(h.run, "weights", &h.err), WEFT_OK);
  ck_assert_int_eq(weft_run_save(h.run, 0, &h.err), WEFT_OK);
  ck_assert_int_eq(weft_run_step(h.run, 0, &step, &h.err), WEFT_OK);
  ck_assert_int_eq(weft_run_save(h.run, 1, &h.err), WEFT_OK);
  ck_assert_int_eq(weft_run_export(h.run, "others", &h.err), WEFT_OK);
  close_run(&h);

  MpirunOutcome o = mpirun("--host-child", scratch_path(""));
  ck_assert_msg(o.status == 0, "status %d: %s", o.status, o.text);
  for (int i = 0; i < LEN(cases); i++) {
    snprintf(text, sizeof text, "%s ends", cases[i].name);
    ck_assert_msg(count(o.text, text) == MPIRUN_RANKS, "%s", o.text);
  }
  snprintf(loss, sizeof loss, "loss %.6f", step.loss);
  ck_assert_msg(count(o.text, loss) == MPIRUN_RANKS, "%s is not in: %s", loss, o.text);
  ck_assert_msg(count(o.text, "gives zeros") == MPIRUN_RANKS, "%s", o.text);
}
END_TEST

Suite *hosts_mpi_suite(void);
Suite *hosts_mpi_suite(void) {
  Suite *s = suite_create("hosts_mpi");
  TCase *t = tcase_create("hosts_mpi");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, what_one_finds_ends_all);
  suite_add_tcase(s, t);
  return s;
}
