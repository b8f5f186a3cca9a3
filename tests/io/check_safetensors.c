/* check_safetensors.c - tensors written and read, conversions, shards, and what every
 * kind of broken file says. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/harness/scratch.h"
#include "vm/io/io.h"
#include "vm/io/safetensors/st_type.h"

/* ---- safetensors ---- */

static const char *put_st(const char *name, const char *header, const void *data,
                          size_t bytes) {
  uint64_t n = strlen(header);
  char *s = malloc(8 + n + bytes);
  memcpy(s, &n, 8);
  memcpy(s + 8, header, n);
  if (bytes) memcpy(s + 8 + n, data, bytes);
  const char *path = scratch_put(name, s, 8 + n + bytes);
  free(s);
  return path;
}

static SafeTensors *open_st(const char *path) {
  SafeTensors *s;
  weft_status st = st_open(NULL, path, NULL, &s, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", scratch_error.file, scratch_error.text);
  return s;
}

static void check_st_error(const char *path, const char *file, const char *text) {
  SafeTensors *s;
  scratch_check_error(st_open(NULL, path, NULL, &s, &scratch_error), WEFT_EFILE, file,
                      text);
  ck_assert_ptr_null(s);
}

static void read_f32(const SafeTensor *t, float *out) {
  ck_assert_int_eq(st_read_f32(t, out, &scratch_error), WEFT_OK);
}

/* A tensor begins with these bytes. */
static void check_bytes(const SafeTensor *t, const void *want, size_t n) {
  char got[64];
  ck_assert_int_eq(file_at(t->in, t->at, got, n, &scratch_error), WEFT_OK);
  ck_assert_mem_eq(got, want, n);
}

START_TEST(written_tensors_read_back) {
  static const float w[2][3] = {{1, -2, 3}, {4e-42f, INFINITY, 6}};
  static const int32_t step[] = {7};
  static const uint16_t b[] = {0x3f80, 0xc000};
  const StWrite t[] = {
      {"w \"1\"", DT_F32, 2, {2, 3}, w},
      {"step", DT_I32, 0, {0}, step},
      {"nothing", DT_F32, 2, {0, 4}, NULL},
      {"b", DT_BF16, 1, {2}, b},
  };
  const char *path = scratch_path("out.safetensors");
  scratch_put("out.safetensors", "old", 3);
  ck_assert_int_eq(st_write(NULL, path, t, LEN(t), &scratch_error), WEFT_OK);
  SafeTensors *s = open_st(path);
  ck_assert_int_eq(st_count(s), 4);
  ck_assert_str_eq(st_at(s, 0)->name, "b");
  ck_assert_str_eq(st_at(s, 3)->name, "w \"1\"");
  ck_assert_ptr_null(st_find(s, "w"));
  const SafeTensor *x = st_find(s, "w \"1\"");
  ck_assert_int_eq(x->ndim, 2);
  ck_assert(x->dim[0] == 2 && x->dim[1] == 3 && x->dtype == DT_F32);
  ck_assert_str_eq(x->file, path);
  check_bytes(x, w, sizeof w);
  float out[6];
  read_f32(x, out);
  ck_assert_mem_eq(out, w, sizeof w);
  x = st_find(s, "step");
  ck_assert(x->ndim == 0 && x->dtype == DT_I32 && x->bytes == 4);
  read_f32(x, out);
  ck_assert(out[0] == 7);
  ck_assert_uint_eq(st_find(s, "nothing")->bytes, 0);
  read_f32(st_find(s, "b"), out);
  ck_assert(out[0] == 1 && out[1] == -2);
  st_close(s);
  ck_assert_int_eq(st_write(NULL, path, NULL, 0, &scratch_error), WEFT_OK);
  s = open_st(path);
  ck_assert_int_eq(st_count(s), 0);
  ck_assert_ptr_null(st_find(s, "b"));
  st_close(s);
}
END_TEST

START_TEST(data_starts_aligned_and_no_temporary_stays) {
  static const float one[] = {1};
  for (int n = 1; n < 10; n++) {
    const StWrite t = {&"abcdefghi" [n - 1], DT_F32, 1, { 1 }, one};
    ck_assert_int_eq(st_write(NULL, scratch_path("x"), &t, 1, &scratch_error), WEFT_OK);
    SafeTensors *s = open_st(scratch_path("x"));
    ck_assert_uint_eq(st_at(s, 0)->at % 8, 0);
    st_close(s);
  }
  ck_assert_str_eq(scratch_list(), "x ");
}
END_TEST

START_TEST(writes_that_fail_leave_nothing) {
  static const float one[] = {1};
  const StWrite t = {"a", DT_F32, 1, {1}, one};
  scratch_check_error(st_write(NULL, scratch_path("gone/x"), &t, 1, &scratch_error),
                      WEFT_EFILE, scratch_path("gone/x"),
                      "cannot be written: No such file or directory");
  ck_assert_int_eq(mkdir(scratch_path("full"), 0700), 0);
  scratch_check_error(st_write(NULL, scratch_path("full"), &t, 1, &scratch_error),
                      WEFT_EFILE, scratch_path("full"),
                      "cannot be written: Is a directory");
  ck_assert_str_eq(scratch_list(), "full ");
}
END_TEST

/* Every half, against arithmetic on its fields. */
START_TEST(halves_are_exact) {
  static uint16_t bits[65536];
  static float out[65536];
  for (int i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
  put_st("h", "{\"h\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}",
         bits, sizeof bits);
  SafeTensors *s = open_st(scratch_path("h"));
  ck_assert_int_eq(st_at(s, 0)->dtype, DT_F16);
  ck_assert_str_eq(st_at(s, 0)->type, "F16");
  read_f32(st_at(s, 0), out);
  for (int i = 0; i < 65536; i++) {
    int e = i >> 10 & 31, m = i & 1023;
    double want = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);
    if (e == 31 && m) {
      ck_assert(isnan(out[i]));
      continue;
    }
    if (e == 31) want = INFINITY;
    ck_assert(out[i] == (i & 0x8000 ? -want : want));
    ck_assert_int_eq(!!signbit(out[i]), i >> 15);
  }
  st_close(s);
}
END_TEST

START_TEST(brain_floats_are_exact) {
  static uint16_t bits[65536];
  static float out[65536];
  for (int i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
  put_st("b",
         "{\"b\":{\"dtype\":\"BF16\",\"shape\":[256,256],\"data_offsets\":[0,131072]}}",
         bits, sizeof bits);
  SafeTensors *s = open_st(scratch_path("b"));
  read_f32(st_at(s, 0), out);
  for (int i = 0; i < 65536; i++) {
    uint32_t f;
    memcpy(&f, &out[i], 4);
    ck_assert_uint_eq(f, (uint32_t)i << 16);
  }
  st_close(s);
}
END_TEST

/* Types that only need converting, at odd places of the file. */
START_TEST(other_types_are_converted) {
  static const struct {
    const char *type;
    int size;
    unsigned char bytes[8];
    float want;
  } row[] = {
      {"I64", 8, {0xfe, 255, 255, 255, 255, 255, 255, 255}, -2},
      {"I32", 4, {0xfd, 255, 255, 255}, -3},
      {"I16", 2, {0xfc, 255}, -4},
      {"I8", 1, {0xfb}, -5},
      {"U64", 8, {0, 0, 0, 0, 0, 0, 0, 0x80}, 0x1p63f},
      {"U32", 4, {0, 0, 0, 0x80}, 0x1p31f},
      {"U16", 2, {0, 0x80}, 32768},
      {"U8", 1, {0xff}, 255},
      {"BOOL", 1, {1}, 1},
      {"F64", 8, {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 1.5f},
      {"F32", 4, {0, 0, 0xc0, 0x3f}, 1.5f},
  };
  for (int i = 0; i < LEN(row); i++)
    for (int pad = 0; pad < 3; pad++) {
      const char *header = arena_printf(
          scratch_arena,
          "{\"x\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,%d]}}%*s",
          row[i].type, row[i].size, pad, "");
      SafeTensors *s = open_st(put_st("x", header, row[i].bytes, (size_t)row[i].size));
      float out;
      read_f32(st_at(s, 0), &out);
      ck_assert(out == row[i].want);
      st_close(s);
    }
}
END_TEST

/* All codes; four bits of exponent and three of fraction, as OCP's FP8 has them. */
START_TEST(codes_of_fp8) {
  unsigned char code[256];
  float value[256];
  for (int i = 0; i < LEN(code); i++) code[i] = (unsigned char)i, value[i] = 7e7f;
  st_type("F8_E4M3")->to_f32(code, LEN(code), value);
  for (int i = 0; i < LEN(code); i++) {
    int exponent = i >> 3 & 15;
    double x = (exponent ? 8 : 0) + (i & 7);
    double want = (i & 128 ? -1 : 1) * ldexp(x, (exponent ? exponent : 1) - 10);
    if ((i & 127) == 127)
      ck_assert(isnan(value[i]));
    else
      ck_assert_msg(value[i] == want, "%d: %g, not %g", i, value[i], want);
  }
}
END_TEST

#define ROW(type, shape, begin, end)                                                     \
  "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

START_TEST(metadata_is_passed_over) {
  SafeTensors *s =
      open_st(put_st("x",
                     "{\"__metadata__\":{\"format\":\"pt\"},\"a\":" ROW(
                         "U8", "[2]", 1, 3) ",\"b\":" ROW("U8", "[]", 0, 1) "}   ",
                     "abc", 3));
  ck_assert_int_eq(st_count(s), 2);
  check_bytes(st_find(s, "a"), "bc", 2);
  st_close(s);
}
END_TEST

START_TEST(broken_headers) {
  static const struct {
    const char *header, *text;
  } bad[] = {
      {"[1]", "the header is not a JSON object"},
      {"{\"__metadata__\":[]}", "\"__metadata__\" is not an object"},
      {"{\"__metadata__\":{\"k\":1}}",
       "\"__metadata__\": the value of \"k\" is not a string"},
      {"{\"a\":1}", "tensor \"a\" has no string \"dtype\""},
      {"{\"a\":{\"dtype\":3}}", "tensor \"a\" has no string \"dtype\""},
      {"{\"a\":{\"dtype\":\"F8_E5M2\"}}",
       "tensor \"a\": dtype \"F8_E5M2\" is not supported (F64, F32, F16, BF16, I64, I32, "
       "I16, I8, U64, U32, U16, U8, BOOL, F8_E4M3 are)"},
      {"{\"a\":{\"dtype\":\"F32\"}}", "tensor \"a\" has no list \"shape\""},
      {"{\"a\":" ROW("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}",
       "tensor \"a\" has 9 dimensions, at most 8 are supported"},
      {"{\"a\":" ROW("F32", "[1,-1]", 0, 4) "}",
       "tensor \"a\": dimension 1 is not a size"},
      {"{\"a\":" ROW("F32", "[1.0]", 0, 4) "}",
       "tensor \"a\": dimension 0 is not a size"},
      {"{\"a\":" ROW("F32", "[4294967296,4294967296]", 0, 8) "}",
       "tensor \"a\": the shape is too large"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}",
       "tensor \"a\" has no \"data_offsets\" of two integers"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}",
       "tensor \"a\" has no \"data_offsets\" of two integers"},
      {"{\"a\":" ROW("F32", "[3]", 0, 12) "}",
       "tensor \"a\": data_offsets [0, 12] are not within the 8 bytes of data "
       "(is the file complete?)"},
      {"{\"a\":" ROW("F32", "[1]", 8, 4) "}",
       "tensor \"a\": data_offsets [8, 4] are not within the 8 bytes of data "
       "(is the file complete?)"},
      {"{\"a\":" ROW("F32", "[1]", -4, 0) "}",
       "tensor \"a\": data_offsets [-4, 0] are not within the 8 bytes of data "
       "(is the file complete?)"},
      {"{\"a\":" ROW("F32", "[2]", 0, 4) "}",
       "tensor \"a\": data_offsets hold 4 bytes, its shape needs 8"},
      {"{\"a\":" ROW("F32", "[2]", 0, 8) ",\"b\":" ROW("F32", "[1]", 4, 8) "}",
       "tensors \"a\" and \"b\" overlap"},
      {"{\"a\":" ROW("F32", "[1]", 4, 8) "}",
       "4 bytes of data before tensor \"a\" belong to no tensor"},
      {"{\"a\":" ROW("U8", "[7]", 1, 8) "}",
       "1 bytes of data before tensor \"a\" belong to no tensor"},
      {"{\"a\":" ROW("F32", "[1]", 0, 4) "}", "the last 4 bytes belong to no tensor"},
      {"{}", "the last 8 bytes belong to no tensor"},
      {"{\"a\":1,\"a\":2}", "the header is not JSON: duplicate object key near '\"a\"'"},
  };
  for (int i = 0; i < LEN(bad); i++) {
    const char *path = put_st("bad", bad[i].header, "12345678", 8);
    check_st_error(path, path, bad[i].text);
  }
}
END_TEST

START_TEST(broken_files) {
  const char *path = scratch_put("x", "\1\0\0", 3);
  check_st_error(path, path,
                 "has 3 bytes; a safetensors file starts with an 8-byte header length");
  path = scratch_put("x", "", 0);
  check_st_error(path, path,
                 "has 0 bytes; a safetensors file starts with an 8-byte header length");
  path = scratch_put("x", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
  check_st_error(path, path,
                 "is not a safetensors file: its header would have 18446744073709551615 "
                 "bytes, the format allows 104857600");
  path = scratch_put("x", "\3\0\0\0\0\0\0\0{}", 10);
  check_st_error(path, path, "the header should have 3 bytes, but the file ends after 2");
  path = put_st("x", "{\"a\": nonsense}", "", 0);
  SafeTensors *s;
  ck_assert_int_eq(st_open(NULL, path, NULL, &s, &scratch_error), WEFT_EFILE);
  ck_assert_str_eq(scratch_error.file, path);
  ck_assert_ptr_nonnull(strstr(scratch_error.text, "the header is not JSON: "));
  err_clear(&scratch_error);
  check_st_error(scratch_path("no"), scratch_path("no"),
                 "cannot be opened: No such file or directory");
  check_st_error(scratch_dir, scratch_dir,
                 "holds neither model.safetensors nor model.safetensors.index.json");
}
END_TEST

/* A valid file cut anywhere is an error, never a crash. */
START_TEST(every_truncation_is_an_error) {
  static const float w[] = {1, 2, 3};
  const StWrite t[] = {{"a", DT_F32, 1, {2}, w}, {"b", DT_F32, 1, {1}, w + 2}};
  ck_assert_int_eq(st_write(NULL, scratch_path("x"), t, 2, &scratch_error), WEFT_OK);
  char *s;
  size_t n;
  ck_assert_int_eq(
      file_read(NULL, scratch_path("x"), FILE_OWN_MAX, &s, &n, &scratch_error), WEFT_OK);
  for (size_t cut = 0; cut < n; cut++) {
    SafeTensors *st;
    ck_assert_int_eq(st_open(NULL, scratch_put("cut", s, cut), NULL, &st, &scratch_error),
                     WEFT_EFILE);
    ck_assert_str_eq(scratch_error.file, scratch_path("cut"));
    err_clear(&scratch_error);
  }
  mem_free(NULL, s, n + 1);
}
END_TEST

/* ---- shards ---- */

static const char *put_index(const char *text) {
  return scratch_put("model.safetensors.index.json", text, strlen(text));
}

START_TEST(shards_of_an_index) {
  put_st("m-1.safetensors", "{\"b\":" ROW("U8", "[1]", 0, 1) "}", "B", 1);
  put_st("m-2.safetensors",
         "{\"c\":" ROW("U8", "[1]", 0, 1) ",\"a\":" ROW("U8", "[1]", 1, 2) "}", "CA", 2);
  const char *index = put_index("{\"metadata\":{\"total_size\":3},\"weight_map\":{"
                                "\"a\":\"m-2.safetensors\",\"b\":\"m-1.safetensors\","
                                "\"c\":\"m-2.safetensors\"}}");
  for (int i = 0; i < 2; i++) {
    SafeTensors *s = open_st(i ? index : scratch_dir);
    ck_assert_int_eq(st_count(s), 3);
    for (int k = 0; k < 3; k++) check_bytes(st_at(s, k), &"ABC"[k], 1);
    ck_assert_str_eq(st_find(s, "a")->file, scratch_path("m-2.safetensors"));
    st_close(s);
  }
  /* A whole model in the folder goes before an index. */
  put_st("model.safetensors", "{}", "", 0);
  SafeTensors *s = open_st(scratch_dir);
  ck_assert_int_eq(st_count(s), 0);
  st_close(s);
}
END_TEST

START_TEST(broken_indices) {
  put_st("m-1.safetensors", "{\"b\":" ROW("U8", "[1]", 0, 1) "}", "B", 1);
  put_st("m-2.safetensors", "{\"b\":" ROW("U8", "[1]", 0, 1) "}", "B", 1);
  const char *index = put_index("");
  check_st_error(scratch_dir, index, "is empty");
  put_index("{\"weight_map\":[]}");
  check_st_error(scratch_dir, index, "has no object \"weight_map\"");
  put_index("{\"weight_map\":{\"a\":3}}");
  check_st_error(scratch_dir, index, "the file of tensor \"a\" is not a string");
  put_index("{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}");
  check_st_error(scratch_dir, index,
                 "\"../m-1.safetensors\" is not the name of a file next to the index");
  put_index("{\"weight_map\":{\"b\":\"m-1.safetensors\",\"c\":\"m-3.safetensors\"}}");
  check_st_error(scratch_dir, index,
                 arena_printf(scratch_arena,
                              "names the shard %s, which cannot be opened: No such "
                              "file or directory",
                              scratch_path("m-3.safetensors")));
  put_index("{\"weight_map\":{\"b\":\"m-1.safetensors\",\"c\":\"m-1.safetensors\"}}");
  check_st_error(scratch_dir, index,
                 arena_printf(scratch_arena, "tensor \"c\" is not in the shard %s",
                              scratch_path("m-1.safetensors")));
  put_index("{\"weight_map\":{\"b\":\"m-1.safetensors\",\"c\":\"m-2.safetensors\"}}");
  check_st_error(scratch_dir, scratch_path("m-2.safetensors"),
                 arena_printf(scratch_arena, "tensor \"b\" is also in %s",
                              scratch_path("m-1.safetensors")));
  put_index("{\"weight_map\":{\"b\":\"m-2.safetensors\"}}");
  scratch_put("m-2.safetensors", "cut", 3);
  check_st_error(scratch_dir, scratch_path("m-2.safetensors"),
                 "has 3 bytes; a safetensors file starts with an 8-byte header length");
}
END_TEST

/* An index says which files there are. What they hold beside its names is there, too, as
 * for Transformers: whether the model has it is asked later. */
START_TEST(a_shard_may_hold_more_than_its_index_says) {
  SafeTensors *s;
  put_st("m-1.safetensors",
         "{\"c\":" ROW("U8", "[1]", 0, 1) ",\"a\":" ROW("U8", "[1]", 1, 2) "}", "CA", 2);
  put_index("{\"weight_map\":{\"c\":\"m-1.safetensors\"}}");
  weft_status st = st_open(NULL, scratch_dir, NULL, &s, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  ck_assert_int_eq(st_count(s), 2);
  ck_assert_ptr_nonnull(st_find(s, "a"));
  st_close(s);
}
END_TEST

/* ---- out of memory ---- */

START_TEST(handle_unwinds_when_out_of_memory) {
  put_st("x", "{\"b\":" ROW("U8", "[1]", 0, 1) "}", "B", 1);
  weft_status status = WEFT_ENOMEM;
  for (int n = 0; status != WEFT_OK; n++) {
    ScratchMeter m = {n, 0};
    weft_alloc a = {scratch_alloc, &m};
    SafeTensors *s;
    status = st_open(&a, scratch_path("x"), NULL, &s, &scratch_error);
    st_close(s);
    ck_assert_int_eq(m.held, 0);
    ck_assert_int_eq(status, n < 4 ? WEFT_ENOMEM : WEFT_OK);
  }
}
END_TEST

Suite *safetensors_suite(void);
Suite *safetensors_suite(void) {
  Suite *s = suite_create("safetensors");
  TCase *t = tcase_create("safetensors");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, written_tensors_read_back);
  tcase_add_test(t, data_starts_aligned_and_no_temporary_stays);
  tcase_add_test(t, writes_that_fail_leave_nothing);
  tcase_add_test(t, halves_are_exact);
  tcase_add_test(t, brain_floats_are_exact);
  tcase_add_test(t, other_types_are_converted);
  tcase_add_test(t, codes_of_fp8);
  tcase_add_test(t, metadata_is_passed_over);
  tcase_add_test(t, broken_headers);
  tcase_add_test(t, broken_files);
  tcase_add_test(t, every_truncation_is_an_error);
  tcase_add_test(t, shards_of_an_index);
  tcase_add_test(t, broken_indices);
  tcase_add_test(t, a_shard_may_hold_more_than_its_index_says);
  tcase_add_test(t, handle_unwinds_when_out_of_memory);
  suite_add_tcase(s, t);
  return s;
}
