/* check_adapter_start.c - what an adapter begins at: magnitudes at the norms of its base,
 * on any mesh, and the settings of a folder of PEFT, of which each that weft would read
 * in another way is an error with the file and the key. That PEFT's folders are read as
 * PEFT reads them, tests/oracle/adapters.py shows. */
#include <check.h>
#include <math.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/process.h"
#include "tests/harness/scratch.h"
#include "vm/weights/adapter_files.h"
#include "vm/weights/magnitudes.h"
#include "vm/weights/weights_match.h"
#include "vm/weights/weights_open.h"

static const Compiled *compiled(const char *model, const char *fields) {
  const char *text = arena_printf(arena,
                                  "return require 'weft'.plan { model = require "
                                  "'weft'.model { %s },\n batch = { global = 4, micro = "
                                  "1, seq = 8 }, %s }\n",
                                  model, fields);
  const char *path = scratch_put("plan.lua", text, strlen(text));
  return compiled_job(&job, arena, path, NULL, 0);
}

/* ---- magnitudes ---- */

static double element(int64_t i) { return sin(0.37 * (double)i) + 0.1; }

static weft_status elements(const void *ud, int param, int64_t from, int64_t n, float *to,
                            weft_error *e) {
  for (int64_t i = 0; i < n; i++) to[i] = (float)element(from + i);
  return WEFT_OK;
}

/* The norm of feature `o` of a base with those elements. */
static double norm_of(const CompiledParam *w, bool columns, int64_t o) {
  double sum = 0;
  for (int64_t i = 0; i < w->dim[columns ? 0 : 1]; i++) {
    double v = (float)element(columns ? i * w->dim[1] + o : o * w->dim[1] + i);
    sum += v * v;
  }
  return sqrt(sum);
}

/* Checks what all ranks have of magnitudes; returns how many elements that are. */
static int64_t check_ranks(const Compiled *c, int param) {
  const CompiledParam *p = &c->param[param];
  const CompiledParam *w = &c->param[adapter_base(c, param)];
  int64_t n = 0;
  for (int rank = 0; rank < c->mesh.world; rank++) {
    Piece piece[2];
    if (!state_pieces(c, rank, STATE_PARAM, param, piece)) continue;
    float *local = arena_alloc(arena, sizeof *local * (size_t)(piece->count + 1));
    ck_assert_int_eq(
        magnitudes_init(c, param, piece, elements, NULL, local, &scratch_error), WEFT_OK);
    for (int64_t i = 0; i < piece_spans(piece); i++) {
      Span s = piece_span(piece, i);
      for (int64_t k = 0; k < s.n; k++, n++)
        ck_assert_double_eq_tol(local[s.local + k],
                                norm_of(w, p->init == INIT_COLUMN_NORMS, s.global + k),
                                1e-4);
    }
  }
  return n;
}

static const struct {
  const char *model, *fields, *name;
  int copies; /* of each element, on all ranks */
} layout[] = {
    {"'llama', num_hidden_layers = 1, hidden_size = 64, num_attention_heads = 4, "
     "intermediate_size = 5000, vocab_size = 64",
     "mesh = { tp = 2, dp = 2 }, strategy = 'fsdp2'",
     "model.layers.0.mlp.up_proj.lora_magnitude_vector", 1},
    {"'llama', num_hidden_layers = 1, hidden_size = 64, num_attention_heads = 4, "
     "intermediate_size = 5000, vocab_size = 64",
     "mesh = { tp = 2 }", "model.layers.0.mlp.down_proj.lora_magnitude_vector", 2},
    {"'gpt2', n_layer = 1, n_embd = 64, n_head = 4, vocab_size = 64, n_positions = 8",
     "mesh = { tp = 2 }", "transformer.h.0.attn.c_attn.lora_magnitude_vector", 1},
};

START_TEST(magnitudes_begin_as_norms) {
  const Compiled *c =
      compiled(layout[_i].model,
               arena_printf(arena, "%s, adapter = { 'lora', rank = 2, dora = true }",
                            layout[_i].fields));
  int param = 0;
  while (param < c->nparam && !str_eq(c->param[param].name, layout[_i].name)) param++;
  ck_assert_msg(param < c->nparam, "%s", layout[_i].name);
  ck_assert_int_eq(check_ranks(c, param), layout[_i].copies * c->param[param].dim[0]);
  job_free(&job);
}
END_TEST

/* ---- settings of a folder ---- */

#define FIRST "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8"
static const struct {
  const char *config, *says; /* NULL: nothing */
} folder[] = {
    {FIRST "}", NULL},
    {FIRST
     ", \"use_dora\": false, \"lora_dropout\": 0.3, \"bias\": \"none\", "
     "\"modules_to_save\": null, \"rank_pattern\": {}, \"target_modules\": [\"a\"], "
     "\"later\": false, \"init_lora_weights\": \"gaussian\"}",
     NULL},
    {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 8}",
     "\"r\" is 8, the plan's adapter.rank 4"},
    {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 16}",
     "\"lora_alpha\" is 16, the plan's adapter.alpha 8"},
    {"{\"peft_type\": \"LORA\", \"r\": 4}", "has no \"lora_alpha\""},
    {"{\"peft_type\": \"IA3\", \"r\": 4, \"lora_alpha\": 8}",
     "\"peft_type\" is IA3, weft reads \"LORA\" alone"},
    {FIRST ", \"use_dora\": true}",
     "\"use_dora\" is true, the plan's adapter.dora false"},
    {FIRST ", \"use_rslora\": true}",
     "\"use_rslora\" is true, the plan's adapter.rslora false"},
    {FIRST ", \"bias\": \"all\"}", "\"bias\" is all, weft reads \"none\" alone"},
    {FIRST ", \"rank_pattern\": {\"q_proj\": 8}}",
     "\"r\" and \"rank_pattern\" give model.layers.0.self_attn.q_proj rank 8, the plan's "
     "adapter 4"},
    {FIRST ", \"rank_pattern\": {\"z_proj\": 8}}", NULL},
    {FIRST ", \"rank_pattern\": {\"(q_proj\": 8}}",
     "\"(q_proj\" of \"rank_pattern\" is no regular expression: "},
    {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 8, "
     "\"rank_pattern\": {\".*\": 4}}",
     NULL},
    {FIRST ", \"alpha_pattern\": {\"q_proj\": \"8\"}}",
     "\"q_proj\" of \"alpha_pattern\" is not a number"},
    {FIRST ", \"alpha_pattern\": [8]}", "\"alpha_pattern\" is not an object"},
    {FIRST ", \"modules_to_save\": [\"lm_head\"]}",
     "\"modules_to_save\" is set, the plan's adapter.modules_to_save is not"},
    {FIRST ", \"target_parameters\": [\"experts.down_proj\"]}",
     "\"target_parameters\" is set, the plan's adapter.target_parameters is not"},
    {FIRST ", \"init_lora_weights\": \"pissa\"}",
     "\"init_lora_weights\" is pissa: it may be of a base that was changed with it"},
    {FIRST ", \"later\": 3}", "\"later\" is set, which weft does not have"},
    {"[]", "is not an object"},
    {"", "is empty"},
};

/* A file of tensors of one element each, with these names behind those of adapters. */
static const char *put_tensors(const char *const *name, int n) {
  Text head = {0}, file = {0};
  for (int i = 0; i < n; i++)
    text_printf(&head,
                "%s\"base_model.model.%s\": {\"dtype\": "
                "\"F32\", \"shape\": [1, 1], \"data_offsets\": [%d, %d]}",
                i ? ", " : "{", name[i], 4 * i, 4 * i + 4);
  text_add(&head, "}");
  for (int i = 0; i < 8; i++) text_addn(&file, &(char){(char)(head.n >> 8 * i)}, 1);
  text_addn(&file, head.s, head.n);
  for (int i = 0; i < 4 * n; i++) text_addn(&file, "", 1);
  const char *path = scratch_put(ADAPTER_WEIGHTS, file.s, file.n);
  text_free(&head);
  text_free(&file);
  return path;
}

/* An adapter of two layers in scratch_dir. */
static void put_adapter(void) {
  static const char *const module[] = {"self_attn.q_proj", "self_attn.k_proj",
                                       "mlp.up_proj", "mlp.experts",
                                       "mlp.experts.base_layer"};
  const char *name[2 * LEN(module)];
  for (int i = 0; i < LEN(name); i++)
    name[i] = arena_printf(arena, "model.layers.%d.%s.lora_A.weight", i / LEN(module),
                           module[i % LEN(module)]);
  (void)put_tensors(name, LEN(name));
}

/* Opens a base without tensors and the adapter of `plan` beside it. */
static weft_status open_both(const char *base, const Plan *plan, SafeTensors **out) {
  Folders in = {.plan = scratch_dir};
  return weights_open(NULL, base, NULL, plan, &in, out, &scratch_error);
}

START_TEST(settings_are_the_plans) {
  static const char empty[] = "\2\0\0\0\0\0\0\0{}";
  const char *base = scratch_put("base.safetensors", empty, sizeof empty - 1);
  put_adapter();
  const char *file =
      scratch_put(ADAPTER_CONFIG, folder[_i].config, strlen(folder[_i].config));
  Plan plan = {.adapter = {.rank = 4, .alpha = 8, .from = "."}};
  SafeTensors *s;
  weft_status st = open_both(base, &plan, &s);
  if (folder[_i].says) {
    ck_assert_int_eq(st, WEFT_EFILE);
    ck_assert_ptr_null(s);
    ck_assert_msg(strstr(scratch_error.text, folder[_i].says), "%s", scratch_error.text);
    ck_assert_msg(strstr(scratch_error.file, ADAPTER_CONFIG), "%s", file);
    err_clear(&scratch_error);
    return;
  }
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  st_close(s);
}
END_TEST

#define SECOND                                                                           \
  FIRST ", \"modules_to_save\": [\"lm_head\"], \"target_parameters\": "                  \
        "[\"experts.gate_up_proj\", \"down_proj\"], \"alpha_pattern\": {"
#define RANKS "}, \"rank_pattern\": {\"up_proj\": 8, \"q_proj\": 2}}"
#define ALPHA SECOND "\"k_proj\": 2}, \"rank_pattern\": "
static const struct {
  const char *config, *says; /* NULL: nothing */
} patterns[] = {
    {ALPHA "{\"layers\\\\.\\\\d+\\\\.mlp\\\\.up_proj\": 8, \"q_proj\": 2}}", NULL},
    {ALPHA "{\"^model.layers.[0-9]+.mlp.up_proj$\": 8, \".*\\\\.q_proj\": 2}}", NULL},
    {ALPHA "{\"(0|1)\\\\.mlp\\\\.up_proj\": 8, \"layers.*q_proj\": 2}}", NULL},
    {ALPHA "{\"model.layers.0.mlp.up_proj\": 8, \"up_proj\": 8, \"[qz]_proj\": 2, "
           "\"nothing\": 77}}",
     NULL},
    {ALPHA "{\"q_proj\": 2, \"q_proj|up_proj\": 8}}", NULL}, /* the first counts */
    {ALPHA "{\"up_proj|q_proj\": 8, \"q_proj\": 2}}",
     "give model.layers.0.self_attn.q_proj rank 8, the plan's adapter 2"},
    {ALPHA "{\"layers.0.mlp.up_proj\": 8, \"q_proj\": 2}}",
     "give model.layers.1.mlp.up_proj rank 4, the plan's adapter 8"},
    {ALPHA "{\"up_proj\": 8, \"q_proj\": 3}}",
     "give model.layers.0.self_attn.q_proj rank 3, the plan's adapter 2"},
    {ALPHA "{\"up_proj\": 8, \"_proj\": 2}}", /* a whole word is to fit */
     "give model.layers.0.self_attn.q_proj rank 4, the plan's adapter 2"},
    {ALPHA "{\"up_proj\": 8, \"q_proj\": 2, \"mlp.experts.down_proj\": 1}}",
     "give model.layers.0.mlp.experts.down_proj rank 1, the plan's adapter 4"},
    {ALPHA "{}}", "give model.layers.0.mlp.up_proj rank 4, the plan's adapter 8"},
    {SECOND RANKS, "\"alpha_pattern\" give model.layers.0.self_attn.k_proj alpha 8, the "
                   "plan's adapter 2"},
    {SECOND "\".*1.*k_proj\": 2" RANKS,
     "give model.layers.0.self_attn.k_proj alpha 8, the plan's adapter 2"},
    {FIRST ", \"modules_to_save\": null, \"target_parameters\": [\"a\"]}",
     "\"modules_to_save\" is not set, the plan's adapter.modules_to_save is"},
};

/* Patterns of a folder are regular expressions, those of a plan are not; what they name
 * is the same, or an error. */
START_TEST(patterns_are_the_plans) {
  static const char empty[] = "\2\0\0\0\0\0\0\0{}";
  static const PatternNumber rank[] = {{"layers.*.mlp.up_proj", 8}, {"q_proj", 2}};
  static const PatternNumber alpha[] = {{"k_proj", 2}};
  static const char *const saved[] = {"lm_head"};
  static const char *const of[] = {"experts.gate_up_proj", "mlp.experts.down_proj"};
  const char *base = scratch_put("base.safetensors", empty, sizeof empty - 1);
  put_adapter();
  (void)scratch_put(ADAPTER_CONFIG, patterns[_i].config, strlen(patterns[_i].config));
  Adapter a = {.rank = 4, .alpha = 8, .from = ".", .ranks = {rank, 2}};
  a.alphas = (PatternNumbers){alpha, 1};
  a.saved = (Patterns){saved, 1};
  a.experts = (Patterns){of, LEN(of)};
  Plan plan = {.adapter = a};
  SafeTensors *s;
  weft_status st = open_both(base, &plan, &s);
  if (!patterns[_i].says) {
    ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
    st_close(s);
    return;
  }
  ck_assert_int_eq(st, WEFT_EFILE);
  ck_assert_msg(strstr(scratch_error.text, patterns[_i].says), "%s", scratch_error.text);
  err_clear(&scratch_error);
}
END_TEST

/* ---- names of modules ---- */

/* PEFT's names are those of Transformers' modules in memory: files of some models have
 * others. Of Laguna it reads tensors by those of files alone. */
static const struct {
  const char *model, *adapter;
  const char *own, *written, *other; /* a tensor: in the model; in folders, both ways */
  const char *config;
} module[] = {
    {"'nemotron_h', num_hidden_layers = 1, layers_block_type = { 'mlp' }",
     "targets = 'all-linear', rank_pattern = { ['layers.0.mixer.up_proj'] = 3 }",
     "backbone.layers.0.mixer.down_proj.lora_A.weight",
     "model.layers.0.mixer.down_proj.lora_A.weight",
     "backbone.layers.0.mixer.down_proj.lora_A.weight", "\"layers\\\\.0"},
    {"'hy_v3', num_hidden_layers = 1, mlp_layer_types = { 'sparse' }",
     "targets = { 'shared_mlp.up_proj' }, modules_to_save = { 'router.gate' }",
     "model.layers.0.mlp.shared_mlp.up_proj.lora_B.weight",
     "model.layers.0.mlp.shared_experts.up_proj.lora_B.weight",
     "model.layers.0.mlp.shared_mlp.up_proj.lora_B.weight",
     "\"model.layers.0.mlp.gate\""},
    {"'hy_v3', num_hidden_layers = 1, mlp_layer_types = { 'sparse' }",
     "targets = { 'shared_mlp.up_proj' }, modules_to_save = { 'router.gate' }",
     "model.layers.0.mlp.router.gate.weight", "model.layers.0.mlp.gate.weight",
     "model.layers.0.mlp.router.gate.weight", "\"up_proj\""},
    {"'nemotron_h', num_hidden_layers = 1, layers_block_type = { 'mlp' }",
     "targets = { 'model.layers.0.mixer.down_proj' }, alpha_pattern = { "
     "['model.layers.*.mixer.down_proj'] = 3 }",
     "backbone.layers.0.mixer.down_proj.lora_A.weight",
     "model.layers.0.mixer.down_proj.lora_A.weight",
     "backbone.layers.0.mixer.down_proj.lora_A.weight", "\"model\\\\.layers"},
    {"'hy_v3', num_hidden_layers = 1, mlp_layer_types = { 'sparse' }",
     "targets = { 'shared_experts.up_proj' }, modules_to_save = { 'mlp.gate' }",
     "model.layers.0.mlp.router.gate.weight", "model.layers.0.mlp.gate.weight",
     "model.layers.0.mlp.router.gate.weight", "\"up_proj\""},
    {"'hy_v3', num_hidden_layers = 1, mlp_layer_types = { 'dense' }",
     "targets = { 'gate_proj' }", "model.layers.0.mlp.gate_proj.lora_A.weight",
     "model.layers.0.mlp.gate_proj.lora_A.weight",
     "model.layers.0.mlp.gate_proj.lora_A.weight", "\"gate_proj\""},
    {"'laguna', num_hidden_layers = 1, mlp_layer_types = { 'sparse' }",
     "targets = { 'shared_expert.up_proj' }, rank_pattern = { ['shared_expert.up_proj'] "
     "= 3 }",
     "model.layers.0.mlp.shared_expert.up_proj.lora_A.weight",
     "model.layers.0.mlp.shared_expert.up_proj.lora_A.weight",
     "model.layers.0.mlp.shared_experts.up_proj.lora_A.weight",
     "\"shared_experts\\\\.up_proj\": 3"},
};

START_TEST(modules_have_the_names_of_memory) {
  const Compiled *c =
      compiled(module[_i].model, arena_printf(arena, "adapter = { 'lora', rank = 2, %s }",
                                              module[_i].adapter));
  const char *const either[] = {module[_i].written, module[_i].other};
  char name[512], own[512];
  Text config = {0};
  int param = 0;
  while (param < c->nparam && !str_eq(c->param[param].name, module[_i].own)) param++;
  ck_assert_msg(param < c->nparam, "%s", module[_i].own);
  adapter_tensor(c, param, name);
  ck_assert_str_eq(name, arena_printf(arena, "base_model.model.%s", module[_i].written));
  ck_assert(adapter_by_files(c, name, own));
  ck_assert_str_eq(own, module[_i].own);
  for (int i = 0; i < LEN(either); i++) {
    SafeTensors *s;
    Folders in = {.plan = scratch_dir};
    ck_assert_int_eq(st_open(NULL, put_tensors(&either[i], 1), &in, &s, &scratch_error),
                     WEFT_OK);
    ck_assert_msg(weights_source(c, s, param).t, "%s", either[i]);
    st_close(s);
  }
  adapter_config(c, lang_plan(job.lp), &(Graph){0}, "base", &config);
  ck_assert_msg(strstr(config.s, module[_i].config), "%s", config.s);
  text_free(&config);
  job_free(&job);
}
END_TEST

static Outcome run_saved(const char *folder, const char *saved, const char *options) {
  const char *text = arena_printf(
      arena,
      "local weft = require 'weft'\nreturn weft.plan {\n"
      "  model = %s, adapter = { 'lora', rank = 2, targets = { 'o_proj' },\n"
      "    modules_to_save = { '%s' } },\n"
      "  batch = { global = 2, micro = 1, seq = 16 }, data = weft.synthetic {} }\n",
      folder, saved);
  scratch_put("saved.lua", text, strlen(text));
  return process_run(60, "$weft run saved.lua --steps 1 --quiet --data %s %s",
                     WEFT_SOURCE_DIR "/tests/oracle", options);
}

/* A module that files have as one is none that could be saved in parts: PEFT would leave
 * out what it does not know without a word. */
START_TEST(parts_are_not_saved) {
  static const char *const names[] = {"mlp", "q_proj", "qkv_proj", "gate_up_proj"};
  for (int i = 0; i < LEN(names); i++) {
    Outcome o = run_saved("weft.model { 'phi3', num_hidden_layers = 1, hidden_size = 64, "
                          "num_attention_heads = 4, num_key_value_heads = 2, "
                          "intermediate_size = 64, vocab_size = 256 }",
                          names[i], "");
    ck_assert_int_eq(o.code, 1);
    ck_assert_msg(strstr(o.err, "in files, and of such modules none is saved"), "%s",
                  o.err);
  }
}
END_TEST

/* Experts that learn beside an adapter are in its folder, and in that of the base one by
 * one. */
START_TEST(saved_experts_begin_again) {
  static const char base[] = "weft.hf '" WEFT_SOURCE_DIR "/tests/oracle/mixtral'";
  static const char *const options[] = {"--export e", "--set 'adapter.from=\"e\"'"};
  for (int i = 0; i < LEN(options); i++) {
    Outcome o = run_saved(base, "experts", options[i]);
    ck_assert_msg(o.code == 0, "%s", o.err);
  }
}
END_TEST

/* There must be a base that the adapter is of. */
START_TEST(a_base_is_needed) {
  Plan plan = {.adapter = {.rank = 4, .from = "folder"}};
  SafeTensors *s;
  ck_assert_int_eq(open_both(NULL, &plan, &s), WEFT_EPLAN);
  ck_assert_msg(strstr(scratch_error.text, "the model has no weights that folder could"),
                "%s", scratch_error.text);
  err_clear(&scratch_error);
}
END_TEST

Suite *adapter_start_suite(void);
Suite *adapter_start_suite(void) {
  Suite *s = suite_create("adapter_start");
  TCase *t = tcase_create("adapter_start");
  tcase_add_checked_fixture(t, job_setup, job_teardown);
  tcase_add_loop_test(t, magnitudes_begin_as_norms, 0, LEN(layout));
  tcase_add_loop_test(t, settings_are_the_plans, 0, LEN(folder));
  tcase_add_loop_test(t, patterns_are_the_plans, 0, LEN(patterns));
  tcase_add_loop_test(t, modules_have_the_names_of_memory, 0, LEN(module));
  tcase_add_test(t, parts_are_not_saved);
  tcase_add_test(t, saved_experts_begin_again);
  tcase_add_test(t, a_base_is_needed);
  suite_add_tcase(s, t);
  return s;
}
