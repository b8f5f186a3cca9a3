/* check_grown.c - new_tokens: embedding and head get rows that the files of a model have
 * not, each the mean of those that they have, on every mesh, and the folder that a run
 * writes has them. Transformers knows what the twelve steps after that give
 * (tests/oracle/grown.py). */
#include <check.h>
#include <math.h>

#include "tests/harness/process.h"
#include "vm/io/io.h"

enum { NEW = 3 };

static void put_base(const char *of) {
  Outcome o = process_run(60, "cp -r " WEFT_SOURCE_DIR "/tests/oracle/%s base", of);
  ck_assert_int_eq(o.code, 0);
}

static SafeTensors *opened(const char *folder) {
  SafeTensors *s;
  weft_error e;
  const char *path = scratch_path(folder);
  ck_assert_msg(st_open(NULL, path, NULL, &s, &e) == WEFT_OK, "%s", e.text);
  return s;
}

static float *values(const SafeTensors *s, const char *name, int64_t dim[2]) {
  const SafeTensor *t = st_find(s, name);
  weft_error e;
  if (!t) return NULL;
  memcpy(dim, t->dim, 2 * sizeof *dim);
  float *x = arena_alloc(scratch_arena, (size_t)(dim[0] * dim[1]) * sizeof *x);
  ck_assert_int_eq(st_read_f32(t, x, &e), WEFT_OK);
  return x;
}

/* Old rows are those of the base, new ones their mean. Returns whether there is one. */
static bool check_rows(const SafeTensors *base, const SafeTensors *grown,
                       const char *name) {
  int64_t was[2], is[2];
  const float *old = values(base, name, was), *new = values(grown, name, is);
  if (!old && !new) return false;
  ck_assert(old && new);
  ck_assert_int_eq(is[0], was[0] + NEW);
  ck_assert(memcmp(old, new, (size_t)(was[0] * was[1]) * sizeof *old) == 0);
  for (int64_t c = 0; c < was[1]; c++) {
    double sum = 0;
    for (int64_t r = 0; r < was[0]; r++) sum += old[r * was[1] + c];
    for (int64_t r = was[0]; r < is[0]; r++)
      ck_assert_float_eq(new[r * is[1] + c], (float)(sum / (double)was[0]));
  }
  return true;
}

static void put_plan(const char *name, int64_t vocab, const char *rest) {
  const char *text = arena_printf(
      scratch_arena,
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf { 'base', vocab_size = %lld%s },\n"
      "  batch = { global = 4, micro = 2, seq = 16 }, data = weft.synthetic {},\n"
      "  optimizer = weft.adamw { lr = 1e-30, weight_decay = 0 }, train = { steps = 1 } "
      "}\n",
      (long long)vocab, rest);
  scratch_put(name, text, strlen(text));
}

static int64_t vocab_of_base(void) {
  SafeTensors *s = opened("base");
  int64_t n = st_find(s, "model.embed_tokens.weight")->dim[0];
  st_close(s);
  return n;
}

static const char *const bases[] = {"llama", "llama_tied"};
static const char *const meshes[] = {"", "--set mesh={tp=2,dp=2} --set strategy=fsdp2",
                                     "--set mesh={pp=2,tp=2,cp=2}"};

START_TEST(rows_are_means) {
  const char *mesh = meshes[_i / LEN(bases)];
  put_base(bases[_i % LEN(bases)]);
  int64_t vocab = vocab_of_base();
  put_plan("plan.lua", vocab + NEW, ", new_tokens = 'mean'");
  Outcome o = process_run(60, "$weft run plan.lua -q --export out %s", mesh);
  ck_assert_msg(o.code == 0, "%s", o.err);
  SafeTensors *base = opened("base"), *out = opened("out");
  ck_assert(check_rows(base, out, "model.embed_tokens.weight"));
  ck_assert_int_eq(check_rows(base, out, "lm_head.weight"), _i % LEN(bases) == 0);
  st_close(base);
  st_close(out);
  const char *says = arena_printf(scratch_arena, "\"vocab_size\": %d", (int)vocab + NEW);
  ck_assert_msg(strstr(scratch_get(scratch_path("out/config.json")), says), "%s",
                scratch_get(scratch_path("out/config.json")));
  /* The folder that was written begins a run by itself, and with the same plan. */
  o = process_run(60, "rm -r base");
  o = process_run(60, "mv out base");
  put_plan("again.lua", vocab + NEW, "");
  o = process_run(60, "$weft run again.lua -q");
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

/* A copy of the model that a loss reads has them, and gives what the model gives. */
START_TEST(in_a_copy) {
  put_base("llama");
  put_plan("plan.lua", vocab_of_base() + NEW, ", new_tokens = 'mean'");
  Outcome o =
      process_run(60, "$weft run plan.lua --set loss=dpo --set mesh={tp=2} --log log");
  ck_assert_msg(o.code == 0 &&
                    strstr(scratch_get(scratch_path("log")), "\"loss\":0.69314"),
                "%s%s", o.err, scratch_get(scratch_path("log")));
}
END_TEST

/* What a checkpoint exports has them, the merged model of one with an adapter, too. */
START_TEST(in_what_checkpoints_give) {
  static const char checkpoint[] = "--set \"checkpoint={dir='ck',every=1}\"";
  static const char adapter[] =
      "--set \"adapter={'lora',rank=2,modules_to_save={'embed_tokens','lm_head'}}\"";
  const char *rest = _i ? adapter : "", *verb = _i ? "merge" : "export";
  put_base("llama");
  put_plan("plan.lua", vocab_of_base() + NEW, ", new_tokens = 'mean'");
  Outcome o = process_run(60, "$weft run plan.lua -q %s %s", checkpoint, rest);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft ckpt %s plan.lua ck out %s", verb, rest);
  ck_assert_msg(o.code == 0, "%s", o.err);
  SafeTensors *base = opened("base"), *out = opened("out");
  ck_assert(check_rows(base, out, "model.embed_tokens.weight"));
  ck_assert(check_rows(base, out, "lm_head.weight"));
  st_close(base);
  st_close(out);
}
END_TEST

static const struct {
  int64_t more;
  const char *rest, *says;
} refused[] = {
    {NEW, "", "model.embed_tokens.weight: shape ["},
    {NEW, ", new_tokens = 'zeros'", "plan.model.new_tokens: expected \"mean\""},
    {NEW, ", new_tokens = 3", "plan.model.new_tokens: expected \"mean\""},
    {0, ", new_tokens = 'mean'", "nothing is new: the folder has "},
    {-1, ", new_tokens = 'mean'", "nothing is new: the folder has "},
    {NEW, ", new_tokens = 'mean', weights = false", "none are read"},
};

START_TEST(what_cannot_grow) {
  put_base("llama");
  put_plan("plan.lua", vocab_of_base() + refused[_i].more, refused[_i].rest);
  Outcome o = process_run(60, "$weft check plan.lua");
  ck_assert_msg(o.code != 0 && strstr(o.err, refused[_i].says), "%s%s", o.out, o.err);
}
END_TEST

Suite *grown_suite(void);
Suite *grown_suite(void) {
  Suite *s = suite_create("grown");
  TCase *t = tcase_create("grown");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, rows_are_means, 0, LEN(bases) * LEN(meshes));
  tcase_add_test(t, in_a_copy);
  tcase_add_loop_test(t, in_what_checkpoints_give, 0, 2);
  tcase_add_loop_test(t, what_cannot_grow, 0, LEN(refused));
  suite_add_tcase(s, t);
  return s;
}
