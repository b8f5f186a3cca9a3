/* check_token_mask.c - mask files: bits of any number of tokens, written in any parts and
 * read from anywhere; the bytes that docs/data.md says; and damaged masks, or those of
 * another token file, which are named and never read. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/generate/megatron_files.h"
#include "tests/harness/scratch.h"
#include "vm/base/rng.h"
#include "vm/base/sha256.h"
#include "vm/io/token_file_write.h"
#include "vm/io/token_mask.h"

enum { BLOCK_TOKENS = 8 * 4096 };

static bool bit(uint64_t seed, int64_t i) {
  Rng r = rng_make(seed, "bits");
  return rng_u32(&r, (uint64_t)i) & 1;
}

static uint8_t *bits(int64_t n) {
  uint8_t *b = arena_alloc(scratch_arena, (size_t)n + 1);
  for (int64_t i = 0; i < n; i++) b[i] = bit(1, i);
  return b;
}

/* x.bin with so many 16-bit ids, and x.mask. */
static void put(int64_t n, const uint8_t *learnt) {
  uint16_t *id = arena_alloc(scratch_arena, (size_t)n * 2 + 2);
  for (int64_t i = 0; i < n; i++) id[i] = (uint16_t)(i * 7);
  scratch_put("x.bin", id, (size_t)n * 2);
  mask_put("x", learnt, n);
}

static weft_status open_mask(int64_t n, TokenMask *m) {
  File bin;
  ck_assert_int_eq(file_open(scratch_path("x.bin"), &bin, &scratch_error), WEFT_OK);
  weft_status st = token_mask_open(scratch_path("x.mask"), &bin, n, m, &scratch_error);
  file_close(&bin);
  return st;
}

/* ---- written and read ---- */

static const int sizes[] = {0,
                            1,
                            7,
                            8,
                            9,
                            BLOCK_TOKENS - 1,
                            BLOCK_TOKENS,
                            BLOCK_TOKENS + 1,
                            3 * BLOCK_TOKENS + 5};

START_TEST(any_number_of_tokens) {
  int64_t n = sizes[_i], ones = 0;
  TokenMask m;
  uint8_t *want = bits(n), *got = arena_alloc(scratch_arena, (size_t)n + 1);
  put(n, want);
  ck_assert_int_eq(open_mask(n, &m), WEFT_OK);
  for (int64_t i = 0; i < n; i++) ones += want[i];
  ck_assert_int_eq(m.tokens, n);
  ck_assert_int_eq(m.learnt, ones);
  for (int64_t at = 0, k; at < n; at += k) {
    k = MIN(n - at, 1 + at / 3);
    ck_assert_int_eq(token_mask_read(&m, at, k, got + at, &scratch_error), WEFT_OK);
  }
  ck_assert_mem_eq(got, want, (size_t)n);
  file_close(&m.file);
}
END_TEST

/* The bytes do not depend on the parts in which the bits come. */
START_TEST(parts_of_any_size) {
  enum { N = BLOCK_TOKENS + 100 };
  uint8_t *learnt = bits(N);
  TokenMaskOut *out;
  FileOut bin;
  char *whole, *parts;
  size_t n, m;
  put(N, learnt);
  ck_assert_int_eq(file_read(NULL, scratch_path("x.mask"), 1 << 20, &whole, &n, NULL), 0);
  ck_assert_int_eq(file_create(NULL, scratch_path("y.bin"), 0, &bin, NULL), WEFT_OK);
  ck_assert_int_eq(
      token_mask_create(NULL, NULL, scratch_path("y.mask"), true, &out, NULL), 0);
  for (size_t at = 0, k; at < N; at += k) {
    k = MIN(N - at, at % 5000 + 1);
    ck_assert_int_eq(token_mask_add(out, learnt + at, k, NULL), WEFT_OK);
  }
  char *ids;
  size_t nids;
  ck_assert_int_eq(file_read(NULL, scratch_path("x.bin"), 1 << 20, &ids, &nids, NULL), 0);
  ck_assert_int_eq(file_put(&bin, 0, ids, nids, NULL), WEFT_OK);
  ck_assert_int_eq(token_mask_finish(out, &bin, NULL), WEFT_OK);
  ck_assert_int_eq(file_finish(&bin, NULL), WEFT_OK);
  ck_assert_int_eq(file_read(NULL, scratch_path("y.mask"), 1 << 20, &parts, &m, NULL), 0);
  ck_assert_int_eq(n, m);
  ck_assert_mem_eq(whole, parts, n);
  mem_free(NULL, whole, n + 1);
  mem_free(NULL, parts, m + 1);
  mem_free(NULL, ids, nids + 1);
}
END_TEST

/* What docs/data.md says, byte by byte. */
START_TEST(bytes_of_a_mask) {
  static const uint8_t learnt[10] = {1, 0, 0, 1, 1, 0, 0, 0, 0, 1};
  unsigned char want[64 + 2 + 8] = "WEFTMASK\1", hash[SHA256_BYTES];
  char *s, *bin;
  size_t n, nbin;
  Sha256 h;
  put(10, learnt);
  ck_assert_int_eq(file_read(NULL, scratch_path("x.mask"), 1 << 20, &s, &n, NULL), 0);
  ck_assert_int_eq(file_read(NULL, scratch_path("x.bin"), 1 << 20, &bin, &nbin, NULL), 0);
  want[16] = 10;
  want[24] = 4;
  want[32] = 20;
  want[64] = 0x19;
  want[65] = 0x02;
  const struct {
    const void *of;
    size_t n;
    int at;
  } hashes[] = {{bin, nbin, 40}, {want, 56, 56}, {want + 64, 2, 66}};
  for (int i = 0; i < LEN(hashes); i++) {
    sha256_begin(&h);
    sha256_add(&h, hashes[i].of, hashes[i].n);
    sha256_end(&h, hash);
    memcpy(want + hashes[i].at, hash, 8);
  }
  ck_assert_int_eq(n, sizeof want);
  ck_assert_mem_eq(s, want, n);
  mem_free(NULL, s, n + 1);
  mem_free(NULL, bin, nbin + 1);
}
END_TEST

/* A mask that is not finished leaves what was there, and no file of its own. */
START_TEST(dropped) {
  TokenMaskOut *out;
  scratch_put("x.mask", "old", 3);
  ck_assert_int_eq(
      token_mask_create(NULL, NULL, scratch_path("x.mask"), false, &out, NULL), 0);
  ck_assert_int_eq(token_mask_add(out, bits(9), 9, NULL), WEFT_OK);
  token_mask_drop(out);
  ck_assert_str_eq(scratch_list(), "x.mask ");
}
END_TEST

/* Of a token file, its index and its mask, what takes the place of one meanwhile stays,
 * and the new ones go: they would be read with it. */
START_TEST(a_place_that_is_taken) {
  static const char *const taken[] = {"x.idx", "x.mask", "x.bin"};
  static const int32_t ids[] = {1, 2, 3};
  static const uint8_t learnt[] = {0, 1, 1};
  const char *path = scratch_path("x.bin");
  TokenFileSpec spec = {.name = path, .ids = 9, .mask = true};
  TokenFileOut *out;
  char *s;
  size_t n;
  ck_assert_int_eq(token_file_create(&spec, &out, &scratch_error), WEFT_OK);
  ck_assert_int_eq(token_file_add(out, ids, learnt, LEN(ids), &scratch_error), WEFT_OK);
  const char *mine = arena_str(scratch_arena, scratch_put(taken[_i], "mine", 4));
  scratch_check_error(token_file_finish(out, &scratch_error), WEFT_EFILE, mine,
                      "cannot be written: File exists");
  ck_assert_str_eq(scratch_list(), arena_printf(scratch_arena, "%s ", taken[_i]));
  ck_assert_int_eq(file_read(NULL, mine, 9, &s, &n, &scratch_error), WEFT_OK);
  ck_assert_str_eq(s, "mine");
  mem_free(NULL, s, n + 1);
}
END_TEST

/* ---- damaged, or of another file ---- */

enum { TOKENS = 2 * BLOCK_TOKENS + 80, BYTES = TOKENS / 8, ALL = 64 + BYTES + 24 };

static void flip(const char *name, long at, int with) {
  FILE *f = fopen(scratch_path(name), "r+b");
  ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
  int c = fgetc(f);
  ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
  fputc(c ^ with, f);
  ck_assert_int_eq(fclose(f), 0);
}

static const struct {
  long at;
  int with;
  const char *text;
} headers[] = {
    {0, 1, "is no mask of tokens: it does not begin with WEFTMASK"},
    {8, 3, "mask of version 2; version 1 is supported"},
    {16, 1, "is damaged: its header does not have the checksum that it says"},
    {31, 255, "is damaged: its header does not have the checksum that it says"},
    {40, 1, "is damaged: its header does not have the checksum that it says"},
    {60, 1, "is damaged: its header does not have the checksum that it says"},
};

START_TEST(damaged_header) {
  TokenMask m;
  put(TOKENS, bits(TOKENS));
  flip("x.mask", headers[_i].at, headers[_i].with);
  scratch_check_error(open_mask(TOKENS, &m), WEFT_EFILE, scratch_path("x.mask"),
                      headers[_i].text);
}
END_TEST

/* A bit or a checksum: found in its block, and in no other. */
START_TEST(damaged_bits) {
  static const struct {
    long at;
    int block;
    const char *tokens;
  } rows[] = {{64, 0, "0 to 32767"},
              {64 + 4096 + 4095, 1, "32768 to 65535"},
              {64 + BYTES - 1, 2, "65536 to 65615"},
              {64 + BYTES + 8, 1, "32768 to 65535"}};
  TokenMask m;
  uint8_t one;
  put(TOKENS, bits(TOKENS));
  flip("x.mask", rows[_i].at, 16);
  ck_assert_int_eq(open_mask(TOKENS, &m), WEFT_OK);
  for (int k = 0; k < 3; k++) {
    weft_status st =
        token_mask_read(&m, (int64_t)k * BLOCK_TOKENS, 1, &one, &scratch_error);
    if (k != rows[_i].block)
      ck_assert_int_eq(st, WEFT_OK);
    else
      scratch_check_error(
          st, WEFT_EFILE, scratch_path("x.mask"),
          arena_printf(scratch_arena,
                       "is damaged: the bits of tokens %s do not have the checksum that "
                       "it says",
                       rows[_i].tokens));
  }
  file_close(&m.file);
}
END_TEST

START_TEST(cut_off) {
  static const long lengths[] = {0, 63, 64, 64 + BYTES, ALL - 1, ALL + 1};
  TokenMask m;
  put(TOKENS, bits(TOKENS));
  ck_assert_int_eq(truncate(scratch_path("x.mask"), lengths[_i]), 0);
  const char *text =
      lengths[_i] < 64
          ? arena_printf(scratch_arena, "has %ld bytes, less than its header",
                         lengths[_i])
          : arena_printf(scratch_arena, "has %ld bytes; a mask of %d tokens has %d",
                         lengths[_i], TOKENS, ALL);
  scratch_check_error(open_mask(TOKENS, &m), WEFT_EFILE, scratch_path("x.mask"), text);
}
END_TEST

/* Other numbers of tokens, or as many others. Of a long .bin both ends are compared, and
 * samples of what lies between. */
START_TEST(of_another_file) {
  static const long at[] = {0, 2 * TOKENS - 1};
  TokenMask m;
  put(TOKENS, bits(TOKENS));
  scratch_check_error(
      open_mask(TOKENS / 2, &m), WEFT_EFILE, scratch_path("x.mask"),
      arena_printf(scratch_arena,
                   "is the mask of %d tokens in %d bytes, but %s has %d in %d; make both "
                   "again",
                   TOKENS, 2 * TOKENS, scratch_path("x.bin"), TOKENS / 2, 2 * TOKENS));
  for (int i = 0; i < LEN(at); i++) {
    flip("x.bin", at[i], 1);
    scratch_check_error(
        open_mask(TOKENS, &m), WEFT_EFILE, scratch_path("x.mask"),
        arena_printf(scratch_arena,
                     "is the mask of other tokens than those in %s; make both again",
                     scratch_path("x.bin")));
    flip("x.bin", at[i], 1);
  }
  ck_assert_int_eq(open_mask(TOKENS, &m), WEFT_OK);
  file_close(&m.file);
}
END_TEST

/* The hash of a .bin of megabytes covers its first and last bytes. */
START_TEST(long_file) {
  enum { N = 500000 };
  TokenMask m;
  put(N, bits(N));
  ck_assert_int_eq(open_mask(N, &m), WEFT_OK);
  file_close(&m.file);
  for (int i = 0; i < 2; i++) {
    flip("x.bin", i ? 2 * N - 1 : 0, 1);
    ck_assert_int_eq(open_mask(N, &m), WEFT_EFILE);
    err_clear(&scratch_error);
    flip("x.bin", i ? 2 * N - 1 : 0, 1);
  }
}
END_TEST

Suite *token_mask_suite(void) {
  Suite *s = suite_create("token_mask");
  TCase *t = tcase_create("token_mask");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, any_number_of_tokens, 0, LEN(sizes));
  tcase_add_test(t, parts_of_any_size);
  tcase_add_test(t, bytes_of_a_mask);
  tcase_add_test(t, dropped);
  tcase_add_loop_test(t, a_place_that_is_taken, 0, 3);
  tcase_add_loop_test(t, damaged_header, 0, LEN(headers));
  tcase_add_loop_test(t, damaged_bits, 0, 4);
  tcase_add_loop_test(t, cut_off, 0, 6);
  tcase_add_test(t, of_another_file);
  tcase_add_test(t, long_file);
  suite_add_tcase(s, t);
  return s;
}
