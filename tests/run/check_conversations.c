/* check_conversations.c - runs on token files with masks, as a user starts them: what is
 * learnt on which mesh, what the log says of it, and where a run that goes on is. Ids are
 * drawn; which labels count is known from the files. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/generate/megatron_files.h"
#include "tests/harness/process.h"
#include "tests/harness/run_log.h"
#include "tests/harness/scratch.h"
#include "vm/base/rng.h"
#include "vm/io/io.h"

enum { DOCS = 120, MOST = 4000, SEQ = 16, STEPS = 40, VOCAB = 48 };

static int32_t length[DOCS], id[MOST];
static uint8_t learnt[MOST];
static int nids;

static uint32_t drawn(uint64_t i, uint32_t n) {
  Rng rng = rng_make(17, "conversations");
  return rng_u32(&rng, i) % n;
}

/* NAME.bin, .idx and .mask: each conversation begins with a prompt that is not learnt. */
static void put_conversations(const char *name, uint64_t seed) {
  nids = 0;
  for (int k = 0; k < DOCS; k++) {
    length[k] = 2 + (int32_t)drawn(1000 * seed + (uint64_t)k, SEQ + 4);
    int prompt = (int)drawn(5000 * seed + (uint64_t)k, (uint32_t)length[k] + 1);
    for (int t = 0; t < length[k]; t++, nids++) {
      id[nids] = (int32_t)drawn(9000 * seed + (uint64_t)nids, VOCAB);
      learnt[nids] = t >= prompt;
    }
  }
  megatron_put_ids(name, &(MegatronFile){8, DOCS, 0, length, 0, NULL}, id);
  mask_put(name, learnt, nids);
}

static void put_plan(const char *name, const char *fields) {
  const char *text = arena_printf(
      scratch_arena,
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
      "    num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 16,\n"
      "    vocab_size = %d, initializer_range = 0.1 },\n"
      "  batch = { global = 8, micro = 1, seq = %d },\n"
      "  optimizer = weft.adamw { lr = 1e-2 }, %s }\n",
      VOCAB, SEQ, fields);
  scratch_put(name, text, strlen(text));
}

#define ROWS    "packed = { size = 16, too_long = 'truncate' }, data = weft.tokens 'chat', "
#define WINDOWS "data = weft.tokens { 'chat', masks = 'required', val_fraction = 0.2 }, "

static void setup(void) {
  scratch_setup();
  put_conversations("chat", 1);
}

/* ---- logs ---- */

typedef struct Log {
  int n;
  double loss[STEPS], eval_loss[STEPS];
  int64_t tokens[STEPS], padded[STEPS], dropped[STEPS], eval_tokens[STEPS];
} Log;

static int64_t integer(const json_t *j, const char *key) {
  return json_integer_value(json_object_get(j, key));
}

static Log of_steps(json_t **step, int n) {
  Log out = {.n = n};
  for (int k = 0; k < out.n; k++) {
    out.loss[k] = json_real_value(json_object_get(step[k], "loss"));
    out.eval_loss[k] = json_real_value(json_object_get(step[k], "eval_loss"));
    out.tokens[k] = integer(step[k], "tokens");
    out.padded[k] = integer(step[k], "padded_tokens");
    out.dropped[k] = integer(step[k], "dropped_tokens");
    out.eval_tokens[k] = integer(step[k], "eval_tokens");
    json_decref(step[k]);
  }
  return out;
}

static Log read_log(const char *name) {
  json_t *step[STEPS];
  return of_steps(step, log_steps(name, step, STEPS));
}

/* Runs a plan into a log of that name. */
static Log run(const char *plan, const char *log, const char *more) {
  json_t *step[STEPS];
  return of_steps(step, run_logged(plan, log, more, step, STEPS));
}

/* ---- what is learnt ---- */

/* The steps of an epoch of rows, of which all labels, all padding and all that was
 * truncated are said once. */
START_TEST(counts_of_an_epoch) {
  int64_t labels = 0, cut = 0, tokens = 0, padded = 0, dropped = 0;
  int rows = 0, room = 0, kept = 0;
  for (int k = 0, at = 0; k < DOCS; at += length[k++]) {
    int n = MIN(length[k], SEQ);
    for (int t = 1; t < n; t++) labels += learnt[at + t];
    cut += length[k] - n;
    kept += n;
    if (n > room) rows++, room = SEQ;
    room -= n;
  }
  put_plan("plan.lua", ROWS "train = { steps = 100 }");
  int steps = rows / 8;
  Log log = run("plan.lua", "log", arena_printf(scratch_arena, "--steps %d", steps + 1));
  DataSpec spec = {.kind = DATA_TOKENS,
                   .files = (const char *[]){"chat"},
                   .nfiles = 1,
                   .dir = scratch_dir,
                   .shuffle = true,
                   .packed = {.on = true, .size = SEQ, .too_long = TOO_LONG_TRUNCATE}};
  Data *d;
  int32_t t[SEQ], l[SEQ];
  ck_assert_int_eq(data_open(NULL, &spec, SEQ, VOCAB, 0, &d, NULL), WEFT_OK);
  ck_assert_int_eq(data_windows(d), rows);
  /* the rest of the epoch is in the last step, with rows of the next one */
  for (int i = steps * 8; i < rows; i++) {
    DataCounts c;
    ck_assert_int_eq(data_sample(d, i, t, l, NULL), WEFT_OK);
    ck_assert_int_eq(data_counts(d, i, &c, NULL), WEFT_OK);
    for (int k = 0; k < SEQ; k++) tokens += l[k] >= 0;
    padded += c.padded;
    dropped += c.dropped;
  }
  data_close(d);
  for (int i = 0; i < steps; i++) {
    tokens += log.tokens[i];
    padded += log.padded[i];
    dropped += log.dropped[i];
  }
  ck_assert_int_eq(tokens, labels);
  ck_assert_int_eq(dropped, cut);
  ck_assert_int_eq(padded, (int64_t)rows * SEQ - kept);
}
END_TEST

static const char *const meshes[] = {
    "mesh={dp=4}",
    "mesh={dp=2,pp=2}",
    "mesh={tp=2,pp=2}",
    "mesh={cp=2,dp=2}",
    "mesh={cp=2,tp=2} --set cp='{comm=\"ring\"}'",
    "mesh={dp=2,pp=2} --set batch.micro=2 --set strategy=fsdp2",
};

/* The loss is of all labels of a step, however many of them a rank has. */
START_TEST(the_same_on_every_mesh) {
  bool windows = _i % 2;
  put_plan("plan.lua", windows ? WINDOWS "train = { steps = 6, eval_every = 3 }"
                               : ROWS "train = { steps = 6 }");
  Log one = run("plan.lua", "one", "--set mesh={dp=1}");
  Log many =
      run("plan.lua", "many", arena_printf(scratch_arena, "--set %s", meshes[_i / 2]));
  ck_assert_int_eq(one.n, 6);
  ck_assert_int_eq(many.n, 6);
  for (int i = 0; i < 6; i++) {
    ck_assert_int_eq(one.tokens[i], many.tokens[i]);
    ck_assert_int_eq(one.padded[i], many.padded[i]);
    ck_assert_int_eq(one.dropped[i], many.dropped[i]);
    ck_assert_int_lt(one.tokens[i], 8 * SEQ);
    ck_assert_double_eq_tol(one.loss[i], many.loss[i], 2e-6 * one.loss[i]);
    ck_assert_int_eq(one.eval_tokens[i], many.eval_tokens[i]);
    ck_assert_double_eq_tol(one.eval_loss[i], many.eval_loss[i], 5e-6);
  }
  ck_assert_int_eq(one.eval_tokens[2] > 0, windows);
}
END_TEST

/* A run that goes on in its second epoch has the same bits as one that did not stop. */
START_TEST(goes_on_in_a_later_epoch) {
  put_plan("plan.lua",
           ROWS "checkpoint = { dir = 'c', every = 0 }, train = { steps = 30 }");
  Log whole = run("plan.lua", "whole", "--set mesh={dp=2}");
  process_run(10, "rm -r c");
  Log first = run("plan.lua", "first", "--set mesh={dp=2} --steps 17");
  Log rest = run("plan.lua", "rest", "--set mesh={dp=2} --resume auto");
  ck_assert_int_eq(first.n + rest.n, whole.n);
  for (int i = 0; i < whole.n; i++) {
    const Log *l = i < first.n ? &first : &rest;
    int k = i < first.n ? i : i - first.n;
    ck_assert_double_eq(whole.loss[i], l->loss[k]);
    ck_assert_int_eq(whole.tokens[i], l->tokens[k]);
  }
}
END_TEST

/* A run of epochs takes as many steps as they need, and what follows from its length
 * follows from these. */
START_TEST(epochs) {
#define FALLS ROWS "optimizer = weft.adamw { lr = weft.linear { max = 1e-2, min = 0 } }, "
  put_plan("plan.lua", FALLS "train = { epochs = 1.5 }");
  Log log = run("plan.lua", "log", "");
  DataSpec spec = {.kind = DATA_TOKENS,
                   .files = (const char *[]){"chat"},
                   .nfiles = 1,
                   .dir = scratch_dir,
                   .packed = {.on = true, .size = SEQ, .too_long = TOO_LONG_TRUNCATE}};
  Data *d;
  ck_assert_int_eq(data_open(NULL, &spec, SEQ, VOCAB, 0, &d, NULL), WEFT_OK);
  int want = (int)ceil(1.5 * (double)data_windows(d) / 8);
  data_close(d);
  ck_assert_int_eq(log.n, want);
  put_plan("steps.lua", FALLS "train = { steps = 1000 }");
  Log steps = run("steps.lua", "steps",
                  arena_printf(scratch_arena, "--set train.steps=%d", want));
  for (int i = 0; i < want; i++) ck_assert_double_eq(log.loss[i], steps.loss[i]);
  log = run("plan.lua", "two", "--set train.epochs=0.01 --set mesh={dp=2}");
  ck_assert_int_eq(log.n, 1);
  log = run("plan.lua", "three", "--steps 4");
  ck_assert_int_eq(log.n, 4);
}
END_TEST

START_TEST(epochs_that_are_wrong) {
  static const struct {
    const char *fields, *says;
  } rows[] = {
      {ROWS "train = { epochs = 2, steps = 10 }",
       "plan.train.epochs: says how long a run is, and so does train.steps"},
      {ROWS "train = { epochs = 0 }",
       "plan.train.epochs: expected a number above 0, up to 1000000, got "},
      {"data = weft.synthetic {}, train = { epochs = 1 }",
       "plan.train.epochs: weft.synthetic has no end: train.steps says how long"},
  };
  put_plan("plan.lua", rows[_i].fields);
  Outcome o = process_run(60, "$weft check plan.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err, rows[_i].says) || strstr(o.out, rows[_i].says), "%s%s",
                o.out, o.err);
}
END_TEST

/* Another mask is other data: a run does not go on with it. */
START_TEST(does_not_go_on_with_another_mask) {
  put_plan("plan.lua", ROWS "checkpoint = { dir = 'c' }, train = { steps = 4 }");
  run("plan.lua", "first", "--steps 2");
  learnt[7] ^= 1;
  mask_put("chat", learnt, nids);
  Outcome o = process_run(60, "$weft run plan.lua --quiet --resume auto");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "the run would go on with other samples"), "%s", o.err);
}
END_TEST

/* ---- the validation loss ---- */

#define EVALUATED                                                                        \
  WINDOWS "checkpoint = { dir = 'c', every = 0, keep = 1, keep_best = true }, "
#define DELTA 0.002

/* The steps that are taken until `patience` evaluations had no lower loss, and the step
 * of the lowest. */
static int stops_after(const Log *l, int patience, int *best) {
  double bar = INFINITY, lowest = INFINITY;
  int since = 0;
  for (int i = 0; i < l->n; i++) {
    if (!l->eval_tokens[i]) continue;
    if (l->eval_loss[i] < lowest) lowest = l->eval_loss[i], *best = i + 1;
    since = l->eval_loss[i] < bar - DELTA ? 0 : since + 1;
    if (!since) bar = l->eval_loss[i];
    if (since == patience) return i + 1;
  }
  return l->n;
}

static const char *stopping(int patience) {
  return arena_printf(scratch_arena,
                      "--set train.early_stopping='{patience=%d,min_delta=%g}'", patience,
                      DELTA);
}

/* The run ends where the losses say, on any mesh and when it is resumed in between; the
 * best checkpoint stays. */
START_TEST(stops_early) {
  int best = 0, patience = 1 + _i % 2;
  const char *mesh = _i < 2 ? "--set mesh={dp=1}" : "--set mesh={dp=2,pp=2}";
  put_plan("plan.lua", EVALUATED "train = { steps = 36, eval_every = 2 }");
  Log all = run("plan.lua", "all", mesh);
  int stop = stops_after(&all, patience, &best);
  ck_assert_int_lt(stop, all.n);
  ck_assert_int_lt(best, stop);
  process_run(10, "rm -r c");
  const char *more = arena_printf(scratch_arena, "%s %s", mesh, stopping(patience));
  Outcome o = process_run(60, "$weft run plan.lua --threads 1 --json --log log %s", more);
  ck_assert_msg(o.code == 0, "%s", o.err);
  Log log = read_log("log");
  ck_assert_int_eq(log.n, stop);
  for (int i = 0; i < stop; i++) ck_assert_double_eq(log.loss[i], all.loss[i]);
  json_t *whole = json_loads(o.out, 0, NULL), *said = json_object_get(whole, "result");
  ck_assert_int_eq(integer(said, "best_eval_step"), best);
  ck_assert(json_is_true(json_object_get(said, "stopped")));
  json_decref(whole);
  ck_assert_str_eq(
      process_run(10, "ls c").out,
      arena_printf(scratch_arena, "latest\nstep-%08d\nstep-%08d\n", best, stop));
  /* A run that has ended so has, where a script starts it again. */
  o = process_run(60, "$weft run plan.lua --threads 1 --resume auto --json %s", more);
  const char *ended = arena_printf(scratch_arena, "stopped after %d steps: ", stop);
  ck_assert_msg(o.code == 0 && strstr(o.err, ended), "%s", o.err);
  ck_assert_msg(strstr(o.out, "\"tokens\": 0,") != NULL, "%s", o.out);
  process_run(10, "rm -r c");
  run("plan.lua", "to-best", arena_printf(scratch_arena, "%s --steps %d", more, best));
  ck_assert_str_eq(process_run(10, "ls c").out, /* the last one is the best one */
                   arena_printf(scratch_arena, "latest\nstep-%08d\n", best));
  process_run(10, "rm -r c");
  run("plan.lua", "first", arena_printf(scratch_arena, "%s --steps %d", more, stop - 2));
  log = run("plan.lua", "rest", arena_printf(scratch_arena, "%s --resume auto", more));
  ck_assert_int_eq(log.n, 2);
}
END_TEST

START_TEST(says_why_it_stopped) {
  put_plan("plan.lua", EVALUATED "train = { steps = 36, eval_every = 2 }");
  Outcome o = process_run(60, "$weft run plan.lua --threads 1 --log log %s", stopping(2));
  ck_assert_int_eq(o.code, 0);
  ck_assert_msg(strstr(o.err,
                       " steps: 2 evaluations in a row had no loss that is lower by "
                       "more than 0.002\nweft: the best evaluation loss is ") != NULL,
                "%s", o.err);
  ck_assert_ptr_nonnull(strstr(o.err, " steps: its checkpoint is in c/step-000"));
  ck_assert_int_eq(process_run(10, "grep -c '\"event\":\"stopped\"' log").code, 0);
}
END_TEST

START_TEST(needs_evaluations) {
  put_plan("plan.lua", ROWS "checkpoint = { dir = 'c', keep_best = true }, "
                            "train = { early_stopping = { patience = 1 } }");
  Outcome o = process_run(60, "$weft check plan.lua");
  ck_assert_int_eq(o.code, 1);
  static const char *const path[] = {"train.early_stopping", "checkpoint.keep_best"};
  for (int i = 0; i < LEN(path); i++)
    ck_assert_msg(strstr(o.err, arena_printf(scratch_arena,
                                             "plan.%s: goes by the validation loss: "
                                             "train.eval_every says when it is measured",
                                             path[i])) != NULL,
                  "%s%s", o.out, o.err);
}
END_TEST

/* ---- steps without labels ---- */

START_TEST(a_step_without_labels) {
  static const char *const fields[] = {
      "packed = { size = 16, too_long = 'drop' }, data = weft.tokens { 'chat', shuffle = "
      "false }, train = { steps = 3 }",
      "data = weft.tokens { 'chat', shuffle = false }, train = { steps = 3 }"};
  static const char *const says[] = {
      "weft: step 1 has no label tokens: every label is ignored (-100). It has document",
      "weft: step 1 has no label tokens: every label is ignored (-100). It has document"};
  memset(learnt, 0, (size_t)nids);
  memset(learnt, 1, 2 * SEQ);
  mask_put("chat", learnt, nids);
  put_plan("plan.lua", fields[_i]);
  Outcome o =
      process_run(60, "$weft run plan.lua --quiet --set mesh={dp=2,pp=2} --log log");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err, says[_i]) && strstr(o.err, "chat.bin") &&
                    strstr(o.err, "; and 5 more samples"),
                "%s", o.err);
  ck_assert_int_eq(read_log("log").n, 1);
}
END_TEST

Suite *conversations_suite(void);
Suite *conversations_suite(void) {
  Suite *s = suite_create("conversations");
  TCase *t = tcase_create("conversations");
  tcase_set_timeout(t, 300);
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_add_test(t, counts_of_an_epoch);
  tcase_add_loop_test(t, the_same_on_every_mesh, 0, 2 * LEN(meshes));
  tcase_add_test(t, goes_on_in_a_later_epoch);
  tcase_add_test(t, epochs);
  tcase_add_loop_test(t, epochs_that_are_wrong, 0, 3);
  tcase_add_test(t, does_not_go_on_with_another_mask);
  tcase_add_loop_test(t, stops_early, 0, 4);
  tcase_add_test(t, says_why_it_stopped);
  tcase_add_test(t, needs_evaluations);
  tcase_add_loop_test(t, a_step_without_labels, 0, 2);
  suite_add_tcase(s, t);
  return s;
}
