/* check_export.c - weights of a run as Hugging Face files: what was read comes out again
 * to the byte, on every mesh; and what was trained is what a gather gives. */
#include <check.h>
#include <stdlib.h>

#include "tests/harness/export_runs.h"
#include "vm/weights/param_gather.h"

static const char *const models[] = {
    "llama",       "llama_tied",         "qwen2", "qwen3", "gpt2",
    "deepseek_v3", "deepseek_v3_no_lora"};

/* Files that have each expert apart, and files that have all of a layer in one. */
static const char *const sparse[] = {"mixtral", "qwen3_moe", "deepseek_v3_moe"};
static const char *const shared[] = {
    "mesh = {}",
    "mesh = { tp = 2, pp = 2, dp = 2, ep = 2 }, strategy = 'fsdp2'",
    "mesh = { dp = 4, ep = 2, etp = 2 }, strategy = { 'zero', stage = 3 }, "
    "precision = 'bf16', moe = { dispatcher = 'alltoall' }",
    "mesh = { tp = 2, dp = 4, ep = 2, etp = 1 }, strategy = { 'zero', stage = 1 }",
    "mesh = { tp = 2, cp = 2, pp = 2, ep = 2, etp = 2 }",
};

/* Every model on every mesh that it can be on. */
typedef struct Case {
  const char *model, *mesh;
} Case;
enum {
  DENSE_CASES = LEN(models) * LEN(export_meshes),
  CASES = DENSE_CASES + LEN(sparse) * LEN(shared)
};
static Case case_at(int i) {
  if (i < DENSE_CASES)
    return (Case){models[i % LEN(models)], export_meshes[i / LEN(models)]};
  i -= DENSE_CASES;
  return (Case){sparse[i % LEN(sparse)], shared[i / LEN(sparse)]};
}

/* In 16 bits, too, biases that choose experts are f32, as Transformers writes them. */
START_TEST(biases_of_routers_are_not_narrowed) {
  static const DType to[] = {DT_BF16, DT_F16};
  static const char *const named[] = {"BF16", "F16"};
  Exporter f;
  SafeTensors *x;
  int biases = 0;
  exporter_start(&f, hf(oracle("deepseek_v3_moe")), "mesh = {}");
  const char *half = exporter_write(&f, "half", (WeightsOutOptions){.dtype = to[_i]});
  exporter_end(&f);
  must(st_open(NULL, half, NULL, &x, &scratch_error), &scratch_error, half);
  for (int i = 0; i < st_count(x); i++) {
    bool bias = strstr(st_at(x, i)->name, ".e_score_correction_bias") != NULL;
    ck_assert_str_eq(st_at(x, i)->type, bias ? "F32" : named[_i]);
    biases += bias;
  }
  ck_assert_int_gt(biases, 0);
  st_close(x);
}
END_TEST

START_TEST(untouched_weights_keep_every_byte) {
  const char *model = case_at(_i).model, *mesh = case_at(_i).mesh;
  Exporter f;
  exporter_start(&f, hf(oracle(model)), mesh);
  const char *out =
      exporter_write(&f, "out", (WeightsOutOptions){.like = f.weights, .dtype = DT_ACT});
  same_tensors(out, oracle(model));
  /* And in bf16, from there into files of 30 KB. */
  const char *half = exporter_write(&f, "half", (WeightsOutOptions){.dtype = DT_BF16});
  exporter_end(&f);
  FilePart config[1];
  size_t n;
  char *text;
  must(file_read(NULL, arena_printf(scratch_arena, "%s/config.json", oracle(model)),
                 FILE_CODE_MAX, &text, &n, &scratch_error),
       &scratch_error, "config");
  config[0] = (FilePart){text, n};
  must(file_write(NULL, arena_printf(scratch_arena, "%s/config.json", half), config, 1,
                  &scratch_error),
       &scratch_error, "config");
  mem_free(NULL, text, n + 1);
  exporter_start(&f, hf(half), mesh);
  const char *again = exporter_write(
      &f, "again",
      (WeightsOutOptions){.like = f.weights, .dtype = DT_ACT, .shard_bytes = 30000});
  same_tensors(again, half);
  exporter_end(&f);
}
END_TEST

/* What a rank computes with, and the masters beside it: however each of them is cut. */
static const char *const halves[] = {
    "mesh = { dp = 4, tp = 2 }, strategy = { 'zero', stage = 1 }, precision = 'bf16'",
    "mesh = { dp = 4, pp = 2 }, strategy = { 'zero', stage = 2 }, precision = 'bf16'",
    "mesh = { dp = 3 }, strategy = { 'zero', stage = 1 }, precision = 'f16', "
    "batch = { global = 6, micro = 1, seq = 16 }",
    "mesh = { dp = 3 }, strategy = { 'zero', stage = 2 }, precision = 'bf16', "
    "batch = { global = 6, micro = 1, seq = 16 }",
    "mesh = { dp = 4, dp_replicate = 2 }, strategy = { 'zero', stage = 1 }, "
    "precision = 'bf16'",
    "mesh = { dp = 4, ep = 2 }, strategy = { 'zero', stage = 2 }, precision = 'bf16'",
    "mesh = { dp = 4, ep = 2, etp = 2 }, strategy = 'fsdp2', precision = 'bf16'",
};

START_TEST(every_copy_is_loaded) {
  static const char *const folder[] = {"llama", "mixtral", "qwen3_moe",
                                       "deepseek_v3_moe"};
  const char *mesh = halves[_i % LEN(halves)];
  int model = _i / LEN(halves);
  if (model == 0 && strstr(mesh, "ep = 2")) return; /* it has no experts */
  Exporter f;
  exporter_start(&f, hf(oracle(folder[model])), mesh);
  for (int i = 0; i < f.job.compiled->nparam; i++) {
    const CompiledParam *p = &f.job.compiled->param[i];
    float *value = malloc((size_t)param_count(p) * sizeof *value);
    double apart = -1;
    must(run_get(f.run, STATE_PARAM, i, value, &f.job.e), &f.job.e, p->name);
    must(run_apart(f.run, STATE_PARAM, i, value, &apart, &f.job.e), &f.job.e, p->name);
    ck_assert_msg(apart == 0, "%s: copies are %g apart", p->name, apart);
    free(value);
  }
  same_tensors(
      exporter_write(&f, "out", (WeightsOutOptions){.like = f.weights, .dtype = DT_ACT}),
      oracle(folder[model]));
  exporter_end(&f);
}
END_TEST

/* Two steps, and then every parameter against what a gather gives. */
START_TEST(trained_weights_are_those_of_the_run) {
  Exporter f;
  StepResult r;
  int32_t tokens[8 * 16], labels[8 * 16];
  for (int i = 0; i < 8 * 16; i++) tokens[i] = i * 7 % 96, labels[i] = i * 11 % 96;
  exporter_start(&f, hf(oracle(case_at(_i).model)), case_at(_i).mesh);
  for (int k = 0; k < 2; k++)
    must(run_step_tokens(f.run, tokens, labels, k, &r, &f.job.e), &f.job.e, "step");
  const char *out = exporter_write(&f, "out", (WeightsOutOptions){.dtype = DT_ACT});
  SafeTensors *s;
  must(st_open(NULL, out, NULL, &s, &scratch_error), &scratch_error, out);
  ck_assert_int_eq(st_count(s), f.job.compiled->nparam);
  for (int i = 0; i < f.job.compiled->nparam; i++) {
    const CompiledParam *p = &f.job.compiled->param[i];
    size_t bytes = (size_t)param_count(p) * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    must(run_get(f.run, STATE_PARAM, i, want, &f.job.e), &f.job.e, p->name);
    const SafeTensor *t = st_find(s, p->name);
    ck_assert_ptr_nonnull(t);
    must(st_read_f32(t, got, &scratch_error), &scratch_error, p->name);
    ck_assert_msg(memcmp(want, got, bytes) == 0, "%s differs", p->name);
    free(want);
    free(got);
  }
  st_close(s);
  exporter_end(&f);
}
END_TEST

/* ---- layers that predict further tokens ---- DeepSeek-V3's files have in each of them
 * the embedding and the head of the model once more */

static const char further[] = ", mtp = { num_layers = 2 }";

static void copy_config(const char *from, const char *to) {
  size_t n;
  char *text;
  must(file_read(NULL, arena_printf(scratch_arena, "%s/config.json", from), FILE_CODE_MAX,
                 &text, &n, &scratch_error),
       &scratch_error, "config");
  FilePart config = {text, n};
  must(file_write(NULL, arena_printf(scratch_arena, "%s/config.json", to), &config, 1,
                  &scratch_error),
       &scratch_error, "config");
  mem_free(NULL, text, n + 1);
}

/* Whether two tensors of a folder have the same values. */
static bool same_values(const SafeTensors *s, const char *a, const char *b) {
  const SafeTensor *x = st_find(s, a), *y = st_find(s, b);
  ck_assert_msg(x && y, "%s or %s is missing", a, b);
  float *p = calloc(x->bytes, 2), *q = calloc(y->bytes, 2);
  must(st_read_f32(x, p, &scratch_error), &scratch_error, a);
  must(st_read_f32(y, q, &scratch_error), &scratch_error, b);
  bool same = x->bytes == y->bytes && memcmp(p, q, 2 * x->bytes) == 0;
  free(p), free(q);
  return same;
}

START_TEST(further_tokens_keep_every_byte) {
  static const char *const own[] = {"enorm.weight", "hnorm.weight", "eh_proj.weight",
                                    "shared_head.norm.weight", "self_attn.o_proj.weight"};
  const char *model = oracle("deepseek_v3_moe"),
             *mesh = arena_printf(scratch_arena, "%s%s", shared[_i], further);
  Exporter f;
  StepResult r;
  int32_t tokens[8 * 16], labels[8 * 16];
  for (int i = 0; i < 8 * 16; i++) tokens[i] = i * 7 % 96, labels[i] = i * 11 % 96;
  exporter_start(
      &f, arena_printf(scratch_arena, "weft.hf { '%s', weights = false }", model), mesh);
  must(run_step_tokens(f.run, tokens, labels, 0, &r, &f.job.e), &f.job.e, "step");
  const char *half = exporter_write(&f, "half", (WeightsOutOptions){.dtype = DT_BF16});
  int layers = 0;
  for (int i = 0; i < f.job.compiled->nparam; i++)
    layers += strstr(f.job.compiled->param[i].name, ".hnorm.") != NULL;
  ck_assert_int_eq(layers, 2);
  exporter_end(&f);
  SafeTensors *s;
  must(st_open(NULL, half, NULL, &s, &scratch_error), &scratch_error, half);
  int first = 0;
  while (!st_find(s, arena_printf(scratch_arena, "model.layers.%d.hnorm.weight", first)))
    first++;
  for (int i = first; i < first + 2; i++) {
    const char *at = arena_printf(scratch_arena, "model.layers.%d", i);
    for (int k = 0; k < LEN(own); k++)
      ck_assert_ptr_nonnull(st_find(s, arena_printf(scratch_arena, "%s.%s", at, own[k])));
    ck_assert(same_values(s, arena_printf(scratch_arena, "%s.embed_tokens.weight", at),
                          "model.embed_tokens.weight"));
    ck_assert(same_values(s,
                          arena_printf(scratch_arena, "%s.shared_head.head.weight", at),
                          "lm_head.weight"));
  }
  st_close(s);
  copy_config(model, half);
  exporter_start(&f, hf(half), mesh);
  same_tensors(exporter_write(&f, "again",
                              (WeightsOutOptions){.like = f.weights, .dtype = DT_ACT}),
               half);
  exporter_end(&f);
}
END_TEST

/* Writes another element into a tensor of the folder. */
static void spoil(const char *folder, const SafeTensor *t) {
  FILE *f = fopen(arena_printf(scratch_arena, "%s/model.safetensors", folder), "r+");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_eq(fseek(f, (long)t->at, SEEK_SET), 0);
  ck_assert_uint_eq(fwrite("\x12\x34", 1, 2, f), 2);
  ck_assert_int_eq(fclose(f), 0);
}

START_TEST(a_copy_that_differs_is_told) {
  const char *model = arena_printf(scratch_arena, "weft.hf { '%s', weights = false }",
                                   oracle("deepseek_v3_moe"));
  static const char *const copy[][2] = {
      {"model.layers.4.embed_tokens.weight", "model.embed_tokens.weight"},
      {"model.layers.3.shared_head.head.weight", "lm_head.weight"}};
  for (int i = 0; i < LEN(copy); i++) {
    Exporter f;
    SafeTensors *s;
    err_clear(&scratch_error);
    exporter_start(&f, model, arena_printf(scratch_arena, "mesh = {}%s", further));
    const char *half =
        exporter_write(&f, i ? "head" : "table", (WeightsOutOptions){.dtype = DT_BF16});
    must(st_open(NULL, half, NULL, &s, &scratch_error), &scratch_error, half);
    must(weights_fit(f.job.compiled, s, NULL, &scratch_error), &scratch_error, half);
    must(weights_check_tied(f.job.compiled, s, &scratch_error), &scratch_error, half);
    SafeTensor spoilt = *st_find(s, copy[i][0]);
    st_close(s);
    spoil(half, &spoilt);
    must(st_open(NULL, half, NULL, &s, &scratch_error), &scratch_error, half);
    ck_assert_int_eq(weights_check_tied(f.job.compiled, s, &scratch_error), WEFT_EFILE);
    const char *says =
        arena_printf(scratch_arena, "%s: differs from %s", copy[i][0], copy[i][1]);
    ck_assert_msg(strstr(scratch_error.text, says) != NULL, "%s", scratch_error.text);
    st_close(s);
    exporter_end(&f);
  }
}
END_TEST

Suite *export_suite(void) {
  Suite *s = suite_create("export");
  TCase *t = tcase_create("export");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 600);
  tcase_add_loop_test(t, untouched_weights_keep_every_byte, 0, CASES);
  tcase_add_loop_test(t, biases_of_routers_are_not_narrowed, 0, 2);
  tcase_add_loop_test(t, every_copy_is_loaded, 0, 4 * LEN(halves));
  tcase_add_loop_test(t, trained_weights_are_those_of_the_run, 0, CASES);
  tcase_add_loop_test(t, further_tokens_keep_every_byte, 0, LEN(shared));
  tcase_add_test(t, a_copy_that_differs_is_told);
  suite_add_tcase(s, t);
  return s;
}
