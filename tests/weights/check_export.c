/* check_export.c - weights of a run as Hugging Face files: what was read comes out again
 * to the byte, on every mesh; and what was trained is what a gather gives. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/model/model.h"
#include "tests/harness/export_runs.h"
#include "tests/harness/process.h"
#include "vm/weights/param_gather.h"
#include "vm/weights/weights_load.h"
#include "vm/weights/run_export.h"

#define ORACLES WEFT_SOURCE_DIR "/tests/oracle/"

/* The meshes that things are tried on, as plans have them. */
static const char *const meshes[] = {
    "mesh = {}",
    "mesh = { tp = 2, pp = 2, dp = 2 }, strategy = 'fsdp2'",
    "mesh = { dp = 4 }, strategy = { 'zero', stage = 3 }, precision = 'bf16'",
    "mesh = { tp = 4, dp = 2 }, strategy = { 'zero', stage = 1 }",
};

static const char *hf(const char *folder) {
  return arena_printf(scratch_arena, "weft.hf '%s'", folder);
}

static const char *oracle(const char *name) {
  return arena_printf(scratch_arena, ORACLES "%s", name);
}

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
  DENSE_CASES = LEN(models) * LEN(meshes),
  CASES = DENSE_CASES + LEN(sparse) * LEN(shared)
};
static Case case_at(int i) {
  if (i < DENSE_CASES) return (Case){models[i % LEN(models)], meshes[i / LEN(models)]};
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

/* ---- layouts ---- */

/* Rows of several tensors below each other. */
static StWrite stacked(const SafeTensors *s, const char *layer, const char *name,
                       const char *const part[3]) {
  StWrite w = {.name = arena_printf(scratch_arena, "%s.%s.weight", layer, name),
               .dtype = DT_F32,
               .ndim = 2};
  float *all = arena_alloc(scratch_arena, 1 << 16), *to = all;
  for (int i = 0; i < 3 && part[i]; i++) {
    const SafeTensor *t =
        st_find(s, arena_printf(scratch_arena, "%s.%s.weight", layer, part[i]));
    ck_assert_ptr_nonnull(t);
    must(st_read_f32(t, to, &scratch_error), &scratch_error, t->name);
    to += t->dim[0] * t->dim[1];
    w.dim[0] += t->dim[0], w.dim[1] = t->dim[1];
  }
  w.data = all;
  return w;
}

static bool is_part(const char *name) {
  static const char *const parts[] = {"q_proj", "k_proj", "v_proj", "gate_proj",
                                      "up_proj"};
  for (int i = 0; i < LEN(parts); i++)
    if (strstr(name, parts[i])) return true;
  return false;
}

/* The oracle with q, k and v, and gate and up, as one tensor each; `cut`: a row less. */
static const char *fused_folder(int cut) {
  static const char *const qkv[3] = {"q_proj", "k_proj", "v_proj"};
  static const char *const gate_up[3] = {"gate_proj", "up_proj"};
  SafeTensors *s;
  StWrite t[64];
  int n = 0;
  const char *dir = scratch_path(cut ? "cut" : "fused");
  must(st_open(NULL, oracle("llama"), NULL, &s, &scratch_error), &scratch_error, "llama");
  for (int i = 0; i < st_count(s); i++) {
    const SafeTensor *x = st_at(s, i);
    if (is_part(x->name)) continue;
    t[n] = (StWrite){.name = x->name, .dtype = DT_F32, .ndim = x->ndim};
    memcpy(t[n].dim, x->dim, sizeof x->dim);
    float *data = arena_alloc(scratch_arena, x->bytes);
    must(st_read_f32(x, data, &scratch_error), &scratch_error, x->name);
    t[n++].data = data;
  }
  for (int l = 0; l < 4; l++) {
    const char *layer = arena_printf(scratch_arena, "model.layers.%d", l);
    t[n++] =
        stacked(s, arena_printf(scratch_arena, "%s.self_attn", layer), "qkv_proj", qkv);
    t[n] =
        stacked(s, arena_printf(scratch_arena, "%s.mlp", layer), "gate_up_proj", gate_up);
    t[n++].dim[0] -= l == 2 ? cut : 0;
  }
  ck_assert_int_eq(mkdir(dir, 0700), 0);
  must(st_write(NULL, arena_printf(scratch_arena, "%s/model.safetensors", dir), t, n,
                &scratch_error),
       &scratch_error, dir);
  st_close(s);
  const char *from = arena_printf(scratch_arena, "%s/config.json", oracle("llama"));
  ck_assert_int_eq(symlink(from, arena_printf(scratch_arena, "%s/config.json", dir)), 0);
  return dir;
}

START_TEST(fused_projections_are_read_and_written) {
  Exporter f;
  const char *dir = fused_folder(0);
  exporter_start(&f, hf(dir), meshes[_i]);
  same_tensors(
      exporter_write(&f, "out", (WeightsOutOptions){.like = f.weights, .dtype = DT_ACT}),
      dir);
  same_tensors(exporter_write(&f, "apart", (WeightsOutOptions){.dtype = DT_ACT}),
               oracle("llama"));
  static const char *const packed[] = {"gate_up_proj", "qkv_proj", NULL};
  same_tensors(exporter_write(&f, "packed",
                              (WeightsOutOptions){.dtype = DT_ACT, .packed = packed}),
               dir);
  exporter_end(&f);
}
END_TEST

/* Files of Phi-3 have them, those of Llama do not. */
START_TEST(architectures_say_what_files_have_packed) {
  Exporter f;
  HfPacked packed;
  exporter_start(&f, hf(oracle("steps_phi3")), meshes[0]);
  must(lang_hf_packed(f.job.lp, &packed, &f.job.e), &f.job.e, "packed");
  ck_assert_str_eq(packed.name[0], "qkv_proj");
  ck_assert_str_eq(packed.name[1], "gate_up_proj");
  ck_assert_ptr_null(packed.name[2]);
  exporter_end(&f);
  exporter_start(&f, hf(oracle("llama")), meshes[0]);
  must(lang_hf_packed(f.job.lp, &packed, &f.job.e), &f.job.e, "packed");
  ck_assert_ptr_null(packed.name[0]);
  exporter_end(&f);
}
END_TEST

START_TEST(fused_projections_of_another_size_do_not_fit) {
  Exporter f;
  SafeTensors *s;
  const char *dir = fused_folder(1);
  exporter_start(&f, hf(oracle("llama")), meshes[0]);
  must(st_open(NULL, dir, NULL, &s, &scratch_error), &scratch_error, dir);
  ck_assert_int_eq(run_load(f.run, s, &f.job.e), WEFT_EFILE);
  ck_assert_ptr_nonnull(strstr(f.job.e.text,
                               "model.layers.2.mlp.up_proj.weight: shape [95, "
                               "32], the model has [96, 32] in "
                               "model.layers.2.mlp.gate_up_proj.weight"));
  st_close(s);
  exporter_end(&f);
}
END_TEST

/* ---- files ---- */

static const SafeTensor *named(const SafeTensors *s, const char *name) {
  for (int i = 0; i < st_count(s); i++)
    if (str_eq(st_at(s, i)->name, name)) return st_at(s, i);
  ck_abort_msg("there is no %s", name);
}

/* Each file takes what has room, to the byte and in the order of the parameters; what is
 * larger than a file has one alone. */
START_TEST(files_are_filled_to_the_room) {
  Exporter f;
  SafeTensors *all, *cut;
  exporter_start(&f, hf(oracle("llama")), meshes[0]);
  const char *one = exporter_write(&f, "one", (WeightsOutOptions){.dtype = DT_ACT});
  must(st_open(NULL, one, NULL, &all, &scratch_error), &scratch_error, one);
  int n = f.job.compiled->nparam;
  ck_assert_int_eq(st_files(all), 1);
  ck_assert_int_eq(st_count(all), n);
  const SafeTensor **t = NEW_N(scratch_arena, const SafeTensor *, n);
  for (int i = 0; i < n; i++) t[i] = named(all, f.job.compiled->param[i].name);
  uint64_t two = t[0]->bytes + t[1]->bytes, most = 0, sum = 0;
  for (int i = 0; i < n; i++) most = MAX(most, t[i]->bytes), sum += t[i]->bytes;
  const uint64_t rooms[] = {1, most - 1, most, two - 1, two, sum - 1, sum};
  for (int k = 0; k < LEN(rooms); k++) {
    const char *out =
        exporter_write(&f, arena_printf(scratch_arena, "cut%d", k),
                       (WeightsOutOptions){.dtype = DT_ACT, .shard_bytes = rooms[k]});
    must(st_open(NULL, out, NULL, &cut, &scratch_error), &scratch_error, out);
    int file = 0;
    uint64_t used = 0;
    for (int i = 0; i < n; i++) {
      if (used && used + t[i]->bytes > rooms[k]) file++, used = 0;
      used += t[i]->bytes;
      const SafeTensor *x = named(cut, t[i]->name);
      ck_assert_msg(str_eq(x->file, st_file_path(cut, file)),
                    "room %llu: %s is in %s, not %s", (unsigned long long)rooms[k],
                    x->name, x->file, st_file_path(cut, file));
    }
    ck_assert_int_eq(st_files(cut), file + 1);
    for (int i = 0; i <= file && file; i++) { /* none is empty */
      const char *name = arena_printf(scratch_arena, "%s/model-%05d-of-%05d.safetensors",
                                      out, i + 1, file + 1);
      ck_assert_str_eq(st_file_path(cut, i), name);
    }
    st_close(cut);
  }
  st_close(all);
  exporter_end(&f);
}
END_TEST

/* ---- folders ---- */

START_TEST(a_folder_appears_whole_or_not_at_all) {
  static const WeightsFile config[] = {{"config.json", "{}", 2}};
  Exporter f;
  WeightsOutOptions o = {
      .dtype = DT_ACT, .shard_bytes = 40000, .file = config, .nfile = 1};
  exporter_start(&f, hf(oracle("llama")), meshes[1]);
  exporter_write(&f, "out/", o);
  struct stat st;
  ck_assert_int_eq(stat(scratch_path("out/config.json"), &st), 0);
  ck_assert_int_eq(stat(scratch_path("out/model-00004-of-00004.safetensors"), &st), 0);
  ck_assert_int_eq(stat(scratch_path("out/model.safetensors.index.json"), &st), 0);
  same_tensors(scratch_path("out"), oracle("llama"));
  ck_assert_str_eq(scratch_list(), "out plan.lua ");
  o.dir = scratch_path("out");
  scratch_check_error(run_export(f.run, &o, &scratch_error), WEFT_EFILE, o.dir,
                      "exists and is not empty; give another name, or remove it first");
  o.dir = scratch_path("plan.lua");
  scratch_check_error(run_export(f.run, &o, &scratch_error), WEFT_EFILE, o.dir,
                      "exists and is not a folder");
  o.dir = scratch_path("no/out");
  scratch_check_error(run_export(f.run, &o, &scratch_error), WEFT_EFILE, o.dir,
                      "cannot be made: No such file or directory");
  /* A limit on the size of files stands for a full disk. */
  struct rlimit before, small = {.rlim_cur = 20000};
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  small.rlim_max = before.rlim_max;
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
  o.dir = scratch_path("full");
  weft_status full = run_export(f.run, &o, &scratch_error);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
  ck_assert_int_eq(full, WEFT_EFILE);
  ck_assert_ptr_nonnull(strstr(scratch_error.text, "cannot be written: File too large"));
  ck_assert_str_eq(scratch_list(), "out plan.lua ");
  exporter_end(&f);
}
END_TEST

/* ---- the program ---- */

/* Another model in the folder's place: config and files beside it follow. */
START_TEST(a_run_exports_at_its_end) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf { '" ORACLES "llama', num_hidden_layers = 2, "
      "weights = false }, mesh = { tp = 2 }, batch = { global = 2, micro = 1, seq = 8 } "
      "}\n";
  scratch_put("p.lua", plan, strlen(plan));
  Outcome o =
      process_run(60, "$weft run p.lua --data " ORACLES
                      " --steps 1 -q --export new --dtype bf16 --shard-size 30KB");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *config = scratch_get(scratch_path("new/config.json"));
  ck_assert_ptr_nonnull(strstr(config, "\"num_hidden_layers\": 2"));
  ck_assert_ptr_nonnull(strstr(config, "\"dtype\": \"bfloat16\""));
  ck_assert_ptr_nonnull(strstr(config, "\"architectures\": ["));
  o = process_run(60, "$weft run p.lua --data " ORACLES " --steps 1 -q --export new");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "new: error: exists and is not empty"));
  o = process_run(60, "$weft run p.lua --data " ORACLES " --steps 1 -q --export n "
                      "--dtype f8");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "--dtype is f32, bf16 or f16, got \"f8\""));
  o = process_run(60, "$weft run p.lua --data " ORACLES " --steps 1 -q --export n "
                      "--shard-size 5XB");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "--shard-size takes a size as 5GB or 800MB"));
}
END_TEST

/* A folder that weft has made says its type by two keys, for each of which there is a
 * Transformers that reads it first. */
START_TEST(both_keys_of_a_type_are_set) {
  Exporter f;
  Text config = {0};
  bool known;
  exporter_start(
      &f,
      "weft.model { 'llama', vocab_size = 32, hidden_size = 16, "
      "intermediate_size = 8, num_hidden_layers = 1, num_attention_heads = 2 }",
      meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert_int_eq(mkdir(scratch_path("made"), 0755), 0);
  scratch_put("made/config.json", config.s, config.n);
  exporter_end(&f);
  config.n = 0;
  exporter_start(&f, "weft.hf { 'made', weights = false }", meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_BF16, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert_msg(strstr(config.s, "\"dtype\": \"bfloat16\"") &&
                    strstr(config.s, "\"torch_dtype\": \"bfloat16\"") &&
                    !strstr(config.s, "float32"),
                "%s", config.s);
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* Classes of transformers refuse 0 for 0.0 and 8.0 for 8: of what the plan gives, of
 * defaults, and of what it changes in a folder's. */
START_TEST(numbers_keep_their_types) {
  static const struct {
    const char *model, *has[4];
  } cases[] = {
      {"weft.model { 'mixtral', vocab_size = 32, hidden_size = 16, "
       "intermediate_size = 64 / 4, num_hidden_layers = 1, num_attention_heads = 2, "
       "num_key_value_heads = 2, num_local_experts = 2, rms_norm_eps = 1 }",
       {"\"router_jitter_noise\": 0.0,", "\"rms_norm_eps\": 1.0,",
        "\"intermediate_size\": 16,", "\"head_dim\": 8,"}},
      {"weft.hf { '" ORACLES "deepseek_v3_moe', routed_scaling_factor = 2, "
       "num_hidden_layers = 4 / 2, weights = false }",
       {"\"routed_scaling_factor\": 2.0,", "\"num_hidden_layers\": 2,",
        "\"rope_theta\": 10000.0,", "\"n_group\": 4,"}}};
  Exporter f;
  Text config = {0};
  bool known;
  exporter_start(&f, cases[_i].model, meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  for (int i = 0; i < 4; i++)
    ck_assert_msg(strstr(config.s, cases[_i].has[i]), "%s is not in %s", cases[_i].has[i],
                  config.s);
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* A class has defaults of its own for what is not written, reads some names alone, and
 * takes no false where a list or a number is missing. */
START_TEST(what_is_written_is_read) {
  static const struct {
    const char *model, *has[3], *has_not[3];
  } cases[] = {
      {"'minimax_m2', head_dim = 8, num_local_experts = 2, num_experts_per_tok = 2",
       {"\"partial_rotary_factor\": 1.0", "\"num_local_experts\": 2"},
       {"\"num_experts\"", "rotary_factor\": false"}},
      {"'minimax_m2', head_dim = 8, rotary_dim = 4, num_local_experts = 8",
       {"\"partial_rotary_factor\": 0.5"},
       {0}},
      {"'phi', rope_parameters = { partial_rotary_factor = 1, rope_theta = 10000, "
       "rope_type = 'default' }",
       {"\"partial_rotary_factor\": 1.0", "\"layer_norm_eps\": "},
       {"rotary_factor\": 0.5", "rms_norm_eps"}},
      {"'nemotron_h', layer_norm_epsilon = 1e-3, ssm_state_size = 8, mamba_num_heads = "
       "8, "
       "mamba_head_dim = 4, layers_block_type = { 'mamba' }",
       {"\"layer_norm_epsilon\": 0.001", "\"layers_block_type\": [",
        "\"use_bias\": false"},
       {"\"norm_eps\"", "moe_latent_size", "hybrid_override_pattern"}},
      {"'gemma3_text', head_dim = 8, final_logit_softcapping = 30",
       {"\"final_logit_softcapping\": 30.0", "\"model_type\": \"gemma3_text\""},
       {"attn_logit_softcapping\": false"}},
      {"'smollm3'", {"\"attention_bias\": false"}, {"no_rope_layers", "layer_types"}}};
  Exporter f;
  Text config = {0};
  bool known;
  exporter_start(&f,
                 arena_printf(scratch_arena,
                              "weft.model { vocab_size = 32, hidden_size = 16, "
                              "intermediate_size = 8, num_hidden_layers = 1, "
                              "num_attention_heads = 2, num_key_value_heads = 2, %s }",
                              cases[_i].model),
                 meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  for (int i = 0; i < 3; i++) {
    const char *has = cases[_i].has[i], *not = cases[_i].has_not[i];
    ck_assert_msg(!has || strstr(config.s, has), "%s is not in %s", has, config.s);
    ck_assert_msg(!not || !strstr(config.s, not ), "%s is in %s", not, config.s);
  }
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* Ids of special tokens are in each config: a class has those of a tokenizer of its own
 * for what is not written, and may find no room for them in the vocabulary. */
static const struct {
  const char *keys, *has[3];
} special[] = {
    {"",
     {"\"bos_token_id\": null,", "\"eos_token_id\": null,", "\"pad_token_id\": null,"}},
    {"bos_token_id = 3, eos_token_id = { 7, 9 }, pad_token_id = false",
     {"\"bos_token_id\": 3,", "\"eos_token_id\": [\n    7,\n    9\n  ],",
      "\"pad_token_id\": null,"}},
};

START_TEST(special_tokens_are_said) {
  Exporter f;
  Text config = {0};
  bool known;
  exporter_start(&f,
                 arena_printf(scratch_arena,
                              "weft.model { 'phi3', vocab_size = 32, hidden_size = 16, "
                              "intermediate_size = 8, num_hidden_layers = 1, "
                              "num_attention_heads = 2, num_key_value_heads = 2, %s }",
                              special[_i].keys),
                 meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  for (int i = 0; i < 3; i++)
    ck_assert_msg(strstr(config.s, special[_i].has[i]), "%s is not in %s",
                  special[_i].has[i], config.s);
  /* In a folder's config a plan changes those that it writes, and no others. */
  ck_assert_int_eq(mkdir(scratch_path("made"), 0755), 0);
  scratch_put("made/config.json", config.s, config.n);
  exporter_end(&f);
  config.n = 0;
  exporter_start(&f, "weft.hf { 'made', weights = false, pad_token_id = 31 }", meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert_msg(strstr(config.s, "\"pad_token_id\": 31"), "%s", config.s);
  ck_assert_ptr_nonnull(strstr(config.s, special[_i].has[0]));
  scratch_put("made/config.json", config.s, config.n);
  exporter_end(&f);
  config.n = 0;
  exporter_start(&f, "weft.hf { 'made', weights = false, vocab_size = 16 }", meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert_msg(strstr(config.s, "\"pad_token_id\": null"), "%s", config.s);
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* What is no token of the model has its line. */
START_TEST(special_tokens_are_tokens) {
  static const char *const wrong[][2] = {
      {"pad_token_id = 32", "plan.model.pad_token_id: expected the id of a token, below "
                            "vocab_size = 32, or false, got 32"},
      {"eos_token_id = { 1, -1 }", "plan.model.eos_token_id: expected the id of a token"},
      {"eos_token_id = {}", "plan.model.eos_token_id: expected a list of ids"},
      {"bos_token_id = '<s>'", "plan.model.bos_token_id: expected the id of a token"},
  };
  for (int i = 0; i < LEN(wrong); i++) {
    const char *plan = arena_printf(
        scratch_arena,
        "return require 'weft'.plan { model = require 'weft'.model { 'llama',\n"
        "vocab_size = 32, hidden_size = 16, intermediate_size = 8, num_hidden_layers = "
        "1,\nnum_attention_heads = 2,\n%s }, batch = { global = 1, seq = 8 } }\n",
        wrong[i][0]);
    scratch_put("p.lua", plan, strlen(plan));
    Outcome o = process_run(60, "$weft check p.lua");
    ck_assert_msg(o.code == 1 && strstr(o.err, "p.lua:4: error: ") &&
                      strstr(o.err, wrong[i][1]),
                  "%s: %d: %s", wrong[i][0], o.code, o.err);
  }
}
END_TEST

/* What turns heads is written for each architecture that has it, whatever the default of
 * its class is. */
START_TEST(every_config_says_how_heads_turn) {
  static const char *const name[] = {"llama",   "qwen2",     "qwen3",
                                     "mixtral", "qwen3_moe", "deepseek_v3"};
  Exporter f;
  Text config = {0};
  bool known;
  const char *model = arena_printf(
      scratch_arena,
      "weft.model { '%s', vocab_size = 32, hidden_size = 16, intermediate_size = 8, "
      "num_hidden_layers = 1, num_attention_heads = 2, num_key_value_heads = 2, "
      "rope_theta = 777, rope_scaling = { rope_type = 'yarn', factor = 4, "
      "original_max_position_embeddings = 8 } }",
      name[_i]);
  exporter_start(&f, model, meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert(known && strstr(config.s, "\"head_dim\": "));
  ck_assert_ptr_nonnull(strstr(config.s, "\"rope_theta\": 777.0"));
  ck_assert_ptr_nonnull(strstr(config.s, "\"rope_type\": \"yarn\""));
  ck_assert_ptr_nonnull(
      strstr(config.s, arena_printf(scratch_arena, "\"%s\"", name[_i])));
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* From a checkpoint as from the run that has written it. */
START_TEST(checkpoints_are_exported) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf '" ORACLES "llama', strategy = 'fsdp2', "
      "mesh = { tp = 2, pp = 2, dp = 2 }, batch = { global = 4, micro = 1, seq = 8 },\n"
      "checkpoint = { dir = 'runs' } }\n";
  scratch_put("p.lua", plan, strlen(plan));
  Outcome o = process_run(60, "$weft run p.lua --data " ORACLES
                              " --steps 3 -q --export run --shard-size 50KB");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft ckpt export p.lua runs out --data " ORACLES
                      " --shard-size 50KB");
  ck_assert_msg(o.code == 0, "%s", o.err);
  same_tensors(scratch_path("run"), scratch_path("out"));
  ck_assert_str_eq(scratch_get(scratch_path("run/config.json")),
                   scratch_get(scratch_path("out/config.json")));
  o = process_run(60, "$weft ckpt export p.lua runs out --data " ORACLES);
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "out: error: exists and is not empty"));
  o = process_run(60, "$weft ckpt export p.lua runs new --data " ORACLES
                      " --set model.num_hidden_layers=2 --set model.weights=false");
  ck_assert_int_ne(o.code, 0);
  ck_assert_int_ne(access(scratch_path("new"), F_OK), 0);
}
END_TEST

START_TEST(processes_write_one_folder) {
  if (system("command -v mpirun >/dev/null 2>&1") != 0 ||
      access(WEFT_BINARY_DIR "/weft_mpi.so", R_OK) != 0) {
    puts("skipped: no mpirun, or no weft_mpi.so");
    return;
  }
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf '" ORACLES "llama', strategy = 'fsdp2', "
      "mesh = { tp = 2, dp = 2 }, batch = { global = 2, micro = 1, seq = 8 } }\n";
  scratch_put("p.lua", plan, strlen(plan));
  Outcome o =
      process_run(100,
                  MPIRUN " $weft run p.lua --data " ORACLES
                         " --steps 2 -q --threads 1 --export many --shard-size 50KB",
                  4);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft run p.lua --data " ORACLES
                      " --steps 2 -q --threads 1 --export one --shard-size 50KB");
  ck_assert_msg(o.code == 0, "%s", o.err);
  same_tensors(scratch_path("many"), scratch_path("one"));
  o = process_run(100,
                  MPIRUN " $weft run p.lua --data " ORACLES
                         " --steps 1 -q --threads 1 --export gone/many",
                  4);
  ck_assert_int_ne(o.code, 0);
  ck_assert_ptr_nonnull(strstr(o.err, "cannot be made: No such file"));
}
END_TEST

Suite *export_suite(void);
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
  tcase_add_loop_test(t, fused_projections_are_read_and_written, 0, LEN(meshes));
  tcase_add_test(t, architectures_say_what_files_have_packed);
  tcase_add_test(t, fused_projections_of_another_size_do_not_fit);
  tcase_add_test(t, files_are_filled_to_the_room);
  tcase_add_test(t, a_folder_appears_whole_or_not_at_all);
  tcase_add_test(t, a_run_exports_at_its_end);
  tcase_add_test(t, both_keys_of_a_type_are_set);
  tcase_add_loop_test(t, special_tokens_are_said, 0, LEN(special));
  tcase_add_test(t, special_tokens_are_tokens);
  tcase_add_loop_test(t, numbers_keep_their_types, 0, 2);
  tcase_add_loop_test(t, what_is_written_is_read, 0, 6);
  tcase_add_loop_test(t, every_config_says_how_heads_turn, 0, 6);
  tcase_add_test(t, checkpoints_are_exported);
  tcase_add_test(t, processes_write_one_folder);
  suite_add_tcase(s, t);
  return s;
}
