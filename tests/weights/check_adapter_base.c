/* check_adapter_base.c - tensors of the base in an adapter's folder, which PEFT writes
 * where the head or the embeddings are a target: they must be the base's, in the narrower
 * type of the two. */
#include <check.h>

#include "tests/harness/process.h"
#include "vm/io/io.h"
#include "vm/io/safetensors/st_type.h"
#include "vm/weights/adapter_files.h"

#define HEAD   "lm_head.base_layer.weight"
#define RESIZE "model.embed_tokens.weight" /* what PEFT adds of resized embeddings */

static SafeTensors *opened(const char *file) {
  SafeTensors *s;
  weft_error e;
  ck_assert_msg(st_open(NULL, scratch_path(file), NULL, &s, &e) == WEFT_OK, "%s", e.text);
  return s;
}

static StWrite of_tensor(const SafeTensors *s, const char *name) {
  const SafeTensor *t = st_find(s, name);
  weft_error e;
  ck_assert_msg(t != NULL, "%s", name);
  StWrite w = {.name = arena_str(scratch_arena, name), .dtype = DT_F32, .ndim = t->ndim};
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= w.dim[i] = t->dim[i];
  float *x = arena_alloc(scratch_arena, (size_t)n * sizeof *x);
  ck_assert_int_eq(st_read_f32(t, x, &e), WEFT_OK);
  w.data = x;
  return w;
}

static void write(const char *file, const StWrite *t, int n) {
  weft_error e;
  ck_assert_msg(st_write(NULL, scratch_path(file), t, n, &e) == WEFT_OK, "%s", e.text);
}

/* As the type has it; `by` is added to the last element before. */
static StWrite changed(StWrite w, DType to, float by) {
  size_t n = (size_t)(w.dim[0] * w.dim[1]);
  float *x = arena_alloc(scratch_arena, n * sizeof *x);
  unsigned char *raw = arena_alloc(scratch_arena, n * sizeof *x);
  memcpy(x, w.data, n * sizeof *x);
  x[n - 1] += by;
  ck_assert(st_from_f32(to, x, n, raw));
  w.dtype = to;
  w.data = raw;
  return w;
}

static void put_plan(const char *from) {
  const char *text = arena_printf(
      scratch_arena,
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf 'base', data = weft.synthetic {},\n"
      "  adapter = { 'lora', rank = 2, targets = { 'lm_head', 'q_proj' }%s },\n"
      "  batch = { global = 4, micro = 2, seq = 16 }, train = { steps = 1 },\n"
      "  optimizer = weft.adamw { lr = 1e-3 } }\n",
      from);
  scratch_put("plan.lua", text, strlen(text));
}

/* The base, and the folder of an adapter of it. */
static void put_both(const char *base) {
  Outcome o = process_run(60, "cp -r " WEFT_SOURCE_DIR "/tests/oracle/%s base", base);
  ck_assert_int_eq(o.code, 0);
  put_plan("");
  o = process_run(60, "$weft run plan.lua -q --export peft");
  ck_assert_msg(o.code == 0, "%s", o.err);
  put_plan(", from = 'peft'");
}

/* Adds a tensor, as PEFT calls it, to the adapter's. */
static void add(StWrite w, const char *name) {
  SafeTensors *s = opened("peft/" ADAPTER_WEIGHTS);
  StWrite all[64];
  int n = 0;
  for (; n < st_count(s); n++) all[n] = of_tensor(s, st_at(s, n)->name);
  st_close(s);
  w.name = arena_printf(scratch_arena, ADAPTER_PREFIX "%s", name);
  all[n++] = w;
  write("peft/" ADAPTER_WEIGHTS, all, n);
}

static StWrite of_base(const char *name) {
  SafeTensors *s = opened("base/model.safetensors");
  StWrite w = of_tensor(s, name);
  st_close(s);
  return w;
}

static const struct {
  const char *base, *of, *name;
  DType base_to, to;
  float by;
  const char *says; /* NULL: it is taken */
} kind[] = {
    {"llama", "lm_head.weight", HEAD, DT_F32, DT_F32, 0, NULL},
    {"llama_tied", "model.embed_tokens.weight", HEAD, DT_F32, DT_F32, 0, NULL},
    {"llama", "model.embed_tokens.weight", RESIZE, DT_F32, DT_F32, 0, NULL},
    {"llama", "lm_head.weight", HEAD, DT_F32, DT_BF16, 0, NULL},
    {"llama", "lm_head.weight", HEAD, DT_F32, DT_F16, 0, NULL},
    {"llama", "lm_head.weight", HEAD, DT_BF16, DT_F32, 0, NULL},
    {"llama", "lm_head.weight", HEAD, DT_F32, DT_F32, 1e-3F,
     HEAD ": differs from lm_head.weight of the plan's base: the adapter was trained on "
          "another one"},
    {"llama", "lm_head.weight", HEAD, DT_F32, DT_BF16, 1, HEAD ": differs from lm_head."},
    {"llama", "lm_head.weight", HEAD, DT_BF16, DT_F32, 1, HEAD ": differs from lm_head."},
    {"llama_tied", "model.embed_tokens.weight", HEAD, DT_F32, DT_F32, 1e-3F,
     HEAD ": differs from model.embed_tokens.weight of the plan's base"},
    {"llama", "model.embed_tokens.weight", RESIZE, DT_F32, DT_F32, 1e-3F,
     RESIZE ": differs from model.embed_tokens.weight of the plan's base"},
    {"llama", "lm_head.weight", "model.layers.0.input_layernorm.base_layer.weight",
     DT_F32, DT_F32, 0, "input_layernorm.base_layer.weight: not in the model"},
    {"llama", "model.norm.weight", HEAD, DT_F32, DT_F32, 0, HEAD ": shape ["},
};

/* Writes the base with one of its tensors in another type. */
static void narrow_base(const char *name, DType to) {
  SafeTensors *s = opened("base/model.safetensors");
  StWrite all[64];
  int n = st_count(s);
  for (int i = 0; i < n; i++) {
    all[i] = of_tensor(s, st_at(s, i)->name);
    if (str_eq(all[i].name, name)) all[i] = changed(all[i], to, 0);
  }
  st_close(s);
  write("base/model.safetensors", all, n);
}

START_TEST(what_is_the_bases) {
  put_both(kind[_i].base);
  StWrite w = of_base(kind[_i].of);
  if (w.ndim == 2) w = changed(w, kind[_i].to, kind[_i].by);
  add(w, kind[_i].name);
  if (kind[_i].base_to != DT_F32) narrow_base(kind[_i].of, kind[_i].base_to);
  Outcome o = process_run(60, "$weft run plan.lua -q");
  if (!kind[_i].says)
    ck_assert_msg(o.code == 0, "%s", o.err);
  else
    ck_assert_msg(o.code != 0 && strstr(o.err, kind[_i].says), "%s", o.err);
}
END_TEST

Suite *adapter_base_suite(void);
Suite *adapter_base_suite(void) {
  Suite *s = suite_create("adapter_base");
  TCase *t = tcase_create("adapter_base");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, what_is_the_bases, 0, LEN(kind));
  suite_add_tcase(s, t);
  return s;
}
