/* check_sim_diff.c - weft sim A --diff B: its parts add up to the steps, and name what
 * was changed. */
#include <check.h>
#include <jansson.h>
#include <math.h>

#include "tests/harness/process.h"

/* With tp, pp and the global batch. */
static const char base[] =
    "local weft = require 'weft'\n"
    "return weft.plan { name = 'base', precision = 'bf16',\n"
    "  model = weft.model { 'llama', hidden_size = 1024, num_hidden_layers = 8,\n"
    "    num_attention_heads = 16, intermediate_size = 2816, vocab_size = 32000 },\n"
    "  mesh = { world = 16, tp = %d, pp = %d }, batch = { global = %d, micro = 1, seq = "
    "1024 },\n"
    "  cluster = 'h100-sxm', optimizer = weft.adamw { lr = 1e-3 }, train = { steps = 2 "
    "},\n"
    "  data = weft.synthetic {} }\n";

static void put(const char *name, int tp, int pp, int batch) {
  char text[1024];
  int n = snprintf(text, sizeof text, base, tp, pp, batch);
  ck_assert(n > 0 && n < (int)sizeof text);
  scratch_put(name, text, (size_t)n);
}

static json_t *diff_of(const char *command) {
  Outcome o = process_run(60, command);
  ck_assert_msg(o.code == 0, "%s", o.err);
  json_t *all = json_loads(o.out, 0, NULL);
  ck_assert_msg(all != NULL, "%s", o.out);
  json_t *d = json_incref(json_object_get(json_object_get(all, "result"), "diff"));
  json_decref(all);
  ck_assert_ptr_nonnull(d);
  return d;
}

static double number(const json_t *o, const char *name) {
  return json_number_value(json_object_get(o, name));
}

/* The part of this kind, or 0. */
static double part(const json_t *d, const char *in, const char *what, const char *side) {
  size_t i;
  json_t *p;
  json_array_foreach(json_object_get(d, "parts"), i,
                     p) if (strcmp(json_string_value(json_object_get(p, "in")), in) ==
                                0 &&
                            strcmp(json_string_value(json_object_get(p, "what")), what) ==
                                0) return number(p, side);
  return 0;
}

static void check_sums(const json_t *d) {
  double a = 0, b = 0;
  size_t i;
  json_t *p;
  json_array_foreach(json_object_get(d, "parts"), i, p) a += number(p, "a"),
      b += number(p, "b");
  ck_assert_double_eq_tol(a / number(d, "a"), 1, 1e-9);
  ck_assert_double_eq_tol(b / number(d, "b"), 1, 1e-9);
}

START_TEST(parts_add_up_and_are_those_that_changed) {
  put("a.lua", 4, 1, 64), put("b.lua", 1, 4, 64);
  json_t *d = diff_of("$weft sim a.lua --diff b.lua --json");
  check_sums(d);
  ck_assert(json_is_false(json_object_get(d, "per_token")));
  ck_assert(part(d, "exposed", "tp", "a") > 0 && part(d, "exposed", "tp", "b") == 0);
  ck_assert(part(d, "", "bubble", "b") > part(d, "", "bubble", "a"));
  const json_t *first = json_array_get(json_object_get(d, "waits"), 0);
  ck_assert_ptr_nonnull(first);
  json_t *back = diff_of("$weft sim b.lua --diff a.lua --json");
  ck_assert_double_eq(number(d, "a"), number(back, "b"));
  ck_assert_double_eq(number(d, "b"), number(back, "a"));
  json_t *alone = diff_of("$weft sim a.lua --diff a.lua --json");
  ck_assert_double_eq(number(alone, "a"), number(d, "a"));
  json_decref(d), json_decref(back), json_decref(alone);
  Outcome o = process_run(60, "$weft sim a.lua --diff b.lua");
  ck_assert_int_eq(o.code, 0);
  ck_assert_ptr_nonnull(strstr(o.out, "milliseconds of a step"));
  ck_assert_ptr_nonnull(strstr(o.out, "\nB takes "));
}
END_TEST

/* A batch of twice the size is compared by what a token costs. */
START_TEST(other_batches_are_compared_by_token) {
  put("a.lua", 2, 2, 32), put("b.lua", 2, 2, 64);
  json_t *d = diff_of("$weft sim a.lua --diff b.lua --json");
  check_sums(d);
  ck_assert(json_is_true(json_object_get(d, "per_token")));
  ck_assert_double_lt(number(d, "b"), number(d, "a")); /* a smaller bubble */
  double a = part(d, "kernels", "products", "a"), b = part(d, "kernels", "products", "b");
  ck_assert_double_eq_tol(a / b, 1, 1e-6);
  json_decref(d);
}
END_TEST

START_TEST(what_cannot_be_compared) {
  put("a.lua", 2, 2, 32), put("b.lua", 3, 1, 32);
  Outcome o = process_run(60, "$weft sim a.lua --diff b.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_ptr_nonnull(strstr(o.err, "b.lua:"));
  o = process_run(60, "$weft sim a.lua --diff mesh.tp=3");
  ck_assert_msg(o.code == 1 && strstr(o.err, "--set mesh.tp=3: error: "), "%s", o.err);
  o = process_run(60, "$weft sim a.lua --diff name=other");
  ck_assert_msg(o.code == 0 && strstr(o.out, "A  a.lua\nB  a.lua name=other\n"), "%s%s",
                o.out, o.err);
  o = process_run(60, "$weft sim a.lua --diff none.lua");
  ck_assert_int_ne(o.code, 0);
  ck_assert_ptr_nonnull(strstr(o.err, "none.lua"));
  o = process_run(60, "$weft sim a.lua --diff a.lua --svg x.svg");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "--diff prints a comparison of two plans"));
}
END_TEST

Suite *sim_diff_suite(void) {
  Suite *s = suite_create("sim_diff");
  TCase *c = tcase_create("verb");
  tcase_add_test(c, parts_add_up_and_are_those_that_changed);
  tcase_add_test(c, other_batches_are_compared_by_token);
  tcase_add_test(c, what_cannot_be_compared);
  tcase_set_timeout(c, 200);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  suite_add_tcase(s, c);
  return s;
}
