/* check_buffers.c - numbers that files of a model have beside its parameters: exports
 * have them, and files with other numbers are refused. */
#include <check.h>
#include <stdio.h>

#include "tests/harness/export_runs.h"
#include "vm/weights/weights_load.h"

#define APERTUS                                                                          \
  "hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2, vocab_size = 32, "   \
  "num_attention_heads = 2, num_key_value_heads = 2"

static float number_in(const char *folder, const char *name, const char *type) {
  SafeTensors *s;
  float x;
  must(st_open(NULL, folder, NULL, &s, &scratch_error), &scratch_error, folder);
  const SafeTensor *t = st_find(s, name);
  ck_assert_msg(t && t->ndim == 0, "%s is no number", name);
  ck_assert_str_eq(t->type, type);
  must(st_read_part(t, 0, 1, &x, &scratch_error), &scratch_error, name);
  st_close(s);
  return x;
}

/* Hugging Face's class begins with whatever is in memory where a file lacks its buffers.
 */
START_TEST(buffers_are_read_and_written) {
  static const char beta[] = "model.layers.1.mlp.act_fn.beta";
  Exporter f;
  SafeTensors *s;
  exporter_start(&f, "weft.model { 'apertus', " APERTUS " }",
                 "mesh = { tp = 2, pp = 2 }");
  const char *out = exporter_write(&f, "out", (WeightsOutOptions){0});
  const char *half = exporter_write(&f, "half", (WeightsOutOptions){.dtype = DT_BF16});
  ck_assert_double_eq((double)number_in(out, beta, "F32"), 0.5);
  ck_assert_double_eq((double)number_in(half, beta, "BF16"), 0.5);
  ck_assert_double_eq_tol(
      (double)number_in(half, "model.layers.0.mlp.act_fn.eps", "BF16"), -1e-6, 1e-8);
  for (int i = 0; i < 2; i++) {
    must(st_open(NULL, i ? half : out, NULL, &s, &scratch_error), &scratch_error, out);
    must(run_load(f.run, s, &scratch_error), &scratch_error, "load");
    if (!i)
      same_tensors(
          exporter_write(&f, "like", (WeightsOutOptions){.like = s, .dtype = DT_ACT}),
          out);
    st_close(s);
  }
  /* Another number is another model. */
  must(st_open(NULL, half, NULL, &s, &scratch_error), &scratch_error, half);
  uint64_t at = st_find(s, beta)->at;
  st_close(s);
  FILE *file = fopen(arena_printf(scratch_arena, "%s/model.safetensors", half), "r+b");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fseek(file, (long)at, SEEK_SET), 0);
  ck_assert_uint_eq(fwrite("\x80\x3e", 1, 2, file), 2);
  ck_assert_int_eq(fclose(file), 0);
  must(st_open(NULL, half, NULL, &s, &scratch_error), &scratch_error, half);
  ck_assert_int_eq(run_load(f.run, s, &scratch_error), WEFT_EFILE);
  ck_assert_msg(strstr(scratch_error.text,
                       "act_fn.beta: is 0.25, the model computes with 0.5") != NULL,
                "%s", scratch_error.text);
  err_clear(&scratch_error);
  st_close(s);
  exporter_end(&f);
}
END_TEST

Suite *buffers_suite(void);
Suite *buffers_suite(void) {
  Suite *s = suite_create("buffers");
  TCase *t = tcase_create("buffers");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 60);
  tcase_add_test(t, buffers_are_read_and_written);
  suite_add_tcase(s, t);
  return s;
}
