/* check_step_end.c - steps that are ended, by a stop flag or as something fails, at every
 * place: what a run then gives is the state before the step, or that behind it. */
#include <check.h>

#include "tests/generate/small_llama.h"
#include "vm/rank/interp.h"
#include "vm/run/run_int.h"
#include "vm/weights/param_gather.h"
#include "vm/weights/snapshot.h"

enum { IDS = 512, VALUES = 1 << 17 };

static Toy toy;
static Run *run;
static weft_error err;
static int32_t tokens[IDS], labels[IDS];
static StopFlag stop;

static void compile(const ToyOptions *o) {
  ck_assert_msg(toy_compile(&toy, o, NULL) == WEFT_OK, "%s", toy.err.text);
  for (int i = 0; i < IDS; i++)
    tokens[i] = i * 7 % o->vocab, labels[i] = i * 11 % o->vocab;
}

static void open_run(void) {
  RunOptions o = {.threads = 1, .stop = &stop, .saves = true};
  err_clear(&err);
  stop = 0;
  ck_assert_msg(run_open(&toy.plan, toy.compiled, &o, &run, &err) == WEFT_OK, "%s",
                err.text);
  ck_assert_int_eq(run_init(run, &err), WEFT_OK);
}

static void teardown(void) {
  run_close(run);
  toy_free(&toy);
  run = NULL;
}

static weft_status step(void) {
  StepResult res;
  err_clear(&err);
  return run_step_tokens(run, tokens, labels, 0, &res, &err);
}

/* All that is kept of all parameters. */
static void read_state(float state[VALUES]) {
  int64_t at = 0;
  memset(state, 0, VALUES * sizeof *state);
  for (int i = 0; i < toy.compiled->nparam; i++)
    for (int k = 0; k < kept_kinds(toy.compiled); k++) {
      int64_t n = kept_count(toy.compiled, kept_kind(k), i);
      ck_assert_int_le(at + n, VALUES);
      weft_status st = run_get(run, kept_kind(k), i, state + at, &err);
      ck_assert_msg(st == WEFT_OK, "%s", err.text);
      at += n;
    }
}

static void refused(weft_status got, weft_status want, const char *text) {
  ck_assert_int_eq(got, want);
  ck_assert_msg(strstr(err.text, text) != NULL, "\"%s\" is not in: %s", text, err.text);
  err_clear(&err);
}

/* ---- a stop flag ---- */

static const Kernel *real;
static Kernel stops;

static void stop_and_run(Device *d, const KernelArgs *a) {
  stop = 1;
  real->run(d, a);
}

/* From now on this instruction of a rank's main list sets the flag. False: it is no
 * kernel. */
static bool stops_at(int worker, uint32_t instr) {
  Rank *r = run->worker[worker].r;
  if (r->p->code[instr].code != I_KERNEL) return false;
  Bound *b = &r->bound[r->bound_of[instr]];
  real = b->kernel;
  stops = *real;
  stops.run = stop_and_run;
  b->kernel = &stops;
  return true;
}

static ToyOptions ranks(int pp, int dp, bool post_validation) {
  ToyOptions o = toy_default();
  o.pp = pp, o.dp = dp, o.post_validation = post_validation;
  return o;
}

/* A flag that is set in any kernel between the passes: of the norm, of the update. */
START_TEST(a_stop_flag_leaves_a_whole_state) {
  static float before[VALUES], after[VALUES], now[VALUES];
  const ToyOptions all[] = {ranks(1, 1, false), ranks(1, 2, false), ranks(2, 1, true)};
  int taken = 0, ended = 0;
  compile(&all[_i]);
  open_run();
  read_state(before);
  ck_assert_int_eq(step(), WEFT_OK);
  read_state(after);
  ck_assert_mem_ne(before, after, sizeof before);
  run_close(run);
  for (uint32_t i = 0; i < toy.compiled->prog[0].nmain; i++) {
    open_run();
    if (stops_at(0, i)) {
      bool ends = step() != WEFT_OK;
      if (ends) refused(err.code, WEFT_EINTR, "interrupted in step 0");
      if (ends)
        refused(run_get(run, STATE_GRAD, 0, now, &err), WEFT_ERUN, "step 0 failed");
      read_state(now);
      ck_assert_msg(memcmp(now, ends ? before : after, sizeof now) == 0,
                    "instruction %u: a state of no step", i);
      ck_assert_int_eq(run_snapshot(run, &err), WEFT_OK);
      taken += !ends, ended += ends;
    }
    run_close(run);
    run = NULL;
  }
  ck_assert_msg(taken > 2 && ended > 2, "%d %d", taken, ended);
}
END_TEST

/* ---- failures ---- */

static ToyOptions of_all_kinds(void) {
  ToyOptions o = ranks(2, 2, false);
  o.tied = true, o.strategy.stage = 1;
  return o;
}

/* Any communication of a step, in the update too, which gathers what it has stepped. */
START_TEST(a_failure_in_the_update_is_told) {
  static float before[VALUES], now[VALUES];
  ToyOptions o = of_all_kinds();
  int told = 0, whole = 0;
  compile(&o);
  for (uint64_t n = 1;; n++) {
    open_run();
    read_state(before);
    run->worker[1].comm.fail_at = n;
    if (step() == WEFT_OK) break;
    err_clear(&err);
    bool torn = run_get(run, STATE_PARAM, 0, now, &err) != WEFT_OK;
    if (torn) {
      refused(err.code, WEFT_ERUN, "step 0 failed in the middle of its update");
      refused(run_get(run, STATE_OPT1, 1, now, &err), WEFT_ERUN, "of its update");
      refused(run_snapshot(run, &err), WEFT_ERUN, "of its update");
    } else {
      read_state(now);
      ck_assert_mem_eq(now, before, sizeof now);
    }
    told += torn, whole += !torn;
    run_close(run);
    run = NULL;
  }
  ck_assert_msg(told > 2 && whole > 10, "%d %d", told, whole);
}
END_TEST

/* A device says that kernels have failed when it is waited for, behind all of them. */
START_TEST(a_device_that_fails_leaves_no_state) {
  static float now[VALUES];
  ToyOptions o = ranks(1, 1, false);
  compile(&o);
  open_run();
  run->worker[0].dev.fail_in = 1;
  refused(step(), WEFT_ERUN, "device cpu failed");
  refused(run_get(run, STATE_PARAM, 0, now, &err), WEFT_ERUN, "of its update");
  refused(run_get(run, STATE_GRAD, 0, now, &err), WEFT_ERUN, "of its update");
}
END_TEST

Suite *step_end_suite(void);
Suite *step_end_suite(void) {
  Suite *s = suite_create("step_end");
  TCase *t = tcase_create("step_end");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, NULL, teardown);
  tcase_add_loop_test(t, a_stop_flag_leaves_a_whole_state, 0, 3);
  tcase_add_test(t, a_failure_in_the_update_is_told);
  tcase_add_test(t, a_device_that_fails_leaves_no_state);
  suite_add_tcase(s, t);
  return s;
}
