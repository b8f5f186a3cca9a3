/* check_dropout.c - runs that drop: the same masks on every mesh, the same bits with
 * recomputation, nothing dropped in evaluations; and what plans may not ask for. What the
 * masks are, check_interpreter.c and PyTorch (tests/oracle) know. */
#include <check.h>
#include <math.h>

#include "bindings/api/job.h"
#include "tests/generate/random_plan.h"
#include "tests/harness/plan_bits.h"
#include "tests/harness/run_bits.h"
#include "tests/harness/scratch.h"
#include "vm/weights/param_gather.h"

/* Enough layers that some are compiled once. */
#define GPT2(rates) GPT2_WITH(rates, "")
#define GPT2_WITH(rates, train)                                                          \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { 'gpt2', n_layer = 8, n_embd = 16, "           \
  "n_head = 4, vocab_size = 37, n_positions = 32, initializer_range = 0.2, " rates       \
  " },\n"                                                                                \
  "  batch = { global = 4, micro = 1, seq = 16 }, data = weft.synthetic { "              \
  "val = weft.synthetic {} },\n"                                                         \
  "  optimizer = weft.adamw { lr = 1e-2 }, train = { steps = 3, seed = 3" train " },\n"
#define NOISE_ALONE ", train = { neftune_noise_alpha = 5 }"
#define NOISE       ", neftune_noise_alpha = 5"
#define DROPS       "embd_pdrop = 0.3, resid_pdrop = 0.5, attn_pdrop = 0.4"

static const char *const meshes[] = {
    "mesh = { dp = 4 }",
    "mesh = { dp = 2, tp = 2 }",
    "mesh = { tp = 4 }, strategy = { 'zero', stage = 1, sequence_parallel = true }",
    "mesh = { pp = 4 }, schedule = 'zbv', strategy = { 'zero', overlap_tp = true }",
    "mesh = { pp = 2, dp = 2 }, strategy = { 'zero', stage = 3 }",
    "mesh = { cp = 4 }",
    "mesh = { cp = 4 }, cp = { comm = 'ring', balance = 'none' }",
    "mesh = { cp = 2, tp = 2 }, cp = { comm = 'a2a' }, packed = { eot = 3 }",
    "mesh = { cp = 2 }, cp = { comm = 'ring' }, packed = { eot = 3 }, "
    "recompute = 'full'",
};

START_TEST(the_same_on_every_mesh) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  text_printf(&plan, GPT2_WITH(DROPS, NOISE) "%s }\n", meshes[_i]);
  weft_status st = plan_parity(plan.s, 3, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_OK && r.ok, "%s%s", why.s ? why.s : "", plan.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* All that a step of ring attention can read: keys, what was summed up before, where
 * documents begin, sinks, and the numbers of tokens. */
START_TEST(steps_of_a_ring_take_all_operands) {
  static const char *const rings[] = {
      "mesh = { cp = 4 }, cp = { comm = 'ring' }",
      "mesh = { cp = 4 }, cp = { comm = 'a2a+p2p', heads_size = 2 }",
      "mesh = { cp = 2, tp = 2 }, cp = { comm = 'ring', balance = 'none' }",
  };
  Text plan = {0}, why = {0};
  VerifyReport r;
  text_printf(&plan,
              "local weft = require 'weft'\n"
              "return weft.plan { model = weft.model { 'gpt_oss', hidden_size = 32, "
              "head_dim = 8, num_hidden_layers = 2, num_attention_heads = 4, "
              "num_key_value_heads = 4, vocab_size = 37, intermediate_size = 16, "
              "num_local_experts = 4, num_experts_per_tok = 2, sliding_window = 5, "
              "max_position_embeddings = 64, attention_dropout = 0.3 },\n"
              "  batch = { global = 2, micro = 1, seq = 16 }, data = weft.synthetic {}, "
              "packed = { eot = 3 }, optimizer = weft.adamw { lr = 1e-2 },\n"
              "  train = { steps = 2 }, %s }\n",
              rings[_i]);
  weft_status st = plan_parity(plan.s, 2, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_OK && r.ok, "%s%s", why.s ? why.s : "", plan.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* ---- bits ---- */

static Arena *arena;
static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) { arena_free(arena); }

/* What an element is dropped by: its place in the tensor, its layer, and this number. */
START_TEST(dropouts_of_a_layer_are_told_apart) {
  const char *text = GPT2(DROPS) "mesh = {} }\n";
  LangOptions o = {0};
  Job j;
  int pairs = 0;
  scratch_put("plan.lua", text, strlen(text));
  ck_assert_int_eq(job_load(&j, arena, &o, scratch_path("plan.lua")), WEFT_OK);
  ck_assert_int_eq(job_mesh(&j, 0), WEFT_OK);
  ck_assert_int_eq(job_graph(&j), WEFT_OK);
  for (int i = 0; i < j.graph->op.n; i++)
    for (int k = 0; k < i; k++) {
      const Op *a = &j.graph->op.at[i], *b = &j.graph->op.at[k];
      if (a->code != OP_dropout || b->code != OP_dropout || a->unit != b->unit) continue;
      ck_assert_int_ne(a->attr.site, b->attr.site);
      pairs++;
    }
  ck_assert_int_eq(pairs, 8);
  job_free(&j);
}
END_TEST

/* The sites of all ops of a kind, in the order of the model. */
static const char *sites_of(const Graph *g, int code) {
  const char *list = "";
  for (int i = 0; i < g->op.n; i++)
    if (g->op.at[i].code == code)
      list = arena_printf(arena, "%s %d", list, g->op.at[i].attr.site);
  return list;
}

/* Each kind counts by itself in each unit; ops outside of units are in one of their own,
 * of which there is another behind each unit. */
START_TEST(draws_of_an_own_model_are_told_apart) {
  static const char text[] =
      "local weft = require 'weft'\n"
      "local function twice(g, x)\n"
      "  for i = 1, 2 do\n"
      "    x = g:dropout(x, { rate = 0.1 })\n"
      "    x = g:attention(x, x, x, { head_dim = 4, rate = 0.2 })\n"
      "    x = g:noise(g:dropout(x, { rate = 0 }), { rate = 0.5 })\n"
      "  end\n"
      "  return x\n"
      "end\n"
      "return weft.plan { batch = { global = 1, seq = 8 }, model = function(g)\n"
      "  local e = g:param('e', { { 'vocab', 16 }, { 'hidden', 8 } })\n"
      "  local x = twice(g, g:embedding(g:tokens(), e))\n"
      "  x = g:unit('u', function() return twice(g, x) end)\n"
      "  x = g:dropout(g:layer(0, function() return twice(g, x) end), { rate = 0.3 })\n"
      "  return g:cross_entropy(g:linear(x, e), g:labels())\n"
      "end }\n";
  LangOptions o = {0};
  Job j;
  scratch_put("plan.lua", text, strlen(text));
  ck_assert_int_eq(job_load(&j, arena, &o, scratch_path("plan.lua")), WEFT_OK);
  ck_assert_int_eq(job_mesh(&j, 0), WEFT_OK);
  ck_assert_int_eq(job_graph(&j), WEFT_OK);
  ck_assert_str_eq(sites_of(j.graph, OP_dropout), " 0 1 0 1 0 1 0");
  ck_assert_str_eq(sites_of(j.graph, OP_attention), " 0 1 0 1 0 1");
  ck_assert_str_eq(sites_of(j.graph, OP_noise), " 0 1 0 1 0 1");
  job_free(&j);
}
END_TEST

START_TEST(recomputed_masks_are_the_same) {
  static const char *const recompute[] = {"recompute=full", "recompute=selective"};
  const char *set[] = {_i % 2 ? "precision=bf16" : "precision=f32", recompute[_i / 2]};
  plan_bits_same(arena, GPT2(DROPS) "mesh = { tp = 2, pp = 2 } }\n", set, 1, 2);
}
END_TEST

/* ---- evaluations ---- */

/* The loss of a step and, before it, of an evaluation of the same samples. */
static void losses(const char *text, double *step, double *evaluation) {
  Job j;
  Run *r;
  Data *d;
  RunOptions options = {.world = world_kind("local", NULL), .threads = 1};
  StepResult res = {.step = 0};
  const char *path = scratch_put("plan.lua", text, strlen(text));
  const char *set[] = {"train.eval_every=1"};
  OK(job_open(&j, arena, &(LangOptions){.set = set, .nset = 1}, path));
  OK(job_data(&j, NULL, &d));
  OK(run_open(&j.plan, j.compiled, &options, &r, &trace_err));
  OK(run_init(r, &trace_err));
  OK(run_evaluate(r, d, 1, &res, &trace_err));
  *evaluation = res.eval_loss;
  OK(run_step(r, d, 0, &res, &trace_err));
  *step = res.loss;
  run_close(r);
  data_close(d);
  job_free(&j);
}

START_TEST(evaluations_drop_nothing) {
  double step[2], evaluation[2];
  losses(GPT2(DROPS) "mesh = { pp = 2 } }\n", &step[0], &evaluation[0]);
  losses(GPT2("attn_pdrop = 0") "mesh = { pp = 2 } }\n", &step[1], &evaluation[1]);
  ck_assert_double_eq(evaluation[0], evaluation[1]);
  ck_assert_double_gt(fabs(step[0] - step[1]), 1e-3);
}
END_TEST

START_TEST(evaluations_add_no_noise) {
  double step[2], evaluation[2];
  losses(GPT2_WITH("attn_pdrop = 0", NOISE) "mesh = { pp = 2 } }\n", &step[0],
         &evaluation[0]);
  losses(GPT2("attn_pdrop = 0") "mesh = { pp = 2 } }\n", &step[1], &evaluation[1]);
  ck_assert_double_eq(evaluation[0], evaluation[1]);
  ck_assert_double_gt(fabs(step[0] - step[1]), 1e-3);
}
END_TEST

static const struct {
  const char *model;
  int before, behind; /* ops beside the noise */
} noisy[] = {{"'llama', num_hidden_layers = 1", OP_embedding, OP_rmsnorm},
             {"'granite', embedding_multiplier = 12.0", OP_embedding, OP_scale},
             {"'falcon_h1', embedding_multiplier = 5.0", OP_embedding, OP_scale},
             {"'gemma', head_dim = 8", OP_scale, OP_rmsnorm}};

/* As the hook of Hugging Face does, which is on the module of embeddings. */
START_TEST(noise_is_of_what_embeddings_give) {
  LangOptions o = {0};
  Job j;
  Tid in = -1, out = -1;
  const char *plan = arena_printf(
      arena,
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { %s, hidden_size = 32, vocab_size = 64,\n"
      "  num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 32 },\n"
      "  batch = { global = 1, seq = 8 } " NOISE_ALONE " }\n",
      noisy[_i].model);
  scratch_put("plan.lua", plan, strlen(plan));
  ck_assert_int_eq(job_load(&j, arena, &o, scratch_path("plan.lua")), WEFT_OK);
  ck_assert_int_eq(job_mesh(&j, 0), WEFT_OK);
  ck_assert_int_eq(job_graph(&j), WEFT_OK);
  for (int i = 0; i < j.graph->op.n; i++) {
    const Op *op = &j.graph->op.at[i];
    if (op->code == OP_noise) in = op->in[0], out = op->out[0];
    if (out >= 0 && op->in[0] == out) {
      ck_assert_int_eq(op->code, noisy[_i].behind);
      break;
    }
  }
  ck_assert_int_ge(in, 0);
  ck_assert_int_eq(j.graph->op.at[j.graph->t.at[in].producer].code, noisy[_i].before);
  job_free(&j);
}
END_TEST

/* A model that adds none is not trained without it. */
START_TEST(a_model_asks_for_noise) {
  Text why = {0};
  VerifyReport r;
  const char *plan =
      "local weft = require 'weft'\n"
      "local function model(g)\n"
      "  local e = g:param('e.weight', { { 'vocab', 32 }, { 'hidden', 8 } })\n"
      "  return g:cross_entropy(g:linear(g:embedding(g:tokens(), e), e), g:labels())\n"
      "end\n"
      "return weft.plan { model = model, data = weft.synthetic {},\n"
      "  train = { neftune_noise_alpha = 5 },\n"
      "  batch = { global = 1, micro = 1, seq = 8 } }\n";
  ck_assert_int_eq(plan_parity(plan, 1, 1e-5, &r, &why), WEFT_EPLAN);
  ck_assert_msg(strstr(why.s, "train.neftune_noise_alpha: this model adds no noise"),
                "%s", why.s);
  text_free(&why);
}
END_TEST

/* ---- messages ---- */

static const struct {
  const char *body, *text;
} refused[] = {
    {"g:dropout(x, { rate = 1 })", "rate must be at least 0 and below 1, got 1"},
    {"g:dropout(x, { rate = -0.5 })", "rate must be at least 0 and below 1, got -0.5"},
    {"g:dropout(x)", "g:dropout: attribute \"rate\" is missing"},
    {"g:dropout(x, { p = 0.5 })", "unknown attribute \"p\" (it takes: rate, site)"},
    {"g:dropout(x, x, { rate = 0.5 })", "g:dropout takes 1 tensor, got 2"},
    {"g:dropout(g:tokens(), { rate = 0.5 })", "operand 1 is made of integers"},
    {"g:attention(x, x, x, { head_dim = 8, rate = 2 })",
     "rate must be at least 0 and below 1, got 2"},
    {"g:unflatten(g:dropout(g:flatten(x), { rate = 0.5 }))",
     "takes (batch, seq, features), a row for each token"},
};

START_TEST(names_what_is_wrong) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  text_printf(&plan,
              "local weft = require 'weft'\n"
              "local function model(g)\n"
              "  local e = g:param('e.weight', { { 'vocab', 32 }, { 'hidden', 8 } })\n"
              "  local x = g:embedding(g:tokens(), e)\n"
              "  x = %s\n"
              "  return g:cross_entropy(g:linear(x, e), g:labels())\n"
              "end\n"
              "return weft.plan { model = model, data = weft.synthetic {},\n"
              "  batch = { global = 1, micro = 1, seq = 8 } }\n",
              refused[_i].body);
  ck_assert_int_eq(plan_parity(plan.s, 1, 1e-5, &r, &why), WEFT_EPLAN);
  ck_assert_msg(strstr(why.s, refused[_i].text) && strstr(why.s, ".lua:5: error: "),
                "%s\nhas no: %s", why.s, refused[_i].text);
  text_free(&plan);
  text_free(&why);
}
END_TEST

Suite *dropout_suite(void) {
  Suite *s = suite_create("dropout");
  TCase *tc = tcase_create("runs");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, the_same_on_every_mesh, 0, LEN(meshes));
  tcase_add_loop_test(tc, steps_of_a_ring_take_all_operands, 0, 3);
  tcase_add_loop_test(tc, recomputed_masks_are_the_same, 0, 4);
  suite_add_tcase(s, tc);
  tc = tcase_create("plans");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, dropouts_of_a_layer_are_told_apart);
  tcase_add_test(tc, draws_of_an_own_model_are_told_apart);
  tcase_add_test(tc, evaluations_drop_nothing);
  tcase_add_test(tc, evaluations_add_no_noise);
  tcase_add_loop_test(tc, noise_is_of_what_embeddings_give, 0, LEN(noisy));
  tcase_add_test(tc, a_model_asks_for_noise);
  tcase_add_loop_test(tc, names_what_is_wrong, 0, LEN(refused));
  suite_add_tcase(s, tc);
  return s;
}
