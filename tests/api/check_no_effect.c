/* check_no_effect.c - every row of no_effect.def: a plan in which the field changes
 * nothing warns, with line and reason; one in which it does not. */
#include <check.h>
#include <string.h>

#include "bindings/api/job.h"
#include "tests/harness/scratch.h"

static Arena *arena;

static void setup(void) {
  static const weft_alloc libc_alloc;
  scratch_setup();
  arena = arena_new(&libc_alloc);
}

static void teardown(void) {
  arena_free(arena);
  scratch_teardown();
}

/* `field` is alone on line 3 of the plan, the rest of it on line 4; `idle` and `busy` are
 * two of these rests: it has no effect with the one, and has with the other. */
static const struct Example {
  const char *path, *when, *field, *idle, *busy;
} examples[] = {
#define DENSE "model = weft.model 'llama-tiny', "
#define MIXED "model = weft.model 'mixtral-tiny', "
#define BIASED                                                                           \
  "model = weft.model { 'deepseek-v3', vocab_size = 256, hidden_size = 64, "             \
  "intermediate_size = 96, moe_intermediate_size = 32, num_hidden_layers = 2, "          \
  "first_k_dense_replace = 1, num_attention_heads = 4, num_key_value_heads = 4, "        \
  "n_routed_experts = 8, n_group = 2, topk_group = 1, num_experts_per_tok = 2, "         \
  "q_lora_rank = 32, kv_lora_rank = 16, qk_nope_head_dim = 16, qk_rope_head_dim = 8, "   \
  "v_head_dim = 16 }, "
#define ROUTES /* a model function that does not ask for g:moe() */                      \
  "model = function(g) local E, C, F = { 'expert', 4 }, { 'hidden', 8 }, { 'ffn', 8 } "  \
  "local e = g:param('e', { { 'vocab', 64 }, C }) "                                      \
  "local x = g:embedding(g:tokens(), e) x = g:layer(0, function() "                      \
  "local t = g:flatten(x) "                                                              \
  "local w, ids = g:route(g:router_logits(t, g:param('r', { E, C })), { topk = 2 }) "    \
  "local y, ends, at = g:permute(t, ids, w, { experts = 4 }) "                           \
  "y = g:grouped_linear(y, g:param('up', { E, F, C }), ends) "                           \
  "y = g:grouped_linear(g:gelu(y), g:param('down', { E, C, F }), ends) "                 \
  "return g:add(x, g:unflatten(g:combine(y, w, at))) end) "                              \
  "return g:cross_entropy(g:linear(x, e), g:labels()) end, "
#define ZERO(s)  "strategy = { 'zero', " s " }"
#define FSDP(s)  "strategy = { 'megatron_fsdp', " s " }"
#define MOE(s)   "moe = { " s " }"
#define TP2      "mesh = { tp = 2, dp = 1 }"
#define DP2      "mesh = { dp = 2 }"
#define CP2      "mesh = { cp = 2, dp = 1 }"
#define EP2      "mesh = { dp = 2, ep = 2 }"
#define SPLIT    "schedule = 'zero_bubble', mesh = { pp = 2, dp = 1 }"
#define SPLIT_TP "schedule = 'zero_bubble', mesh = { pp = 2, tp = 2, dp = 1 }"
#include "no_effect_examples.def"
};

static const struct Row {
  const char *path, *when, *why;
} rows[] = {
#define NO_EFFECT(path, when, why) {path, #when, why},
#include "bindings/api/no_effect.def"
};

static const struct Example *example_of(const struct Row *r) {
  for (int i = 0; i < LEN(examples); i++)
    if (strcmp(examples[i].path, r->path) == 0 && strcmp(examples[i].when, r->when) == 0)
      return &examples[i];
  return NULL;
}

/* The path as the field is written there: strategy = { 'zero', bucket_bytes = 1 }. */
static bool warned_at(const Diag *g, const char *path) {
  return strcmp(g->code, "no-effect") == 0 && strcmp(g->path, path) == 0;
}

/* Opens the plan of this field and this rest; its warnings are in the job. */
static Job *opened(const char *field, const char *rest) {
  Job *j = NEW(arena, Job);
  LangOptions o = {0};
  static const weft_alloc libc_alloc;
  o.alloc = &libc_alloc;
  o.text = arena_printf(
      arena, "local weft = require 'weft'\nreturn weft.plan {\n%s,\n%s%s }\n", field,
      strstr(rest, "model =") ? "" : DENSE,
      strstr(rest, "batch =")
          ? rest
          : arena_printf(arena, "batch = { global = 8, seq = 64 }, %s", rest));
  weft_status st = job_open(j, arena, &o, "plan.lua");
  Text report = {0};
  report_text(&j->d, false, &report);
  ck_assert_msg(st == WEFT_OK, "%s\n%s%s", o.text, report.s ? report.s : "", j->e.text);
  text_free(&report);
  job_free(j);
  return j;
}

/* The warning about the path, or NULL. */
static const Diag *warning(const char *field, const char *rest, const char *path) {
  const Job *j = opened(field, rest);
  const Diag *found = NULL;
  for (int i = 0; i < j->d.list.n; i++)
    if (warned_at(&j->d.list.at[i], path)) found = &j->d.list.at[i];
  return found;
}

START_TEST(rows_warn) {
  const struct Row *r = &rows[_i];
  const struct Example *e = example_of(r);
  ck_assert_msg(e != NULL, "no example of %s %s", r->path, r->when);
  const Diag *g = warning(e->field, e->idle, r->path);
  ck_assert_msg(g != NULL, "no warning: %s, %s", e->field, e->idle);
  ck_assert_msg(g->line == 3, "%s: line %d", e->field, g->line);
  ck_assert_msg(strstr(g->summary, "has no effect ") == g->summary, "%s", g->summary);
  ck_assert_msg(strstr(g->summary, r->why) != NULL, "%s: %s", g->summary, r->why);
  if (*e->busy)
    ck_assert_msg(!warning(e->field, e->busy, r->path), "%s, %s", e->field, e->busy);
}
END_TEST

/* What asks for the default is no wish; aliases are told as they are written. */
START_TEST(defaults_and_aliases) {
  ck_assert(!warning("strategy = { 'zero', sequence_parallel = false }", "",
                     "strategy.sequence_parallel"));
  ck_assert(!warning("strategy = { 'zero', stage = 0 }", "", "strategy.stage"));
  ck_assert(!warning("cp = { comm = 'all_gather' }", "", "cp.comm"));
  ck_assert(
      !warning("precision = { reduce_dtype = 'float32' }", "", "precision.reduce_dtype"));
  ck_assert(
      warning("mp_policy = { reduce_dtype = 'bf16' }", "", "mp_policy.reduce_dtype"));
  ck_assert(!warning("strategy = { 'fsdp2', mp_policy = { reduce_dtype = 'f32' } }", "",
                     "strategy.mp_policy.reduce_dtype"));
  ck_assert(warning("strategy = { 'zero', overlap_comm = false }", "",
                    "strategy.overlap_comm"));
}
END_TEST

/* A word of recompute that stands for no op of the model is told, by itself where there
 * are others. */
START_TEST(words_of_recompute) {
#define LAYER(body)                                                                      \
  "model = function(g) local C = { 'hidden', 8 } "                                       \
  "local e = g:param('e', { { 'vocab', 64 }, C }) "                                      \
  "local x = g:embedding(g:tokens(), e) x = " body " "                                   \
  "return g:cross_entropy(g:linear(x, e), g:labels()) end"
#define LINEAR(x) "g:linear(" x ", g:param('w', { C, C }))"
#define PLAIN     LAYER("g:layer(0, function() return " LINEAR("x") " end)")
#define MLP       LAYER("g:layer(0, function() return g:gelu(" LINEAR("x") ") end)")
#define UNITS     LAYER("g:unit('body', function() return g:gelu(" LINEAR("x") ") end)")
  static const struct {
    const char *recompute, *rest, *told[2];
  } words[] = {
      {"'selective'", "", {NULL}},
      {"{ 'selective', 'cheap', 'full' }", "", {NULL}},
      {"'selective'", MIXED, {NULL}},
      {"'selective'", MLP, {"\"selective\" has no effect: no layer has attention"}},
      {"{ 'cheap', 'selective' }", MLP, {"\"selective\" has no effect: "}},
      {"{ 'selective', 'cheap' }", PLAIN, {"\"selective\" has no", "\"cheap\" has no"}},
      {"'full'", PLAIN, {NULL}},
      {"true", UNITS, {"\"full\" has no effect: the model has no layers"}},
      {"{ 'body', 'cheap' }", UNITS, {"\"cheap\" has no effect: "}},
      {"'none'", MLP, {NULL}},
  };
  for (int i = 0; i < LEN(words); i++) {
    const Job *j =
        opened(arena_printf(arena, "recompute = %s", words[i].recompute), words[i].rest);
    int n = 0;
    for (int k = 0; k < j->d.list.n; k++) {
      const Diag *g = &j->d.list.at[k];
      if (!warned_at(g, "recompute")) continue;
      ck_assert_msg(n < 2 && words[i].told[n], "%d: %s", i, g->summary);
      ck_assert_msg(strstr(g->summary, words[i].told[n]) != NULL, "%d: %s", i,
                    g->summary);
      ck_assert_int_eq(g->line, 3);
      n++;
    }
    ck_assert_msg(n == 2 || !words[i].told[n], "%d: %d warnings", i, n);
  }
}
END_TEST

/* Options of a stage are told once each, by every strategy that has stages. */
START_TEST(options_of_stages) {
  static const struct {
    const char *strategy;
    int warnings;
  } staged[] = {
      {"{ 'zero', stage = 0, overlap_param_gather = false, defer_grad_sync = true }", 2},
      {"{ 'zero', stage = 1, overlap_param_gather = false, forward_prefetch_depth = 2 }",
       1},
      {"{ 'zero', stage = 2, defer_grad_sync = true, backward_prefetch_depth = 0, "
       "param_persistence_threshold = 5 }",
       2},
      {"{ 'zero', stage = 3, defer_grad_sync = true, backward_prefetch_depth = 0, "
       "param_persistence_threshold = 5, overlap_param_gather = false }",
       0},
      {"{ 'megatron_fsdp', zero_dp_strategy = 'optim', defer_grad_sync = true }", 1},
      {"{ 'fsdp2', backward_prefetch_depth = 1 }", 0},
  };
  for (int i = 0; i < LEN(staged); i++) {
    const Job *j = opened(arena_printf(arena, "strategy = %s", staged[i].strategy), DP2);
    ck_assert_msg(j->d.list.n == staged[i].warnings, "%s: %d", staged[i].strategy,
                  j->d.list.n);
  }
}
END_TEST

Suite *no_effect_suite(void);
Suite *no_effect_suite(void) {
  Suite *s = suite_create("no_effect");
  TCase *c = tcase_create("rows");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_loop_test(c, rows_warn, 0, LEN(rows));
  tcase_add_test(c, defaults_and_aliases);
  tcase_add_test(c, options_of_stages);
  tcase_add_test(c, words_of_recompute);
  tcase_set_timeout(c, 60);
  suite_add_tcase(s, c);
  return s;
}
