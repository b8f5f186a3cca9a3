/* check_api.c - the public interface: meshes, the reports of wrong plans, queries, runs
 * fed by the host, and what is refused. */
#include <check.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/comma.h"
#include "vm/weft.h"

#define PLAN WEFT_SOURCE_DIR "/tests/embed/small.lua"

static weft_plan *plan;
static weft_run *run;
static weft_error err;

static void teardown(void) {
  weft_run_close(run);
  weft_plan_free(plan);
}

static void load(const char *const *set, int world) {
  weft_plan_options o = {.size = sizeof o, .set = set};
  ck_assert_msg(weft_plan_load(&o, PLAN, &plan, &err) == WEFT_OK, "%s", err.text);
  ck_assert_msg(weft_plan_compile(plan, world, &err) == WEFT_OK, "%s", err.text);
}

static void open_run(const char *const *set) {
  weft_run_options o = {.size = sizeof o, .threads = 1};
  load(set, 0);
  ck_assert_msg(weft_run_open(plan, &o, &run, &err) == WEFT_OK, "%s", err.text);
  ck_assert_msg(weft_run_init(run, &err) == WEFT_OK, "%s", err.text);
}

static void refused(weft_status got, weft_status want, const char *text) {
  ck_assert_int_eq(got, want);
  ck_assert_int_eq(err.code, want);
  ck_assert_msg(strstr(err.text, text) != NULL, "\"%s\" is not in: %s", text, err.text);
}

/* ---- meshes ---- */

START_TEST(meshes_have_axes_and_views) {
  weft_mesh_spec spec = {.size = sizeof spec, .world = 16, .tp = 2, .pp = 2, .ep = 2};
  weft_mesh *m;
  int ranks[8] = {0};
  ck_assert_msg(weft_mesh_new(&spec, &m, &err) == WEFT_OK, "%s", err.text);
  ck_assert_int_eq(weft_mesh_world(m), 16);
  ck_assert_int_eq(weft_mesh_size(m, "dp"), 4);
  ck_assert_int_eq(weft_mesh_size(m, "world"), 16);
  ck_assert_int_eq(weft_mesh_size(m, "ep"), 2);
  ck_assert_int_eq(weft_mesh_size(m, "expert"), 0);
  ck_assert_int_eq(weft_mesh_coord(m, "pp", 9), 1);
  ck_assert_int_eq(weft_mesh_coord(m, "dp", 13), 2);
  ck_assert_int_eq(weft_mesh_coord(m, "dp", 16), -1);
  ck_assert_int_eq(weft_mesh_group(m, "dp", 9, ranks, 8), 4);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(ranks[i], 9 + 2 * i);
  /* Of two ranks in the group only one fits. */
  ranks[1] = -7;
  ck_assert_int_eq(weft_mesh_group(m, "tp", 5, ranks, 1), 2);
  ck_assert_int_eq(ranks[0], 4);
  ck_assert_int_eq(ranks[1], -7);
  /* (ep_shard, ep, etp) of a stage's ranks is (2, 2, 2), etp fastest. */
  ck_assert_int_eq(weft_mesh_coord(m, "ep", 11), 1);
  ck_assert_int_eq(weft_mesh_group(m, "ep", 9, ranks, 8), 2);
  ck_assert(ranks[0] == 9 && ranks[1] == 11);
  weft_mesh_free(m);
}
END_TEST

START_TEST(a_wrong_mesh_says_why) {
  weft_mesh_spec spec = {.size = sizeof spec, .world = 12, .tp = -8, .cp = -1};
  weft_mesh *m;
  weft_status st = weft_mesh_new(&spec, &m, &err);
  ck_assert_ptr_null(m);
  refused(st, WEFT_EPLAN, "mesh.tp: ");
  refused(st, WEFT_EPLAN, "mesh.cp: ");
}
END_TEST

/* ---- structs with a size ---- */

START_TEST(sizes_of_structs_are_checked) {
  struct {
    weft_mesh_spec spec;
    char later[8];
  } longer = {.spec = {.size = sizeof longer, .tp = 2}};
  weft_mesh *m;
  ck_assert_int_eq(weft_mesh_new(&longer.spec, &m, &err), WEFT_OK);
  weft_mesh_free(m);
  longer.later[3] = 1;
  refused(weft_mesh_new(&longer.spec, &m, &err), WEFT_EUSAGE, "later version");
  longer.spec.size = 0;
  refused(weft_mesh_new(&longer.spec, &m, &err), WEFT_EUSAGE, "sizeof(weft_mesh_spec)");
  /* A host that knows only the first members: what comes after them is not read. */
  weft_mesh_spec shorter = {
      .size = offsetof(weft_mesh_spec, pp), .world = 4, .tp = 4, .pp = 3};
  ck_assert_int_eq(weft_mesh_new(&shorter, &m, &err), WEFT_OK);
  ck_assert_int_eq(weft_mesh_size(m, "pp"), 1);
  weft_mesh_free(m);
}
END_TEST

/* ---- plans ---- */

START_TEST(a_wrong_plan_reports_everything) {
  const char *set[] = {"mesh.tp=3", "train.step=4", NULL};
  weft_plan_options o = {.size = sizeof o, .set = set};
  weft_status st = weft_plan_load(&o, PLAN, &plan, &err);
  refused(st, WEFT_EPLAN,
          "plan.mesh.tp: 3 does not divide model.num_attention_heads = 2");
  refused(st, WEFT_EPLAN, "the first of 2 errors");
  ck_assert_str_eq(err.file, "--set mesh.tp=3");
  const char *report = weft_plan_report(plan);
  ck_assert_msg(strstr(report, "plan.train.step") && strstr(report, "\n2 errors\n"), "%s",
                report);
  json_t *doc = json_loads(weft_plan_report_json(plan), 0, NULL);
  ck_assert_int_eq(json_integer_value(json_object_get(doc, "error_count")), 2);
  ck_assert_int_eq(json_array_size(json_object_get(doc, "diagnostics")), 2);
  json_decref(doc);
  ck_assert_ptr_null(weft_plan_name(plan));
  refused(weft_plan_compile(plan, 0, &err), WEFT_EUSAGE, "was not loaded");
}
END_TEST

START_TEST(a_plan_has_a_memory_limit) {
  weft_plan_options o = {.size = sizeof o, .compile_limit = 300 << 10};
  ck_assert_int_eq(weft_plan_load(&o, PLAN, &plan, &err), WEFT_OK);
  refused(weft_plan_compile(plan, 0, &err), WEFT_ELIMIT, "the memory limit of 0.293 MiB");
  ck_assert_int_eq(weft_plan_param_count(plan), 0);
}
END_TEST

START_TEST(a_plan_has_a_time_limit) {
  weft_plan_options o = {
      .size = sizeof o, .instruction_limit = INT64_C(1) << 50, .cpu_limit = 0.05};
  refused(weft_plan_load(&o, WEFT_SOURCE_DIR "/tests/embed/slow.lua", &plan, &err),
          WEFT_ELIMIT, "the plan was stopped after 0.05 seconds of CPU time");
}
END_TEST

START_TEST(a_missing_plan_reports_too) {
  refused(weft_plan_load(NULL, "/no/such/plan.lua", &plan, &err), WEFT_EFILE, "opened");
  ck_assert_str_eq(err.file, "/no/such/plan.lua");
  ck_assert_ptr_nonnull(strstr(weft_plan_report(plan), "/no/such/plan.lua: error: "));
}
END_TEST

START_TEST(a_plan_compiles_for_several_worlds) {
  const char *program;
  weft_param p;
  load(NULL, 0);
  ck_assert_int_eq(weft_mesh_world(weft_plan_mesh(plan)), 4);
  ck_assert_int_eq(weft_plan_microbatches(plan), 4);
  refused(weft_plan_compile(plan, 6, &err), WEFT_EPLAN, "does not divide world = 6");
  ck_assert_ptr_null(weft_plan_mesh(plan));
  ck_assert_ptr_nonnull(strstr(weft_plan_report(plan), "1 error\n"));
  ck_assert_msg(weft_plan_compile(plan, 8, &err) == WEFT_OK, "%s", err.text);
  ck_assert_str_eq(weft_plan_report(plan), "");
  ck_assert_int_eq(weft_mesh_size(weft_plan_mesh(plan), "dp"), 2);
  ck_assert_int_eq(weft_plan_microbatches(plan), 2);
  ck_assert(weft_plan_memory(plan, 7) > 0 && weft_plan_memory(plan, 8) == 0);
  ck_assert_int_eq(weft_plan_program(plan, 7, &program, &err), WEFT_OK);
  ck_assert_ptr_nonnull(strstr(program, "rank 7 of 8"));
  refused(weft_plan_program(plan, 8, &program, &err), WEFT_EUSAGE, "no rank 8");
  static const char *const views[] = {"mesh", "memory", "stages", "comm", "rank"};
  for (int i = 0; i < (int)(sizeof views / sizeof *views); i++) {
    weft_status st = weft_plan_show(plan, views[i], 7, &program, &err);
    ck_assert_msg(st == WEFT_OK, "%s: %s", views[i], err.text);
    json_t *doc = json_loads(program, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(json_object_get(doc, views[i]) != NULL, "%s: %s", views[i], program);
    json_decref(doc);
  }
  ck_assert_int_eq(weft_plan_show(plan, "program", 7, &program, &err), WEFT_OK);
  json_t *whole = json_loads(program, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_int_eq(json_integer_value(json_object_get(whole, "rank")), 7);
  json_decref(whole);
  refused(weft_plan_show(plan, "comms", 0, &program, &err), WEFT_EUSAGE,
          "\"comms\" is none of mesh, memory");
  refused(weft_plan_show(plan, "sim", 0, &program, &err), WEFT_EPLAN, "plan.cluster");
  uint64_t sum = 0;
  for (int i = 0; i < weft_plan_param_count(plan); i++) {
    ck_assert_int_eq(weft_plan_param_at(plan, i, &p, &err), WEFT_OK);
    sum += (uint64_t)p.count;
  }
  ck_assert_uint_eq(sum, weft_plan_parameters(plan));
  ck_assert_int_eq(weft_plan_param(plan, "lm_head.weight", &p, &err), WEFT_OK);
  ck_assert(p.ndim == 2 && p.dim[0] == 30 && p.dim[1] == 16 && p.count == 480);
  refused(weft_plan_param(plan, "head", &p, &err), WEFT_EUSAGE, "\"head\"");
}
END_TEST

/* ---- runs ---- */

enum { IDS = 4 * 8 };

START_TEST(a_host_may_feed_tokens) {
  int32_t tokens[IDS], labels[IDS];
  weft_step first, again;
  open_run(NULL);
  ck_assert_int_eq(weft_plan_sequences(plan) * weft_plan_tokens(plan), IDS);
  for (int i = 0; i < IDS; i++) tokens[i] = i % 30, labels[i] = i % 4 ? i * 7 % 30 : -100;
  ck_assert_int_eq(weft_run_step_tokens(run, tokens, labels, IDS, 0, &first, &err), 0);
  ck_assert_int_eq(first.tokens, 24);
  ck_assert_int_eq(weft_run_step_tokens(run, tokens, labels, IDS, 1, &again, &err), 0);
  ck_assert(again.loss < first.loss && again.loss > 0 && first.grad_norm > 0);
  refused(weft_run_step_tokens(run, tokens, labels, IDS - 1, 2, &again, &err),
          WEFT_EUSAGE, "4 x 8 tokens");
  labels[9] = 30;
  refused(weft_run_step_tokens(run, tokens, labels, IDS, 2, &again, &err), WEFT_EUSAGE,
          "labels[9] is 30");
  tokens[3] = -100;
  refused(weft_run_step_tokens(run, tokens, labels, IDS, 2, &again, &err), WEFT_EUSAGE,
          "tokens[3] is -100");
  refused(weft_run_step(run, -1, &again, &err), WEFT_EUSAGE, "count from 0");
}
END_TEST

START_TEST(a_step_of_one_token_has_its_loss) {
  int32_t tokens[IDS], labels[IDS];
  weft_step step;
  open_run(NULL);
  for (int i = 0; i < IDS; i++) tokens[i] = i % 30, labels[i] = i == 13 ? 7 : -100;
  ck_assert_int_eq(weft_run_step_tokens(run, tokens, labels, IDS, 0, &step, &err), 0);
  ck_assert(step.tokens == 1 && step.loss > 1 && step.grad_norm > 0);
}
END_TEST

/* Its memory may be zeros, of which every loss is the logarithm of the vocabulary, or
 * anything else. States have no values either where the host sets a parameter. */
START_TEST(a_run_without_parameters_does_not_step) {
  weft_run_options o = {.size = sizeof o, .threads = 1};
  int32_t ids[IDS] = {0};
  float norm[16] = {1};
  weft_step s;
  load(NULL, 0);
  ck_assert_msg(weft_run_open(plan, &o, &run, &err) == WEFT_OK, "%s", err.text);
  refused(weft_run_step(run, 0, &s, &err), WEFT_EUSAGE, "the run has no parameters yet");
  refused(weft_run_step_tokens(run, ids, ids, IDS, 0, &s, &err), WEFT_EUSAGE,
          "the run has no parameters yet");
  refused(weft_run_load(run, "/nowhere", &err), WEFT_EFILE, "");
  refused(weft_run_get(run, WEFT_PARAM, "model.norm.weight", norm, 16, &err), WEFT_EUSAGE,
          "the run has no parameters yet");
  ck_assert_int_eq(weft_run_set(run, WEFT_PARAM, "model.norm.weight", norm, 16, &err), 0);
  refused(weft_run_step(run, 0, &s, &err), WEFT_EUSAGE, "the run has no parameters yet");
  ck_assert_int_eq(weft_run_init(run, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_step(run, 0, &s, &err), WEFT_OK);
}
END_TEST

/* Steps of f16 until one is taken. */
static int until_taken(weft_step *s, bool again) {
  int n = 0;
  do {
    weft_status st = weft_run_step(run, again ? 0 : n, s, &err);
    ck_assert_msg(st == WEFT_OK, "step %d: %s", n, err.text);
    n++;
  } while (s->skipped && n < 60);
  return n;
}

/* Steps that were skipped do not count for Adam's correction of its averages. A run that
 * begins anew, or goes back, has none of them behind it: with them it would divide by the
 * correction of step 0, or of less. */
START_TEST(skipped_steps_are_forgotten) {
  static const char *const set[] = {"precision={ param_dtype = 'f16', init_scale = 1e9 }",
                                    "optimizer.lr=1e-2", NULL};
  float norm[4][16];
  weft_step s, first;
  open_run(set);
  int skips = until_taken(&first, false) - 1;
  ck_assert_int_gt(skips, 3);
  ck_assert_int_eq(weft_run_get(run, 0, "model.norm.weight", norm[0], 16, &err), 0);
  /* Anew: the same scales, and the same step. */
  ck_assert_int_eq(weft_run_init(run, &err), WEFT_OK);
  ck_assert_int_eq(until_taken(&s, false), skips + 1);
  ck_assert(s.loss == first.loss && s.loss_scale == first.loss_scale);
  ck_assert_int_eq(weft_run_get(run, 0, "model.norm.weight", norm[1], 16, &err), 0);
  ck_assert_mem_eq(norm[1], norm[0], sizeof *norm);
  /* The same number until it is taken: Adam's first step is of size lr where the average
   * is corrected, of every element. */
  ck_assert_int_eq(weft_run_init(run, &err), WEFT_OK);
  ck_assert_int_eq(until_taken(&s, true), skips + 1);
  ck_assert_int_eq(weft_run_get(run, 0, "model.norm.weight", norm[2], 16, &err), 0);
  for (int i = 0; i < 16; i++) ck_assert_double_eq_tol(fabs(norm[2][i] - 1), 1e-2, 1e-4);
  /* Back to the first number, with what the run has. */
  ck_assert_int_eq(weft_run_init(run, &err), WEFT_OK);
  until_taken(&s, false);
  ck_assert_int_eq(weft_run_step(run, 0, &s, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_step(run, 1, &s, &err), WEFT_OK);
  ck_assert(isfinite(s.loss) && !s.skipped);
}
END_TEST

enum { FED = 2 * 8 };

/* The loss of two rows, the first of `first` and, from `from` on, `second`; the other of
 * the rest of `second` and padding. */
static weft_step step_of_rows(const int32_t *tokens, const int32_t *labels) {
  const char *set[] = {"batch.global=2", "packed={ size = 8 }", NULL};
  weft_step step;
  open_run(set);
  weft_status st = weft_run_step_tokens(run, tokens, labels, FED, 0, &step, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
  teardown();
  run = NULL, plan = NULL;
  return step;
}

/* -101 ends a document: with another behind it in its row it trains as it does alone. */
START_TEST(a_host_may_say_where_documents_end) {
  int32_t together[FED] = {3, 1, 4, 9, 2, 6, 5, 8}, apart[FED] = {3, 1, 4, 9};
  int32_t labels[2][FED];
  for (int i = 0; i < FED; i++) labels[0][i] = labels[1][i] = -100;
  for (int i = 0; i < 3; i++) {
    labels[0][i] = labels[1][i] = together[i + 1];
    labels[0][4 + i] = labels[1][8 + i] = together[5 + i];
  }
  for (int i = 0; i < 4; i++) apart[8 + i] = together[4 + i];
  labels[0][3] = labels[0][7] = labels[1][3] = labels[1][11] = -101;
  weft_step one = step_of_rows(together, labels[0]);
  weft_step two = step_of_rows(apart, labels[1]);
  ck_assert_int_eq(one.tokens, 6);
  ck_assert_int_eq(two.tokens, 6);
  ck_assert_double_eq_tol(one.loss, two.loss, 1e-6 * two.loss);
  labels[0][3] = -100; /* the second document now sees the first */
  weft_step seen = step_of_rows(together, labels[0]);
  ck_assert_double_gt(fabs(seen.loss - one.loss), 1e-4);
}
END_TEST

START_TEST(labels_that_mean_nothing_are_refused) {
  int32_t tokens[IDS] = {0}, labels[IDS] = {0};
  weft_step s;
  open_run(NULL);
  labels[5] = -101;
  refused(weft_run_step_tokens(run, tokens, labels, IDS, 0, &s, &err), WEFT_EUSAGE,
          "labels[5] is -101, the model has ids below 30; -100: no label; -101 ends a "
          "document where the plan has packed.size");
  labels[5] = -1;
  refused(weft_run_step_tokens(run, tokens, labels, IDS, 0, &s, &err), WEFT_EUSAGE,
          "labels[5] is -1, ");
}
END_TEST

/* A parameter that is cut over tp and one on the last stage go out and back in whole. */
START_TEST(parameters_go_out_and_in) {
  static const char *const names[] = {"model.layers.0.mlp.down_proj.weight",
                                      "model.norm.weight"};
  static const int64_t counts[] = {16 * 24, 16};
  float in[16 * 24], out[16 * 24];
  open_run(NULL);
  for (int k = 0; k < 2; k++) {
    size_t n = (size_t)counts[k];
    for (size_t i = 0; i < n; i++) in[i] = (float)i / 8 - 3;
    ck_assert_int_eq(weft_run_set(run, WEFT_PARAM, names[k], in, n, &err), WEFT_OK);
    ck_assert_int_eq(weft_run_get(run, WEFT_PARAM, names[k], out, n, &err), WEFT_OK);
    ck_assert_mem_eq(in, out, n * sizeof *in);
    refused(weft_run_get(run, WEFT_PARAM, names[k], out, n - 1, &err), WEFT_EUSAGE,
            names[k]);
  }
  refused(weft_run_get(run, WEFT_PARAM, "no", out, 1, &err), WEFT_EUSAGE, "\"no\"");
  refused(weft_run_get(run, 9, names[0], out, 1, &err), WEFT_EUSAGE, "weft_state 9");
}
END_TEST

START_TEST(gradients_and_moments_can_be_read) {
  float grad[16], moment[16];
  weft_step step;
  const char *set[] = {"optimizer.clip=0", NULL};
  open_run(set);
  ck_assert_msg(weft_run_step(run, 0, &step, &err) == WEFT_OK, "%s", err.text);
  ck_assert_int_eq(weft_run_get(run, WEFT_GRAD, "model.norm.weight", grad, 16, &err), 0);
  ck_assert_int_eq(weft_run_get(run, WEFT_MOMENT1, "model.norm.weight", moment, 16, &err),
                   0);
  double norm = 0;
  for (int i = 0; i < 16; i++) {
    norm += (double)grad[i] * grad[i];
    ck_assert_double_eq_tol(moment[i], 0.1 * grad[i], 1e-7);
  }
  ck_assert(norm > 0 && norm <= step.grad_norm * step.grad_norm);
}
END_TEST

START_TEST(a_run_outlives_another_compile) {
  weft_step a, b;
  open_run(NULL);
  ck_assert_int_eq(weft_plan_compile(plan, 8, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_step(run, 0, &a, &err), WEFT_OK);
  weft_run_close(run);
  ck_assert_int_eq(weft_run_open(plan, NULL, &run, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_init(run, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_step(run, 0, &b, &err), WEFT_OK);
  ck_assert_double_eq_tol(a.loss, b.loss, 1e-5 * a.loss);
}
END_TEST

START_TEST(a_stop_flag_ends_calls) {
  volatile int stop = 0;
  weft_plan_options po = {.size = sizeof po, .stop = &stop};
  weft_run_options ro = {.size = sizeof ro, .threads = 1, .stop = &stop};
  weft_plan *other;
  weft_step step;
  int64_t next;
  float norm[16];
  ck_assert_int_eq(weft_plan_load(&po, PLAN, &plan, &err), WEFT_OK);
  ck_assert_int_eq(weft_plan_compile(plan, 0, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_open(plan, &ro, &run, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_init(run, &err), WEFT_OK);
  stop = 1;
  refused(weft_run_step(run, 0, &step, &err), WEFT_EINTR, "interrupted");
  refused(weft_plan_load(&po, PLAN, &other, &err), WEFT_EINTR, "interrupted");
  weft_plan_free(other);
  /* The step has ended the run, which says so; its parameters are those of before. */
  stop = 0;
  refused(weft_run_step(run, 0, &step, &err), WEFT_ERUN, "an earlier step has ended");
  refused(weft_run_init(run, &err), WEFT_ERUN, "weft_run_open");
  refused(weft_run_load(run, "weights", &err), WEFT_ERUN, "weft_run_open");
  refused(weft_run_resume(run, "ckpt", &next, &err), WEFT_ERUN, "weft_run_open");
  refused(weft_run_get(run, WEFT_GRAD, "model.norm.weight", norm, 16, &err), WEFT_ERUN,
          "step 0 failed");
  ck_assert_int_eq(weft_run_get(run, WEFT_PARAM, "model.norm.weight", norm, 16, &err),
                   WEFT_OK);
  ck_assert_float_eq(norm[0], 1);
}
END_TEST

START_TEST(runs_refuse_what_cannot_be) {
  weft_run_options o = {.size = sizeof o, .comm = "udp"};
  load(NULL, 0);
  refused(weft_run_open(plan, &o, &run, &err), WEFT_EUSAGE, "\"udp\"");
  ck_assert_ptr_null(run);
  o = (weft_run_options){.size = sizeof o, .threads = -1};
  refused(weft_run_open(plan, &o, &run, &err), WEFT_EUSAGE, "-1 threads");
  o = (weft_run_options){.size = sizeof o, .patience_s = -1};
  refused(weft_run_open(plan, &o, &run, &err), WEFT_EUSAGE, "a patience of -1");
  ck_assert_int_eq(weft_run_open(plan, NULL, &run, &err), WEFT_OK);
  refused(weft_run_load(run, "/no/such/weights", &err), WEFT_EFILE, "");
}
END_TEST

/* As weft run does: a tokenizer's model learns no bytes. */
START_TEST(runs_take_tokens_of_the_tokenizer) {
  static const char *const set[] = {"tokenizer=words", "data=weft.text \"small.lua\"",
                                    NULL};
  load(set, 0);
  refused(weft_run_open(plan, NULL, &run, &err), WEFT_EPLAN,
          "the tokens of weft.text are bytes");
  ck_assert_ptr_null(run);
}
END_TEST

/* ---- verification ---- */

/* 0 is a default, and what is less is none. */
START_TEST(numbers_below_zero_are_refused) {
  weft_verify_options o = {.size = sizeof o, .ranks = -5};
  weft_verify_result r;
  weft_plan_options po = {.size = sizeof po, .instruction_limit = -1};
  weft_plan *other;
  load(NULL, 0);
  refused(weft_verify(plan, &o, &r, &err), WEFT_EUSAGE, "-5 ranks");
  o = (weft_verify_options){.size = sizeof o, .steps = -1};
  refused(weft_verify(plan, &o, &r, &err), WEFT_EUSAGE, "-1 steps");
  o = (weft_verify_options){.size = sizeof o, .tolerance = -1};
  refused(weft_verify(plan, &o, &r, &err), WEFT_EUSAGE, "a tolerance of -1");
  o.tolerance = NAN;
  refused(weft_verify(plan, &o, &r, &err), WEFT_EUSAGE, "a tolerance of");
  refused(weft_plan_load(&po, PLAN, &other, &err), WEFT_EUSAGE, "limits of -1");
  po = (weft_plan_options){.size = sizeof po, .cpu_limit = -1};
  refused(weft_plan_load(&po, PLAN, &other, &err), WEFT_EUSAGE, "and -1 seconds");
  ck_assert_ptr_null(other);
}
END_TEST

START_TEST(verify_compares) {
  weft_verify_options o = {.size = sizeof o, .steps = 1};
  weft_verify_result r;
  load(NULL, 0);
  ck_assert_msg(weft_verify(plan, &o, &r, &err) == WEFT_OK, "%s", err.text);
  ck_assert(r.steps == 1 && r.ranks == 4 && r.tensors > 20);
  ck_assert(r.grad > 0 && r.grad <= r.tolerance && r.tolerance == 1e-5);
  o.tolerance = 1e-12;
  refused(weft_verify(plan, &o, &r, &err), WEFT_EPLAN, "differs by");
  ck_assert(r.worst[0] && r.grad > 1e-12);
  /* The plan is not the small one now. */
  weft_param p;
  ck_assert_int_eq(weft_plan_compile(plan, 0, &err), WEFT_OK);
  ck_assert_int_eq(weft_plan_param(plan, "lm_head.weight", &p, &err), WEFT_OK);
  ck_assert_int_eq(weft_plan_sequences(plan), 4);
}
END_TEST

/* ---- states of the optimizer ---- */

static size_t count_of(weft_state what, const char *name) {
  size_t n = 99;
  ck_assert_msg(weft_run_count(run, what, name, &n, &err) == WEFT_OK, "%s", err.text);
  return n;
}

/* Of a matrix adafactor has averages of rows, then of columns. */
START_TEST(factors_go_out_and_in) {
  static const char norm[] = "model.norm.weight",
                    down[] = "model.layers.0.mlp.down_proj.weight";
  const char *set[] = {"optimizer=weft.adafactor { lr = 1e-2, clip = 0 }", NULL};
  float grad[16 * 24], state[16 + 24], back[16 + 24];
  double rows[16] = {0}, columns[24] = {0};
  weft_step step;
  size_t n;
  open_run(set);
  ck_assert_uint_eq(count_of(WEFT_PARAM, down), 16 * 24);
  ck_assert_uint_eq(count_of(WEFT_GRAD, down), 16 * 24);
  ck_assert_uint_eq(count_of(WEFT_MOMENT1, down), 16 + 24);
  ck_assert_uint_eq(count_of(WEFT_MOMENT1, norm), 16);
  refused(weft_run_count(run, WEFT_MOMENT2, down, &n, &err), WEFT_EUSAGE, "1 state");
  refused(weft_run_count(run, WEFT_PARAM, "no", &n, &err), WEFT_EUSAGE, "\"no\"");
  ck_assert_int_eq(weft_run_step(run, 0, &step, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_get(run, WEFT_GRAD, down, grad, 16 * 24, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_get(run, WEFT_MOMENT1, down, state, 16 + 24, &err), WEFT_OK);
  /* The first step has the means of its squares alone, up to a factor. */
  for (int i = 0; i < 16 * 24; i++) {
    rows[i / 24] += (double)grad[i] * grad[i] / 24;
    columns[i % 24] += (double)grad[i] * grad[i] / 16;
  }
  for (int i = 0; i < 16; i++)
    ck_assert_double_eq_tol(state[i] / state[0], rows[i] / rows[0], 1e-4);
  for (int i = 0; i < 24; i++)
    ck_assert_double_eq_tol(state[16 + i] / state[16], columns[i] / columns[0], 1e-4);
  for (int i = 0; i < 16 + 24; i++) state[i] = (float)i / 8 + 1;
  ck_assert_int_eq(weft_run_set(run, WEFT_MOMENT1, down, state, 16 + 24, &err), WEFT_OK);
  ck_assert_int_eq(weft_run_get(run, WEFT_MOMENT1, down, back, 16 + 24, &err), WEFT_OK);
  ck_assert_mem_eq(state, back, sizeof back);
}
END_TEST

/* What nobody keeps is neither read nor written without a word. */
START_TEST(states_that_nobody_keeps) {
  static const char norm[] = "model.norm.weight",
                    down[] = "model.layers.0.mlp.down_proj.weight";
  const char *set[] = {"optimizer=weft.muon { lr = 1e-2 }", "freeze={ \"model.norm\" }",
                       NULL};
  float v[16 * 24] = {1};
  weft_step step;
  open_run(set);
  ck_assert_uint_eq(count_of(WEFT_MOMENT1, down), 16 * 24);
  ck_assert_uint_eq(count_of(WEFT_MOMENT2, down), 0);
  refused(weft_run_get(run, WEFT_MOMENT2, down, v, LEN(v), &err), WEFT_EUSAGE,
          "keeps 1 state of model.layers.0.mlp.down_proj.weight, not 2");
  refused(weft_run_set(run, WEFT_MOMENT2, down, v, LEN(v), &err), WEFT_EUSAGE, "not 2");
  ck_assert_uint_eq(count_of(WEFT_MOMENT1, norm), 0);
  refused(weft_run_get(run, WEFT_MOMENT1, norm, v, 16, &err), WEFT_EUSAGE, "is frozen");
  refused(weft_run_set(run, WEFT_MOMENT1, norm, v, 16, &err), WEFT_EUSAGE, "is frozen");
  refused(weft_run_set(run, WEFT_GRAD, norm, v, 16, &err), WEFT_EUSAGE, "is frozen");
  ck_assert_int_eq(weft_run_step(run, 0, &step, &err), WEFT_OK);
  ck_assert_uint_eq(count_of(WEFT_GRAD, norm), 16);
  ck_assert_int_eq(weft_run_get(run, WEFT_GRAD, norm, v, 16, &err), WEFT_OK);
  ck_assert(v[0] == 0 && v[15] == 0);
}
END_TEST

/* ---- the host's locale ---- */

/* Texts with fractions: of a wrong plan, of a compiled one, and of calls. */
static const char *texts(void) {
  const char *wrong[] = {"optimizer.clip=-1.5", "optimizer.betas={0.9,1.25}", NULL};
  const char *right[] = {"optimizer=weft.sgd { lr = 0.5 }", NULL};
  weft_plan_options o = {.size = sizeof o, .set = wrong};
  weft_verify_options v = {.size = sizeof v, .tolerance = -0.25};
  weft_run_options ranks = {.size = sizeof ranks, .patience_s = -0.75};
  weft_verify_result result;
  const char *program, *memory;
  Text t = {0};
  ck_assert_int_eq(weft_plan_load(&o, PLAN, &plan, &err), WEFT_EPLAN);
  text_printf(&t, "%s\n%s\n", err.text, weft_plan_report(plan));
  text_add(&t, weft_plan_report_json(plan));
  weft_plan_free(plan);
  load(right, 0);
  ck_assert_int_eq(weft_plan_program(plan, 0, &program, &err), WEFT_OK);
  text_add(&t, program);
  ck_assert_int_eq(weft_plan_show(plan, "memory", 0, &memory, &err), WEFT_OK);
  text_add(&t, memory);
  refused(weft_verify(plan, &v, &result, &err), WEFT_EUSAGE, "a tolerance");
  text_add(&t, err.text);
  refused(weft_run_open(plan, &ranks, &run, &err), WEFT_EUSAGE, "a patience");
  text_add(&t, err.text);
  weft_plan_free(plan);
  plan = NULL;
  return arena_take(scratch_arena, &t);
}

START_TEST(a_decimal_comma_changes_no_text) {
  const char *was = texts();
  ck_assert(strstr(was, "-1.5") && strstr(was, "-0.25") && strstr(was, "-0.75"));
  if (!comma_set()) return;
  locale_t of_thread = uselocale((locale_t)0);
  ck_assert_str_eq(texts(), was);
  /* The thread has its own again, after errors too. */
  ck_assert_str_eq(localeconv()->decimal_point, ",");
  ck_assert(uselocale((locale_t)0) == of_thread);
}
END_TEST

static void comma_teardown(void) {
  comma_end();
  scratch_teardown();
}

Suite *api_suite(void) {
  Suite *s = suite_create("api");
  TCase *tc = tcase_create("handles");
  tcase_add_checked_fixture(tc, NULL, teardown);
  tcase_add_test(tc, meshes_have_axes_and_views);
  tcase_add_test(tc, a_wrong_mesh_says_why);
  tcase_add_test(tc, sizes_of_structs_are_checked);
  tcase_add_test(tc, a_wrong_plan_reports_everything);
  tcase_add_test(tc, a_plan_has_a_memory_limit);
  tcase_add_test(tc, a_plan_has_a_time_limit);
  tcase_add_test(tc, a_missing_plan_reports_too);
  tcase_add_test(tc, a_plan_compiles_for_several_worlds);
  tcase_add_test(tc, a_host_may_feed_tokens);
  tcase_add_test(tc, a_step_of_one_token_has_its_loss);
  tcase_add_test(tc, a_run_without_parameters_does_not_step);
  tcase_add_test(tc, skipped_steps_are_forgotten);
  tcase_add_test(tc, a_host_may_say_where_documents_end);
  tcase_add_test(tc, labels_that_mean_nothing_are_refused);
  tcase_add_test(tc, parameters_go_out_and_in);
  tcase_add_test(tc, gradients_and_moments_can_be_read);
  tcase_add_test(tc, factors_go_out_and_in);
  tcase_add_test(tc, states_that_nobody_keeps);
  tcase_add_test(tc, a_run_outlives_another_compile);
  tcase_add_test(tc, a_stop_flag_ends_calls);
  tcase_add_test(tc, runs_refuse_what_cannot_be);
  tcase_add_test(tc, runs_take_tokens_of_the_tokenizer);
  tcase_add_test(tc, numbers_below_zero_are_refused);
  tcase_add_test(tc, verify_compares);
  suite_add_tcase(s, tc);
  tc = tcase_create("locale");
  tcase_add_checked_fixture(tc, scratch_setup, comma_teardown);
  tcase_add_test(tc, a_decimal_comma_changes_no_text);
  suite_add_tcase(s, tc);
  return s;
}
