/* check_trainable.c - freeze and groups: what a frozen parameter has no memory, no work
 * and no messages for, and what is wrong with patterns. That steps come to the same on
 * all meshes and in PyTorch, random plans and ./dev oracle show. */
#include <check.h>
#include <math.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/scratch.h"
#include "vm/weights/adapter_files.h"

#define MODEL                                                                            \
  "  model = weft.model { 'llama', hidden_size = 64, num_hidden_layers = 4, "            \
  "num_attention_heads = 4, intermediate_size = 128, vocab_size = 256, "                 \
  "tie_word_embeddings = %s },\n"

/* Writes a plan with this in it. */
static const char *put_plan(const char *tied, const char *fields) {
  const char *text =
      arena_printf(arena,
                   "local weft = require 'weft'\nreturn weft.plan {\n" MODEL
                   "  batch = { global = 8, micro = 1, seq = 32 },\n  %s }\n",
                   tied, fields);
  return scratch_put("plan.lua", text, strlen(text));
}

static weft_status load_plan(const char *tied, const char *fields) {
  return job_load(&job, arena, &(LangOptions){0}, put_plan(tied, fields));
}

static weft_status open_plan(const char *tied, const char *fields) {
  return job_open(&job, arena, &(LangOptions){0}, put_plan(tied, fields));
}

static const Compiled *compiled(const char *tied, const char *fields) {
  return compiled_job(&job, arena, put_plan(tied, fields), NULL, 0);
}

static int64_t elements(const Compiled *c, int pp, RegionKind k) {
  const Regions *s = &c->prog[pp].regions;
  int64_t n = 0;
  for (int i = 0; i < s->nregion; i++)
    if (s->region[i].kind == k) n += s->region[i].whole;
  return n;
}

/* ---- what frozen parameters cost ---- */

#define FRONT "freeze = { 'embed_tokens', 'layers.0', 'layers.1' }"

/* The first of two stages has nothing that learns: it computes no gradient, gets none and
 * keeps nothing of the forward. */
START_TEST(frozen_stage) {
  const Compiled *c = compiled("false", "mesh = { pp = 2 }, " FRONT);
  const Program *first = &c->prog[0], *last = &c->prog[1];
  for (RegionKind k = REGION_GRAD; k <= REGION_STATE2; k++) {
    ck_assert_int_eq(elements(c, 0, k), 0);
    ck_assert_int_gt(elements(c, 1, k), 0);
  }
  ck_assert_int_eq(elements(c, 0, REGION_WORK),
                   256 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64));
  ck_assert_int_eq(program_codes(first, I_RECV), 0);
  ck_assert_int_eq(program_codes(last, I_SEND), 0);
  ck_assert_int_eq(program_codes(last, I_RECV), program_codes(first, I_SEND));
  ck_assert_int_eq(program_ops(first, OP_linear_dx) + program_ops(first, OP_linear_dw),
                   0);
  uint64_t activations = 0;
  for (int i = 0; i < first->nmem; i++)
    if (strcmp(first->mem[i].name, "activations") == 0) activations = first->mem[i].bytes;
  /* an activation on its way and the one before it, and nothing for a backward */
  ck_assert_uint_le(activations, 4 * 32 * 64 * 4);
  job_free(&job);
}
END_TEST

/* Of a layer behind one that learns the input gradient is needed, and no other. */
START_TEST(frozen_behind) {
  const Compiled *c = compiled(
      "false",
      "mesh = { pp = 1 }, fused_ops = false, freeze = { 'layers.*', 'norm', 'lm_head' }");
  int dx = program_ops(&c->prog[0], OP_linear_dx);
  ck_assert_int_ge(dx, 7);
  ck_assert_int_eq(program_ops(&c->prog[0], OP_linear_dw), 0);
  ck_assert_int_eq(program_ops(&c->prog[0], OP_rmsnorm_dw), 0);
  ck_assert_int_eq(program_ops(&c->prog[0], OP_embedding_dw), 1);
  ck_assert_int_eq(elements(c, 0, REGION_GRAD), 256 * 64);
  job_free(&job);
}
END_TEST

/* A value that nothing steps needs no f32 master beside it. */
START_TEST(no_master) {
  const Compiled *c = compiled("false", "precision = 'bf16', " FRONT);
  int64_t all = elements(c, 0, REGION_WORK), master = elements(c, 0, REGION_MASTER);
  ck_assert_int_gt(master, 0);
  int64_t frozen = 256 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64);
  ck_assert_int_ge(all - master, frozen);
  ck_assert_int_lt(all - master, frozen + 1024); /* padding */
  job_free(&job);
}
END_TEST

/* Frozen parameters are gathered where the strategy keeps shards, and their gradients are
 * not reduced: two more gathers of a layer, of which nothing learns, need no scatter. */
START_TEST(frozen_shards) {
  const Compiled *c = compiled("false", "mesh = { dp = 2 }, strategy = 'fsdp2', " FRONT);
  const Compiled *all = c;
  int gathers = program_codes(&c->prog[0], I_GATHER);
  int scatters = program_codes(&c->prog[0], I_SCATTER);
  job_free(&job);
  all = compiled("false", "mesh = { dp = 2 }, strategy = 'fsdp2'");
  ck_assert_int_gt(gathers, 6);
  ck_assert_int_gt(program_codes(&all->prog[0], I_GATHER),
                   gathers); /* none for a backward */
  ck_assert_int_lt(scatters, program_codes(&all->prog[0], I_SCATTER));
  ck_assert_int_gt(scatters, 0);
  job_free(&job);
}
END_TEST

/* A tied weight is one parameter, whatever it is called. */
START_TEST(tied) {
  static const char *const name[] = {"lm_head", "embed_tokens"};
  for (int i = 0; i < 2; i++) {
    const Compiled *c =
        compiled("true", arena_printf(arena, "freeze = { '%s' }", name[i]));
    ck_assert_int_eq(program_ops(&c->prog[0], OP_embedding_dw), 0);
    bool frozen = false;
    for (int k = 0; k < c->nparam; k++)
      if (strcmp(c->param[k].name, "model.embed_tokens.weight") == 0)
        frozen = c->param[k].frozen;
    ck_assert(frozen);
    job_free(&job);
  }
}
END_TEST

/* Behind frozen parameters a unit passes no gradient on: its whole backward is W, where
 * products that are one still follow what they read. */
START_TEST(fused_without_input_gradient) {
  static const char *const mesh[] = {"{ pp = 1 }", "{ pp = 2 }", "{ tp = 2 }"};
  JobVerify v = {.steps = 2};
  compiled("false",
           arena_printf(arena, "mesh = %s, freeze = { 'embed_tokens' }", mesh[_i]));
  ck_assert_int_ge(program_ops(&job.compiled->prog[0], OP_rope_qkv_dx), 1);
  job_free(&job);
  ck_assert_int_eq(load_plan("false", arena_printf(arena,
                                                   "mesh = %s, freeze = { "
                                                   "'embed_tokens' }",
                                                   mesh[_i])),
                   WEFT_OK);
  ck_assert_msg(job_verify(&job, &v) == WEFT_OK, "%s", job.e.text);
  job_free(&job);
}
END_TEST

/* ---- groups ---- */

START_TEST(groups) {
  const Compiled *c = compiled(
      "false",
      "groups = { { 'norm', 'layers.*.input_layernorm', weight_decay = 0.5 }, "
      "{ 'lm_head', lr = 0.25 } }, optimizer = weft.adamw { weight_decay = 0.1 }");
  int decayed = 0, slow = 0;
  for (uint32_t i = 0; i < c->prog[0].ncode; i++) {
    const Instr *x = &c->prog[0].code[i];
    if (x->code != I_KERNEL || x->op != OP_adamw) continue;
    const OpAttr *a = &c->prog[0].attr[x->attr];
    decayed += a->weight_decay == 0.5 && a->lr == 0;
    slow += a->weight_decay == 0.1 && a->lr == 0.25;
  }
  ck_assert_int_eq(decayed, 1);
  ck_assert_int_eq(slow, 1);
  job_free(&job);
}
END_TEST

/* Biases of experts, a row each, are vectors as other biases are; a router is none. */
START_TEST(biases_of_experts_do_not_decay) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'gpt_oss', hidden_size = 32,\n"
      "  num_hidden_layers = 1, num_attention_heads = 2, num_key_value_heads = 1,\n"
      "  head_dim = 16, intermediate_size = 32, vocab_size = 64,\n"
      "  num_local_experts = 4, num_experts_per_tok = 2 },\n"
      "  batch = { global = 2, micro = 1, seq = 16 },\n"
      "  optimizer = weft.adamw { weight_decay = 0.1 } }\n";
  const char *path = scratch_put("experts.lua", plan, sizeof plan - 1);
  const Compiled *c = compiled_job(&job, arena, path, NULL, 0);
  int of_experts = 0, routers = 0;
  for (int i = 0; i < c->nparam; i++) {
    const char *name = c->param[i].name;
    bool vector = strstr(name, "bias") || strstr(name, "norm") || strstr(name, "sinks");
    ck_assert_msg(c->param[i].decay == !vector, "%s", name);
    of_experts += strstr(name, "proj_bias") != NULL;
    routers += strstr(name, "router.weight") != NULL;
  }
  ck_assert_int_eq(of_experts, 2);
  ck_assert_int_eq(routers, 1);
  job_free(&job);
}
END_TEST

/* The weight of a router is a matrix, also where it begins at zeros as biases do. */
START_TEST(routers_of_zeros_decay) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "local hidden, expert = { 'hidden', 32 }, { 'expert', 4 }\n"
      "local function model(g)\n"
      "  local x = g:unit('embed', function()\n"
      "    return g:embedding(g:tokens(), g:param('embed.weight', { { 'vocab', 64 }, "
      "hidden }))\n"
      "  end)\n"
      "  x = g:layer(0, function()\n"
      "    local t = g:flatten(x)\n"
      "    local w = g:param('layers.0.router.weight', { expert, hidden }, { init = "
      "'zeros' })\n"
      "    local l = g:router_logits(t, w)\n"
      "    local weights, ids = g:route(l, nil, { topk = 2, score = 0, norm_topk = 1 })\n"
      "    local rows, offsets, places = g:permute(t, ids, weights, { experts = 4 })\n"
      "    local up = g:param('layers.0.up', { expert, { 'ffn', 32 }, hidden })\n"
      "    rows = g:grouped_linear(rows, up, offsets)\n"
      "    return g:add(x, g:unflatten(g:combine(rows, weights, places)))\n"
      "  end)\n"
      "  return g:unit('head', function()\n"
      "    local w = g:param('head.weight', { { 'vocab', 64 }, hidden })\n"
      "    return g:cross_entropy(g:linear(x, w, { name = 'head' }), g:labels())\n"
      "  end)\n"
      "end\n"
      "return weft.plan { model = model, batch = { global = 2, micro = 1, seq = 16 },\n"
      "  optimizer = weft.muon { weight_decay = 0.1 } }\n";
  const char *path = scratch_put("router.lua", plan, sizeof plan - 1);
  const Compiled *c = compiled_job(&job, arena, path, NULL, 0);
  int routers = 0;
  for (int i = 0; i < c->nparam; i++) {
    if (!strstr(c->param[i].name, "router.weight")) continue;
    ck_assert(c->param[i].decay && c->param[i].matrix);
    routers++;
  }
  ck_assert_int_eq(routers, 1);
  job_free(&job);
}
END_TEST

/* ---- what is wrong ---- */

static const struct {
  const char *fields, *says;
} wrong[] = {
    {"freeze = { 'embed_token' }",
     "freeze[1]: \"embed_token\" names no parameter or module of the model (did you mean "
     "\"embed_tokens\"?)"},
    {"freeze = { 'layers.*.mlp', 'layers.*.self_attn.q_prj' }",
     "freeze[2]: \"layers.*.self_attn.q_prj\" names no parameter or module of the model "
     "(did "
     "you mean \"layers.*.self_attn.q_proj\"?)"},
    {"freeze = { 'embed_tokens', 'layers.*', 'norm', 'lm_head' }",
     "freeze: all 39 parameters are frozen: nothing learns"},
    {"freeze = 'norm'", "freeze: expected a list of patterns, got string \"norm\""},
    {"groups = { { 'norm', lr = 2 }, { 'layers.*', 'norm', lr = 3 } }",
     "groups[2]: model.norm.weight is in group 1 already: a parameter is in one group"},
    {"freeze = { 'norm' }, groups = { { 'norm', lr = 2 } }",
     "groups[1][1]: all that \"norm\" names is frozen: it is not stepped"},
    {"adapter = { 'lora', rank = 4, targets = { 'q_proj', 'v_prjo' } }",
     "adapter.targets[2]: \"v_prjo\" matches no linear of the model (did you mean "
     "\"v_proj\"?)"},
    {"adapter = { 'lora' }", "adapter.rank: this field is required"},
    {"adapter = { 'lora', rank = 4, alpha = 0 }",
     "adapter.alpha: expected a number of at least 1e-06, got number 0"},
    {"adapter = { 'lora', rank = 4, dropout = 1 }",
     "adapter.dropout: expected a number of at most 0.99, got number 1"},
    {"adapter = { 'qlora', rank = 4, base = 'unquantized' }",
     "adapter.base: \"qlora\" has this on: leave it out, or name it \"lora\""},
    {"adapter = { 'dora', rank = 4, dora = false }",
     "adapter.dora: \"dora\" has this on"},
    {"adapter = { 'ia3', rank = 4 }", "adapter: "},
    {"adapter = { 'lora', rank = 4, targets = {} }", "adapter.targets: names no linear"},
    {"adapter = { 'lora', rank = 4, target_modules = {} }",
     "adapter.target_modules: unknown field"},
    {"adapter = { 'lora', rank = 4 }, groups = { { 'norm', lr = 2 } }",
     "groups[1][1]: all that \"norm\" names is frozen"},
    {"groups = { { 'norm' } }", "groups[1]: says nothing of its parameters"},
    {"groups = { { lr = 2 } }", "groups[1]: names no parameters: the items are patterns"},
    {"groups = { { 'norm', lr = 0 } }",
     "groups[1].lr: 0 times the learning rate learns nothing (freeze = { patterns }"},
    {"groups = { { 'norm', lrr = 1 } }",
     "groups[1].lrr: unknown field (did you mean \"lr\"?)"},
    {"groups = { { 'nrom', lr = 2 } }",
     "groups[1][1]: \"nrom\" names no parameter or module of the model (did you mean "
     "\"norm\"?)"},
};

START_TEST(named_errors) {
  ck_assert_int_eq(open_plan("false", wrong[_i].fields), WEFT_EPLAN);
  Text t = {0};
  report_text(&job.d, false, &t);
  ck_assert_msg(t.s && strstr(t.s, wrong[_i].says), "%s\nsays %s", wrong[_i].fields,
                t.s ? t.s : "nothing");
  text_free(&t);
  job_free(&job);
}
END_TEST

/* An adapter freezes the model, so a pattern that names nothing of the adapter says
 * nothing new; that of a whole layer does. */
START_TEST(frozen_by_an_adapter) {
  static const struct {
    const char *freeze;
    bool told;
  } kind[] = {{"embed_tokens", true}, {"layers.1.mlp", true}, {"layers.1", false}};
  for (int i = 0; i < LEN(kind); i++) {
    const char *fields = arena_printf(
        arena,
        "adapter = { 'lora', rank = 4, targets = { 'q_proj' } }, freeze = { '%s' }",
        kind[i].freeze);
    ck_assert_int_eq(open_plan("false", fields), WEFT_OK);
    Text t = {0};
    report_text(&job.d, false, &t);
    const char *says = arena_printf(
        arena, "freeze[1]: has no effect: all that \"%s\" names is frozen by the adapter",
        kind[i].freeze);
    ck_assert_msg(!!(t.s && strstr(t.s, says)) == kind[i].told, "%s\nsays %s", fields,
                  t.s ? t.s : "nothing");
    text_free(&t);
    job_free(&job);
  }
}
END_TEST

/* A head that reads the embeddings' table has no weight whose norms magnitudes begin as.
 */
START_TEST(tied_head_has_no_magnitudes) {
  ck_assert_int_eq(
      open_plan("true",
                "adapter = { 'lora', rank = 4, dora = true, targets = { 'lm_head' } }"),
      WEFT_EPLAN);
  Text t = {0};
  report_text(&job.d, false, &t);
  ck_assert_msg(t.s &&
                    strstr(t.s, "adapter.targets[1]: lm_head is tied: its adapter has"),
                "%s", t.s ? t.s : "nothing");
  text_free(&t);
  job_free(&job);
}
END_TEST

/* ---- adapters ---- */

static const CompiledParam *param_named(const Compiled *c, const char *name) {
  for (int i = 0; i < c->nparam; i++)
    if (strcmp(c->param[i].name, name) == 0) return &c->param[i];
  ck_abort_msg("there is no %s", name);
  return NULL;
}

#define LAYER "model.layers.1."
/* What a style cuts of the base it cuts of A or B, and a partial sum of the base is
 * summed once, with that of the adapter. */
START_TEST(cut_as_their_base) {
  static const struct {
    const char *name;
    int cut;
  } of[] = {{LAYER "mlp.up_proj.lora_A.weight", PL_R},
            {LAYER "mlp.up_proj.lora_B.weight", 0},
            {LAYER "mlp.up_proj.lora_magnitude_vector", 0},
            {LAYER "mlp.down_proj.lora_A.weight", 1},
            {LAYER "mlp.down_proj.lora_B.weight", PL_R},
            {LAYER "mlp.down_proj.lora_magnitude_vector", PL_R}};
  const Compiled *c = compiled("false", "mesh = { tp = 2 }");
  int sums = program_codes(&c->prog[0], I_COLL);
  job_free(&job);
  c = compiled("false", "mesh = { tp = 2 }, adapter = { 'lora', rank = 4, dora = true }");
  for (int i = 0; i < LEN(of); i++) {
    const CompiledParam *p = param_named(c, of[i].name);
    ck_assert_msg(p->place.on[AX_TP] == of[i].cut, "%s", of[i].name);
    ck_assert(!p->frozen);
  }
  ck_assert(param_named(c, LAYER "mlp.up_proj.weight")->frozen);
  ck_assert_int_eq(param_named(c, LAYER "mlp.up_proj.lora_A.weight")->dim[0], 4);
  ck_assert_int_eq(param_named(c, LAYER "mlp.up_proj.lora_A.weight")->dim[1], 64);
  job_free(&job);
  c = compiled("false", "mesh = { tp = 2 }, adapter = { 'lora', rank = 4 }");
  int forward = 0;
  for (int b = 0; b < c->prog[0].nbody; b++) {
    const Body *x = &c->prog[0].body[b];
    for (uint32_t i = x->first; x->phase == PH_F && i < x->first + x->n; i++)
      forward += c->prog[0].code[i].code == I_COLL;
  }
  ck_assert_int_gt(sums, forward);
  job_free(&job);
}
END_TEST

/* Attention gives the gradients of keys and values, too, which travel around the ring of
 * cp where they are wanted: for an adapter of the queries they do not. */
START_TEST(ring_of_queries_alone) {
  static const char *const targets[] = {"'all-linear'", "{ 'q_proj' }"};
  int shifts[2];
  for (int i = 0; i < 2; i++) {
    const Compiled *c = compiled(
        "false", arena_printf(arena,
                              "mesh = { cp = 4 }, cp = { comm = 'ring' }, freeze = { "
                              "'embed_tokens', 'norm' }, adapter = { 'lora', rank = 4, "
                              "targets = %s }",
                              targets[i]));
    shifts[i] = 0;
    const Program *p = &c->prog[0];
    for (uint32_t k = 0; k < p->ncode; k++)
      shifts[i] += p->code[k].code == I_COLL && p->code[k].coll == COLL_SHIFT;
    job_free(&job);
  }
  /* the first layer sends keys and values three times forward and three times for the
   * backward; not their gradients, four times */
  ck_assert_int_eq(shifts[0] - shifts[1], 8);
}
END_TEST

/* The first step begins at the base: B is 0, and A is uniform in +-1/sqrt(in). */
START_TEST(initial_values) {
  const Compiled *c = compiled("false", "adapter = { 'lora', rank = 4 }");
  const CompiledParam *a = param_named(c, LAYER "mlp.down_proj.lora_A.weight");
  ck_assert_int_eq(a->init, INIT_UNIFORM);
  ck_assert_double_eq_tol(a->std, 1 / sqrt(128), 1e-7);
  ck_assert_int_eq(param_named(c, LAYER "mlp.down_proj.lora_B.weight")->init, INIT_ZEROS);
  job_free(&job);
}
END_TEST

/* The adapter of a tied head is of the head, beside a table that stays as it is. */
START_TEST(tied_head_has_its_own) {
  weft_error e = {.rank = -1};
  const Compiled *c = compiled(
      "true", "adapter = { 'lora', rank = 4, targets = { 'lm_head', 'q_proj' } }");
  ck_assert_int_eq(param_named(c, "lm_head.lora_A.weight")->adapter, ADAPTER_A);
  Text t = {0};
  adapter_config(c, &job.plan, job.graph, NULL, &t);
  ck_assert_msg(strstr(t.s, "\"lm_head\"") && strstr(t.s, "\"q_proj\""), "%s", t.s);
  text_free(&t);
  ck_assert_int_eq(adapter_merges(c, &e), WEFT_EPLAN);
  ck_assert_msg(strstr(e.text, "lm_head.lora_A.weight is of a head that reads"), "%s",
                e.text);
  job_free(&job);
  err_clear(&e);
  c = compiled("true", "adapter = { 'lora', rank = 4 }");
  ck_assert_int_eq(adapter_merges(c, &e), WEFT_OK);
  job_free(&job);
}
END_TEST

/* PEFT knows modules of files, where q, k and v of some models are one. */
START_TEST(parts_of_modules_have_no_folder) {
  static const char *const packed[] = {"qkv_proj", "gate_up_proj", NULL};
  weft_error e = {.rank = -1};
  const Compiled *c = compiled("false", "adapter = { 'lora', rank = 4 }");
  ck_assert_int_eq(adapter_fits(c, NULL, &e), WEFT_OK);
  ck_assert_int_eq(adapter_fits(c, packed, &e), WEFT_EPLAN);
  ck_assert_msg(strstr(e.text,
                       "model.layers.0.self_attn.q_proj.weight has an adapter, but "
                       "files of this model have it as a part of "
                       "model.layers.0.self_attn.qkv_proj.weight"),
                "%s", e.text);
  job_free(&job);
  err_clear(&e);
  c = compiled("false", "adapter = { 'lora', rank = 4, targets = { 'o_proj' } }");
  ck_assert_int_eq(adapter_fits(c, packed, &e), WEFT_OK);
  job_free(&job);
}
END_TEST

#define PHI3                                                                             \
  "local weft = require 'weft'\nreturn weft.plan {\n  model = weft.model { 'phi3', "     \
  "vocab_size = 64, hidden_size = 32, intermediate_size = 48, num_hidden_layers = 2, "   \
  "num_attention_heads = 4, num_key_value_heads = 2 },\n"                                \
  "  batch = { global = 4, micro = 1, seq = 16 }, mesh = { tp = 2, pp = 2 },\n"          \
  "  adapter = { 'lora', rank = 4, alpha = 8, dropout = 0.2, dora = true,\n"             \
  "    targets = { 'qkv_proj', 'gate_up_proj' }, rank_pattern = { qkv_proj = 2 } } }\n"

/* q, k and v read one A, and each has its rows of the B that PEFT knows. */
START_TEST(modules_of_files_have_one_adapter) {
  static const char *const packed[] = {"qkv_proj", "gate_up_proj", NULL};
  static const struct {
    const char *part;
    int64_t first;
  } rows[] = {{"q_proj", 0}, {"k_proj", 64}, {"v_proj", 96}};
  JobVerify v = {.steps = 3};
  weft_error e = {.rank = -1};
  const char *path = scratch_put("plan.lua", PHI3, strlen(PHI3));
  const Compiled *c = compiled_job(&job, arena, path, NULL, 0);
  ck_assert_int_eq(adapter_fits(c, packed, &e), WEFT_OK);
  ck_assert_int_eq(param_named(c, LAYER "self_attn.qkv_proj.lora_A.weight")->dim[0], 2);
  ck_assert_int_eq(param_named(c, LAYER "mlp.gate_up_proj.lora_A.weight")->dim[0], 4);
  for (int i = 0; i < LEN(rows); i++) {
    char name[512];
    int64_t all, first;
    const char *b = arena_printf(arena, LAYER "self_attn.%s.lora_B.weight", rows[i].part);
    int param = (int)(param_named(c, b) - c->param);
    ck_assert(adapter_packed(c, param, name, &all, &first));
    ck_assert_str_eq(name,
                     ADAPTER_PREFIX "model.layers.1.self_attn.qkv_proj.lora_B.weight");
    ck_assert_int_eq(all, 64);
    ck_assert_int_eq(first, rows[i].first);
  }
  Text t = {0};
  adapter_config(c, &job.plan, job.graph, NULL, &t);
  ck_assert_msg(strstr(t.s, "\"qkv_proj\",") && !strstr(t.s, "\"q_proj\""), "%s", t.s);
  text_free(&t);
  job_free(&job);
  ck_assert_int_eq(job_load(&job, arena, &(LangOptions){0}, path), WEFT_OK);
  ck_assert_msg(job_verify(&job, &v) == WEFT_OK, "%s", job.e.text);
  job_free(&job);
}
END_TEST

static const char *const adapted[] = {
    "mesh = { tp = 2 }, strategy = { 'zero', sequence_parallel = true }",
    "mesh = { pp = 2 }, schedule = 'zero_bubble'",
    "mesh = { cp = 2 }, recompute = 'full'",
    "mesh = { dp = 2 }, strategy = 'fsdp2'",
    "mesh = { dp = 2, tp = 2 }, strategy = 'fsdp2', precision = 'bf16'",
    "mesh = { tp = 2, pp = 2 }, freeze = { 'layers.0' }, groups = { { 'layers.3', lr = 2 "
    "} }",
};

/* Of each mesh some: plain, with magnitudes, with these and masks, masks of what is
 * added. */
static const char *const options[] = {"", ", dora = true", ", dora = true, dropout = 0.2",
                                      ", dropout = 0.2, dropout_position = 'post'"};

START_TEST(adapters_agree_with_one_rank) {
  JobVerify v = {.steps = 3};
  const char *mesh = adapted[_i / LEN(options)], *option = options[_i % LEN(options)];
  const char *fields = arena_printf(
      arena, "%s, adapter = { 'lora', rank = 4, alpha = 8%s }", mesh, option);
  ck_assert_int_eq(load_plan("false", fields), WEFT_OK);
  ck_assert_msg(job_verify(&job, &v) == WEFT_OK, "%s: %s", fields, job.e.text);
  ck_assert_int_gt(v.report.tensors, 100);
  job_free(&job);
}
END_TEST

Suite *trainable_suite(void);
Suite *trainable_suite(void) {
  Suite *s = suite_create("trainable");
  TCase *t = tcase_create("frozen");
  tcase_add_checked_fixture(t, job_setup, job_teardown);
  tcase_add_test(t, frozen_stage);
  tcase_add_test(t, frozen_behind);
  tcase_add_test(t, no_master);
  tcase_add_test(t, frozen_shards);
  tcase_add_test(t, tied);
  tcase_add_loop_test(t, fused_without_input_gradient, 0, 3);
  tcase_add_test(t, groups);
  tcase_add_test(t, biases_of_experts_do_not_decay);
  tcase_add_test(t, routers_of_zeros_decay);
  tcase_add_loop_test(t, named_errors, 0, LEN(wrong));
  suite_add_tcase(s, t);
  t = tcase_create("adapters");
  tcase_set_timeout(t, 60);
  tcase_add_checked_fixture(t, job_setup, job_teardown);
  tcase_add_test(t, frozen_by_an_adapter);
  tcase_add_test(t, tied_head_has_no_magnitudes);
  tcase_add_test(t, tied_head_has_its_own);
  tcase_add_test(t, modules_of_files_have_one_adapter);
  tcase_add_test(t, cut_as_their_base);
  tcase_add_test(t, initial_values);
  tcase_add_test(t, ring_of_queries_alone);
  tcase_add_test(t, parts_of_modules_have_no_folder);
  tcase_add_loop_test(t, adapters_agree_with_one_rank, 0, LEN(adapted) * LEN(options));
  suite_add_tcase(s, t);
  return s;
}
