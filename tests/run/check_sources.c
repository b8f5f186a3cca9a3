/* check_sources.c - the losses of the streams of a blend: on every mesh, and as a run on
 * one of the streams alone has them. Ids and masks are drawn; which labels count is known
 * from the files. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/generate/megatron_files.h"
#include "tests/harness/process.h"
#include "tests/harness/run_log.h"
#include "vm/base/rng.h"
#include "vm/plan/plan.h"

enum { DOCS = 60, MOST = 2000, SEQ = 16, STEPS = 4, VOCAB = 48, STREAMS = 2 };

static uint32_t drawn(uint64_t i, uint32_t n) {
  Rng rng = rng_make(23, "sources");
  return rng_u32(&rng, i) % n;
}

/* NAME.bin and .idx; with `masked` also a .mask. The ids of a stream are below `most`. */
static void put_stream(const char *name, uint64_t seed, uint32_t most, bool masked) {
  int32_t length[DOCS], id[MOST];
  uint8_t learnt[MOST];
  int n = 0;
  for (int k = 0; k < DOCS; k++) {
    length[k] = 3 + (int32_t)drawn(1000 * seed + (uint64_t)k, SEQ);
    for (int t = 0; t < length[k]; t++, n++) {
      id[n] = (int32_t)drawn(9000 * seed + (uint64_t)n, most);
      learnt[n] = (uint8_t)(drawn(70000 * seed + (uint64_t)n, 3) > 0);
    }
  }
  megatron_put_ids(name, &(MegatronFile){8, DOCS, 0, length, 0, NULL}, id);
  if (masked) mask_put(name, learnt, n);
}

static void put_plan(const char *name, int global, const char *fields) {
  const char *text = arena_printf(
      scratch_arena,
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
      "    num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 16,\n"
      "    vocab_size = %d, initializer_range = 0.1 },\n"
      "  batch = { global = %d, micro = 1, seq = %d },\n"
      "  optimizer = weft.adamw { lr = 1e-2 }, train = { steps = %d, eval_every = 2 },\n"
      "  %s }\n",
      VOCAB, global, SEQ, STEPS, fields);
  scratch_put(name, text, strlen(text));
}

#define BLEND                                                                            \
  "data = weft.tokens { files = { 'a', 'b' }, weights = { 0.5, 0.5 }, val_fraction = "   \
  "0.3 }"

static void setup(void) {
  scratch_setup();
  put_stream("a", 1, 8, true);
  put_stream("b", 2, VOCAB, false);
}

/* ---- logs ---- */

typedef struct Log {
  int n;
  double loss[STEPS], of[STEPS][STREAMS], eval[STEPS][STREAMS];
  int64_t tokens[STEPS], labels[STEPS][STREAMS], eval_labels[STEPS][STREAMS];
} Log;

static void read_sources(const json_t *list, double *loss, int64_t *labels) {
  size_t i;
  json_t *one;
  json_array_foreach(list, i, one) {
    const char *name = json_string_value(json_object_get(one, "name"));
    int k = name[strlen(name) - 1] == 'b'; /* b, or vb, for validation */
    ck_assert(k || name[strlen(name) - 1] == 'a');
    loss[k] = json_real_value(json_object_get(one, "loss"));
    labels[k] = json_integer_value(json_object_get(one, "tokens"));
  }
}

static Log run(const char *plan, const char *log, const char *more) {
  Log out = {0};
  json_t *step[STEPS];
  out.n = run_logged(plan, log, more, step, STEPS);
  ck_assert_int_eq(out.n, STEPS);
  for (int k = 0; k < STEPS; k++) {
    out.loss[k] = json_real_value(json_object_get(step[k], "loss"));
    out.tokens[k] = json_integer_value(json_object_get(step[k], "tokens"));
    read_sources(json_object_get(step[k], "sources"), out.of[k], out.labels[k]);
    read_sources(json_object_get(step[k], "eval_sources"), out.eval[k],
                 out.eval_labels[k]);
    json_decref(step[k]);
  }
  return out;
}

/* ---- what is told ---- */

static const char *const meshes[] = {
    "mesh={dp=4}",
    "mesh={dp=2,pp=2}",
    "mesh={tp=2,pp=2} --set strategy='{\"zero\",sequence_parallel=true}'",
    "mesh={cp=2,dp=2}",
    "mesh={cp=2,tp=2} --set cp='{comm=\"ring\"}'",
    "mesh={dp=2,pp=2} --set batch.micro=2 --set strategy=fsdp2",
    "mesh={dp=2,tp=2} --set packed.size=16 --set packed.too_long=truncate",
    "mesh={pp=2,dp=2} --set schedule=zero_bubble --set optimizer.post_validation=true",
};

/* The streams of a step have together its loss and its labels, on any mesh. */
START_TEST(the_same_on_every_mesh) {
  bool packed = strstr(meshes[_i], "packed") != NULL;
  put_plan("plan.lua", 8, BLEND);
  Log one = run("plan.lua", "one",
                packed ? "--set packed.size=16 --set packed.too_long=truncate" : "");
  Log many = run("plan.lua", "many", arena_printf(scratch_arena, "--set %s", meshes[_i]));
  for (int i = 0; i < STEPS; i++) {
    double sum = 0;
    int64_t labels = 0;
    for (int k = 0; k < STREAMS; k++) {
      sum += many.of[i][k] * (double)many.labels[i][k];
      labels += many.labels[i][k];
      ck_assert_int_gt(many.labels[i][k], 0);
      ck_assert_int_eq(one.labels[i][k], many.labels[i][k]);
      ck_assert_double_eq_tol(one.of[i][k], many.of[i][k], 5e-6 * one.of[i][k]);
      ck_assert_int_eq(one.eval_labels[i][k], many.eval_labels[i][k]);
      ck_assert_double_eq_tol(one.eval[i][k], many.eval[i][k], 5e-6);
    }
    ck_assert_int_eq(labels, many.tokens[i]);
    ck_assert_double_eq_tol(sum / (double)labels, many.loss[i], 1e-6 * many.loss[i]);
  }
  ck_assert_int_gt(many.eval_labels[1][0], 0);
  ck_assert_int_lt(many.labels[0][0], many.labels[0][1]);
}
END_TEST

/* A loss of the plan's own tells the cross entropy of each stream, too, whatever it adds
 * to it and wherever that is from. */
static const char *const own[] = {
    "{'cross_entropy',per='sequences'}",
    "{'cross_entropy',z_loss=0.1}",
    "function(g,x)return(g:sum_all(g:token_losses(x.logits,x.labels)))end",
    "{function(g,x)return(g:add(g:cross_entropy(x.reference,x.labels),"
    "g:add(g:cross_entropy(x.logits,x.labels),g:cross_entropy(x.logits,x.labels))))end,"
    "reference='copy'}",
};

#define ALONE ", packed = { size = 16, too_long = 'truncate', alone = true }"

START_TEST(of_a_loss_of_the_plans_own) {
  const char *still = "--set optimizer.lr=1e-30";
  put_plan("plan.lua", 8, BLEND ALONE);
  Log plain = run("plan.lua", "plain", still);
  const char *mesh = _i < (int)LEN(own) ? "{dp=2}" : "{cp=2,pp=2,tp=2}";
  put_plan("own.lua", 8,
           arena_printf(scratch_arena, BLEND ALONE ", loss = %s", own[_i % LEN(own)]));
  Log with =
      run("own.lua", "own", arena_printf(scratch_arena, "%s --set mesh=%s", still, mesh));
  for (int i = 0; i < STEPS; i++)
    for (int k = 0; k < STREAMS; k++) {
      ck_assert_int_gt(with.labels[i][k], 0);
      ck_assert_int_eq(with.labels[i][k], plain.labels[i][k]);
      ck_assert_double_eq_tol(with.of[i][k], plain.of[i][k], 5e-6 * plain.of[i][k]);
      if (_i % (int)LEN(own) == 0)
        continue; /* evaluations of sequences are of whole steps */
      ck_assert_int_eq(with.eval_labels[i][k], plain.eval_labels[i][k]);
      ck_assert_double_eq_tol(with.eval[i][k], plain.eval[i][k], 5e-6);
    }
}
END_TEST

/* Without a step that changes the parameters, a stream has the loss of a run that reads
 * it alone, in steps of the samples that it gives to the blend. */
START_TEST(as_of_the_stream_alone) {
  static const char *const names[STREAMS] = {"a", "b"};
  const char *still = "--set optimizer.lr=1e-30 --set data.shuffle=false";
  put_plan("plan.lua", 8, BLEND);
  Log blend = run("plan.lua", "blend",
                  arena_printf(scratch_arena, "%s --set mesh={dp=2}", still));
  for (int k = 0; k < STREAMS; k++) {
    put_plan("alone.lua", 4,
             arena_printf(scratch_arena,
                          "data = weft.tokens { '%s', val_fraction = 0.3 }", names[k]));
    Log alone = run("alone.lua", arena_printf(scratch_arena, "log-%s", names[k]), still);
    for (int i = 0; i < STEPS; i++) {
      ck_assert_int_eq(alone.tokens[i], blend.labels[i][k]);
      ck_assert_double_eq_tol(alone.loss[i], blend.of[i][k], 1e-6 * alone.loss[i]);
      ck_assert_int_eq(alone.labels[i][0] + alone.labels[i][1], 0);
    }
  }
}
END_TEST

/* ---- evaluations ---- */

/* The loss of weft eval; of a blend those of its streams, too. */
static double evaluated(const char *plan, const char *more, double *of, int64_t *labels) {
  Outcome o =
      process_run(60, "$weft eval %s --json --threads 1 --ckpt ck %s", plan, more);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  json_t *doc = json_loads(o.out, 0, NULL), *r = json_object_get(doc, "result");
  double loss = json_real_value(json_object_get(r, "loss"));
  if (of) read_sources(json_object_get(r, "sources"), of, labels);
  bool left =
      strstr(o.err, "80 of 100 sequences are left out: va has no more, and a blend");
  ck_assert_msg(left == (of && !strstr(more, "--batches")), "%s", o.err);
  json_decref(doc);
  return loss;
}

/* NAME.bin of so many windows, with ids of its own. */
static void put_windows(const char *name, uint64_t seed, int windows) {
  int32_t id[MOST], n = windows * SEQ + 1;
  for (int32_t i = 0; i < n; i++)
    id[i] = (int32_t)drawn(4000 * seed + (uint64_t)i, seed ? VOCAB : 8);
  megatron_put_ids(name, &(MegatronFile){8, 1, 0, &n, 0, NULL}, id);
}

/* Of streams of 10 and 90 windows each counts at most once, so that 10 of both do, for
 * batches of any size on any mesh, for the run and for weft eval: an evaluation has the
 * shares of the blend, and of each stream the loss that this one has alone. */
START_TEST(validation_samples_count_once) {
  static const char *const ways[] = {"", "--set batch.global=7", "--set mesh={dp=2,pp=2}",
                                     "--batches 2"};
  enum { SMALL = 10, LARGE = 90 };
  put_windows("va", 0, SMALL);
  put_windows("vb", 1, LARGE);
  put_plan("plan.lua", 8,
           "data = weft.tokens { 'a', val = weft.tokens { files = { 'va', 'vb' },\n"
           "  weights = { 1, 1 } } }, checkpoint = { dir = 'ck' }");
  Log log = run("plan.lua", "log", "");
  double of[STREAMS], loss;
  int64_t labels[STREAMS];
  for (int k = 0; k < STREAMS; k++)
    ck_assert_int_eq(log.eval_labels[STEPS - 1][k], SMALL * SEQ);
  for (int i = 0; i < (int)LEN(ways); i++) {
    loss = evaluated("plan.lua", ways[i], of, labels);
    int n = strstr(ways[i], "--batches") ? 8 : SMALL;
    ck_assert_double_eq_tol(loss, (of[0] + of[1]) / 2, 2e-6 * loss);
    for (int k = 0; k < STREAMS; k++) {
      ck_assert_int_eq(labels[k], n * SEQ);
      if (n != SMALL) continue;
      ck_assert_double_eq_tol(of[k], log.eval[STEPS - 1][k], 2e-6 * of[k]);
    }
  }
  for (int k = 0; k < STREAMS; k++) {
    put_plan("alone.lua", 5,
             arena_printf(scratch_arena,
                          "data = weft.tokens { 'a', val = weft.tokens '%s' }",
                          k ? "vb" : "va"));
    loss = evaluated("alone.lua", "--batches 2", NULL, NULL);
    ck_assert_double_eq_tol(loss, log.eval[STEPS - 1][k], 2e-6 * loss);
  }
}
END_TEST

/* At the end of a run, and as JSON, over its last steps. */
START_TEST(at_the_end) {
  put_plan("plan.lua", 8, BLEND);
  Log log = run("plan.lua", "log", "");
  Outcome o = process_run(60, "$weft run plan.lua --threads 1");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *at = strstr(o.out, "over the last 2 steps:\n  loss ");
  ck_assert_msg(at && strstr(at, " tokens  a\n") && strstr(at, " tokens  b\n"), "%s",
                o.out);
  o = process_run(60, "$weft run plan.lua --threads 1 --json");
  json_t *doc = json_loads(o.out, 0, NULL);
  double loss[STREAMS];
  int64_t labels[STREAMS];
  read_sources(json_object_get(json_object_get(doc, "result"), "sources"), loss, labels);
  json_decref(doc);
  for (int k = 0; k < STREAMS; k++) {
    int64_t n = 0;
    double sum = 0;
    for (int i = STEPS - 2; i < STEPS; i++) {
      n += log.labels[i][k];
      sum += log.of[i][k] * (double)log.labels[i][k];
    }
    ck_assert_int_eq(labels[k], n);
    ck_assert_double_eq_tol(loss[k], sum / (double)n, 1e-9);
  }
}
END_TEST

/* More streams than are told apart: no figure for some of them alone. */
START_TEST(too_many_streams) {
  const char *files = "", *weights = "";
  for (int i = 0; i <= SOURCES_MOST; i++) {
    files = arena_printf(scratch_arena, "%s'%c', ", files, "ab"[i % 2]);
    weights = arena_printf(scratch_arena, "%s1, ", weights);
  }
  put_plan("plan.lua", 8,
           arena_printf(scratch_arena,
                        "data = weft.tokens { files = { %s }, weights = { %s }, "
                        "val_fraction = 0.3 }",
                        files, weights));
  Log log = run("plan.lua", "log", "");
  for (int k = 0; k < STREAMS; k++) ck_assert_int_eq(log.labels[0][k], 0);
}
END_TEST

Suite *sources_suite(void);
Suite *sources_suite(void) {
  Suite *s = suite_create("sources");
  TCase *t = tcase_create("sources");
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_set_timeout(t, 240);
  tcase_add_loop_test(t, the_same_on_every_mesh, 0, LEN(meshes));
  tcase_add_loop_test(t, of_a_loss_of_the_plans_own, 0, 2 * LEN(own));
  tcase_add_test(t, as_of_the_stream_alone);
  tcase_add_test(t, validation_samples_count_once);
  tcase_add_test(t, at_the_end);
  tcase_add_test(t, too_many_streams);
  suite_add_tcase(s, t);
  return s;
}
