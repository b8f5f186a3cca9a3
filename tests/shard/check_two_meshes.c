/* check_two_meshes.c - models that read tokens on the mesh of experts, as g:flatten gives
 * them there, beside what lies on the dense mesh: against one rank, or refused. */
#include <check.h>

#include "tests/generate/random_plan.h"
#include "vm/session/verify.h"

/* A layer of the statements `layer`, which make y (batch, seq, hidden) of h: mlp and norm
 * have weights of the layer, experts() gives the flattened tokens and what the experts
 * make of them. The statements `head` make logits of x and the labels for them. */
static void plan_of(const char *layer, const char *head, const char *rest, Text *t) {
  text_printf(
      t,
      "local weft = require 'weft'\n"
      "local hidden, ffn, vocab = { 'hidden', 16 }, { 'ffn', 32 }, { 'vocab', 37 }\n"
      "local function layer(g, i, x)\n"
      "  local function p(name, ...)\n"
      "    return g:param('layers.' .. i .. '.' .. name .. '.weight', ...)\n"
      "  end\n"
      "  local h = g:rmsnorm(x, p('norm', { hidden }, { init = 'ones' }), { eps = 1e-5 "
      "})\n"
      "  local function mlp(t)\n"
      "    local up = g:linear(t, p('up', { ffn, hidden }, { std = 0.2 }))\n"
      "    return g:linear(g:relu(up), p('down', { hidden, ffn }, { std = 0.2 }))\n"
      "  end\n"
      "  local function norm(t)\n"
      "    return g:rmsnorm(t, p('post', { hidden }, { init = 'ones' }), { eps = 1e-5 "
      "})\n"
      "  end\n"
      "  local function experts()\n"
      "    local t, e, into = g:flatten(h), { 'expert', 4 }, { 'ffn', 8 }\n"
      "    local logits = g:router_logits(t, p('gate', { e, hidden }, { std = 0.2 }))\n"
      "    local weights, ids = g:route(logits, { topk = 2, score = 0, norm_topk = 1,\n"
      "                                           scale = 1 })\n"
      "    local rows, ends, at = g:permute(t, ids, weights, { experts = 4 })\n"
      "    local w = p('experts.up', { e, into, hidden }, { std = 0.2 })\n"
      "    local v = p('experts.down', { e, hidden, into }, { std = 0.2 })\n"
      "    local y = g:grouped_linear(g:relu(g:grouped_linear(rows, w, ends)), v, ends)\n"
      "    return t, g:combine(y, weights, at)\n"
      "  end\n"
      "  local y, t\n"
      "  %s\n"
      "  return g:add(x, y)\n"
      "end\n"
      "local function model(g)\n"
      "  local e = g:param('embed.weight', { vocab, hidden }, { std = 0.3 })\n"
      "  local x = g:unit('embed', function() return g:embedding(g:tokens(), e) end)\n"
      "  for i = 0, 1 do x = g:layer(i, function() return layer(g, i, x) end) end\n"
      "  return g:unit('head', function()\n"
      "    local w = g:param('head.weight', { vocab, hidden }, { std = 0.2 })\n"
      "    return g:cross_entropy(%s)\n"
      "  end)\n"
      "end\n"
      "return weft.plan { model = model, %s\n"
      "  batch = { global = 4, micro = 1, seq = 8 }, data = weft.synthetic {},\n"
      "  optimizer = weft.adamw { lr = 1e-2 }, train = { steps = 3, seed = 3 } }\n",
      layer, head, rest);
}

#define ROWS      "g:linear(x, w), g:labels()"
#define FLATTENED "g:linear(g:flatten(x), w), g:flatten(g:labels())"
#define MLP       "['layers.*.up'] = 'colwise', ['layers.*.down'] = 'rowwise'"
#define EP        "mesh = { tp = 2, dp = 2, ep = 2, etp = 1 }, "
#define EP_ETP    "mesh = { tp = 2, dp = 2, ep = 2, etp = 2 }, "
#define EXCHANGE  "moe = { dispatcher = 'alltoall' }, "

/* ---- on the mesh where they belong ---- */

static const struct {
  const char *layer, *head, *rest;
} right[] = {
    /* a dense layer beside experts reads (batch, seq, hidden), or is whole */
    {"t, y = experts() y = g:add(g:unflatten(y), mlp(h))", ROWS,
     EP "tp_plan = { " MLP " },"},
    {"t, y = experts() y = g:unflatten(g:add(y, mlp(t)))", ROWS, EP "tp_plan = {},"},
    {"t, y = experts() y = g:unflatten(y)", FLATTENED, EP "tp_plan = {},"},
    /* without a mesh of their own, tokens are where they were */
    {"t, y = experts() y = g:unflatten(g:add(y, mlp(t)))", FLATTENED,
     "mesh = { tp = 2, dp = 2 }, tp_plan = { " MLP ", head = 'colwise' },"},
    /* without experts etp says nothing */
    {"y = g:unflatten(mlp(g:flatten(h)))", ROWS,
     "mesh = { tp = 2, dp = 2, etp = 1 }, tp_plan = { " MLP " },"},
    /* parameters that are read on both: of all tokens, and of those that are whole again
     * over a part of the mesh only */
    {"t, y = experts() y = g:add(g:unflatten(g:add(y, mlp(t))), mlp(h))", ROWS,
     EP EXCHANGE "tp_plan = {},"},
    {"t, y = experts() y = g:add(g:unflatten(norm(y)), norm(h))", ROWS,
     EP "tp_plan = {},"},
    {"t, y = experts() y = g:add(g:unflatten(norm(y)), norm(h))", ROWS,
     EP_ETP EXCHANGE "tp_plan = {},"},
    {"t, y = experts() y = g:add(g:unflatten(norm(y)), norm(h))", ROWS,
     EP_ETP EXCHANGE "tp_plan = {}, strategy = { 'zero', stage = 3 },"},
};

START_TEST(agrees_with_one_rank) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  plan_of(right[_i].layer, right[_i].head, right[_i].rest, &plan);
  weft_status st = plan_parity(plan.s, 3, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_OK && r.ok, "%s %s%s", st == WEFT_OK ? r.first_bad : "",
                why.s ? why.s : "", plan.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* ---- on both at once ---- Ranks of tp have different tokens there, so that nothing may
 * be cut over tp, or summed up, as if they were the same. */

static const struct {
  const char *layer, *head, *rest, *text[2];
} wrong[] = {
    {"t, y = experts() y = g:unflatten(g:add(y, mlp(t)))",
     ROWS,
     EP "tp_plan = { " MLP " },",
     {".lua:39: error: plan.tp_plan[\"layers.*.up\"]: layers.0.up reads flattened tokens",
      "plan.tp_plan[\"layers.*.down\"]: layers.0.down reads flattened tokens"}},
    {"t, y = experts() y = g:unflatten(g:add(y, mlp(t)))",
     ROWS,
     EP_ETP EXCHANGE "tp_plan = { " MLP " },",
     {"layers.0.up reads flattened tokens", "and style rowwise cuts the features"}},
    {"t, y = experts() y = g:unflatten(y)",
     FLATTENED,
     EP "tp_plan = { head = 'colwise' },",
     {"plan.tp_plan[\"head\"]: head reads flattened tokens",
      "let it read (batch, seq, features), or replicate it"}},
};

START_TEST(refuses) {
  Text plan = {0}, why = {0};
  VerifyReport r;
  plan_of(wrong[_i].layer, wrong[_i].head, wrong[_i].rest, &plan);
  weft_status st = plan_parity(plan.s, 1, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_EPLAN, "%d: %s", st, why.s ? why.s : "");
  for (int k = 0; k < LEN(wrong[_i].text); k++)
    ck_assert_msg(strstr(why.s, wrong[_i].text[k]) != NULL, "%s", why.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

Suite *two_meshes_suite(void) {
  Suite *s = suite_create("two_meshes");
  TCase *c = tcase_create("flattened tokens");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, agrees_with_one_rank, 0, LEN(right));
  tcase_add_loop_test(c, refuses, 0, LEN(wrong));
  suite_add_tcase(s, c);
  return s;
}
