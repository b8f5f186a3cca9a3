/* check_files.c - what may be read and what may not: kinds of files, sizes, folders,
 * files that change while they are read, JSON that would not fit into memory. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/generate/broken_files.h"
#include "tests/generate/fuzz_io.h"
#include "tests/generate/megatron_files.h"
#include "tests/harness/scratch.h"
#include "vm/base/rng.h"
#include "vm/io/io.h"
#include "vm/io/json_text.h"

#define FILES(...)                                                                       \
  .files = (const char *[]){__VA_ARGS__}, .nfiles = LEN(((const char *[]){__VA_ARGS__}))

static Data *open_data(DataSpec spec, int64_t seq, int64_t vocab) {
  Data *d;
  if (!spec.dir) spec.dir = scratch_dir;
  weft_status st = data_open(NULL, &spec, seq, vocab, 42, &d, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", scratch_error.file, scratch_error.text);
  return d;
}

static void no_data(DataSpec spec, int64_t vocab, const char *file, const char *text) {
  Data *d;
  if (!spec.dir) spec.dir = scratch_dir;
  scratch_check_error(data_open(NULL, &spec, 2, vocab, 0, &d, &scratch_error), WEFT_EFILE,
                      file, text);
  ck_assert_ptr_null(d);
}

/* ---- kinds and sizes ---- */

START_TEST(only_regular_files_are_read) {
  char *s;
  size_t n;
  const char *pipe = scratch_path("pipe");
  ck_assert_int_eq(mkfifo(pipe, 0600), 0);
  scratch_check_error(file_read(NULL, pipe, FILE_OWN_MAX, &s, &n, &scratch_error),
                      WEFT_EFILE, pipe, "is a pipe, a file is expected");
  scratch_check_error(file_read(NULL, "/dev/zero", FILE_OWN_MAX, &s, &n, &scratch_error),
                      WEFT_EFILE, "/dev/zero", "is a device, a file is expected");
  no_data((DataSpec){.kind = DATA_TEXT, FILES("pipe")}, 256, pipe,
          "is a pipe, a file is expected");
}
END_TEST

START_TEST(sizes_are_capped) {
  char *s;
  size_t n;
  const char *path = scratch_put("big", "x", 1);
  ck_assert_int_eq(truncate(path, (3 << 20) + 1), 0);
  scratch_check_error(file_read(NULL, path, 3 << 20, &s, &n, &scratch_error), WEFT_EFILE,
                      path, "is larger than the 3 MiB that are read here");
  ck_assert_int_eq(truncate(path, 3 << 20), 0);
  ck_assert_int_eq(file_read(NULL, path, 3 << 20, &s, &n, &scratch_error), WEFT_OK);
  mem_free(NULL, s, n + 1);
}
END_TEST

/* ---- folders ---- */

/* plan/ and other/ beside each other; links from the first into the second. */
static const char *folders(void) {
  ck_assert_int_eq(mkdir(scratch_path("plan"), 0700), 0);
  ck_assert_int_eq(mkdir(scratch_path("plan-b"), 0700), 0);
  ck_assert_int_eq(mkdir(scratch_path("other"), 0700), 0);
  scratch_put("plan/a.txt", "abcde", 5);
  scratch_put("plan-b/near.txt", "abcde", 5);
  scratch_put("other/b.txt", "fghij", 5);
  ck_assert_int_eq(symlink("../other/b.txt", scratch_path("plan/link.txt")), 0);
  ck_assert_int_eq(symlink("a.txt", scratch_path("plan/inside.txt")), 0);
  return scratch_path("plan");
}

#define OUTSIDE                                                                          \
  "is outside of the plan's folder; give the folder that it may be read from: --data "   \
  "DIR"

START_TEST(data_stays_below_its_folders) {
  char real[4096];
  const char *dir = folders(), *link = scratch_path("plan/link.txt");
  const char *other[] = {scratch_path("other")};
  ck_assert_ptr_nonnull(realpath(link, real));
  no_data((DataSpec){.kind = DATA_TEXT, FILES("link.txt"), .dir = dir}, 256, link,
          arena_printf(scratch_arena, "leads to %s, which " OUTSIDE, real));
  no_data((DataSpec){.kind = DATA_TEXT, FILES("../plan-b/*.txt"), .dir = dir}, 256,
          scratch_path("plan/../plan-b/near.txt"),
          arena_printf(scratch_arena, "leads to %s, which " OUTSIDE,
                       realpath(scratch_path("plan-b/near.txt"), real)));
  no_data((DataSpec){.kind = DATA_TEXT, FILES("/etc/passwd"), .dir = dir}, 256,
          "/etc/passwd", OUTSIDE);
  data_close(
      open_data((DataSpec){.kind = DATA_TEXT, FILES("inside.txt"), .dir = dir}, 2, 256));
  DataSpec named = {
      .kind = DATA_TEXT, FILES("link.txt"), .dir = dir, .folders = other, .nfolders = 1};
  data_close(open_data(named, 2, 256));
}
END_TEST

/* Relative names: first beside the plan, then in each folder that was named. */
START_TEST(data_is_looked_for_in_named_folders) {
  const char *dir = folders(), *more[] = {scratch_path("plan-b"), scratch_path("other")};
  DataSpec spec = {
      .kind = DATA_TEXT, FILES("b.*"), .dir = dir, .folders = more, .nfolders = 2};
  Data *d = open_data(spec, 2, 256);
  int32_t t[2], l[2];
  ck_assert_int_eq(data_sample(d, 0, t, l, &scratch_error), WEFT_OK);
  ck_assert_int_eq(t[0], 'f');
  data_close(d);
  spec.files = (const char *[]){"none*"};
  no_data(spec, 256, scratch_path("plan/none*"),
          "no file matches, nor in the folders of --data");
  Folders f = {dir, more, 2};
  ck_assert_str_eq(folders_find(&f, scratch_arena, "near.txt"),
                   scratch_path("plan-b/near.txt"));
  ck_assert_str_eq(folders_find(&f, scratch_arena, "x"), scratch_path("plan/x"));
}
END_TEST

START_TEST(weights_stay_below_their_folders) {
  static const float one[] = {1};
  const StWrite t = {"a", DT_F32, 1, {1}, one};
  const char *dir = folders(), *file = scratch_path("plan/model.safetensors");
  const char *more[] = {scratch_path("other")};
  char real[4096];
  SafeTensors *s;
  Folders in = {dir, more, 0};
  ck_assert_int_eq(st_write(NULL, scratch_path("other/w"), &t, 1, &scratch_error),
                   WEFT_OK);
  ck_assert_int_eq(symlink("../other/w", file), 0);
  ck_assert_ptr_nonnull(realpath(file, real));
  scratch_check_error(st_open(NULL, dir, &in, &s, &scratch_error), WEFT_EFILE, file,
                      arena_printf(scratch_arena, "leads to %s, which " OUTSIDE, real));
  in.nmore = 1;
  ck_assert_int_eq(st_open(NULL, dir, &in, &s, &scratch_error), WEFT_OK);
  st_close(s);
}
END_TEST

/* ---- files that change ---- */

START_TEST(a_file_that_shrinks_is_an_error) {
  enum { N = 40000 };
  static char text[N];
  memset(text, 'x', N);
  const char *path = scratch_put("t.txt", text, N);
  Data *d = open_data((DataSpec){.kind = DATA_TEXT, FILES("t.txt")}, 100, 256);
  int32_t t[100], l[100];
  ck_assert_int_eq(data_sample(d, 399 - 1, t, l, &scratch_error), WEFT_OK);
  ck_assert_int_eq(truncate(path, 5000), 0);
  scratch_check_error(
      data_sample(d, 300, t, l, &scratch_error), WEFT_EFILE, path,
      "has become shorter: it had 40000 bytes when it was opened, and now has 5000");
  data_close(d);
}
END_TEST

/* Samples before and after the change are not of one stream. */
START_TEST(files_that_change_are_an_error) {
  static const char was[] = "was written to after it was opened; it must stay as it is "
                            "while it is used";
  const char *path = scratch_put("t.txt", "abcdefgh", 8);
  Data *d = open_data((DataSpec){.kind = DATA_TEXT, FILES("t.txt")}, 2, 256);
  int32_t t[2], l[2];
  ck_assert_int_eq(data_sample(d, 0, t, l, &scratch_error), WEFT_OK);
  scratch_put("t.txt", "abcdefghi", 9);
  scratch_check_error(data_sample(d, 0, t, l, &scratch_error), WEFT_EFILE, path, was);
  scratch_put("t.txt", "abcdefgx", 8);
  struct timespec when[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
  ck_assert_int_eq(utimensat(AT_FDCWD, path, when, 0), 0);
  scratch_check_error(data_sample(d, 1, t, l, &scratch_error), WEFT_EFILE, path, was);
  data_close(d);
}
END_TEST

START_TEST(weights_that_shrink_are_an_error) {
  static const float w[5000];
  const StWrite t = {"a", DT_F32, 1, {5000}, w};
  static float out[5000];
  const char *path = scratch_path("w");
  SafeTensors *s;
  struct stat info;
  ck_assert_int_eq(st_write(NULL, path, &t, 1, &scratch_error), WEFT_OK);
  ck_assert_int_eq(stat(path, &info), 0);
  ck_assert_int_eq(st_open(NULL, path, NULL, &s, &scratch_error), WEFT_OK);
  ck_assert_uint_eq(st_bytes(s), sizeof w);
  ck_assert_int_eq(st_read_f32(st_at(s, 0), out, &scratch_error), WEFT_OK);
  ck_assert_int_eq(truncate(path, info.st_size - 4), 0);
  ck_assert_int_eq(st_read_f32(st_at(s, 0), out, &scratch_error), WEFT_EFILE);
  ck_assert_str_eq(scratch_error.file, path);
  ck_assert_ptr_nonnull(strstr(scratch_error.text, "has become shorter"));
  st_close(s);
}
END_TEST

/* More files than stay open: those that were closed are opened again, and missed. */
START_TEST(many_files_need_few_descriptors) {
  char name[16];
  int32_t t[3], l[3];
  for (int i = 0; i < 100; i++) {
    snprintf(name, sizeof name, "%03d.txt", i);
    scratch_put(name, "abc", 3);
  }
  int before = dup(0);
  close(before);
  Data *d = open_data((DataSpec){.kind = DATA_TEXT, FILES("*.txt")}, 3, 256);
  int after = dup(0);
  close(after);
  ck_assert_int_lt(after - before, 80);
  for (int i = 0; i < 99; i++) {
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    ck_assert(t[0] == 'a' && t[2] == 'c' && l[2] == 'a');
  }
  const char *gone = scratch_path("090.txt");
  ck_assert_int_eq(unlink(gone), 0);
  scratch_check_error(data_sample(d, 90, t, l, &scratch_error), WEFT_EFILE, gone,
                      "cannot be opened: No such file or directory");
  data_close(d);
}
END_TEST

/* ---- forms of token files ---- */

static const struct {
  const char *bytes;
  int n;
  const char *what;
} strangers[] = {
    {"\x93NUMPY\x01\0v\0{'descr'", 18,
     "a NumPy array (.npy): write its ids alone, array.tofile(...)"},
    {"PK\x03\x04....", 8, "a zip archive (.npz, .pt)"},
    {"MMIDIDX\0\0\x01......", 16, "the index of Megatron's token files (.idx)"},
    {"\x1f\x8b......", 8, "compressed with gzip"},
    {"PAR1....", 8, "a Parquet table"},
    {"\3757zXZ\0..", 8, "compressed with xz"},
    {"GGUF\3\0\0\0", 8, "a model of llama.cpp (.gguf)"},
    {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9 j\xa8P\x19.M", 16, "a file of torch.save"},
    {"\6\0\0\0\0\0\0\0{\"a\":1}.", 16, "a safetensors file, which has weights"},
    {"WEFTMASK\1\0\0\0\0\0\0\0", 16, "a mask of tokens (.mask): name its .bin alone"},
    {"WEFTREFL\1\0\0\0\0\0\0\0", 16,
     "losses of a reference, as weft eval --reference writes them"},
};

START_TEST(other_formats_are_named) {
  const char *path = scratch_put("t.bin", strangers[_i].bytes, (size_t)strangers[_i].n);
  no_data((DataSpec){.kind = DATA_TOKENS, FILES("t.bin")}, 256, path,
          arena_printf(scratch_arena, "is no token file but %s", strangers[_i].what));
  DataSpec raw = {.kind = DATA_TOKENS, FILES("t.bin"), .format = TOKENS_RAW};
  if (strangers[_i].n == 16)
    no_data(raw, 256, path,
            arena_printf(scratch_arena, "is no token file but %s", strangers[_i].what));
  else /* bytes that ids may have */
    data_close(open_data(raw, 2, 65536));
  DataSpec text = {.kind = DATA_TEXT, FILES("t.bin")};
  no_data(text, 256, path,
          arena_printf(scratch_arena,
                       "is no text but %s; format = \"bytes\" reads any file",
                       strangers[_i].what));
  text.format = TEXT_BYTES;
  data_close(open_data(text, 2, 256));
}
END_TEST

#define TAKES "; format = \"raw\" takes any bytes for ids"
#define PROSE "It is day, and the sun is above the hills of Corioli.\n"

/* By what they hold or by their names. */
START_TEST(texts_are_no_ids) {
  static const struct {
    const char *name, *bytes, *what;
  } texts[] = {
      {"a.bin", PROSE, "text"},
      {"b.bin", "\n {\"text\": \"it is day\"}\n{\"text\": \"a\"}\n", "JSON"},
      {"c.bin",
       "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe6\x96\x87\xe7\xab\xa0"
       "\xe3\x81\xa7\xe3\x81\x99\xe3\x80\x82\xe3\x81\x9d\xe3\x81\x86\xe3\x81",
       "text"},
      {"d.JSONL", "[1]\n", "JSON"},
      {"e.txt", "caf\xe9 ol\xe9", "text"},
      {"f.csv", "a,b\n1,2\n", "text"},
  };
  for (int i = 0; i < (int)LEN(texts); i++) {
    bool json = strcmp(texts[i].what, "JSON") == 0;
    const char *path = scratch_put(texts[i].name, texts[i].bytes, strlen(texts[i].bytes));
    const char *text = arena_printf(
        scratch_arena,
        "is no token file but %s: weft tokenize makes one of it, and %s" TAKES,
        texts[i].what, json ? "weft.chat reads conversations" : "weft.text reads bytes");
    DataSpec spec = {.kind = DATA_TOKENS, FILES(texts[i].name)};
    no_data(spec, 65536, path, text);
    spec.width = 2; /* which says nothing of the file */
    no_data(spec, 65536, path, text);
  }
  DataSpec raw = {.kind = DATA_TOKENS, FILES("b.bin"), .format = TOKENS_RAW};
  data_close(open_data(raw, 2, 65536));
}
END_TEST

/* Ids whose bytes are letters are a text by chance only where they are few. */
START_TEST(ids_are_no_texts) {
  enum { N = 4096 };
  static uint16_t ids[N];
  Rng rng = rng_make(3, "ids");
  for (int i = 0; i < N; i++) ids[i] = (uint16_t)(rng_u32(&rng, (uint64_t)i) % 50257);
  scratch_put("t.bin", ids, sizeof ids);
  data_close(open_data((DataSpec){.kind = DATA_TOKENS, FILES("t.bin")}, 2, 65536));
  scratch_put("few.bin", "abcd", 4);
  data_close(open_data((DataSpec){.kind = DATA_TOKENS, FILES("few.bin")}, 1, 65536));
  /* Common ids are small ones. */
  for (int i = 0; i < N; i++) ids[i] = (uint16_t)(i % 8 ? ids[i] | 0x101 : ids[i] % 256);
  const char *path = scratch_put("t.bin", ids, sizeof ids);
  DataSpec spec = {.kind = DATA_TEXT, FILES("t.bin")};
  no_data(
      spec, 256, path,
      "has many bytes of 0, which a text in UTF-8 has not: if they are of ids of tokens, "
      "weft.tokens reads it; format = \"bytes\" reads any file");
  spec.format = TEXT_BYTES;
  data_close(open_data(spec, 2, 256));
}
END_TEST

START_TEST(token_files_are_no_texts) {
  static int32_t file[256 + 8] = {20240520, 1, 16};
  for (int i = 0; i < 8; i++) file[256 + i] = 0x01010101;
  const char *path = scratch_put("h.bin", file, sizeof file);
  no_data((DataSpec){.kind = DATA_TEXT, FILES("h.bin")}, 256, path,
          "is no text but ids of tokens (llm.c GPT-2): weft.tokens reads it; format = "
          "\"bytes\" reads any file");
  megatron_put("m", &(MegatronFile){4, 1, 0x01010101, (int32_t[]){40}, 0, NULL});
  DataSpec spec = {.kind = DATA_TEXT, FILES("m.bin")};
  no_data(spec, 256, scratch_path("m.bin"),
          "is no text but ids of tokens (Megatron): weft.tokens reads it; format = "
          "\"bytes\" reads any file");
  spec.format = TEXT_BYTES;
  data_close(open_data(spec, 2, 256));
}
END_TEST

START_TEST(rows_are_text_and_told) {
  scratch_put("a.txt", PROSE, strlen(PROSE));
  scratch_put("b.NDJSON", "{\"text\": \"day\"}\n", 16);
  static const double weights[] = {1, 1};
  DataSpec spec = {.kind = DATA_TEXT, FILES("a.txt", "b.NDJSON")};
  for (int blend = 0; blend < 2; blend++) {
    if (blend) spec.weights = weights, spec.nweights = 2;
    Data *d = open_data(spec, 2, 256);
    ck_assert_str_eq(data_text_of_rows(d), scratch_path("b.NDJSON"));
    data_close(d);
  }
  Data *d = open_data((DataSpec){.kind = DATA_TEXT, FILES("a.txt")}, 2, 256);
  ck_assert_ptr_null(data_text_of_rows(d));
  data_close(d);
}
END_TEST

START_TEST(ids_of_32_bits) {
  uint32_t ids[64];
  for (int i = 0; i < 64; i++) ids[i] = (uint32_t)(7 * i + 1);
  const char *path = scratch_put("t.bin", ids, sizeof ids);
  DataSpec spec = {.kind = DATA_TOKENS, FILES("t.bin")};
  no_data(spec, 1000, path,
          "every second 16-bit id is 0: these are ids of 32 bits; say so with "
          "data = weft.tokens { ..., dtype = \"u32\" }");
  no_data(spec, 65537, path,
          "does not say how wide its ids are, and 16 bits are too few for the model's "
          "vocabulary of 65537: give weft.tokens { ..., dtype = \"u32\" }, or \"u16\" if "
          "they are all below 65536");
  spec.width = 4;
  Data *d = open_data(spec, 63, 100000);
  int32_t t[63], l[63];
  ck_assert_str_eq(data_describe(d), "1 file (raw u32), 64 tokens");
  ck_assert_int_eq(data_sample(d, 0, t, l, &scratch_error), WEFT_OK);
  for (int i = 0; i < 63; i++) ck_assert(t[i] == 7 * i + 1 && l[i] == 7 * i + 8);
  data_close(d);
  spec.width = 2; /* said so: half of them are 0 */
  data_close(open_data(spec, 63, 100000));
  spec.width = 4;
  ck_assert_int_eq(truncate(path, 254), 0);
  no_data(spec, 1000, path,
          "has 254 bytes, which is no multiple of 4; raw token files hold 32-bit ids");
}
END_TEST

/* The same data looks the same, wherever it lies; other data does not. */
START_TEST(a_look_tells_data_apart) {
  static char text[5000];
  uint64_t seen[4];
  const char *name[] = {"a", "b", "c", "d"};
  memset(text, 'x', sizeof text);
  scratch_put("a", text, 5000);
  scratch_put("b", text, 5000);
  scratch_put("c", text, 4999);
  text[4800] = 'y';
  scratch_put("d", text, 5000);
  for (int i = 0; i < 4; i++) {
    Data *d = open_data((DataSpec){.kind = DATA_TEXT, FILES(name[i])}, 2, 'z');
    ck_assert_int_eq(data_look(d, &seen[i], &scratch_error), WEFT_OK);
    data_close(d);
  }
  ck_assert(seen[0] == seen[1] && seen[0] != seen[2] && seen[0] != seen[3]);
  /* Between the ends, of data that are too long to be read as a whole. */
  static char longer[1 << 20];
  DataPrint inside[2];
  memset(longer, 'x', sizeof longer);
  for (int i = 0; i < 2; i++) {
    if (i) memset(longer + sizeof longer / 2, 'y', sizeof longer / 100);
    scratch_put("e", longer, sizeof longer);
    Data *d = open_data((DataSpec){.kind = DATA_TEXT, FILES("e")}, 64, 'z');
    ck_assert_int_eq(data_look(d, &seen[i], &scratch_error), WEFT_OK);
    ck_assert_int_eq(data_look_inside(d, &inside[i], &scratch_error), WEFT_OK);
    ck_assert_int_eq(inside[i].samples, 1024);
    data_close(d);
  }
  ck_assert(seen[0] == seen[1] && inside[0].hash != inside[1].hash);
  Data *d = open_data((DataSpec){.kind = DATA_TEXT, FILES("d")}, 2, 'y');
  scratch_check_error(
      data_look(d, &seen[0], &scratch_error), WEFT_EFILE, scratch_path("d"),
      "byte 121 at offset 4800 is not below the model's vocabulary of 121");
  data_close(d);
}
END_TEST

/* ---- JSON ---- */

static char *repeated(const char *s, size_t times) {
  size_t n = strlen(s);
  char *out = malloc(n * times + 1);
  for (size_t i = 0; i < times; i++) memcpy(out + i * n, s, n);
  out[n * times] = 0;
  return out;
}

static void check_json(char *text, const char *why) {
  json_t *doc = json_text("f.json", "", text, strlen(text), &scratch_error);
  ck_assert_ptr_null(doc);
  ck_assert_msg(strstr(scratch_error.text, why) != NULL, "%s", scratch_error.text);
  err_clear(&scratch_error);
  free(text);
}

START_TEST(json_is_bounded) {
  check_json(repeated("[", 33), "is nested more than 32 deep");
  check_json(repeated("{\"a\":", 100000), "is nested more than 32 deep");
  check_json(repeated("[],", 600001), "holds more values than are read here: at most "
                                      "2000000, 600000 of them objects or lists");
  check_json(repeated("1,", 2000001), "holds more values than are read here");
  check_json(repeated("]", 100), "is not JSON");
  check_json(repeated("\"\\", 3), "is not JSON");
  const char *strings = "{\"a[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\":\"\\\",,,{{\"}";
  json_t *doc = json_text("f.json", "", strings, strlen(strings), &scratch_error);
  ck_assert_ptr_nonnull(doc);
  json_decref(doc);
}
END_TEST

/* What was read is written as it was: numbers by the fewest digits, order, infinities. */
START_TEST(json_is_written_as_it_was) {
  static const char text[] = "{\n  \"z\": 1e-6,\n  \"a\": [\n    0.1,\n    Infinity,\n"
                             "    -Infinity,\n    10000.0,\n    3\n  ],\n  \"s\": "
                             "\"Infinity \\\" 1e308\",\n  \"n\": null,\n  \"b\": true,\n"
                             "  \"o\": {}\n}";
  Text out = {0};
  json_t *doc = json_text_python("f.json", "", text, strlen(text), &scratch_error);
  ck_assert_msg(doc != NULL, "%s", scratch_error.text);
  json_text_to_python(doc, &out);
  ck_assert_str_eq(out.s, text);
  json_decref(doc);
  text_free(&out);
}
END_TEST

/* ---- broken files ---- */

/* A sample of ./dev fuzz-io. */
START_TEST(broken_files_are_errors) {
  Text report = {0};
  for (uint64_t i = 0; i < 400 && !report.n; i++)
    fuzz_io_case(scratch_dir, 1, i, &report);
  ck_assert_msg(report.n == 0, "%s", report.s);
}
END_TEST

/* What libFuzzer came upon: ./dev fuzz-io begins with it. */
START_TEST(files_that_were_found) {
  const FuzzTarget *t = fuzz_target(_i);
  FuzzFile *f = calloc(1, sizeof *f);
  Text report = {0};
  char dir[512];
  struct dirent *x;
  *f = (FuzzFile){.folder = scratch_dir};
  t->make(f, 0); /* what lies beside it */
  snprintf(dir, sizeof dir, WEFT_SOURCE_DIR "/tests/fuzz/corpus/%s", t->name);
  DIR *d = opendir(dir);
  ck_assert_ptr_nonnull(d);
  int n = 0;
  for (; (x = readdir(d)); n++) {
    FILE *in = x->d_name[0] == '.'
                   ? NULL
                   : fopen(arena_printf(scratch_arena, "%s/%s", dir, x->d_name), "rb");
    if (!in) continue;
    f->n = fread(f->s, 1, sizeof f->s, in);
    fclose(in);
    fuzz_read(t, f, &report);
    ck_assert_msg(!report.n, "%s/%s: %s", t->name, x->d_name, report.s);
  }
  ck_assert_int_gt(n, 2);
  closedir(d);
  free(f);
}
END_TEST

Suite *files_suite(void);
Suite *files_suite(void) {
  Suite *s = suite_create("files");
  TCase *t = tcase_create("files");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, only_regular_files_are_read);
  tcase_add_test(t, sizes_are_capped);
  tcase_add_test(t, data_stays_below_its_folders);
  tcase_add_test(t, data_is_looked_for_in_named_folders);
  tcase_add_test(t, weights_stay_below_their_folders);
  tcase_add_test(t, a_file_that_shrinks_is_an_error);
  tcase_add_test(t, files_that_change_are_an_error);
  tcase_add_test(t, weights_that_shrink_are_an_error);
  tcase_add_test(t, many_files_need_few_descriptors);
  tcase_add_loop_test(t, other_formats_are_named, 0, LEN(strangers));
  tcase_add_test(t, texts_are_no_ids);
  tcase_add_test(t, ids_are_no_texts);
  tcase_add_test(t, token_files_are_no_texts);
  tcase_add_test(t, rows_are_text_and_told);
  tcase_add_test(t, ids_of_32_bits);
  tcase_add_test(t, a_look_tells_data_apart);
  tcase_add_test(t, json_is_bounded);
  tcase_add_test(t, json_is_written_as_it_was);
  tcase_add_test(t, broken_files_are_errors);
  int targets = 0;
  while (fuzz_target(targets)) targets++;
  tcase_add_loop_test(t, files_that_were_found, 0, targets);
  suite_add_tcase(s, t);
  return s;
}
