/* check_adapted_experts.c - adapters of experts, ranks of their own, and modules that
 * learn beside an adapter: how they are cut, what folders of PEFT have of them, the same
 * steps on every mesh, and what is wrong. Twelve steps against PEFT, and folders both
 * ways, tests/oracle/adapters.py compares. */
#include <check.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/scratch.h"
#include "vm/weights/adapter_files.h"
#include "vm/weights/weights_folder.h"

#define MODEL                                                                            \
  "'mixtral', hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, "        \
  "num_key_value_heads = 2, intermediate_size = 16, num_local_experts = 4, "             \
  "num_experts_per_tok = 2, vocab_size = 48, tie_word_embeddings = %s"
#define BOTH "target_parameters = { 'experts.gate_up_proj', 'down_proj' }"

static const char *put_plan(const char *fields) {
  const char *text = arena_printf(
      arena,
      "local weft = require 'weft'\nreturn weft.plan { model = weft.model { " MODEL
      " },\n"
      "  batch = { global = 8, micro = 1, seq = 8 },\n  %s }\n",
      strstr(fields, "TIED") ? "true" : "false", fields);
  return scratch_put("plan.lua", text, strlen(text));
}

static const Compiled *compiled(const char *fields) {
  return compiled_job(&job, arena, put_plan(fields), NULL, 0);
}

static int number_of(const Compiled *c, const char *name) {
  for (int i = 0; i < c->nparam; i++)
    if (strcmp(c->param[i].name, name) == 0) return i;
  ck_abort_msg("there is no %s", name);
  return -1;
}

/* ---- how they are cut ---- */

#define EXPERTS "model.layers.1.mlp.experts."
static const struct {
  const char *name;
  int features, sizes[3]; /* the dimension that tp or etp cuts */
} part[] = {{EXPERTS "gate_up_proj.lora_A.weight", PL_R, {4, 3, 32}},
            {EXPERTS "gate_up_proj.lora_B.weight", 1, {4, 32, 3}},
            {EXPERTS "down_proj.lora_A.weight", 2, {4, 3, 16}},
            {EXPERTS "down_proj.lora_B.weight", PL_R, {4, 32, 3}}};

static void check_cuts(const char *mesh, ShardAxis features, bool by_expert) {
  const Compiled *c = compiled(
      arena_printf(arena, "mesh = %s, adapter = { 'lora', rank = 3, " BOTH " }", mesh));
  for (int i = 0; i < LEN(part); i++) {
    const CompiledParam *p = &c->param[number_of(c, part[i].name)];
    ck_assert_msg(p->place.on[features] == part[i].features, "%s", part[i].name);
    if (by_expert) ck_assert_int_eq(p->place.on[AX_EP], 0);
    for (int d = 0; d < 3; d++) ck_assert_int_eq(p->dim[d], part[i].sizes[d]);
    ck_assert(!p->frozen);
  }
  ck_assert(c->param[number_of(c, EXPERTS "down_proj")].frozen);
  job_free(&job);
}

/* By expert as their base, and its features where A or B has them. */
START_TEST(cut_as_their_base) {
  check_cuts("{ tp = 2 }", AX_TP, false);
  check_cuts("{ dp = 2, tp = 2, ep = 2, etp = 2 }", AX_ETP, true);
}
END_TEST

/* ---- steps ---- */

static const char *const meshes[] = {
    "mesh = { dp = 2, ep = 2 }",
    "mesh = { dp = 2, tp = 2, ep = 2, etp = 2 }, moe = { dispatcher = 'alltoall' }",
    "mesh = { tp = 2 }, strategy = { 'zero', sequence_parallel = true }",
    "mesh = { pp = 2, dp = 2, ep = 2 }, strategy = 'fsdp2', schedule = 'zero_bubble'",
    "mesh = { cp = 2, dp = 2, ep = 4 }, recompute = 'full'"};
static const char *const kinds[] = {
    BOTH,
    BOTH ", targets = 'all-linear', rank_pattern = { gate_up_proj = 5, q_proj = 1 }, "
         "alpha_pattern = { ['layers.1.mlp.experts.down_proj'] = 7 }",
    "targets = { 'v_proj' }, modules_to_save = { 'lm_head', 'mlp.gate', "
    "'layers.0.mlp.experts' }"};

START_TEST(agree_with_one_rank) {
  JobVerify v = {.steps = 3};
  const char *fields =
      arena_printf(arena, "%s, adapter = { 'lora', rank = 3, alpha = 6, %s }",
                   meshes[_i / LEN(kinds)], kinds[_i % LEN(kinds)]);
  ck_assert_int_eq(job_load(&job, arena, &(LangOptions){0}, put_plan(fields)), WEFT_OK);
  ck_assert_msg(job_verify(&job, &v) == WEFT_OK, "%s: %s", fields, job.e.text);
  job_free(&job);
}
END_TEST

/* ---- what learns ---- */

/* Rank and alpha are those of the pattern that names a module. */
START_TEST(ranks_of_their_own) {
  const Compiled *c = compiled(
      "adapter = { 'lora', rank = 3, targets = 'all-linear', rank_pattern = { ['layers.*."
      "self_attn.q_proj'] = 6 }, alpha_pattern = { ['layers.1.self_attn.q_proj'] = 9 } "
      "}");
  const CompiledParam *q[2];
  for (int i = 0; i < 2; i++) {
    const char *name = "model.layers.%d.self_attn.q_proj.lora_A.weight";
    q[i] = &c->param[number_of(c, arena_printf(arena, name, i))];
    ck_assert_int_eq(q[i]->dim[0], 6);
  }
  ck_assert_double_eq(q[0]->alpha, 3);
  ck_assert_double_eq(q[1]->alpha, 9);
  const char *k = "model.layers.1.self_attn.k_proj.lora_A.weight";
  ck_assert_int_eq(c->param[number_of(c, k)].dim[0], 3);
  job_free(&job);
}
END_TEST

START_TEST(saved_modules_learn) {
  const Compiled *c = compiled("adapter = { 'lora', rank = 3, targets = { 'q_proj' }, "
                               "modules_to_save = { 'lm_head', 'layers.1.mlp' } }");
  for (int i = 0; i < c->nparam; i++) {
    const CompiledParam *p = &c->param[i];
    bool saved = strncmp(p->name, "lm_head.", 8) == 0 || strstr(p->name, "layers.1.mlp.");
    ck_assert_msg(p->saved == saved && p->frozen == (!saved && !p->adapter), "%s",
                  p->name);
  }
  job_free(&job);
}
END_TEST

/* ---- folders ---- */

static float value(int64_t i) { return (float)((i * 37) % 1009) - 500; }

/* Writes all parameters of the folder, a third of each at a time. */
static SafeTensors *written(const Compiled *c) {
  WeightsOutOptions o = {
      .dir = scratch_path("adapter"), .dtype = DT_F32, .adapter = true};
  WeightsOut *out;
  ck_assert_int_eq(weights_out_open(NULL, c, &o, &out, &scratch_error), WEFT_OK);
  for (int i = 0; i < c->nparam; i++) {
    if (!weights_out_has(out, &c->param[i])) continue;
    int64_t all = param_count(&c->param[i]), n;
    for (int64_t at = 0; at < all; at += n) {
      n = MIN(all - at, all / 3 + 1);
      float *some = arena_alloc(arena, sizeof *some * (size_t)n);
      for (int64_t k = 0; k < n; k++) some[k] = value(at + k);
      ck_assert_int_eq(weights_out_put(out, i, at, n, some, &scratch_error), WEFT_OK);
    }
  }
  ck_assert_int_eq(weights_out_finish(out, &scratch_error), WEFT_OK);
  SafeTensors *s;
  const char *file = scratch_path("adapter/" ADAPTER_WEIGHTS);
  ck_assert_msg(st_open(NULL, file, NULL, &s, &scratch_error) == WEFT_OK, "%s",
                scratch_error.text);
  return s;
}

/* PEFT has A of all experts as rows, those of an expert together, and B as columns, of
 * which each expert has every fourth; the last parameter of the module has its name. */
START_TEST(folder_of_experts) {
  const Compiled *c = compiled("mesh = { tp = 1 }, adapter = { 'lora', rank = 3, " BOTH
                               ", modules_to_save = { 'mlp.gate' } }");
  SafeTensors *s = written(c);
  const char *base = "base_model.model.model.layers.1.mlp.experts.";
  const SafeTensor *t =
      st_find(s, arena_printf(arena, "%sbase_layer.lora_B.weight", base));
  float got[32 * 12];
  ck_assert_ptr_nonnull(t);
  ck_assert_int_eq(t->dim[0], 32);
  ck_assert_int_eq(t->dim[1], 12);
  ck_assert_int_eq(st_read_part(t, 0, 32 * 12, got, &scratch_error), WEFT_OK);
  for (int out = 0; out < 32; out++)
    for (int rank = 0; rank < 3; rank++)
      for (int expert = 0; expert < 4; expert++)
        ck_assert_float_eq(got[out * 12 + rank * 4 + expert],
                           value((expert * 32 + out) * 3 + rank));
  t = st_find(s, arena_printf(arena, "%slora_A.weight", base));
  ck_assert_ptr_nonnull(t);
  ck_assert_int_eq(t->dim[0], 12);
  ck_assert_int_eq(t->dim[1], 16);
  ck_assert_int_eq(st_read_part(t, 0, 12 * 16, got, &scratch_error), WEFT_OK);
  for (int i = 0; i < 12 * 16; i++) ck_assert_float_eq(got[i], value(i));
  ck_assert_ptr_nonnull(st_find(s, "base_model.model.model.layers.0.mlp.gate.weight"));
  ck_assert_int_eq(st_count(s), 2 * 5);
  st_close(s);
  job_free(&job);
}
END_TEST

/* Of one parameter of the module the adapter is the module's. */
START_TEST(folder_of_one_parameter) {
  const Compiled *c = compiled("adapter = { 'lora', rank = 3, target_parameters = { "
                               "'layers.1.mlp.experts.gate_up_proj' } }");
  char name[512];
  adapter_tensor(c, number_of(c, EXPERTS "gate_up_proj.lora_B.weight"), name);
  ck_assert_str_eq(name, "base_model.model.model.layers.1.mlp.experts.lora_B.weight");
  job_free(&job);
}
END_TEST

START_TEST(settings_of_the_folder) {
  static const char *const has[] = {
      "\"target_modules\": [\n    \"q_proj\"\n  ]",
      "\"target_parameters\": [\n    \"experts.gate_up_proj\",\n    "
      "\"experts.down_proj\"",
      "\"rank_pattern\": {\n    \"layers\\\\.\\\\d+\\\\.self_attn\\\\.q_proj\": 5\n  }",
      "\"alpha_pattern\": {\n    \"down_proj\": 2.5\n  }",
      "\"modules_to_save\": [\n    \"model.layers.1.mlp.gate\",\n    \"lm_head\"\n  ]"};
  const Compiled *c = compiled(
      "adapter = { 'lora', rank = 3, targets = { 'q_proj' }, " BOTH ", rank_pattern = { ["
      "'layers.*.self_attn.q_proj'] = 5 }, alpha_pattern = { down_proj = 2.5 }, "
      "modules_to_save = { 'lm_head', 'layers.1.mlp.gate' } }");
  Text t = {0};
  adapter_config(c, &job.plan, job.graph, NULL, &t);
  for (int i = 0; i < LEN(has); i++)
    ck_assert_msg(strstr(t.s, has[i]) != NULL, "%s\nhas no %s", t.s, has[i]);
  text_free(&t);
  job_free(&job);
}
END_TEST

/* ---- what is wrong ---- */

static const struct {
  const char *fields, *says;
} wrong[] = {
    {"target_parameters = { 'experts.up_proj' }",
     "adapter.target_parameters[1]: \"experts.up_proj\" matches no weight of experts of "
     "the "
     "model (weights of experts are called layers.*.mlp.experts.gate_up_proj)"},
    {"target_parameters = { 'dwn_proj' }", "did you mean \"down_proj\"?"},
    {"target_parameters = { 'q_proj' }",
     "adapter.target_parameters[1]: \"q_proj\" matches no weight of experts"},
    {"targets = { 'gate_up_proj' }",
     "adapter.targets[1]: \"gate_up_proj\" matches no linear of the model "
     "(weights of experts are target_parameters)"},
    {BOTH ", dropout = 0.1", "adapter.dropout: what adapters of experts read is not "
                             "dropped (leave out dropout, or "},
    {BOTH ", dora = true", "adapter.dora: adapters of experts have no magnitudes"},
    {"rank_pattern = { q_prj = 4 }", "adapter.rank_pattern[\"q_prj\"]: \"q_prj\" names "
                                     "no module that has an adapter (did "
                                     "you mean \"q_proj\"?)"},
    {"targets = { 'q_proj' }, alpha_pattern = { k_proj = 4 }",
     "adapter.alpha_pattern[\"k_proj\"]: \"k_proj\" names no module that has an adapter"},
    {"rank_pattern = { q_proj = 4, ['layers.0.self_attn.q_proj'] = 2 }",
     "adapter.rank_pattern: \"layers.0.self_attn.q_proj\" and \"q_proj\" both name "},
    {"rank_pattern = { q_proj = 2.5 }",
     "adapter.rank_pattern[\"q_proj\"]: 2.5 is not a whole number from 1 to 65536"},
    {"alpha_pattern = { q_proj = 0 }",
     "adapter.alpha_pattern[\"q_proj\"]: 0 is not a number from above 0 to 1e+06"},
    {"rank_pattern = { 4 }", "adapter.rank_pattern: the keys are patterns of modules"},
    {"rank_pattern = { q_proj = 'four' }",
     "adapter.rank_pattern[\"q_proj\"]: expected a number, got string \"four\""},
    {"modules_to_save = { 'lm_hed' }",
     "adapter.modules_to_save[1]: \"lm_hed\" names no module of the model (did you mean "
     "\"lm_head\"?)"},
    {"modules_to_save = { 'q_proj' }",
     "adapter.modules_to_save[1]: model.layers.0.self_attn.q_proj has an adapter: it "
     "learns in one "
     "way or the other"},
    {"modules_to_save = { 'lm_head' } --[[TIED]]",
     "adapter.modules_to_save[1]: lm_head is tied: its weight is "
     "model.embed_tokens.weight (leave it out, or tie_word_embeddings = false where "
     "the files have a weight of the head"},
    {"modules_to_save = { 'embed_tokens' } --[[TIED]]",
     "adapter.modules_to_save[1]: model.embed_tokens.weight is tied: lm_head reads it, "
     "too"},
};

START_TEST(named_errors) {
  const char *fields =
      arena_printf(arena, "adapter = { 'lora', rank = 4, %s\n}", wrong[_i].fields);
  const char *path = put_plan(fields);
  ck_assert_int_eq(job_open(&job, arena, &(LangOptions){0}, path), WEFT_EPLAN);
  Text t = {0};
  report_text(&job.d, false, &t);
  ck_assert_msg(t.s && strstr(t.s, wrong[_i].says), "%s\nsays %s", wrong[_i].fields,
                t.s ? t.s : "nothing");
  text_free(&t);
  job_free(&job);
}
END_TEST

Suite *adapted_experts_suite(void);
Suite *adapted_experts_suite(void) {
  Suite *s = suite_create("adapted_experts");
  TCase *t = tcase_create("adapted_experts");
  tcase_set_timeout(t, 60);
  tcase_add_checked_fixture(t, job_setup, job_teardown);
  tcase_add_test(t, cut_as_their_base);
  tcase_add_loop_test(t, agree_with_one_rank, 0, LEN(meshes) * LEN(kinds));
  tcase_add_test(t, ranks_of_their_own);
  tcase_add_test(t, saved_modules_learn);
  tcase_add_test(t, folder_of_experts);
  tcase_add_test(t, folder_of_one_parameter);
  tcase_add_test(t, settings_of_the_folder);
  tcase_add_loop_test(t, named_errors, 0, LEN(wrong));
  suite_add_tcase(s, t);
  return s;
}
