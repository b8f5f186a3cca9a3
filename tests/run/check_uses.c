/* check_uses.c - parameters that are used several times: in one op, one unit, several
 * units, as other kinds of parameters, inside arithmetic; against one rank. What the
 * values themselves must be, check_oracle.c knows. A fixed sample of plans with random
 * styles stands for `./dev fuzz`. */
#include <check.h>

#include "tests/generate/random_plan.h"
#include "vm/session/verify.h"

/* ---- models by hand ---- */

/* Statements of a model: `e` is the table, `x` the activations of the unit "body", `w` a
 * square weight, `n` a norm's; `more` may become a second loss. */
static const char *const models[] = {
    /* twice in one unit, in both directions */
    "x = g:linear(g:linear(x, w), w, { layout = 1, name = 'back' })",
    /* one parameter for norm and bias, a bias that two norms share */
    "local b = g:param('b.bias', { hidden })\n"
    "x = g:layernorm(g:add_bias(x, n), n, b, { eps = 1e-5 })\n"
    "x = g:layernorm(g:linear(x, w), g:param('m.weight', { hidden }, { init = 'ones' "
    "}),\n"
    "                b, { eps = 1e-5 })",
    /* both operands of one op */
    "x = g:layernorm(g:linear(x, w), n, n, { eps = 1e-5 })\n"
    "x = g:add(x, g:linear(x, g:linear(w, w)))",
    /* weights that are computed */
    "local v = g:param('v.weight', { hidden, hidden })\n"
    "x = g:linear(g:linear(x, g:add(w, g:scale(v, { scale = 0.5 }))), g:mul(v, w))\n"
    "x = g:linear(x, w)",
    /* a gradient that an op passes through to a parameter */
    "local v = g:param('v.weight', { hidden, hidden })\n"
    "x = g:linear(x, g:add(w, g:add(v, g:scale(v, { scale = 2 }))))",
    /* more uses than a kernel has operands */
    "local y = x\nfor i = 1, 20 do y = g:add(y, g:linear(x, w)) end\nx = y",
    /* a use that the loss does not see */
    "g:silu(g:linear(x, w))\nx = g:linear(g:silu(x), w)",
};

static void plan_of(const char *body, const char *rest, Text *t) {
  text_printf(
      t,
      "local weft = require 'weft'\n"
      "local hidden, ffn, more = { 'hidden', 16 }, { 'ffn', 16 }\n"
      "local function model(g)\n"
      "  local e = g:param('embed.weight', { { 'vocab', 37 }, hidden }, { std = 0.3 })\n"
      "  local w = g:param('w.weight', { hidden, hidden }, { std = 0.2 })\n"
      "  local n = g:param('n.weight', { hidden }, { init = 'ones' })\n"
      "  local x = g:unit('embed', function() return g:embedding(g:tokens(), e) end)\n"
      "  x = g:layer(0, function()\n"
      "    local x = x\n%s\n    return x\n  end)\n"
      "  return g:layer(1, function()\n"
      "    x = g:rmsnorm(g:add(x, g:linear(x, w)), n, { eps = 1e-5 })\n"
      "    local loss = g:cross_entropy(g:linear(x, e, { name = 'head' }), g:labels())\n"
      "    return g:add(loss, g:scale(more or loss, { scale = 0.25 }))\n"
      "  end)\n"
      "end\n"
      "return weft.plan { model = model, %s\n"
      "  batch = { global = 4, micro = 1, seq = 8 }, data = weft.synthetic {},\n"
      "  optimizer = weft.adamw { lr = 1e-2 }, train = { steps = 3, seed = 3 } }\n",
      body, rest);
}

/* The gradient of a norm comes cut, that of the table whole, of w both. */
static const char *const meshes[] = {
    "mesh = { dp = 2 }, tp_plan = {},",
    "mesh = { tp = 2, dp = 2 }, tp_plan = { n = 'sequence_parallel' },",
    "mesh = { tp = 2, pp = 2 }, tp_plan = { n = 'sequence_parallel' },",
    "mesh = { tp = 2 }, tp_plan = { embed = 'embedding_rowwise' },",
    "mesh = { tp = 4 }, tp_plan = { w = 'embedding_rowwise' },",
    "mesh = { tp = 2 }, strategy = { 'zero', sequence_parallel = true }, "
    "tp_plan = { w = 'colwise_rep' },",
};

START_TEST(agrees_with_one_rank) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  plan_of(models[_i / LEN(meshes)], meshes[_i % LEN(meshes)], &plan);
  weft_status st = plan_parity(plan.s, 3, 1e-5, &r, &why);
  bool conflict = st == WEFT_EPLAN && strstr(why.s, "in two ways");
  ck_assert_msg(conflict || (st == WEFT_OK && r.ok), "%s%s", why.s ? why.s : "", plan.s);
  ck_assert_msg(!conflict || _i % LEN(meshes) > 3, "%s", why.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* One gradient crosses from each of more units than a kernel has operands. */
START_TEST(read_in_many_units) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  plan_of("", "mesh = { tp = 2, pp = 2 }, tp_plan = { n = 'sequence_parallel' },", &plan);
  char *at = strstr(plan.s, "  return g:layer(1,");
  ck_assert_ptr_nonnull(at);
  Text more = {0};
  text_printf(&more, "%.*s  local y = x\n", (int)(at - plan.s), plan.s);
  text_add(&more, "  for i = 1, 20 do\n"
                  "    y = g:layer(i, function() return g:add(y, g:linear(x, w)) end)\n"
                  "  end\n  x = y\n");
  text_printf(&more, "  return g:layer(21,%s", at + strlen("  return g:layer(1,"));
  weft_status st = plan_parity(more.s, 3, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_OK && r.ok, "%s%s", why.s ? why.s : "", more.s);
  text_free(&plan);
  text_free(&more);
  text_free(&why);
}
END_TEST

/* ---- gradients that one kernel writes ---- */

/* A norm's weight and bias in two groups of parameters: their buckets are reduced at
 * different times where W comes later than I and other parameters of the weight's bucket
 * are written in I. */
static const char *const grouped[] = {
    "mesh = { pp = 2, dp = 2 }, strategy = { 'zero', stage = 2 },",
    "mesh = { pp = 2, dp = 2, tp = 2 }, strategy = { 'zero', stage = 2 },",
    "mesh = { pp = 2, dp = 2, tp = 2 },\n"
    "  strategy = { 'zero', stage = 3, sequence_parallel = true },",
    "mesh = { pp = 2, dp = 2 }, strategy = { 'fsdp2', defer_fsdp_grad_sync = false },",
};

START_TEST(norms_in_two_groups) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  text_printf(
      &plan,
      "local weft = require 'weft'\n"
      "return weft.plan {\n"
      "  model = weft.model { 'gpt2', n_layer = 2, n_embd = 32, n_head = 4,\n"
      "    vocab_size = 37, n_positions = 8, initializer_range = 0.1 },\n"
      "  %s schedule = 'zero_bubble', batch = { global = 8, micro = 2, seq = 8 },\n"
      "  freeze = { 'h.*.mlp.c_fc', 'h.*.attn.c_attn.weight', 'h.*.attn.c_proj',\n"
      "    'h.*.ln_1.weight' },\n"
      "  groups = { { 'h.*.ln_2.bias', lr = 3, weight_decay = 0.01 } },\n"
      "  optimizer = weft.adamw { lr = 1e-2 }, data = weft.synthetic {},\n"
      "  train = { steps = 3, seed = 2 } }\n",
      grouped[_i]);
  weft_status st = plan_parity(plan.s, 3, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_OK && r.ok, "%s %s%s", r.first_bad, why.s ? why.s : "",
                plan.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* ---- messages ---- */

static const struct {
  const char *body, *rest, *text;
} refused[] = {
    {"g:linear(x, g:param('a.weight', { hidden, hidden }))\n"
     "g:param('c.weight', { hidden })",
     "",
     ".lua:10: error: plan.model: parameter a.weight does not influence the loss: remove "
     "it "
     "from the model"},
    {"g:linear(x, g:param('a.weight', { hidden, hidden }))\n"
     "g:param('c.weight', { hidden })",
     "", ".lua:11: error: plan.model: parameter c.weight does not influence"},
    {"x = g:split(g:linear(x, g:param('p.weight', { { 'ffn', 32, parts = 2 }, hidden "
     "})),\n"
     "            { n = 2 })",
     "", ".lua:10: error: plan.model: split: some results are used and some are not"},
    {"g:param('w.weight', { ffn, hidden })", "", "asked for twice with other dimensions"},
    {"x = g:linear(g:tokens(), w)", "", "operand 1 is made of integers"},
    {"x = g:add(x, g:embedding(g:positions(), g:param('p.weight', { { 'position', 4 }, "
     "hidden })))",
     "", "a table of 4 rows for 8 positions (batch.seq)"},
    /* nothing flows through a maximum: what that use adds to the gradient is not known */
    {"local m = g:ce_max(g:linear(x, e, { name = 'most' }), { vocab = 37 })\n"
     "local s = g:ce_sum(g:linear(x, e, { name = 'all' }), g:labels(), m, "
     "{ vocab = 37 })\n"
     "more = g:ce_loss(s, g:labels())",
     "",
     ".lua:10: error: plan.model: no gradient of parameter embed.weight comes from its "
     "use "
     "in linear of most"},
    /* a rank would have half of the key head that its query head needs */
    {"local function p(name, n)\n"
     "  return g:linear(x, g:param(name .. '.weight', { { 'ffn', n }, hidden }))\n"
     "end\n"
     "local a = g:attention(p('q', 32), p('k', 16), p('v', 16), { head_dim = 8 })\n"
     "x = g:linear(a, g:param('o.weight', { hidden, { 'ffn', 32 } }))",
     "mesh = { tp = 4 }, tp_plan = { q = 'colwise', k = 'colwise', v = 'colwise', "
     "o = 'rowwise' },",
     "4 does not divide the 2 heads of"},
    /* slices of two packed parts are not the rows that an unpacked weight has here */
    {"local p = g:param('p.weight', { { 'ffn', 32, parts = 2 }, hidden })\n"
     "x = g:linear(g:linear(x, p), g:param('q.weight', { hidden, { 'ffn', 32 } }))",
     "mesh = { tp = 2 }, tp_plan = { p = 'packed_colwise', q = 'rowwise' },",
     "which is cut in 2 packed parts, and q.weight, which is cut in 1"},
};

START_TEST(refuses) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  plan_of(refused[_i].body, refused[_i].rest, &plan);
  weft_status st = plan_parity(plan.s, 1, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_EPLAN, "%d: %s", st, why.s ? why.s : "");
  ck_assert_msg(strstr(why.s, refused[_i].text) != NULL, "%s", why.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* ---- random styles ---- */

enum { SAMPLE = 40 };

START_TEST(styles_agree_or_are_refused) {
  Text t = {0};
  Verdict v = styles_hold(2026, (uint64_t)_i, 2, 1e-5, &t);
  ck_assert_msg(v != DIFFERENT, "%s", t.s);
  text_free(&t);
}
END_TEST

Suite *uses_suite(void) {
  Suite *s = suite_create("uses");
  TCase *c = tcase_create("models");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, agrees_with_one_rank, 0, LEN(models) * LEN(meshes));
  tcase_add_loop_test(c, norms_in_two_groups, 0, LEN(grouped));
  tcase_add_test(c, read_in_many_units);
  tcase_add_loop_test(c, refuses, 0, LEN(refused));
  suite_add_tcase(s, c);
  c = tcase_create("styles");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, styles_agree_or_are_refused, 0, SAMPLE);
  suite_add_tcase(s, c);
  return s;
}
