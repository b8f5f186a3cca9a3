/* check_io.c - whole files and token data: what is read, and what every kind of broken
 * file says. */
#include <check.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/generate/megatron_files.h"
#include "tests/harness/scratch.h"
#include "vm/io/file.h"
#include "vm/io/io.h"

/* ---- whole files ---- */

START_TEST(whole_files) {
  char *s;
  size_t n;
  const char *path = scratch_put("a", "one\0two", 7);
  ck_assert_int_eq(file_read(NULL, path, FILE_OWN_MAX, &s, &n, &scratch_error), WEFT_OK);
  ck_assert_uint_eq(n, 7);
  ck_assert_mem_eq(s, "one\0two", 8);
  mem_free(NULL, s, n + 1);
  char *big = calloc(1, 100000);
  big[99999] = 'x';
  ck_assert_int_eq(file_read(NULL, scratch_put("big", big, 100000), FILE_OWN_MAX, &s, &n,
                             &scratch_error),
                   WEFT_OK);
  ck_assert_uint_eq(n, 100000);
  ck_assert_mem_eq(s, big, n);
  mem_free(NULL, s, n + 1);
  free(big);
  ck_assert_int_eq(
      file_read(NULL, scratch_put("none", "", 0), FILE_OWN_MAX, &s, &n, &scratch_error),
      WEFT_OK);
  ck_assert_uint_eq(n, 0);
  ck_assert_str_eq(s, "");
  mem_free(NULL, s, 1);
}
END_TEST

START_TEST(files_that_cannot_be_read) {
  char *s;
  size_t n;
  File f;
  scratch_check_error(file_read(NULL, scratch_dir, FILE_OWN_MAX, &s, &n, &scratch_error),
                      WEFT_EFILE, scratch_dir, "is a directory, a file is expected");
  ck_assert_ptr_null(s);
  scratch_check_error(
      file_read(NULL, scratch_path("no"), FILE_OWN_MAX, &s, &n, &scratch_error),
      WEFT_EFILE, scratch_path("no"), "cannot be opened: No such file or directory");
  scratch_check_error(file_open(scratch_dir, &f, &scratch_error), WEFT_EFILE, scratch_dir,
                      "is a directory, a file is expected");
  ck_assert_int_eq(mkfifo(scratch_path("pipe"), 0600), 0);
  scratch_check_error(file_open(scratch_path("pipe"), &f, &scratch_error), WEFT_EFILE,
                      scratch_path("pipe"), "is a pipe, a file is expected");
}
END_TEST

/* ---- data ---- */

static Data *open_data(DataSpec spec, int64_t seq, int64_t vocab) {
  Data *d;
  spec.dir = scratch_dir;
  weft_status st = data_open(NULL, &spec, seq, vocab, 42, &d, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", scratch_error.file, scratch_error.text);
  return d;
}

static void check_sample(const Data *d, int64_t i, int64_t seq, const char *text) {
  int32_t tokens[16], labels[16];
  ck_assert_int_eq(data_sample(d, i, tokens, labels, &scratch_error), WEFT_OK);
  ck_assert_uint_eq(strlen(text), (size_t)seq + 1);
  for (int k = 0; k < seq; k++) {
    ck_assert_int_eq(tokens[k], text[k]);
    ck_assert_int_eq(labels[k], text[k + 1]);
  }
}

#define FILES(...)                                                                       \
  .files = (const char *[]){__VA_ARGS__}, .nfiles = LEN(((const char *[]){__VA_ARGS__}))

/* Three files, one of them empty, are one stream in the order of their paths. */
START_TEST(text_is_one_stream) {
  scratch_put("b.txt", "fgh", 3);
  scratch_put("a.txt", "abcde", 5);
  scratch_put("ab.txt", "", 0);
  scratch_put("other", "zzz", 3);
  Data *d = open_data((DataSpec){.kind = DATA_TEXT, FILES("b.txt", "*.txt")}, 3, 256);
  ck_assert_int_eq(data_tokens(d), 8);
  ck_assert_str_eq(data_describe(d), "3 files, 8 bytes");
  check_sample(d, 0, 3, "abcd");
  check_sample(d, 1, 3, "defg");
  check_sample(d, 2, 3, "abcd"); /* the next epoch: "gh" has no third token */
  check_sample(d, 1000001, 3, "defg");
  data_close(d);
}
END_TEST

/* A file counts once, by whatever path; with another index it is other data. */
START_TEST(the_same_file_by_other_names) {
  static const int32_t id[] = {1, 2, 3, 4}, other[] = {1, 3};
  scratch_put("a.txt", "abcde", 5);
  scratch_put("b.txt", "abcde", 5);
  ck_assert_int_eq(symlink("a.txt", scratch_path("c.txt")), 0);
  ck_assert_int_eq(symlink(".", scratch_path("d")), 0);
  Data *d = open_data(
      (DataSpec){.kind = DATA_TEXT,
                 FILES("a.txt", "./a.txt", "d/a.txt", "?.txt", scratch_path("a.txt"))},
      3, 256);
  ck_assert_str_eq(data_describe(d), "2 files, 10 bytes");
  data_close(d);
  megatron_put_ids("m", &(MegatronFile){8, 1, 0, (int32_t[]){4}, 0, NULL}, id);
  DataSpec spec = {.kind = DATA_TOKENS, FILES("m", "m.bin", "./m.bin", "d/m.idx", "n*")};
  scratch_put("n.bin", other, 0); /* no file of m */
  d = open_data(spec, 3, 256);
  ck_assert_str_eq(data_describe(d), "2 files (Megatron, raw u16), 4 tokens");
  data_close(d);
  ck_assert_int_eq(unlink(scratch_path("n.bin")), 0);
  megatron_put_ids("n", &(MegatronFile){8, 2, 0, (int32_t[]){2, 2}, 0, NULL}, id);
  ck_assert_int_eq(unlink(scratch_path("n.bin")), 0);
  ck_assert_int_eq(link(scratch_path("m.bin"), scratch_path("n.bin")), 0);
  d = open_data(spec, 3, 256);
  ck_assert_str_eq(data_describe(d), "2 files (Megatron), 8 tokens");
  data_close(d);
}
END_TEST

START_TEST(last_label_is_the_last_byte) {
  scratch_put("a", "abcdefg", 7);
  Data *d = open_data((DataSpec){.kind = DATA_TEXT, FILES("a")}, 6, 256);
  check_sample(d, 0, 6, "abcdefg");
  check_sample(d, 1, 6, "abcdefg");
  data_close(d);
  d = open_data((DataSpec){.kind = DATA_TEXT, FILES("a")}, 1, 256);
  check_sample(d, 5, 1, "fg");
  check_sample(d, 6, 1, "ab");
  data_close(d);
}
END_TEST

/* An epoch shows every window once; epochs and seeds differ, a repetition does not. */
START_TEST(shuffle_is_a_permutation_per_epoch) {
  enum { WINDOWS = 100 };
  uint16_t ids[WINDOWS * 2 + 1];
  for (int i = 0; i < LEN(ids); i++) ids[i] = (uint16_t)i;
  scratch_put("t.bin", ids, sizeof ids);
  DataSpec spec = {
      .kind = DATA_TOKENS, FILES("t.bin"), .shuffle = true, .dir = scratch_dir};
  Data *d = open_data(spec, 2, 1000), *again = open_data(spec, 2, 1000), *other;
  ck_assert_int_eq(data_open(NULL, &spec, 2, 1000, 43, &other, &scratch_error), WEFT_OK);
  int seen[2][WINDOWS] = {0}, moved = 0, differ = 0;
  for (int64_t i = 0; i < 2 * WINDOWS; i++) {
    int32_t t[2], l[2], u[2];
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    ck_assert(t[0] % 2 == 0 && t[1] == t[0] + 1 && l[0] == t[1] && l[1] == t[0] + 2);
    seen[i / WINDOWS][t[0] / 2]++;
    moved += t[0] / 2 != i % WINDOWS;
    ck_assert_int_eq(data_sample(again, i, u, l, &scratch_error), WEFT_OK);
    ck_assert_int_eq(u[0], t[0]);
    ck_assert_int_eq(data_sample(other, i, u, l, &scratch_error), WEFT_OK);
    differ += u[0] != t[0];
  }
  for (int e = 0; e < 2; e++)
    for (int w = 0; w < WINDOWS; w++) ck_assert_int_eq(seen[e][w], 1);
  ck_assert_int_gt(moved, WINDOWS);
  ck_assert_int_gt(differ, WINDOWS);
  int32_t a[2], b[2], l[2];
  int same = 0;
  for (int64_t i = 0; i < WINDOWS; i++) {
    ck_assert_int_eq(data_sample(d, i, a, l, &scratch_error), WEFT_OK);
    ck_assert_int_eq(data_sample(d, i + WINDOWS, b, l, &scratch_error), WEFT_OK);
    same += a[0] == b[0];
  }
  ck_assert_int_lt(same, WINDOWS / 4);
  data_close(d);
  data_close(again);
  data_close(other);
}
END_TEST

/* A token file with a header of 256 int32. */
static const char *put_headered(const char *name, const int32_t h[4], const void *ids,
                                size_t bytes) {
  char *s = calloc(1, 1024 + bytes);
  memcpy(s, h, 16);
  memcpy(s + 1024, ids, bytes);
  const char *path = scratch_put(name, s, 1024 + bytes);
  free(s);
  return path;
}

START_TEST(token_formats_mix) {
  static const uint16_t small[] = {'a', 'b', 'c', 'd'};
  static const uint32_t large[] = {'i', 'j', 'k', 100000};
  scratch_put("1.bin", small, 4);
  put_headered("2.bin", (int32_t[4]){20240520, 1, 2}, small + 2, 4);
  put_headered("3.bin", (int32_t[4]){20240801, 7, 2}, large, 8);
  put_headered("4.bin", (int32_t[4]){278895051, 1, 2, 4}, large + 2, 8);
  /* The width that is said is that of files without a header. */
  DataSpec spec = {.kind = DATA_TOKENS, FILES("*.bin"), .width = 2};
  Data *d = open_data(spec, 7, 100001);
  ck_assert_str_eq(data_describe(d),
                   "4 files (raw u16, llm.c GPT-2, llm.c Llama 3, NeMo AutoModel), 8 "
                   "tokens");
  int32_t t[7], l[7];
  static const int32_t want[] = {'a', 'b', 'c', 'd', 'i', 'j', 'k', 100000};
  ck_assert_int_eq(data_sample(d, 0, t, l, &scratch_error), WEFT_OK);
  ck_assert_mem_eq(t, want, sizeof t);
  ck_assert_mem_eq(l, want + 1, sizeof l);
  data_close(d);
}
END_TEST

START_TEST(ids_are_checked_when_read) {
  static const uint16_t ids[] = {1, 2, 3, 50256, 5, 6, 7};
  scratch_put("0.bin", ids, 4);
  const char *path = scratch_put("t.bin", ids, sizeof ids);
  Data *d = open_data((DataSpec){.kind = DATA_TOKENS, FILES("*.bin")}, 2, 256);
  int32_t t[2], l[2];
  ck_assert_int_eq(data_sample(d, 0, t, l, &scratch_error), WEFT_OK);
  scratch_check_error(
      data_sample(d, 2, t, l, &scratch_error), WEFT_EFILE, path,
      "token 50256 at offset 3 is not below the model's vocabulary of 256");
  ck_assert_int_eq(data_sample(d, 3, t, l, &scratch_error), WEFT_OK);
  data_close(d);
  path = scratch_put("t.txt", "ab\xc3\xa4", 4);
  d = open_data((DataSpec){.kind = DATA_TEXT, FILES("t.txt")}, 1, 128);
  ck_assert_int_eq(data_sample(d, 0, t, l, &scratch_error), WEFT_OK);
  scratch_check_error(data_sample(d, 1, t, l, &scratch_error), WEFT_EFILE, path,
                      "byte 195 at offset 2 is not below the model's vocabulary of 128");
  data_close(d);
}
END_TEST

START_TEST(synthetic_is_endless) {
  Data *d = open_data((DataSpec){.kind = DATA_SYNTHETIC, .vocab = 10}, 8, 50);
  ck_assert_int_eq(data_tokens(d), 0);
  ck_assert_str_eq(data_describe(d), "synthetic tokens, vocabulary 10");
  int count[10] = {0};
  int32_t t[8], l[8], next[8], nl[8];
  for (int64_t i = 0; i < 1000; i++) {
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    ck_assert_int_eq(data_sample(d, i + 1, next, nl, &scratch_error), WEFT_OK);
    ck_assert_mem_eq(t + 1, l, 7 * sizeof *t);
    ck_assert_int_eq(l[7], next[0]);
    for (int k = 0; k < 8; k++) {
      ck_assert(t[k] >= 0 && t[k] < 10);
      count[t[k]]++;
    }
  }
  for (int k = 0; k < 10; k++) ck_assert(count[k] > 650 && count[k] < 950);
  ck_assert_int_eq(data_sample(d, (int64_t)1 << 50, t, l, &scratch_error), WEFT_OK);
  data_close(d);
}
END_TEST

/* ---- validation ---- */

static Data *open_val(DataSpec spec, int64_t seq, int64_t vocab) {
  Data *d;
  spec.dir = scratch_dir;
  weft_status st = data_open_val(NULL, &spec, seq, vocab, 42, &d, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", scratch_error.file, scratch_error.text);
  return d;
}

/* Marks which ids of a stream that counts up are in samples of an epoch. */
static void mark_ids(const Data *d, int *seen) {
  int32_t t[3], l[3];
  for (int64_t i = 0; i < data_windows(d); i++) {
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    for (int k = 0; k < 3; k++) seen[t[k]] |= 1, seen[l[k]] |= 1;
  }
}

START_TEST(the_end_is_for_validation) {
  enum { N = 1000 };
  uint16_t ids[N];
  int train[N] = {0}, val[N] = {0};
  for (int i = 0; i < N; i++) ids[i] = (uint16_t)i;
  scratch_put("1.bin", ids, 990 * sizeof *ids);
  scratch_put("2.bin", ids + 990, 10 * sizeof *ids);
  DataSpec spec = {
      .kind = DATA_TOKENS, FILES("*.bin"), .shuffle = true, .val_fraction = 0.0625};
  Data *d = open_data(spec, 3, N), *v = open_val(spec, 3, N);
  ck_assert_int_eq(data_tokens(d), 938);
  ck_assert_int_eq(data_windows(d), 312);
  ck_assert_int_eq(data_tokens(v), 62);
  ck_assert_int_eq(data_windows(v), 20);
  ck_assert_str_eq(data_describe(d),
                   "2 files (raw u16), 1.0 k tokens, the first 938 for training");
  ck_assert_str_eq(data_describe(v),
                   "2 files (raw u16), 1.0 k tokens, the last 62 for validation");
  mark_ids(d, train);
  mark_ids(v, val);
  for (int i = 0; i < N; i++) {
    ck_assert_int_eq(train[i], i < 937);
    ck_assert_int_eq(val[i], i >= 938 && i < 938 + 61);
  }
  int32_t t[3], l[3]; /* not shuffled; after the last window comes the first */
  ck_assert_int_eq(data_sample(v, 20, t, l, &scratch_error), WEFT_OK);
  ck_assert_int_eq(t[0], 938);
  uint64_t seen[2];
  ck_assert_int_eq(data_look(d, &seen[0], &scratch_error), WEFT_OK);
  ck_assert_int_eq(data_look(v, &seen[1], &scratch_error), WEFT_OK);
  ck_assert(seen[0] != seen[1]);
  data_close(d);
  data_close(v);
}
END_TEST

START_TEST(other_data_for_validation) {
  scratch_put("a.txt", "abcdefgh", 8);
  scratch_put("v.txt", "vwxyz", 5);
  DataSpec val = {.kind = DATA_TEXT, FILES("v.txt"), .shuffle = true};
  Data *d = open_val((DataSpec){.kind = DATA_TEXT, FILES("a.txt"), .val = &val}, 2, 256);
  ck_assert_str_eq(data_describe(d), "1 file, 5 bytes");
  check_sample(d, 0, 2, "vwx");
  check_sample(d, 1, 2, "xyz");
  data_close(d);
  ck_assert_ptr_null(open_val((DataSpec){.kind = DATA_TEXT, FILES("a.txt")}, 2, 256));
}
END_TEST

/* So many labels are learnt, others for other data, and tokens are what they were. */
START_TEST(synthetic_masks) {
  DataSpec some = {.kind = DATA_SYNTHETIC, .learnt = 0.25};
  Data *all = open_data((DataSpec){.kind = DATA_SYNTHETIC, .learnt = 1}, 100, 50);
  Data *d = open_data(some, 100, 50);
  int32_t t[2][100], l[2][100], learnt = 0;
  ck_assert_str_eq(data_describe(d),
                   "synthetic tokens, vocabulary 50, 25 % of them learnt");
  ck_assert(data_is_partial(d) && !data_is_partial(all));
  for (int64_t i = 0; i < 100; i++) {
    ck_assert_int_eq(data_sample(all, i, t[0], l[0], &scratch_error), WEFT_OK);
    ck_assert_int_eq(data_sample(d, i, t[1], l[1], &scratch_error), WEFT_OK);
    ck_assert_mem_eq(t[0], t[1], sizeof *t);
    for (int k = 0; k < 100; k++) {
      ck_assert(l[1][k] == l[0][k] || l[1][k] == LABEL_IGNORED);
      learnt += l[1][k] != LABEL_IGNORED;
    }
  }
  ck_assert_msg(learnt > 2350 && learnt < 2650, "%d", learnt);
  Data *v = open_val((DataSpec){.kind = DATA_SYNTHETIC, .val = &some}, 100, 50);
  int same = 0;
  ck_assert_int_eq(data_sample(d, 0, t[0], l[0], &scratch_error), WEFT_OK);
  ck_assert_int_eq(data_sample(v, 0, t[1], l[1], &scratch_error), WEFT_OK);
  for (int k = 0; k < 100; k++)
    same += (l[0][k] == LABEL_IGNORED) == (l[1][k] == LABEL_IGNORED);
  ck_assert_int_lt(same, 90);
  data_close(all);
  data_close(d);
  data_close(v);
}
END_TEST

/* The same labels in a row of one document, but for its last token, which has none. */
START_TEST(synthetic_masks_in_rows) {
  enum { SEQ = 100 };
  DataSpec some = {.kind = DATA_SYNTHETIC, .learnt = 0.25}, packed = some;
  packed.packed = (Packed){.on = true, .size = SEQ};
  Data *d = open_data(some, SEQ, 50), *rows = open_data(packed, SEQ, 50);
  int32_t t[2][SEQ], l[2][SEQ];
  for (int64_t i = 0; i < 20; i++) {
    ck_assert_int_eq(data_sample(d, i, t[0], l[0], &scratch_error), WEFT_OK);
    ck_assert_int_eq(data_sample(rows, i, t[1], l[1], &scratch_error), WEFT_OK);
    l[0][SEQ - 1] = LABEL_DOCUMENT_END;
    ck_assert_mem_eq(t[0], t[1], sizeof *t);
    ck_assert_mem_eq(l[0], l[1], sizeof *l);
  }
  data_close(d);
  data_close(rows);
}
END_TEST

/* Made-up tokens for validation are others than those of training. */
START_TEST(synthetic_validation_is_other_data) {
  DataSpec val = {.kind = DATA_SYNTHETIC};
  Data *d = open_data(val, 64, 50);
  Data *v = open_val((DataSpec){.kind = DATA_SYNTHETIC, .val = &val}, 64, 50);
  int32_t t[2][64], l[64];
  int same = 0;
  ck_assert_int_eq(data_sample(d, 0, t[0], l, &scratch_error), WEFT_OK);
  ck_assert_int_eq(data_sample(v, 0, t[1], l, &scratch_error), WEFT_OK);
  for (int i = 0; i < 64; i++) same += t[0][i] == t[1][i];
  ck_assert_int_lt(same, 10);
  data_close(d);
  data_close(v);
}
END_TEST

START_TEST(too_little_for_validation) {
  scratch_put("a.txt", "0123456789", 10);
  DataSpec spec = {
      .kind = DATA_TEXT, FILES("a.txt"), .dir = scratch_dir, .val_fraction = 0.25};
  Data *d;
  scratch_check_error(
      data_open_val(NULL, &spec, 4, 256, 0, &d, &scratch_error), WEFT_EPLAN, "",
      "data.val_fraction = 0.25 leaves 2 of 10 bytes for validation; one sample "
      "needs batch.seq + 1 = 5");
  scratch_check_error(
      data_open(NULL, &spec, 9, 256, 0, &d, &scratch_error), WEFT_EPLAN, "",
      "data.val_fraction = 0.25 leaves 8 of 10 bytes for training; one sample "
      "needs batch.seq + 1 = 10");
}
END_TEST

static void check_data_error(DataSpec spec, int64_t seq, weft_status want,
                             const char *file, const char *text) {
  Data *d;
  spec.dir = scratch_dir;
  scratch_check_error(data_open(NULL, &spec, seq, 50, 0, &d, &scratch_error), want, file,
                      text);
  ck_assert_ptr_null(d);
}

START_TEST(data_that_cannot_be_opened) {
  scratch_put("empty.txt", "", 0);
  scratch_put("few.txt", "abcd", 4);
  scratch_put("odd.bin", "abc", 3);
  ck_assert_int_eq(mkdir(scratch_path("sub"), 0700), 0);
  check_data_error((DataSpec){.kind = DATA_TEXT, FILES("few.txt", "no*.txt")}, 1,
                   WEFT_EFILE, scratch_path("no*.txt"), "no file matches");
  check_data_error((DataSpec){.kind = DATA_TEXT, FILES("gone/x.txt")}, 1, WEFT_EFILE,
                   scratch_path("gone/x.txt"), "no file matches");
  check_data_error((DataSpec){.kind = DATA_TEXT, FILES("/nowhere/at/all")}, 1, WEFT_EFILE,
                   "/nowhere/at/all", "no file matches");
  check_data_error((DataSpec){.kind = DATA_TEXT, FILES("empty.txt")}, 1, WEFT_EFILE,
                   scratch_path("empty.txt"), "no data: 1 file, all empty");
  check_data_error((DataSpec){.kind = DATA_TEXT, FILES("*.txt")}, 4, WEFT_EFILE,
                   scratch_path("empty.txt"),
                   "2 files with 4 bytes; one sample needs batch.seq + 1 = 5, the last "
                   "as a label");
  check_data_error((DataSpec){.kind = DATA_TEXT, FILES("sub")}, 1, WEFT_EFILE,
                   scratch_path("sub"), "is a directory, a file is expected");
  check_data_error((DataSpec){.kind = DATA_TOKENS, FILES("odd.bin")}, 1, WEFT_EFILE,
                   scratch_path("odd.bin"),
                   "has 3 bytes, which is odd; raw token files hold 16-bit ids");
  check_data_error((DataSpec){.kind = DATA_TEXT}, 1, WEFT_EPLAN, "",
                   "data names no files");
  check_data_error((DataSpec){.kind = DATA_SYNTHETIC, .vocab = 51}, 1, WEFT_EPLAN, "",
                   "data.vocab = 51 is larger than the model's vocabulary of 50");
  if (geteuid() == 0) return; /* root may read everything */
  scratch_put("locked.txt", "abcd", 4);
  ck_assert_int_eq(chmod(scratch_path("locked.txt"), 0), 0);
  check_data_error((DataSpec){.kind = DATA_TEXT, FILES("locked.txt")}, 1, WEFT_EFILE,
                   scratch_path("locked.txt"), "cannot be opened: Permission denied");
}
END_TEST

START_TEST(broken_token_headers) {
  static const uint16_t ids[] = {1, 2, 3};
  DataSpec spec = {.kind = DATA_TOKENS, FILES("t.bin")};
  const char *path = put_headered("t.bin", (int32_t[4]){20240520, 1, 4}, ids, 6);
  check_data_error(spec, 1, WEFT_EFILE, path,
                   "the header says 4 tokens of 2 bytes, but 6 bytes follow");
  put_headered("t.bin", (int32_t[4]){20240520, 1, -1}, ids, 6);
  check_data_error(spec, 1, WEFT_EFILE, path,
                   "the header says -1 tokens of 2 bytes, but 6 bytes follow");
  put_headered("t.bin", (int32_t[4]){20240801, 1, 3}, ids, 6);
  check_data_error(spec, 1, WEFT_EFILE, path,
                   "token file of version 1; version 7 of this format is supported");
  put_headered("t.bin", (int32_t[4]){278895051, 1, 3, 3}, ids, 6);
  check_data_error(spec, 1, WEFT_EFILE, path,
                   "the header says 3 bytes per token; 2 or 4 are possible");
}
END_TEST

/* A folder whose name is itself a pattern. */
START_TEST(pattern_letters_in_the_folder) {
  ck_assert_int_eq(mkdir(scratch_path("a[1]*"), 0700), 0);
  scratch_put("a[1]*/x.txt", "abc", 3);
  DataSpec spec = {.kind = DATA_TEXT, FILES("*.txt"), .dir = scratch_path("a[1]*")};
  Data *d;
  ck_assert_int_eq(data_open(NULL, &spec, 2, 256, 0, &d, &scratch_error), WEFT_OK);
  check_sample(d, 0, 2, "abc");
  data_close(d);
}
END_TEST

/* ---- out of memory ---- */

START_TEST(data_unwinds_when_out_of_memory) {
  scratch_put("a.txt", "abcdef", 6);
  DataSpec spec = {.kind = DATA_TEXT, FILES("a.txt"), .dir = scratch_dir};
  weft_status status = WEFT_ENOMEM;
  for (int n = 0; status != WEFT_OK; n++) {
    ScratchMeter m = {n, 0};
    weft_alloc a = {scratch_alloc, &m};
    Data *d;
    status = data_open(&a, &spec, 2, 256, 0, &d, &scratch_error);
    data_close(d);
    ck_assert_int_eq(m.held, 0);
    ck_assert_int_eq(status, n < 3 ? WEFT_ENOMEM : WEFT_OK);
  }
}
END_TEST

START_TEST(file_read_reports_no_memory) {
  ScratchMeter m = {0};
  weft_alloc a = {scratch_alloc, &m};
  char *s;
  size_t n;
  const char *path = scratch_put("a.txt", "abcdef", 6);
  scratch_check_error(file_read(&a, path, FILE_OWN_MAX, &s, &n, &scratch_error),
                      WEFT_ENOMEM, path, "does not fit into memory");
}
END_TEST

Suite *io_suite(void);
Suite *io_suite(void) {
  Suite *s = suite_create("io");
  TCase *t = tcase_create("io");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, whole_files);
  tcase_add_test(t, files_that_cannot_be_read);
  tcase_add_test(t, text_is_one_stream);
  tcase_add_test(t, the_same_file_by_other_names);
  tcase_add_test(t, last_label_is_the_last_byte);
  tcase_add_test(t, shuffle_is_a_permutation_per_epoch);
  tcase_add_test(t, token_formats_mix);
  tcase_add_test(t, ids_are_checked_when_read);
  tcase_add_test(t, synthetic_is_endless);
  tcase_add_test(t, synthetic_masks);
  tcase_add_test(t, synthetic_masks_in_rows);
  tcase_add_test(t, the_end_is_for_validation);
  tcase_add_test(t, other_data_for_validation);
  tcase_add_test(t, synthetic_validation_is_other_data);
  tcase_add_test(t, too_little_for_validation);
  tcase_add_test(t, data_that_cannot_be_opened);
  tcase_add_test(t, broken_token_headers);
  tcase_add_test(t, pattern_letters_in_the_folder);
  tcase_add_test(t, data_unwinds_when_out_of_memory);
  tcase_add_test(t, file_read_reports_no_memory);
  suite_add_tcase(s, t);
  return s;
}
