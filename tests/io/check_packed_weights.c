/* check_packed_weights.c - weights that files have as codes with scales: the values that
 * Transformers reads (tests/oracle/packed_weights.py), whatever part of them is asked
 * for, and what is wrong with codes and scales that do not belong together. */
#include <check.h>
#include <stdio.h>

#include "tests/harness/scratch.h"
#include "vm/io/io.h"

#define DATA WEFT_SOURCE_DIR "/tests/oracle/packed_weights/"

static SafeTensors *open_file(const char *path) {
  SafeTensors *s;
  weft_error e;
  err_clear(&e);
  ck_assert_msg(st_open(NULL, path, NULL, &s, &e) == WEFT_OK, "%s: %s", path, e.text);
  return s;
}

/* From `first` on in parts of so many elements. */
static void same_parts(const SafeTensor *t, const float *want, int64_t n, int64_t first,
                       int64_t each) {
  static float got[1 << 16];
  weft_error e;
  for (int64_t at = first; at < n; at += each) {
    int64_t some = MIN(each, n - at);
    ck_assert_int_eq(st_read_part(t, at, some, got, &e), WEFT_OK);
    for (int64_t i = 0; i < some; i++)
      ck_assert_msg(got[i] == want[at + i], "%s[%ld] is %a, Transformers reads %a",
                    t->name, (long)(at + i), (double)got[i], (double)want[at + i]);
  }
}

START_TEST(values_are_those_of_transformers) {
  static float want[1 << 16];
  const int64_t each[] = {1 << 16, 1, 7, 30, 128, 1000};
  SafeTensors *stored = open_file(DATA "model.safetensors");
  SafeTensors *values = open_file(DATA "values.safetensors");
  weft_error e;
  ck_assert_int_eq(st_count(stored), st_count(values));
  ck_assert_int_eq(st_count(values), 5);
  for (int i = 0; i < st_count(values); i++) {
    const SafeTensor *v = st_at(values, i), *t = st_find(stored, v->name);
    int64_t n = 1;
    ck_assert_msg(t != NULL, "%s", v->name);
    ck_assert_str_eq(t->type, "BF16");
    ck_assert_int_eq(t->ndim, v->ndim);
    for (int d = 0; d < v->ndim; d++) ck_assert(t->dim[d] == v->dim[d]), n *= v->dim[d];
    ck_assert_int_eq((int64_t)t->bytes, (int64_t)v->bytes);
    ck_assert_int_le(n, LEN(want));
    ck_assert_int_eq(st_read_f32(v, want, &e), WEFT_OK);
    for (int k = 0; k < LEN(each); k++)
      for (int64_t first = 0; first < MIN(n, 40); first += 13)
        same_parts(t, want, n, first, each[k]);
  }
  st_close(stored);
  st_close(values);
}
END_TEST

/* ---- what does not belong together ---- */

#define BLOCKS(shape, bytes)                                                             \
  "\"a_blocks\":{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":[0," bytes "]}"
#define SCALES(name, type, shape, from, to)                                              \
  "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from     \
  "," to "]}"
#define CODES(shape, bytes)                                                              \
  "\"w.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":" shape ",\"data_offsets\":[0," bytes   \
  "]}"
#define INVERSE "w.weight_scale_inv"

static const struct Bad {
  int bytes; /* of data */
  const char *header, *text;
} bad[] = {
    {64, "{" BLOCKS("[1,2,2,16]", "64") "}",
     "tensor \"a_blocks\" has no scales: \"a_scales\" is missing"},
    {4, "{" SCALES("a_scales", "U8", "[1,2,2]", "0", "4") "}",
     "tensor \"a_scales\" has no codes: \"a_blocks\" is missing"},
    {36,
     "{" BLOCKS("[1,2,2,8]", "32") "," SCALES("a_scales", "U8", "[1,2,2]", "32",
                                              "36") "}",
     "tensor \"a_blocks\": shape [1, 2, 2, 8], blocks of mxfp4 have (experts, rows, "
     "groups, 16): 16 bytes are the codes of a scale"},
    {67,
     "{" BLOCKS("[1,2,2,16]", "64") "," SCALES("a_scales", "U8", "[1,3,1]", "64",
                                               "67") "}",
     "tensor \"a_scales\": U8[1, 3, 1] does not go with the [1, 2, 2, 16] of "
     "\"a_blocks\": a scale of U8 for each 16 bytes"},
    {72,
     "{" BLOCKS("[1,2,2,16]", "64") "," SCALES("a_scales", "BF16", "[1,2,2]", "64",
                                               "72") "}",
     "tensor \"a_scales\": BF16[1, 2, 2] does not go with the [1, 2, 2, 16] of "
     "\"a_blocks\": a scale of U8 for each 16 bytes"},
    {60, "{" BLOCKS("[1,2,2,16]", "60") "}",
     "tensor \"a_blocks\": data_offsets hold 60 bytes, its shape needs 64"},
    {6, "{" CODES("[2,3]", "6") "}",
     "tensor \"w.weight\" is of F8_E4M3 and has no scales: \"w.weight_scale_inv\" is "
     "missing"},
    {6, "{" CODES("[6]", "2") "," SCALES(INVERSE, "F32", "[1]", "2", "6") "}",
     "tensor \"w.weight\": data_offsets hold 2 bytes, its shape needs 6"},
    {8, "{" CODES("[4]", "4") "," SCALES(INVERSE, "F32", "[1]", "4", "8") "}",
     "tensor \"w.weight\": shape [4], a weight of F8_E4M3 has two dimensions"},
    {12, "{" CODES("[2,2]", "4") "," SCALES(INVERSE, "F32", "[1,2]", "4", "12") "}",
     "tensor \"w.weight_scale_inv\": F32[1, 2] does not go with the [2, 2] of "
     "\"w.weight\": a number of F32 or BF16 for each 128 x 128 of them"},
    {5, "{" CODES("[2,2]", "4") "," SCALES(INVERSE, "U8", "[1,1]", "4", "5") "}",
     "tensor \"w.weight_scale_inv\": U8[1, 1] does not go with the [2, 2] of "
     "\"w.weight\": a number of F32 or BF16 for each 128 x 128 of them"},
    {4, "{" SCALES(INVERSE, "F32", "[1,1]", "0", "4") "}",
     "tensor \"w.weight_scale_inv\" has no codes: \"w.weight\" of F8_E4M3 is missing"},
};

START_TEST(what_does_not_belong_together) {
  const struct Bad *b = &bad[_i];
  const char *path = scratch_path("bad.safetensors");
  uint64_t n = strlen(b->header);
  SafeTensors *s;
  weft_error e;
  FILE *f = fopen(path, "wb");
  ck_assert(f != NULL);
  fwrite(&n, sizeof n, 1, f);
  fwrite(b->header, 1, n, f);
  for (int i = 0; i < b->bytes; i++) fputc(0, f);
  ck_assert_int_eq(fclose(f), 0);
  err_clear(&e);
  ck_assert_int_eq(st_open(NULL, path, NULL, &s, &e), WEFT_EFILE);
  ck_assert_str_eq(e.file, path);
  ck_assert_str_eq(e.text, b->text);
  ck_assert(s == NULL);
}
END_TEST

Suite *packed_weights_suite(void);
Suite *packed_weights_suite(void) {
  Suite *s = suite_create("packed_weights");
  TCase *t = tcase_create("codes");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, values_are_those_of_transformers);
  tcase_add_loop_test(t, what_does_not_belong_together, 0, LEN(bad));
  suite_add_tcase(s, t);
  return s;
}
