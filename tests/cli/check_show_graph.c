/* check_show_graph.c - weft show graph --json: the graph of one rank, op for op what is
 * printed without --json, with ids by which its edges can be followed. */
#include <check.h>
#include <jansson.h>

#include "tests/harness/process.h"

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama', hidden_size = 32,\n"
    "    num_hidden_layers = 2, num_attention_heads = 2, intermediate_size = 64,\n"
    "    vocab_size = 256 }, mesh = { tp = 2 }, recompute = 'full',\n"
    "  batch = { global = 4, micro = 1, seq = 32 } }\n";

static json_t *ops_of(const char *options) {
  Outcome o = process_run(60, "$weft show graph plan.lua --json %s", options);
  json_t *v = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(v && o.code == 0, "%d: %s%s", o.code, o.out, o.err);
  json_t *ops = json_incref(json_object_get(json_object_get(v, "result"), "ops"));
  ck_assert(json_is_array(ops));
  json_decref(v);
  return ops;
}

static const char *text_of(const json_t *v, const char *key) {
  const char *s = json_string_value(json_object_get(v, key));
  return s ? s : "";
}

/* The first op of this kind whose module's name ends so. */
static const json_t *op_of(const json_t *ops, const char *op, const char *module) {
  size_t i;
  const json_t *x;
  json_array_foreach(ops, i, x) {
    const char *name = text_of(x, "name"), *end = strstr(name, module);
    if (str_eq(text_of(x, "op"), op) && end && str_eq(end, module)) return x;
  }
  ck_abort_msg("no %s of %s", op, module);
  return NULL;
}

static int last_dim(const json_t *op, const char *of, size_t i) {
  const json_t *dims =
      json_object_get(json_array_get(json_object_get(op, of), i), "dims");
  return (int)json_integer_value(json_array_get(dims, json_array_size(dims) - 1));
}

/* Each tensor that an op reads is one that an op before it gives, or none gives. */
static void edges_lead_back(const json_t *ops) {
  enum { MOST = 4096 };
  int given[MOST] = {0};
  size_t i, k;
  const json_t *op, *t;
  json_array_foreach(ops, i, op) {
    json_array_foreach(json_object_get(op, "out"), k, t) {
      json_int_t id = json_integer_value(json_object_get(t, "id"));
      ck_assert(id >= 0 && id < MOST && !given[id]);
      given[id] = (int)i + 1;
    }
  }
  json_array_foreach(ops, i, op) {
    json_array_foreach(json_object_get(op, "in"), k, t) {
      int by = given[json_integer_value(json_object_get(t, "id"))];
      ck_assert_msg(by <= (int)i, "op %d reads what op %d gives", (int)i, by - 1);
    }
  }
}

START_TEST(it_is_the_graph_of_one_rank) {
  scratch_put("plan.lua", plan, strlen(plan));
  json_t *ops = ops_of(""), *model = ops_of("--logical");
  Outcome o = process_run(60, "$weft show graph plan.lua");
  size_t lines = 0, again = 0, i;
  const json_t *x;
  for (const char *s = o.out; (s = strchr(s, '\n')); s++) lines++;
  ck_assert_uint_eq(json_array_size(ops), lines);
  ck_assert_uint_lt(json_array_size(model), lines);
  const json_t *q = op_of(ops, "linear", "q_proj");
  const json_t *out = json_array_get(json_object_get(q, "out"), 0);
  ck_assert_int_eq(last_dim(q, "out", 0), 16);
  ck_assert_int_eq(last_dim(op_of(model, "linear", "q_proj"), "out", 0), 32);
  ck_assert_str_eq(text_of(json_object_get(out, "placement"), "tp"), "S(2)");
  ck_assert_str_eq(text_of(json_object_get(out, "placement"), "dp"), "R");
  ck_assert_str_eq(text_of(q, "phase"), "F");
  op_of(ops, "linear_dx", "q_proj");
  bool reduces = false;
  json_array_foreach(ops, i, x) {
    reduces |= str_eq(text_of(x, "op"), "all_reduce");
    again += json_is_true(json_object_get(x, "recomputed"));
  }
  ck_assert(reduces);
  ck_assert_uint_gt(again, 0);
  edges_lead_back(ops);
  edges_lead_back(model);
  json_decref(ops);
  json_decref(model);
}
END_TEST

Suite *show_graph_suite(void);
Suite *show_graph_suite(void) {
  Suite *s = suite_create("show_graph");
  TCase *t = tcase_create("show graph");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, it_is_the_graph_of_one_rank);
  suite_add_tcase(s, t);
  return s;
}
