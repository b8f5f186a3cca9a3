/* check_host_keeps.c - what a host keeps of a run that it drives itself: checkpoints,
 * from which it and weft run go on, folders of weights; and evaluations. */
#include <check.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/comma.h"
#include "tests/harness/process.h"
#include "tests/harness/scratch.h"
#include "vm/base/base.h"
#include "vm/weft.h"

enum { STEPS = 4 };

static weft_plan *plan;
static weft_run *run;
static weft_error err;

static const char plan_text[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'llama', hidden_size = 16, intermediate_size = 24,\n"
    "    num_hidden_layers = 2, num_attention_heads = 2, num_key_value_heads = 2,\n"
    "    vocab_size = 256 },\n"
    "  mesh = { tp = 2, pp = 2 }, batch = { global = 4, micro = 1, seq = 8 },\n"
    "  optimizer = weft.adamw { lr = 1e-2, clip = 1 },\n"
    "  data = weft.text { 'a.txt', val_fraction = 0.25 },\n"
    "  checkpoint = { dir = 'ckpt', keep = 2 },\n"
    "  train = { steps = 4, seed = 7, eval_every = 2, eval_batches = 2 },\n"
    "}\n";

static void put_plan(void) {
  char text[2000];
  for (int i = 0; i < LEN(text); i++) text[i] = (char)('a' + i * i % 23);
  scratch_put("a.txt", text, sizeof text);
  scratch_put("plan.lua", plan_text, sizeof plan_text - 1);
}

static void end_run(void) {
  weft_run_close(run);
  weft_plan_free(plan);
  run = NULL, plan = NULL;
}

static void fine(weft_status st) {
  ck_assert_msg(st == WEFT_OK, "%s: %s", err.file, err.text);
}

static void refused(weft_status got, weft_status want, const char *text) {
  ck_assert_int_eq(got, want);
  ck_assert_msg(strstr(err.text, text) != NULL, "\"%s\" is not in: %s", text, err.text);
}

/* Opens ranks of the plan, without values; of the plan as it is for no changes. */
static void open_run(const char *const *set) {
  weft_plan_options o = {.size = sizeof o, .set = set};
  weft_run_options ranks = {.size = sizeof ranks, .threads = 1};
  end_run();
  weft_status st = weft_plan_load(&o, scratch_path("plan.lua"), &plan, &err);
  ck_assert_msg(st == WEFT_OK, "%s", plan ? weft_plan_report(plan) : err.text);
  fine(weft_plan_compile(plan, 0, &err));
  fine(weft_run_open(plan, &ranks, &run, &err));
}

static double step(int64_t i) {
  weft_step s;
  fine(weft_run_step(run, i, &s, &err));
  return s.loss;
}

static bool there(const char *name) {
  struct stat st;
  return stat(scratch_path(name), &st) == 0;
}

/* Losses of all steps, of which the state after two is saved. */
static void train(double loss[STEPS]) {
  open_run(NULL);
  fine(weft_run_init(run, &err));
  for (int i = 0; i < STEPS; i++) {
    loss[i] = step(i);
    if (i == 1) fine(weft_run_save(run, 2, &err));
  }
}

/* ---- checkpoints ---- */

START_TEST(a_host_goes_on_from_its_checkpoint) {
  double loss[STEPS];
  int64_t next = -1;
  put_plan();
  train(loss);
  open_run(NULL);
  fine(weft_run_resume(run, NULL, &next, &err));
  ck_assert_int_eq(next, 2);
  ck_assert_str_eq(weft_run_notes(run), "");
  for (int i = 2; i < STEPS; i++) {
    ck_assert_double_eq(step(i), loss[i]);
    fine(weft_run_save(run, i + 1, &err)); /* of the same run */
  }
  ck_assert(!there("ckpt/step-00000002") && there("ckpt/step-00000003") &&
            there("ckpt/step-00000004"));
  /* Another mesh, and by its path. */
  const char *set[] = {"mesh.tp=1", "mesh.pp=1", NULL};
  open_run(set);
  fine(weft_run_resume(run, scratch_path("ckpt/step-00000003"), &next, &err));
  ck_assert_int_eq(next, 3);
  ck_assert_double_eq_tol(step(3), loss[3], 1e-5);
}
END_TEST

/* Either goes on from what the other one has saved. */
START_TEST(weft_run_goes_on_and_back) {
  double loss[STEPS];
  int64_t next = -1;
  put_plan();
  train(loss);
  end_run();
  Outcome o = process_run(50, "$weft run plan.lua --resume auto --json --threads 1");
  const char *last = strstr(o.out, "\"loss\":");
  ck_assert_msg(o.code == 0 && last && strstr(o.err, "resumes from step 2") != NULL,
                "%d: %s%s", o.code, o.out, o.err);
  ck_assert_double_eq_tol(strtod(last + strlen("\"loss\":"), NULL), loss[3], 1e-12);
  ck_assert(strstr(o.err, "warning") == NULL && there("ckpt/step-00000004"));
  open_run(NULL);
  fine(weft_run_resume(run, scratch_path("ckpt"), &next, &err));
  ck_assert_int_eq(next, 4);
  ck_assert_str_eq(weft_run_notes(run), "");
}
END_TEST

/* A host in the locale of its user writes what weft run writes, and reads it. */
START_TEST(a_decimal_comma_is_the_host_s_own) {
  double loss[STEPS], now[STEPS];
  int64_t next = -1;
  put_plan();
  train(loss);
  end_run();
  Outcome o = process_run(50, "$weft run plan.lua --resume auto --threads 1 --steps 3");
  ck_assert_msg(o.code == 0, "%s", o.err);
  if (!comma_set()) return;
  open_run(NULL);
  fine(weft_run_resume(run, NULL, &next, &err));
  ck_assert_int_eq(next, 3);
  ck_assert_str_eq(weft_run_notes(run), "");
  ck_assert_double_eq(step(3), loss[3]);
  fine(weft_run_save(run, 4, &err));
  ck_assert_str_eq(localeconv()->decimal_point, ",");
  const char *manifest = scratch_get(scratch_path("ckpt/step-00000004/manifest.json"));
  ck_assert_msg(!strstr(manifest, "2,0 k") && strstr(manifest, "2.0 k"), "%s", manifest);
  /* And from its own beginning to a process in the C locale. */
  const char *dir = arena_printf(scratch_arena, "checkpoint.dir=%s/other", scratch_dir);
  open_run((const char *[]){dir, NULL});
  fine(weft_run_init(run, &err));
  for (int i = 0; i < 3; i++) now[i] = step(i);
  ck_assert_mem_eq(now, loss, 3 * sizeof *loss);
  fine(weft_run_save(run, 3, &err));
  end_run();
  comma_end();
  o = process_run(50, "$weft run plan.lua --set %s --resume auto --threads 1", dir);
  ck_assert_msg(o.code == 0 && strstr(o.err, "resumes from step 3") &&
                    !strstr(o.err, "warning"),
                "%s", o.err);
}
END_TEST

START_TEST(checkpoints_of_others_stay) {
  double loss[STEPS];
  int64_t next = -1;
  put_plan();
  open_run(NULL);
  refused(weft_run_save(run, 0, &err), WEFT_EUSAGE, "no parameters yet");
  fine(weft_run_resume(run, NULL, &next, &err)); /* there is none: as init */
  ck_assert_int_eq(next, 0);
  train(loss);
  open_run(NULL);
  fine(weft_run_init(run, &err));
  refused(weft_run_save(run, 1, &err), WEFT_EUSAGE, "has checkpoints already");
  refused(weft_run_save(run, -1, &err), WEFT_EUSAGE, "0 steps or more");
  ck_assert(there("ckpt/step-00000002") && !there("ckpt/step-00000001"));
  /* A rate may differ, which is said; an optimizer may not. */
  const char *rate[] = {"optimizer.lr=2e-2", NULL};
  open_run(rate);
  fine(weft_run_resume(run, NULL, &next, &err));
  ck_assert_msg(strstr(weft_run_notes(run), "optimizer.lr") != NULL, "%s",
                weft_run_notes(run));
  const char *layers[] = {"model.num_hidden_layers=4", NULL};
  open_run(layers);
  refused(weft_run_resume(run, NULL, &next, &err), WEFT_EFILE, "layers.2");
  refused(weft_run_save(run, 0, &err), WEFT_EUSAGE, "no parameters yet");
  const char *none[] = {"checkpoint=nil", NULL};
  open_run(none);
  refused(weft_run_resume(run, NULL, &next, &err), WEFT_EUSAGE, "checkpoint = { dir");
  fine(weft_run_resume(run, scratch_path("ckpt"), &next, &err));
  ck_assert_int_eq(next, 2);
  refused(weft_run_save(run, 2, &err), WEFT_EUSAGE, "checkpoint = { dir");
}
END_TEST

/* A damaged one is passed over, and said. */
START_TEST(the_newest_whole_one_is_taken) {
  double loss[STEPS];
  int64_t next = -1;
  put_plan();
  train(loss);
  fine(weft_run_save(run, 4, &err));
  scratch_put("ckpt/step-00000004/manifest.json", "{", 1);
  open_run(NULL);
  fine(weft_run_resume(run, NULL, &next, &err));
  ck_assert_int_eq(next, 2);
  ck_assert_msg(strstr(weft_run_notes(run), "step-00000004 is incomplete") != NULL, "%s",
                weft_run_notes(run));
}
END_TEST

/* A host that gives tokens goes on as well, though the plan has data. */
START_TEST(a_fed_run_goes_on) {
  int32_t ids[4 * 8];
  int64_t next = -1;
  weft_step a, b;
  for (int i = 0; i < LEN(ids); i++) ids[i] = i * 7 % 256;
  put_plan();
  open_run(NULL);
  fine(weft_run_init(run, &err));
  fine(weft_run_step_tokens(run, ids, ids, LEN(ids), 0, &a, &err));
  fine(weft_run_save(run, 1, &err));
  fine(weft_run_step_tokens(run, ids, ids, LEN(ids), 1, &a, &err));
  open_run(NULL);
  fine(weft_run_resume(run, NULL, &next, &err));
  ck_assert_int_eq(next, 1);
  fine(weft_run_step_tokens(run, ids, ids, LEN(ids), 1, &b, &err));
  ck_assert_double_eq(b.loss, a.loss);
  fine(weft_run_save(run, 2, &err));
}
END_TEST

/* Its first save may come before its first tokens: the next one tells of them. */
START_TEST(a_run_is_fed_after_its_first_save) {
  int32_t ids[4 * 8] = {0};
  int64_t next = -1;
  weft_step s;
  put_plan();
  open_run(NULL);
  fine(weft_run_init(run, &err));
  fine(weft_run_save(run, 0, &err));
  fine(weft_run_step_tokens(run, ids, ids, LEN(ids), 0, &s, &err));
  fine(weft_run_save(run, 1, &err));
  end_run();
  Outcome o = process_run(50, "$weft run plan.lua --resume auto --threads 1");
  ck_assert_msg(o.code == 2 && strstr(o.err, "would go on with other samples") != NULL,
                "%d: %s%s", o.code, o.out, o.err);
  open_run(NULL);
  fine(weft_run_resume(run, NULL, &next, &err));
  ck_assert_int_eq(next, 1);
  fine(weft_run_step_tokens(run, ids, ids, LEN(ids), 1, &s, &err));
  fine(weft_run_save(run, 2, &err));
}
END_TEST

/* Epochs are of the plan's data, whoever gives the tokens: they say which learning rate a
 * step has. */
START_TEST(epochs_of_a_fed_run) {
  const char *set[] = {"train={ epochs = 3, seed = 7, eval_every = 2, eval_batches = 2 }",
                       "optimizer.lr=weft.cosine { max = 1e-2, min = 0, warmup = 2 }",
                       NULL};
  int32_t ids[4 * 8] = {0};
  weft_step fed, own;
  put_plan();
  for (int i = 0; i < 2; i++) {
    open_run(set);
    fine(weft_run_init(run, &err));
    fine(i ? weft_run_step(run, 99, &own, &err)
           : weft_run_step_tokens(run, ids, ids, LEN(ids), 99, &fed, &err));
  }
  ck_assert_double_gt(fed.lr, 1e-4); /* of more than 100 steps */
  ck_assert_double_eq(fed.lr, own.lr);
  ck_assert_int_eq(unlink(scratch_path("a.txt")), 0);
  open_run(set);
  fine(weft_run_init(run, &err));
  refused(weft_run_step_tokens(run, ids, ids, LEN(ids), 0, &fed, &err), WEFT_EUSAGE,
          "give train.steps for tokens of your own");
}
END_TEST

/* What begins anew is another run, whose checkpoints do not take the place of the first
 * one's; files that were being written like others that are closed are forgotten, too. */
START_TEST(beginning_anew_is_another_run) {
  const char *set[] = {"checkpoint.save_consolidated=every", NULL};
  int64_t next = -1;
  double loss[STEPS];
  put_plan();
  train(loss);
  open_run(set);
  fine(weft_run_resume(run, NULL, &next, &err));
  step(2);
  fine(weft_run_save(run, 3, &err));
  ck_assert(there("ckpt/weights-00000003/model.safetensors"));
  if (_i)
    fine(weft_run_load(run, scratch_path("ckpt/weights-00000003"), &err));
  else
    fine(weft_run_init(run, &err));
  step(0);
  refused(weft_run_save(run, 1, &err), WEFT_EUSAGE, "has checkpoints already");
  ck_assert(there("ckpt/step-00000002") && there("ckpt/step-00000003"));
}
END_TEST

/* The plan may be compiled again, or fail to be, while its runs go on. */
START_TEST(a_plan_is_compiled_again) {
  weft_evaluation v;
  put_plan();
  open_run(NULL);
  fine(weft_run_init(run, &err));
  if (_i)
    ck_assert_int_eq(weft_plan_compile(plan, 3, &err), WEFT_EPLAN);
  else
    fine(weft_plan_compile(plan, 8, &err)); /* dp = 2 */
  fine(weft_run_evaluate(run, 0, &v, &err));
  fine(weft_run_save(run, 0, &err));
  fine(weft_run_export(run, scratch_path("out"), &err));
  const char *manifest = scratch_get(scratch_path("ckpt/step-00000000/manifest.json"));
  ck_assert_msg(strstr(manifest, "pp=2 tp=2") && !strstr(manifest, "dp=2"), "%s",
                manifest);
}
END_TEST

/* The best evaluation of weft run, by which it keeps a checkpoint, is kept on. */
START_TEST(the_best_evaluation_stays) {
  int64_t next = -1;
  put_plan();
  Outcome o = process_run(50, "$weft run plan.lua --threads 1 --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
  open_run(NULL);
  fine(weft_run_resume(run, NULL, &next, &err));
  ck_assert_int_eq(next, 4);
  fine(weft_run_save(run, 5, &err));
  const char *was =
      strstr(scratch_get(scratch_path("ckpt/step-00000004/manifest.json")), "\"best");
  const char *is =
      strstr(scratch_get(scratch_path("ckpt/step-00000005/manifest.json")), "\"best");
  ck_assert(was && is);
  ck_assert_int_eq(strncmp(was, is, strcspn(was, "}")), 0);
}
END_TEST

/* Parameters that were read in part are no state to go on from. */
START_TEST(a_damaged_one_leaves_nothing) {
  double loss[STEPS];
  int64_t next = -1;
  put_plan();
  train(loss);
  end_run();
  const char *path = scratch_path("ckpt/step-00000002/rank-00003.safetensors");
  FILE *f = fopen(path, "r+b");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_eq(fseek(f, -64, SEEK_END), 0);
  ck_assert_uint_eq(fwrite("damaged", 1, 7, f), 7);
  ck_assert_int_eq(fclose(f), 0);
  open_run(NULL);
  fine(weft_run_init(run, &err));
  refused(weft_run_resume(run, scratch_path("ckpt/step-00000002"), &next, &err),
          WEFT_EFILE, "");
  refused(weft_run_save(run, 2, &err), WEFT_EUSAGE, "no parameters yet");
}
END_TEST

/* ---- weights ---- */

START_TEST(an_export_is_loaded) {
  static float was[256 * 16], is[256 * 16];
  put_plan();
  open_run(NULL);
  refused(weft_run_export(run, scratch_path("out"), &err), WEFT_EUSAGE, "no parameters");
  fine(weft_run_init(run, &err));
  step(0);
  fine(weft_run_get(run, WEFT_PARAM, "lm_head.weight", was, LEN(was), &err));
  fine(weft_run_export(run, scratch_path("out"), &err));
  ck_assert(there("out/config.json") && there("out/model.safetensors"));
  refused(weft_run_export(run, scratch_path("out"), &err), WEFT_EFILE, "");
  open_run(NULL);
  fine(weft_run_load(run, scratch_path("out"), &err));
  fine(weft_run_get(run, WEFT_PARAM, "lm_head.weight", is, LEN(is), &err));
  ck_assert_mem_eq(was, is, sizeof was);
  fine(weft_run_export(run, scratch_path("again"), &err)); /* as the files it came from */
  ck_assert(there("again/model.safetensors"));
}
END_TEST

/* ---- evaluations ---- */

START_TEST(an_evaluation_changes_nothing) {
  weft_evaluation a, b;
  double loss[2];
  put_plan();
  open_run(NULL);
  refused(weft_run_evaluate(run, 0, &a, &err), WEFT_EUSAGE, "no parameters yet");
  fine(weft_run_init(run, &err));
  loss[0] = step(0), loss[1] = step(1);
  fine(weft_run_init(run, &err));
  fine(weft_run_evaluate(run, 0, &a, &err));
  ck_assert_int_eq(a.tokens, 2 * 4 * 8);
  ck_assert(fabs(a.loss - log(256)) < 0.2 && a.ms > 0);
  ck_assert_double_eq(step(0), loss[0]);
  fine(weft_run_evaluate(run, 1, &b, &err));
  ck_assert_int_eq(b.tokens, 4 * 8);
  ck_assert_double_eq(step(1), loss[1]);
  fine(weft_run_evaluate(run, 0, &b, &err));
  ck_assert(b.loss < a.loss);
  refused(weft_run_evaluate(run, -1, &b, &err), WEFT_EUSAGE, "1 batch or more");
  const char *none[] = {"train.eval_every=0", NULL};
  open_run(none);
  fine(weft_run_init(run, &err));
  refused(weft_run_evaluate(run, 0, &b, &err), WEFT_EUSAGE, "train.eval_every");
}
END_TEST

/* The error says it, which is all that a host has of diagnostics. */
START_TEST(too_few_samples_are_told) {
  const char *set[] = {"loss={ 'cross_entropy', per = 'sequences' }",
                       "data.val_fraction=0.01", NULL};
  weft_evaluation v;
  put_plan();
  open_run(set);
  fine(weft_run_init(run, &err));
  refused(weft_run_evaluate(run, 0, &v, &err), WEFT_EPLAN,
          "plan.data.val_fraction: the validation data have ");
}
END_TEST

static void setup(void) { scratch_setup(); }
static void teardown(void) {
  end_run();
  comma_end();
  scratch_teardown();
}

Suite *host_keeps_suite(void);
Suite *host_keeps_suite(void) {
  Suite *s = suite_create("host_keeps");
  TCase *t = tcase_create("host_keeps");
  tcase_add_checked_fixture(t, setup, teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, a_host_goes_on_from_its_checkpoint);
  tcase_add_test(t, weft_run_goes_on_and_back);
  tcase_add_test(t, a_decimal_comma_is_the_host_s_own);
  tcase_add_test(t, checkpoints_of_others_stay);
  tcase_add_test(t, the_newest_whole_one_is_taken);
  tcase_add_test(t, a_fed_run_goes_on);
  tcase_add_test(t, a_run_is_fed_after_its_first_save);
  tcase_add_test(t, epochs_of_a_fed_run);
  tcase_add_loop_test(t, beginning_anew_is_another_run, 0, 2);
  tcase_add_loop_test(t, a_plan_is_compiled_again, 0, 2);
  tcase_add_test(t, the_best_evaluation_stays);
  tcase_add_test(t, a_damaged_one_leaves_nothing);
  tcase_add_test(t, an_export_is_loaded);
  tcase_add_test(t, an_evaluation_changes_nothing);
  tcase_add_test(t, too_few_samples_are_told);
  suite_add_tcase(s, t);
  return s;
}
