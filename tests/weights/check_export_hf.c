/* check_export_hf.c - transformers computes the same loss and the same logits from
 * exported files. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/model/model.h"
#include "tests/harness/export_runs.h"
#include "tests/harness/process.h"
#include "vm/weights/param_gather.h"

static const char *const sparse[] = {"mixtral", "qwen3_moe", "deepseek_v3_moe"};
static const char dense_mesh[] = "mesh = { tp = 2, pp = 2, dp = 2 }, strategy = 'fsdp2'";
static const char sparse_mesh[] =
    "mesh = { tp = 2, pp = 2, dp = 2, ep = 2 }, strategy = 'fsdp2'";

/* Models with experts: those of random sizes, whose files have all of a layer in one, and
 * the oracles, trained on, in the layout that they came in. The bias of DeepSeek's router
 * moves after each step. */
static const char *sparse_model(int kind, unsigned seed) {
  int experts = 4 << seed % 3, ffn = 8 + 4 * (int)(seed % 4),
      layers = 2 + (int)(seed % 2);
  const char *some =
      arena_printf(scratch_arena,
                   "vocab_size = 72, hidden_size = 32, num_hidden_layers = %d, "
                   "num_attention_heads = 4, num_experts_per_tok = 2, rope_theta = %d, "
                   "rms_norm_eps = 1e-5",
                   layers, seed % 2 ? 700 : 50000);
  if (kind == 0)
    return arena_printf(scratch_arena,
                        "weft.model { 'mixtral', %s, num_key_value_heads = 2, "
                        "intermediate_size = %d, num_local_experts = %d }",
                        some, ffn, experts);
  if (kind == 1)
    return arena_printf(scratch_arena,
                        "weft.model { 'qwen3_moe', %s, num_key_value_heads = 2, "
                        "head_dim = 8, intermediate_size = 24, "
                        "moe_intermediate_size = %d, num_experts = %d, "
                        "mlp_only_layers = { 1 }, norm_topk_prob = %s }",
                        some, ffn, experts, seed % 2 ? "true" : "false");
  if (kind == 2)
    return arena_printf(
        scratch_arena,
        "weft.model { 'deepseek_v3', %s, num_key_value_heads = false, "
        "intermediate_size = 24, moe_intermediate_size = %d, n_routed_experts = %d, "
        "first_k_dense_replace = 1, n_group = 2, topk_group = 1, q_lora_rank = 12, "
        "kv_lora_rank = 10, qk_nope_head_dim = 6, qk_rope_head_dim = 4, v_head_dim = 5 "
        "}, moe = { bias_update_rate = 0.01 }",
        some, ffn, experts);
  return arena_printf(scratch_arena, "weft.hf '" ORACLES "%s'", sparse[kind - 3]);
}

/* Models of random sizes, as SmolLM, Qwen, GPT-2 and DeepSeek-V3 are. */
static const char *random_model(int kind, unsigned seed) {
  unsigned x = seed * 2654435761u + 12345;
  int heads = 2 << (x >> 8 & 1), d = 4 << (x >> 10 & 1), layers = 2 + 2 * (x >> 12 & 1);
  int vocab = 64 + 4 * (int)(x >> 14 & 15), ffn = 24 + 8 * (int)(x >> 20 & 3);
  if (kind == 0)
    return arena_printf(scratch_arena,
                        "weft.model { 'llama', vocab_size = %d, hidden_size = %d, "
                        "intermediate_size = %d, num_hidden_layers = %d, "
                        "num_attention_heads = %d, num_key_value_heads = 2, "
                        "rms_norm_eps = 1e-5, rope_theta = 100000, "
                        "tie_word_embeddings = true }",
                        vocab, heads * d, ffn, layers, heads);
  if (kind == 3)
    return arena_printf(
        scratch_arena,
        "weft.model { 'gpt2', vocab_size = %d, n_embd = %d, n_layer = %d, "
        "n_head = %d, n_positions = 32 }",
        vocab, heads * d, layers, heads);
  if (kind == 4)
    return arena_printf(
        scratch_arena,
        "weft.model { 'deepseek_v3', vocab_size = %d, hidden_size = 32, "
        "intermediate_size = %d, num_hidden_layers = %d, first_k_dense_replace = 4, "
        "num_attention_heads = %d, num_key_value_heads = false, q_lora_rank = %s, "
        "kv_lora_rank = 10, qk_nope_head_dim = 6, qk_rope_head_dim = %d, v_head_dim = 5, "
        "max_position_embeddings = 128, rope_scaling = { rope_type = 'yarn', "
        "factor = 4, mscale = 1, mscale_all_dim = 0.5, "
        "original_max_position_embeddings = 32 } }",
        vocab, ffn, layers, heads, seed % 2 ? "12" : "false", d);
  return arena_printf(scratch_arena,
                      "weft.model { '%s', vocab_size = %d, hidden_size = %d, "
                      "intermediate_size = %d, num_hidden_layers = %d, "
                      "num_attention_heads = %d, num_key_value_heads = 2%s }",
                      kind == 1 ? "qwen2" : "qwen3", vocab, heads * d, ffn, layers, heads,
                      kind == 1 ? ", tie_word_embeddings = true" : ", head_dim = 8");
}

/* The logits of 16 tokens one after another, with the parameters of the run. */
static void write_logits(Exporter *f, const char *file) {
  static const char *const folders[] = {WEFT_SOURCE_DIR, scratch_dir};
  LangOptions o = {.data = folders, .ndata = LEN(folders)};
  RunOptions ro = {.threads = 1};
  Job j;
  Run *run;
  weft_status st = job_load(&j, scratch_arena, &o, scratch_path("plan.lua"));
  if (st == WEFT_OK) st = job_decode(&j, 16);
  must(st, &j.e, "decode");
  must(run_open(&j.plan, j.compiled, &ro, &run, &j.e), &j.e, "open");
  for (int i = 0; i < j.compiled->nparam; i++) {
    const CompiledParam *p = &j.compiled->param[i], *q = f->job.compiled->param;
    float *value = malloc((size_t)param_count(p) * sizeof *value);
    int from = 0;
    while (strcmp(q[from].name, p->name)) from++;
    must(run_get(f->run, STATE_PARAM, from, value, &j.e), &j.e, p->name);
    must(run_set(run, STATE_PARAM, i, value, &j.e), &j.e, p->name);
    free(value);
  }
  int64_t vocab = j.compiled->vocab;
  float *logits = malloc(16 * (size_t)vocab * sizeof *logits);
  for (int i = 0; i < 16; i++)
    must(run_decode(run, i * 5 % 64, i, logits + i * vocab, &j.e), &j.e, "a token");
  StWrite t = {"logits", DT_F32, 2, {16, vocab}, logits};
  must(st_write(NULL, file, &t, 1, &j.e), &j.e, file);
  free(logits);
  run_close(run);
  job_free(&j);
}

/* The loss that the run computes from the weights it has exported. */
static double export_and_step(const char *model, const char *mesh, int vocab,
                              const char *dir) {
  Exporter f;
  StepResult r;
  int32_t tokens[8 * 16], labels[8 * 16];
  exporter_start(&f, model, mesh);
  for (int k = 0; k < 5; k++) {
    for (int i = 0; i < 8 * 16; i++)
      tokens[i] = (i * 7 + k * 13) % vocab, labels[i] = (i * 11 + k) % vocab;
    must(run_step_tokens(f.run, tokens, labels, k, &r, &f.job.e), &f.job.e, "step");
  }
  Text config = {0};
  bool known;
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert(known);
  WeightsFile file = {"config.json", config.s, config.n};
  exporter_write(
      &f, dir,
      (WeightsOutOptions){.like = f.weights, .dtype = DT_ACT, .file = &file, .nfile = 1});
  text_free(&config);
  write_logits(&f, arena_printf(scratch_arena, "%s.logits", scratch_path(dir)));
  for (int i = 0; i < 8 * 16; i++) tokens[i] = i * 5 % vocab, labels[i] = i * 3 % vocab;
  must(run_step_tokens(f.run, tokens, labels, 5, &r, &f.job.e), &f.job.e, "step");
  exporter_end(&f);
  return r.loss;
}

START_TEST(transformers_computes_the_same) {
  const char *python = getenv("WEFT_TRANSFORMERS");
  if (!python) {
    puts("skipped: WEFT_TRANSFORMERS names no python with torch and transformers");
    return;
  }
  Text command = {0};
  enum { DENSE = 10, SPARSE = 9 };
  double want[DENSE + SPARSE];
  text_printf(&command, "%s " ORACLES "exported.py", python);
  for (int i = 0; i < LEN(want); i++) {
    const char *name = arena_printf(scratch_arena, "m%d", i);
    int k = i - DENSE;
    want[i] =
        k < 0 ? export_and_step(random_model(i % 5, (unsigned)i), dense_mesh, 64, name)
              : export_and_step(sparse_model(k % 6, (unsigned)k), sparse_mesh, 64, name);
    text_printf(&command, " %s", scratch_path(name));
  }
  Outcome o = process_run(500, "%s", command.s);
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *at = o.out;
  for (int i = 0; i < LEN(want); i++) {
    double got, apart;
    int n = 0;
    ck_assert_int_eq(sscanf(at, "%lf %lf%n", &got, &apart, &n), 2);
    ck_assert_msg(fabs(got - want[i]) <= 1e-5 * fabs(want[i]),
                  "model %d: %.9g in transformers, %.9g here", i, got, want[i]);
    ck_assert_msg(apart <= 1e-5, "model %d: logits are %g apart", i, apart);
    at += n;
  }
  text_free(&command);
}
END_TEST

Suite *export_hf_suite(void);
Suite *export_hf_suite(void) {
  Suite *s = suite_create("export_hf");
  TCase *t = tcase_create("transformers");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 600);
  tcase_add_test(t, transformers_computes_the_same);
  suite_add_tcase(s, t);
  return s;
}
