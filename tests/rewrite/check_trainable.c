/* check_trainable.c - freeze and groups: what a frozen parameter has no memory, no work and
 * no messages for, and what is wrong with patterns. That steps come to the same on all
 * meshes and in PyTorch, random plans and ./dev oracle show. */
#include <check.h>

#include "bindings/api/job.h"
#include "tests/harness/scratch.h"

static Arena *arena;
static Job job;

static void setup(void) {
  scratch_setup();
  arena = arena_new(NULL);
}
static void teardown(void) {
  arena_free(arena);
  scratch_teardown();
}

#define MODEL                                                                             \
  "  model = weft.model { 'llama', hidden_size = 64, num_hidden_layers = 4, "             \
  "num_attention_heads = 4, intermediate_size = 128, vocab_size = 256, "                  \
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
  weft_status st = open_plan(tied, fields);
  Text t = {0};
  report_text(&job.d, false, &t);
  ck_assert_msg(st == WEFT_OK && job.compiled, "%s%s", t.s ? t.s : "", job.e.text);
  text_free(&t);
  return job.compiled;
}

static int64_t elements(const Compiled *c, int pp, RegionKind k) {
  const Regions *s = &c->prog[pp].regions;
  int64_t n = 0;
  for (int i = 0; i < s->nregion; i++)
    if (s->region[i].kind == k) n += s->region[i].whole;
  return n;
}

static int count_code(const Program *p, InstrCode code) {
  int n = 0;
  for (uint32_t i = 0; i < p->ncode; i++) n += p->code[i].code == code;
  return n;
}

static int count_op(const Program *p, int op) {
  int n = 0;
  for (uint32_t i = 0; i < p->ncode; i++)
    n += p->code[i].code == I_KERNEL && p->code[i].op == op;
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
  ck_assert_int_eq(elements(c, 0, REGION_WORK), 256 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64));
  ck_assert_int_eq(count_code(first, I_RECV), 0);
  ck_assert_int_eq(count_code(last, I_SEND), 0);
  ck_assert_int_eq(count_code(last, I_RECV), count_code(first, I_SEND));
  ck_assert_int_eq(count_op(first, OP_linear_dx) + count_op(first, OP_linear_dw), 0);
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
      "false", "mesh = { pp = 1 }, fused_ops = false, freeze = { 'layers.*', 'norm', 'lm_head' }");
  int dx = count_op(&c->prog[0], OP_linear_dx);
  ck_assert_int_ge(dx, 7);
  ck_assert_int_eq(count_op(&c->prog[0], OP_linear_dw), 0);
  ck_assert_int_eq(count_op(&c->prog[0], OP_rmsnorm_dw), 0);
  ck_assert_int_eq(count_op(&c->prog[0], OP_embedding_dw), 1);
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
  const Compiled *c =
      compiled("false", "mesh = { dp = 2 }, strategy = 'fsdp2', " FRONT);
  const Compiled *all = c;
  int gathers = count_code(&c->prog[0], I_GATHER);
  int scatters = count_code(&c->prog[0], I_SCATTER);
  job_free(&job);
  all = compiled("false", "mesh = { dp = 2 }, strategy = 'fsdp2'");
  ck_assert_int_gt(gathers, 6);
  ck_assert_int_gt(count_code(&all->prog[0], I_GATHER), gathers); /* none for a backward */
  ck_assert_int_lt(scatters, count_code(&all->prog[0], I_SCATTER));
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
    ck_assert_int_eq(count_op(&c->prog[0], OP_embedding_dw), 0);
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
  compiled("false", arena_printf(arena, "mesh = %s, freeze = { 'embed_tokens' }", mesh[_i]));
  ck_assert_int_ge(count_op(&job.compiled->prog[0], OP_rope_qkv_dx), 1);
  job_free(&job);
  ck_assert_int_eq(load_plan("false", arena_printf(arena, "mesh = %s, freeze = { "
                                                   "'embed_tokens' }", mesh[_i])),
                   WEFT_OK);
  ck_assert_msg(job_verify(&job, &v) == WEFT_OK, "%s", job.e.text);
  job_free(&job);
}
END_TEST

/* ---- groups ---- */

START_TEST(groups) {
  const Compiled *c = compiled(
      "false", "groups = { { 'norm', 'layers.*.input_layernorm', weight_decay = 0.5 }, "
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

/* ---- what is wrong ---- */

static const struct {
  const char *fields, *says;
} wrong[] = {
    {"freeze = { 'embed_token' }",
     "freeze[1]: \"embed_token\" names no parameter or module of the model (did you mean "
     "\"embed_tokens\"?)"},
    {"freeze = { 'layers.*.mlp', 'layers.*.self_attn.q_prj' }",
     "freeze[2]: \"layers.*.self_attn.q_prj\" names no parameter or module of the model (did "
     "you mean \"layers.*.self_attn.q_proj\"?)"},
    {"freeze = { 'embed_tokens', 'layers.*', 'norm', 'lm_head' }",
     "freeze: all 39 parameters are frozen: nothing learns"},
    {"freeze = 'norm'", "freeze: expected a list of patterns, got string \"norm\""},
    {"groups = { { 'norm', lr = 2 }, { 'layers.*', 'norm', lr = 3 } }",
     "groups[2]: model.norm.weight is in group 1 already: a parameter is in one group"},
    {"freeze = { 'norm' }, groups = { { 'norm', lr = 2 } }",
     "groups[1]: model.norm.weight is frozen: it is not stepped"},
    {"groups = { { 'norm' } }", "groups[1]: says nothing of its parameters"},
    {"groups = { { lr = 2 } }", "groups[1]: names no parameters: the items are patterns"},
    {"groups = { { 'norm', lr = 0 } }",
     "groups[1].lr: 0 times the learning rate learns nothing (freeze = { patterns }"},
    {"groups = { { 'norm', lrr = 1 } }", "groups[1].lrr: unknown field (did you mean \"lr\"?)"},
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

Suite *trainable_suite(void);
Suite *trainable_suite(void) {
  Suite *s = suite_create("trainable");
  TCase *t = tcase_create("frozen");
  tcase_add_checked_fixture(t, setup, teardown);
  tcase_add_test(t, frozen_stage);
  tcase_add_test(t, frozen_behind);
  tcase_add_test(t, no_master);
  tcase_add_test(t, frozen_shards);
  tcase_add_test(t, tied);
  tcase_add_loop_test(t, fused_without_input_gradient, 0, 3);
  tcase_add_test(t, groups);
  tcase_add_loop_test(t, named_errors, 0, LEN(wrong));
  suite_add_tcase(s, t);
  return s;
}
