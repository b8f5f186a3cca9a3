/* check_diff.c - weft diff: the fields in which two plans differ, and what follows from
 * them. */
#include <check.h>
#include <jansson.h>

#include "tests/harness/process.h"
#include "tests/harness/scratch.h"
#include "vm/base/base.h"

#define PLAN                                                                             \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { 'llama', hidden_size = 64,\n"                 \
  "    num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 64,\n"        \
  "    vocab_size = 256 }, mesh = { tp = weft.var('tp', 1) }, cluster = %s,\n"           \
  "  batch = { global = 8, seq = 32 } }\n"

static void put(const char *name, const char *cluster) {
  char text[1024];
  int n = snprintf(text, sizeof text, PLAN, cluster);
  scratch_put(name, text, (size_t)n);
}

static void setup(void) {
  scratch_setup();
  put("a.lua", "nil");
  put("b.lua", "'h100-sxm'");
  scratch_put("wrong.lua", "return 3\n", 9);
}

static Outcome diff(const char *args) { return process_run(30, "$weft diff %s", args); }

START_TEST(the_same) {
  Outcome o = diff("a.lua a.lua");
  ck_assert_int_eq(o.code, 0);
  ck_assert_str_eq(o.out, "the same\n");
  o = diff("a.lua a.lua -D tp=2 --set batch.micro=2");
  ck_assert_int_eq(o.code, 0);
}
END_TEST

/* What is written otherwise and means the same: defaults, 1 and 1.0, a name in a table.
 */
START_TEST(the_same_written_otherwise) {
  static const char *const words[] = {
      "mesh.cp=1",
      "optimizer.weight_decay=0.1",
      "'strategy={ \"zero\" }' 'cluster={ \"h100-sxm\" }'",
      "model.rms_norm_eps=1e-6",
      "train.seed=0 optimizer.clip=1",
  };
  for (int i = 0; i < LEN(words); i++) {
    Outcome o = process_run(30, "$weft diff b.lua %s", words[i]);
    ck_assert_msg(o.code == 0 && str_eq(o.out, "the same\n"), "%s: %s%s", words[i], o.out,
                  o.err);
  }
  Outcome o = process_run(30, "sh -c 'sed s/seq.=.32/seq=32.0/ b.lua >c.lua; exec $weft "
                              "diff b.lua c.lua'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
}
END_TEST

/* A plan and the same with changes, of which the first one knows nothing. */
START_TEST(a_change_of_one) {
  Outcome o = diff("b.lua batch.micro=2 --set mesh.tp=2");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.out, "batch.micro: (nothing) -> 2\n\n") == o.out, "%s", o.out);
  o = diff("b.lua precision=fp8");
  ck_assert_msg(strstr(o.out, "precision: (nothing) -> \"fp8\"\n") == o.out, "%s%s",
                o.out, o.err);
  /* Fields of the plan are none of the model's. */
  ck_assert_msg(!strstr(o.out, "model."), "%s", o.out);
  o = process_run(
      30, "sh -c 'sed s/cluster/strategy=\\\"zero\\\",cluster/ b.lua >c.lua; exec "
          "$weft diff c.lua strategy.stage=1'");
  ck_assert_msg(strstr(o.out, "strategy.stage: (nothing) -> 1\n") == o.out, "%s%s", o.out,
                o.err);
}
END_TEST

/* The figure of this name, of the plan on the left (from) or on the right (to). */
static double figure(const json_t *j, const char *name, const char *side) {
  size_t i;
  json_t *row;
  json_array_foreach(json_object_get(j, "figures"), i, row) {
    if (str_eq(json_string_value(json_object_get(row, "name")), name))
      return json_number_value(json_object_get(row, side));
  }
  ck_abort_msg("there is no %s", name);
}

/* Twice the batch: twice the activations and nearly twice the time, and no row for the
 * parameters, which stay. */
START_TEST(what_follows) {
  Outcome o = process_run(
      30,
      "sh -c 'sed s/seq.=.32/seq=64/ b.lua >c.lua; exec $weft diff b.lua c.lua --json'");
  ck_assert_int_eq(o.code, 1);
  json_t *j = json_loads(o.out, 0, NULL);
  ck_assert_msg(j != NULL, "%s%s", o.out, o.err);
  ck_assert(json_is_false(json_object_get(j, "same")));
  const json_t *field = json_array_get(json_object_get(j, "fields"), 0);
  ck_assert_str_eq(json_string_value(json_object_get(field, "path")), "batch.seq");
  ck_assert_str_eq(json_string_value(json_object_get(field, "to")), "64");
  ck_assert_int_eq(json_array_size(json_object_get(j, "fields")), 1);
  double was = figure(j, "memory: activations", "from"),
         is = figure(j, "memory: activations", "to");
  ck_assert_double_eq_tol(is, 2 * was, 0.05 * is);
  ck_assert_double_gt(figure(j, "step, predicted", "to"),
                      figure(j, "step, predicted", "from"));
  ck_assert_ptr_null(strstr(o.out, "memory: parameters"));
  json_decref(j);
}
END_TEST

START_TEST(as_people_read_it) {
  Outcome o = diff("a.lua b.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.out, "cluster: (nothing) -> \"h100-sxm\"\n") == o.out, "%s",
                o.out);
  ck_assert_msg(strstr(o.out, "\ntime is not compared: plan.cluster: ") != NULL, "%s",
                o.out);
}
END_TEST

START_TEST(bad_input) {
  static const struct {
    const char *args;
    int code;
    const char *says;
  } rows[] = {
      {"", 2, "diff needs a pair of plans: weft diff A.lua [B.lua] [key=value ...]"},
      {"a.lua", 2,
       "diff takes two plans, or one and a change of it: weft diff A.lua mesh.tp=4"},
      {"a.lua b.lua c.lua", 2, "diff takes two plans"},
      {"a.lua nope.lua", 2, "nope.lua: error: cannot be opened"},
      {"a.lua wrong.lua", 1, "wrong.lua"},
      {"wrong.lua a.lua", 1, "wrong.lua:1: error: "},
      {"a.lua b.lua --set mesh.tp=3", 1, "mesh.tp"},
      {"a.lua b.lua --set x", 2, "x"},
  };
  for (int i = 0; i < LEN(rows); i++) {
    Outcome o = diff(rows[i].args);
    ck_assert_msg(o.code == rows[i].code, "%s: %d\n%s%s", rows[i].args, o.code, o.out,
                  o.err);
    ck_assert_msg(strstr(o.err, rows[i].says) != NULL, "%s: %s", rows[i].args, o.err);
  }
}
END_TEST

Suite *diff_suite(void) {
  Suite *s = suite_create("diff");
  TCase *tc = tcase_create("diff");
  tcase_add_checked_fixture(tc, setup, scratch_teardown);
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, the_same);
  tcase_add_test(tc, the_same_written_otherwise);
  tcase_add_test(tc, a_change_of_one);
  tcase_add_test(tc, what_follows);
  tcase_add_test(tc, as_people_read_it);
  tcase_add_test(tc, bad_input);
  suite_add_tcase(s, tc);
  return s;
}
