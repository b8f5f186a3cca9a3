/* check_faults.c - a small run on eight virtual ranks in which one call fails: every
 * start and every wait of a rank, and its device. The step ends, on all ranks, and the
 * error names the rank and the instruction. */
#include <check.h>

#include "tests/generate/small_llama.h"
#include "vm/run/run_int.h"
#include "vm/weights/param_gather.h"

enum { IDS = 512, RANK = 5 };

static Toy toy;
static Run *run;
static weft_error err;
static int32_t tokens[IDS], labels[IDS];

/* All kinds of communication: tp collectives, pipeline, gradients over dp, a tied weight.
 */
static void setup(void) {
  ToyOptions o = toy_default();
  o.tp = o.pp = o.dp = 2;
  o.microbatches = 2;
  o.sp = o.tied = o.overlap = true;
  ck_assert_msg(toy_compile(&toy, &o, NULL) == WEFT_OK, "%s", toy.err.text);
  ck_assert_int_le(2 * 2 * o.micro * o.seq, IDS);
  for (int i = 0; i < IDS; i++) tokens[i] = i * 7 % o.vocab, labels[i] = i * 11 % o.vocab;
}

static void teardown(void) { toy_free(&toy); }

static void open_run(void) {
  RunOptions o = {.threads = 1};
  err_clear(&err);
  weft_status st = run_open(&toy.plan, toy.compiled, &o, &run, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
  ck_assert_int_eq(run_init(run, &err), WEFT_OK);
}

static void has(const char *text) {
  ck_assert_msg(strstr(err.text, text) != NULL, "\"%s\" is not in: %s", text, err.text);
}

/* "... rank 5: all_reduce(tp) of layers.0.mlp.down_proj: rank 5: injected ..." */
static void names_instruction(void) {
  static const char *const kinds[] = {"all_reduce(", "all_gather(", "reduce_scatter(",
                                      "send to rank ", "recv from rank "};
  const char *at = strstr(err.text, "step 0: rank 5: ");
  ck_assert_msg(at != NULL, "%s", err.text);
  at += strlen("step 0: rank 5: ");
  for (int i = 0; i < LEN(kinds); i++)
    if (strncmp(at, kinds[i], strlen(kinds[i])) == 0) return;
  ck_abort_msg("no instruction is named: %s", err.text);
}

/* The N-th call of the rank fails, for every N of a step. Check's timeout is the proof
 * that nobody waits for ever. */
START_TEST(any_communication_may_fail) {
  uint64_t calls = 0;
  for (uint64_t n = 1;; n++) {
    StepResult res;
    open_run();
    Comm *c = &run->worker[RANK].comm;
    c->fail_at = n;
    weft_status st = run_step_tokens(run, tokens, labels, 0, &res, &err);
    calls = c->calls;
    if (st == WEFT_OK) break;
    ck_assert_int_eq(st, WEFT_ERUN);
    ck_assert_int_eq(err.rank, RANK);
    has("injected fault in comm_");
    names_instruction();
    err_clear(&err);
    ck_assert_int_eq(run_step_tokens(run, tokens, labels, 1, &res, &err), WEFT_ERUN);
    has("an earlier step has ended this run");
    run_close(run);
  }
  ck_assert_uint_ge(calls, 60);
  run_close(run);
}
END_TEST

/* Two ranks fail at once: one of them is named, and the run ends as well. */
START_TEST(two_ranks_may_fail) {
  for (uint64_t n = 1; n < 40; n++) {
    StepResult res;
    open_run();
    run->worker[RANK].comm.fail_at = n;
    run->worker[2].comm.fail_at = n;
    ck_assert_int_eq(run_step_tokens(run, tokens, labels, 0, &res, &err), WEFT_ERUN);
    ck_assert(err.rank == 2 || err.rank == RANK);
    has("injected");
    run_close(run);
  }
}
END_TEST

/* What a step asks of the device after the rank is loaded: to finish. */
START_TEST(the_device_may_fail) {
  StepResult res;
  open_run();
  run->worker[RANK].dev.fail_in = 1;
  ck_assert_int_eq(run_step_tokens(run, tokens, labels, 0, &res, &err), WEFT_ERUN);
  ck_assert_int_eq(err.rank, RANK);
  has("step 0: rank 5: device cpu failed");
  run_close(run);
}
END_TEST

START_TEST(no_device_memory) {
  Device dev;
  Rank *r;
  err_clear(&err);
  ck_assert_int_eq(device_open(&dev, &device_cpu, NULL, RANK, 0, 1, &err), WEFT_OK);
  dev.fail_in = 1;
  ck_assert_int_eq(rank_new(NULL, toy.compiled, RANK, &dev, &r, &err), WEFT_ENOMEM);
  ck_assert_int_eq(err.rank, RANK);
  has("rank 5: out of memory on device cpu");
  ck_assert_ptr_null(r);
  ck_assert_uint_eq(dev.count.allocs, dev.count.frees);
  device_close(&dev);
}
END_TEST

Suite *faults_suite(void) {
  Suite *s = suite_create("faults");
  TCase *t = tcase_create("run");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, setup, teardown);
  tcase_add_test(t, any_communication_may_fail);
  tcase_add_test(t, two_ranks_may_fail);
  tcase_add_test(t, the_device_may_fail);
  tcase_add_test(t, no_device_memory);
  suite_add_tcase(s, t);
  return s;
}
