/* check_balance.c - losses that balance experts over some sequences by themselves,
 * or over a step, Sinkhorn's choice, and groups of experts: sequences count as
 * microbatches of one rank do, and as Megatron defines them; the same on every mesh; what
 * plans may not ask for.
 * How the losses are computed PyTorch (tests/oracle/plans.py) and the references of
 * kernels know. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/generate/random_plan.h"
#include "tests/harness/plan_bits.h"
#include "tests/harness/process.h"
#include "tests/harness/scratch.h"

#define PLAN(fields)                                                                     \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { 'qwen3_moe', vocab_size = 64, "               \
  "hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, "                   \
  "num_key_value_heads = 2, head_dim = 8, num_experts = 8, num_experts_per_tok = 4, "    \
  "moe_intermediate_size = 16, initializer_range = 0.3 },\n"                             \
  "  data = weft.synthetic {}, optimizer = weft.adamw { lr = 1e-2 },\n"                  \
  "  train = { steps = 3, seed = 3 }, " fields " }\n"
#define BIASED(fields)                                                                   \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { 'glm4_moe', vocab_size = 64, "                \
  "hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, "                   \
  "num_key_value_heads = 2, head_dim = 8, n_routed_experts = 8, "                        \
  "num_experts_per_tok = 4, moe_intermediate_size = 16 }, data = weft.synthetic "        \
  "{}, " fields " }\n"
#define BATCH(micro) "batch = { global = 4, micro = " micro ", seq = 16 }, "
#define LOSS         "aux_loss_coef = 0.5"
#define SINKHORN(n)  "moe = { sinkhorn_sequences = " n ", z_loss_coef = 0.01 }"

/* Megatron's global_aux_loss. */
#define GLOBAL "moe = { " LOSS ", aux_loss_batch = 'global', z_loss_coef = 0.01 }"
#define BACKWARDS                                                                        \
  "schedule = function(s) for i = s.microbatches - 1, 0, -1 do s:F(0, i) end "           \
  "for i = 0, s.microbatches - 1 do s:B(0, i) end end, "

static Arena *arena;
static void setup(void) {
  arena = arena_new(NULL);
  scratch_setup();
}
static void teardown(void) {
  scratch_teardown();
  arena_free(arena);
}

static PlanBits run(const char *text) {
  PlanBits bits;
  plan_bits(arena, scratch_put("plan.lua", text, strlen(text)), NULL, 0, &bits);
  return bits;
}

static double apart(const PlanBits *a, const PlanBits *b) {
  double most = 0;
  for (int i = 0; i < 2; i++)
    most = fmax(most, fabs(a->loss[i] - b->loss[i]) / fabs(b->loss[i]));
  return most;
}

/* Of each row both plans are the same: the second has one microbatch for what the first
 * takes by itself. The third differs. */
static const struct {
  const char *some, *alone, *all;
} same[] = {
    /* Megatron's seq_aux_loss */
    {PLAN(BATCH("4") "moe = { " LOSS ", aux_loss_sequences = 1 }"),
     PLAN(BATCH("1") "moe = { " LOSS " }"), PLAN(BATCH("4") "moe = { " LOSS " }")},
    {PLAN(BATCH("4") "moe = { " LOSS ", aux_loss_sequences = 2, z_loss_coef = 0.1 }"),
     PLAN(BATCH("2") "moe = { " LOSS ", z_loss_coef = 0.1 }"),
     PLAN(BATCH("4") "moe = { " LOSS ", z_loss_coef = 0.1 }")},
    /* Megatron's aux_loss, of the microbatch of each data-parallel rank */
    {PLAN(BATCH("2") "mesh = { dp = 2 }, moe = { " LOSS ", aux_loss_sequences = 2 }"),
     PLAN(BATCH("2") "moe = { " LOSS " }"),
     PLAN(BATCH("2") "mesh = { dp = 2 }, moe = { " LOSS " }")},
    {PLAN(BATCH("4") SINKHORN("1")), PLAN(BATCH("1") SINKHORN("1")),
     PLAN(BATCH("4") SINKHORN("4"))},
    {PLAN(BATCH("4") SINKHORN("2")), PLAN(BATCH("2") SINKHORN("2")),
     PLAN(BATCH("4") "moe = { z_loss_coef = 0.01 }")},
    /* a step of one microbatch */
    {PLAN(BATCH("4") GLOBAL), PLAN(BATCH("4") "moe = { " LOSS ", z_loss_coef = 0.01 }"),
     PLAN(BATCH("1") GLOBAL)},
};

START_TEST(sequences_count_as_microbatches_of_one_rank) {
  PlanBits some = run(same[_i].some), alone = run(same[_i].alone),
           all = run(same[_i].all);
  ck_assert_double_lt(apart(&some, &alone), 1e-6);
  ck_assert_double_gt(apart(&all, &alone), 1e-5);
  ck_assert_int_eq(some.n, alone.n);
  for (int64_t i = 0; i < some.n; i++)
    ck_assert_float_eq_tol(some.param[i], alone.param[i], 2e-3F);
}
END_TEST

/* What one layer with experts chooses changes nothing that its router reads, and the loss
 * counts what scores choose: so neither a bias that has moved nor groups change what the
 * loss adds to the cross entropy of a model that learns nothing. */
#define STILL(name, experts, score, fields)                                              \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { '" name "', vocab_size = 64, "                \
  "hidden_size = 32, num_hidden_layers = 1, num_attention_heads = 4, "                   \
  "num_key_value_heads = 2, head_dim = 8, " experts " = 8, num_experts_per_tok = 4, "    \
  "moe_intermediate_size = 16, initializer_range = 0.3" score " },\n"                    \
  "  data = weft.synthetic {}, optimizer = weft.sgd { lr = 0 },\n"                       \
  "  train = { steps = 2, seed = 3 }, " BATCH("2") "moe = { " fields " } }\n"
#define WITH_BIAS(fields)                                                                \
  STILL("glm4_moe", "n_routed_experts", ", first_k_dense_replace = 0", fields)
#define WITHOUT(fields) STILL("qwen3_moe", "num_experts", "", fields)
#define MOVED           ", bias_update_rate = 0.5"
#define GROUPS          ", num_groups = 4, group_topk = 2"

static const struct {
  const char *free[2], *limited[2];
} counted[] = {
    {{WITH_BIAS(""), WITH_BIAS(LOSS)},
     {WITH_BIAS("bias_update_rate = 0.5"), WITH_BIAS(LOSS MOVED)}},
    {{WITH_BIAS(""), WITH_BIAS(LOSS ", aux_loss_sequences = 1")},
     {WITH_BIAS("num_groups = 4, group_topk = 2" MOVED),
      WITH_BIAS(LOSS ", aux_loss_sequences = 1" MOVED GROUPS)}},
    {{WITHOUT(""), WITHOUT(LOSS ", aux_loss_batch = 'global'")},
     {WITHOUT("num_groups = 4, group_topk = 2"),
      WITHOUT(LOSS ", aux_loss_batch = 'global'" GROUPS)}},
};

START_TEST(the_loss_counts_what_scores_choose) {
  double added[2], alone[2];
  for (int i = 0; i < 2; i++) {
    const char *const *plan = i ? counted[_i].limited : counted[_i].free;
    PlanBits without = run(plan[0]), with = run(plan[1]);
    alone[i] = without.loss[1], added[i] = with.loss[1] - without.loss[1];
  }
  ck_assert_double_gt(fabs(alone[0] - alone[1]), 1e-4); /* other experts were chosen */
  ck_assert_double_gt(added[0], 0.1);
  ck_assert_double_eq_tol(added[0], added[1], 2e-6);
}
END_TEST

/* Of softmax weights that the chosen experts share, groups are compared by logits, as in
 * Megatron: what chooses is then what scores are made of. */
static const struct {
  const char *plan;
  bool by_logits;
} ranked[] = {
    {STILL("qwen3_moe", "num_experts", ", norm_topk_prob = true",
           "num_groups = 4, group_topk = 2"),
     true},
    {STILL("qwen3_moe", "num_experts", ", norm_topk_prob = true",
           "num_groups = 8, group_topk = 4"),
     false}, /* the best expert of a group is the same by both */
    {WITHOUT("num_groups = 4, group_topk = 2"), false},
    {WITH_BIAS("num_groups = 4, group_topk = 2"), false},
};

START_TEST(groups_are_compared_by_logits) {
  scratch_put("plan.lua", ranked[_i].plan, strlen(ranked[_i].plan));
  Outcome o = process_run(60, "$weft show graph plan.lua");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  const char *at = strstr(o.out, "= route %");
  int logits = 0, keys = 0;
  ck_assert_msg(at && sscanf(at, "= route %%%d, %%%d", &logits, &keys) >= 1, "%s", o.out);
  ck_assert_int_eq(logits == keys, ranked[_i].by_logits);
}
END_TEST

#define MOE(more)                                                                        \
  "moe = { " LOSS ", aux_loss_sequences = 1, z_loss_coef = 0.01, num_groups = 4, "       \
  "group_topk = 2" more " }"

static const char *const meshes[] = {
    PLAN(BATCH("2") "mesh = { dp = 2 }, " MOE("")),
    PLAN(BATCH("2") "mesh = { tp = 2, dp = 2 }, strategy = { 'zero', stage = 2, "
                    "sequence_parallel = true }, " MOE("")),
    PLAN(BATCH("2") "mesh = { cp = 2, pp = 2 }, cp = { comm = 'ring' }, " MOE("")),
    PLAN(
        BATCH("2") "mesh = { pp = 2 }, schedule = 'zb_h2', recompute = 'full', " MOE("")),
    PLAN(BATCH("1") "mesh = { dp = 4, ep = 4 }, strategy = 'fsdp2', " MOE(
        ", dispatcher = 'alltoall'")),
    PLAN(BATCH("2") "mesh = { tp = 2, dp = 2, ep = 2, etp = 1 }, " MOE("")),
    PLAN(BATCH("2") "mesh = { tp = 2, dp = 2 }, strategy = { 'zero', stage = 2, "
                    "sequence_parallel = true }, recompute = 'full', " SINKHORN("2")),
    PLAN(BATCH("2") "mesh = { cp = 2, pp = 2 }, cp = { comm = 'ring' }, " SINKHORN("1")),
    PLAN(BATCH("1") "mesh = { dp = 4, ep = 4 }, strategy = 'fsdp2', moe = { "
                    "sinkhorn_sequences = 1, dispatcher = 'alltoall' }"),
    PLAN(BATCH("2") "mesh = { tp = 2, cp = 2, dp = 2, ep = 4, etp = 2 }, " SINKHORN("2")),
    BIASED(BATCH("2") "mesh = { tp = 2, cp = 2, dp = 2, ep = 4, etp = 2 }, recompute = "
                      "'full', " MOE(", bias_update_rate = 0.1")),
    PLAN(BATCH("1") "mesh = { tp = 2, dp = 2 }, strategy = { 'zero', stage = 2, "
                    "sequence_parallel = true }, recompute = 'full', " GLOBAL),
    PLAN(BATCH("1") "mesh = { pp = 2, cp = 2 }, recompute = 'selective', " GLOBAL),
    PLAN(BATCH("1") "mesh = { pp = 2 }, recompute = 'full', schedule = function(s) "
                    "for i = 0, s.microbatches - 1 do s:F(0, i) end "
                    "for i = s.microbatches - 1, 0, -1 do s:B(0, i) end end, " GLOBAL),
    PLAN("batch = { global = 8, micro = 1, rounds = 2, seq = 16 }, mesh = { dp = 2, ep = "
         "2, pp = 2 }, strategy = 'fsdp2', schedule = 'zb_h2', " GLOBAL),
};

START_TEST(the_same_on_every_mesh) {
  Text why = {0};
  VerifyReport r;
  weft_status st = plan_parity(meshes[_i], 3, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_OK && r.ok, "%s%s", why.s ? why.s : "", meshes[_i]);
  text_free(&why);
}
END_TEST

/* The number between two words of what a run prints. */
static double said_after(const char *out, const char *words) {
  const char *at = strstr(out, words);
  ck_assert_msg(at != NULL, "no \"%s\" in %s", words, out);
  return strtod(at + strlen(words), NULL);
}

/* What does not train chooses by scores, as if the plan balanced nothing. */
START_TEST(evaluation_chooses_by_scores) {
  static const char head[] = "local weft = require 'weft'\nlocal moe = ";
  static const char rest[] =
      "\nreturn weft.plan { model = weft.model { 'mixtral', vocab_size = 256, "
      "hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, "
      "num_key_value_heads = 2, intermediate_size = 16, num_local_experts = 8, "
      "initializer_range = 0.3 },\n"
      "  data = weft.text { 'a.txt', val_fraction = 0.25 }, optimizer = weft.sgd { lr = "
      "0 },\n"
      "  train = { steps = 1, eval_every = 1, eval_batches = 2 }, moe = moe,\n"
      "  batch = { global = 4, micro = 2, seq = 16 } }\n";
  double train[2], eval[2];
  char words[2000];
  for (size_t i = 0; i < sizeof words; i++) words[i] = (char)('a' + i * i % 23);
  scratch_put("a.txt", words, sizeof words);
  for (int i = 0; i < 2; i++) {
    Text plan = {0};
    text_printf(&plan, "%s%s%s", head, i ? "{ sinkhorn_sequences = 2 }" : "nil", rest);
    scratch_put("plan.lua", plan.s, strlen(plan.s));
    Outcome o = process_run(60, "$weft run plan.lua");
    ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
    train[i] = said_after(o.out, "/1  loss"),
    eval[i] = said_after(o.out, "evaluation loss");
    text_free(&plan);
  }
  ck_assert_double_eq(eval[0], eval[1]);
  ck_assert_double_gt(fabs(train[0] - train[1]), 1e-3);
}
END_TEST

static const struct {
  const char *plan, *text;
} refused[] = {
    {PLAN(BATCH("2") "moe = { aux_loss_sequences = 1 }"),
     "moe.aux_loss_sequences: no loss balances experts"},
    {PLAN(BATCH("2") "moe = { " LOSS ", aux_loss_sequences = 4 }"),
     "moe.aux_loss_sequences: 4 sequences do not divide batch.micro = 2"},
    {PLAN(BATCH("2") SINKHORN("4")),
     "moe.sinkhorn_sequences: 4 sequences do not divide batch.micro = 2"},
    {PLAN(BATCH("2") "moe = { sinkhorn_sequences = 1, " LOSS " }"),
     "moe.sinkhorn_sequences: aux_loss_coef balances the same choices by a loss"},
    {PLAN(BATCH("2") "moe = { sinkhorn_sequences = 1, num_groups = 4, group_topk = 2 }"),
     "moe.sinkhorn_sequences: num_groups limits choices that this balances"},
    {PLAN(BATCH("2") "moe = { aux_loss_batch = 'global' }"),
     "moe.aux_loss_batch: no loss balances experts"},
    {PLAN(BATCH("2") "moe = { " LOSS
                     ", aux_loss_batch = 'global', aux_loss_sequences = 1 }"),
     "moe.aux_loss_batch: aux_loss_sequences balances sequences of a microbatch"},
    {PLAN(BATCH("1") BACKWARDS GLOBAL),
     "rank 0, step 1: F of microbatch 2 comes after microbatch 3"},
    {BIASED(BATCH("2") SINKHORN("1")),
     "moe.sinkhorn_sequences balances what scores choose, and routers of this model "
     "choose by a bias"},
    {PLAN(BATCH("2") "moe = { num_groups = 4 }"),
     "moe.num_groups: num_groups and group_topk go together"},
    {PLAN(BATCH("2") "moe = { num_groups = 4, group_topk = 3 }"),
     "moe.group_topk = 3 does not divide the 4 experts of a token"},
    {PLAN(BATCH("2") "moe = { num_groups = 8, group_topk = 1 }"),
     "8 groups of the same size, of as many as are added up or more, cannot be made"},
};

/* Sigmoids that are nearly the same, and a bias that begins at 0 or at 1 and moves by
 * less than 16 bits hold beside 1. */
#define CHOOSES(begins, type)                                                            \
  "local weft = require 'weft'\n"                                                        \
  "local function model(g)\n"                                                            \
  "  local E, C, F = { 'expert', 8 }, { 'hidden', 16 }, { 'ffn', 16 }\n"                 \
  "  local e = g:param('e', { { 'vocab', 64 }, C }, { std = 0.5 })\n"                    \
  "  local x = g:embedding(g:tokens(), e)\n"                                             \
  "  x = g:layer(0, function()\n"                                                        \
  "    local t = g:flatten(x)\n"                                                         \
  "    local l = g:router_logits(t, g:param('r', { E, C }, { std = 1e-3 }))\n"           \
  "    local w, ids = g:route(l, g:param('b', { E }, { init = '" begins "' }),\n"        \
  "                           { topk = 2, score = 1, norm_topk = 1 })\n"                 \
  "    local y, ends, at = g:permute(t, ids, w, { experts = 8 })\n"                      \
  "    y = g:grouped_linear(y, g:param('up', { E, F, C }, { std = 0.5 }), ends)\n"       \
  "    y = g:grouped_linear(g:gelu(y), g:param('down', { E, C, F }, { std = 0.5 }), "    \
  "ends)\n"                                                                              \
  "    return g:add(x, g:unflatten(g:combine(y, w, at)))\n"                              \
  "  end)\n"                                                                             \
  "  return g:cross_entropy(g:linear(x, e), g:labels())\n"                               \
  "end\n"                                                                                \
  "return weft.plan { model = model, moe = { bias_update_rate = 0.0015 },\n"             \
  "  batch = { global = 8, seq = 32 }, data = weft.synthetic {},\n"                      \
  "  mesh = { dp = 2 }, train = { steps = 3 }, precision = '" type "', "

static const char *const kept_by[] = {
    "strategy = 'ddp' }", "strategy = { 'zero', stage = 1 } }", "strategy = 'fsdp2' }",
    "strategy = 'fsdp2', freeze = { 'up' } }"};

/* So it is f32 in every compute type, as the models of Hugging Face keep theirs: what all
 * experts have more of changes no choice. */
START_TEST(biases_are_not_rounded) {
  static const char *const begins[][2] = {
      {CHOOSES("zeros", "bf16"), CHOOSES("ones", "bf16")},
      {CHOOSES("zeros", "f16"), CHOOSES("ones", "f16")}};
  for (int i = 0; i < LEN(begins); i++) {
    PlanBits of[2];
    for (int k = 0; k < 2; k++)
      of[k] = run(arena_printf(arena, "%s%s", begins[i][k], kept_by[_i]));
    ck_assert_msg(apart(&of[0], &of[1]) == 0, "%g and %g", of[0].loss[1], of[1].loss[1]);
  }
}
END_TEST

START_TEST(names_what_is_wrong) {
  Text why = {0};
  VerifyReport r;
  ck_assert_int_eq(plan_parity(refused[_i].plan, 1, 1e-5, &r, &why), WEFT_EPLAN);
  ck_assert_msg(strstr(why.s, refused[_i].text), "%s\nhas no: %s", why.s,
                refused[_i].text);
  text_free(&why);
}
END_TEST

Suite *balance_suite(void);
Suite *balance_suite(void) {
  Suite *s = suite_create("balance");
  TCase *tc = tcase_create("losses");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, sequences_count_as_microbatches_of_one_rank, 0, LEN(same));
  tcase_add_loop_test(tc, the_loss_counts_what_scores_choose, 0, LEN(counted));
  tcase_add_loop_test(tc, groups_are_compared_by_logits, 0, LEN(ranked));
  tcase_add_loop_test(tc, the_same_on_every_mesh, 0, LEN(meshes));
  tcase_add_test(tc, evaluation_chooses_by_scores);
  tcase_add_loop_test(tc, biases_are_not_rounded, 0, LEN(kept_by));
  tcase_add_loop_test(tc, names_what_is_wrong, 0, LEN(refused));
  suite_add_tcase(s, tc);
  return s;
}
