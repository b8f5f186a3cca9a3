/* check_masked_data.c - token files with masks, in every way that samples are cut from
 * them. An id is its place in the stream, so that a sample says by itself which labels it
 * has to have: the next id where that is learnt and of the same document, else none. */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/generate/megatron_files.h"
#include "tests/harness/scratch.h"
#include "vm/base/rng.h"
#include "vm/io/io.h"

enum { SEQ = 16, MOST = 4096, NONE = LABEL_IGNORED, END = LABEL_DOCUMENT_END };

static int32_t length[256], id[MOST];
static uint8_t learnt[MOST];
static int ends[MOST + 1]; /* the end of the document that the id is in */
static int nids;

static uint32_t drawn(int i, uint32_t n) {
  Rng rng = rng_make(5, "masks");
  return rng_u32(&rng, (uint64_t)i) % n;
}

/* Adds NAME.bin, .idx and .mask: so many documents of 1 to `most` tokens. */
static void add_file(const char *name, int documents, int most) {
  int first = nids;
  for (int k = 0; k < documents; k++) {
    length[k] = 1 + (int32_t)drawn(1000 + nids, (uint32_t)most);
    int end = nids + length[k];
    for (; nids < end; nids++) {
      id[nids] = nids;
      ends[nids] = end;
      learnt[nids] = drawn(nids, 3) == 0;
    }
  }
  ck_assert_int_lt(nids, MOST);
  megatron_put_ids(name, &(MegatronFile){4, documents, 0, length, 0, NULL}, id + first);
  mask_put(name, learnt + first, nids - first);
}

static void setup(void) {
  scratch_setup();
  nids = 0;
}

#define FILES(...)                                                                       \
  .files = (const char *[]){__VA_ARGS__}, .nfiles = LEN(((const char *[]){__VA_ARGS__}))

typedef weft_status Open(const weft_alloc *, const DataSpec *, int64_t, int64_t, uint64_t,
                         Data **, weft_error *);

static Data *open_with(Open *open, DataSpec spec) {
  Data *d;
  spec.dir = scratch_dir;
  spec.kind = DATA_TOKENS;
  weft_status st = open(NULL, &spec, SEQ, MOST, 42, &d, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", scratch_error.file, scratch_error.text);
  return d;
}

static Data *open_data(DataSpec spec) { return open_with(data_open, spec); }

static void no_data(DataSpec spec, const char *file, const char *text) {
  Data *d;
  spec.dir = scratch_dir;
  spec.kind = DATA_TOKENS;
  scratch_check_error(data_open(NULL, &spec, SEQ, MOST, 42, &d, &scratch_error),
                      WEFT_EFILE, scratch_path(file), text);
}

/* The label of a token in a window. */
static int32_t next(int32_t t) { return learnt[t + 1] ? t + 1 : NONE; }

static void check_windows(const Data *d, int64_t n) {
  int32_t t[SEQ], l[SEQ];
  for (int64_t i = 0; i < n; i++) {
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    for (int k = 0; k < SEQ; k++) ck_assert_int_eq(l[k], next(t[k]));
  }
}

/* ---- windows ---- */

/* In order, and shuffled over several epochs; a window goes on in the next file. */
START_TEST(windows) {
  add_file("a", 20, 30);
  add_file("b", 30, 30);
  for (int shuffle = 0; shuffle < 2; shuffle++) {
    Data *d = open_data((DataSpec){FILES("*.bin"), .shuffle = shuffle});
    check_windows(d, 3 * data_windows(d));
    data_close(d);
  }
}
END_TEST

START_TEST(windows_for_validation) {
  add_file("a", 40, 30);
  add_file("b", 40, 30);
  DataSpec other = {FILES("b"), .dir = scratch_dir, .kind = DATA_TOKENS};
  DataSpec spec[] = {{FILES("a", "b"), .val_fraction = 0.2}, {FILES("a"), .val = &other}};
  for (int i = 0; i < LEN(spec); i++) {
    Data *d = open_data(spec[i]), *v = open_with(data_open_val, spec[i]);
    check_windows(d, data_windows(d));
    check_windows(v, data_windows(v));
    data_close(d);
    data_close(v);
  }
}
END_TEST

/* Streams with masks and one without, each with its share. */
START_TEST(blends) {
  static const double weights[] = {0.5, 0.2, 0.3};
  add_file("a", 40, 30);
  add_file("b", 40, 30);
  int first = nids;
  add_file("c", 40, 30);
  unlink(scratch_path("c.mask"));
  memset(learnt + first, 1, (size_t)(nids - first));
  Data *d = open_data((DataSpec){FILES("a", "b", "c"), .weights = weights, .nweights = 3,
                                 .shuffle = true});
  ck_assert_ptr_nonnull(strstr(data_describe(d), "% of them learnt (masks); 20 % of "));
  ck_assert_ptr_nonnull(strstr(data_describe(d), ", all of them learnt (no masks)"));
  check_windows(d, 500);
  data_close(d);
}
END_TEST

/* ---- whole documents ---- */

/* What is left of a document of n ids at its begin, and whether it is there at all. */
static int kept(int n, TooLong too_long) {
  return n <= SEQ || too_long == TOO_LONG_SPLIT ? n : too_long == TOO_LONG_DROP ? 0 : SEQ;
}

/* Every id that is kept is in one row of an epoch, and its label is that of the mask. */
START_TEST(rows) {
  static const TooLong too_long[] = {TOO_LONG_SPLIT, TOO_LONG_DROP, TOO_LONG_TRUNCATE};
  int32_t t[SEQ], l[SEQ];
  int seen[MOST] = {0}, want = 0, there = 0;
  int64_t padded = 0, dropped = 0;
  add_file("a", 60, 2 * SEQ);
  add_file("b", 60, 2 * SEQ);
  Data *d = open_data((DataSpec){FILES("a", "b"), .shuffle = true,
                                 .packed = {.on = true,
                                            .size = SEQ,
                                            .separated = true,
                                            .separator = MOST - 1,
                                            .too_long = too_long[_i]}});
  for (int64_t i = 0; i < data_windows(d); i++) {
    DataCounts c;
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    ck_assert_int_eq(data_counts(d, i, &c, &scratch_error), WEFT_OK);
    padded += c.padded;
    dropped += c.dropped;
    for (int k = 0; k < SEQ; k++) {
      if (t[k] == MOST - 1) {
        ck_assert_int_eq(l[k], END);
        padded--;
        continue;
      }
      bool last = k + 1 == SEQ || t[k + 1] != t[k] + 1 || ends[t[k]] == t[k] + 1;
      ck_assert_int_eq(l[k], last ? END : next(t[k]));
      seen[t[k]]++;
    }
  }
  for (int i = 0; i < nids; i = ends[i]) {
    int n = kept(ends[i] - i, too_long[_i]);
    for (int k = i; k < ends[i]; k++) ck_assert_int_eq(seen[k], k < i + n);
    want += n;
  }
  for (int i = 0; i < nids; i++) there += seen[i];
  ck_assert_int_eq(there, want);
  ck_assert_int_eq(padded, 0);
  ck_assert_int_eq(dropped, nids - want);
  const char *said = strstr(data_describe(d), "filled");
  ck_assert_ptr_nonnull(said);
  static const char *const left_out[] = {"", "dropped with", "truncated by"};
  ck_assert(too_long[_i] == TOO_LONG_SPLIT ? !said[6]
                                           : strstr(said, left_out[_i]) != NULL);
  if (said[6])
    ck_assert_ptr_nonnull(
        strstr(said, arena_printf(scratch_arena, " %d tokens", nids - want)));
  data_close(d);
}
END_TEST

/* Whether a document that begins at `at` has a label in its row. */
static bool has_label(int at) {
  int end = MIN(ends[at], at + SEQ);
  for (int i = at + 1; i < end; i++)
    if (learnt[i]) return true;
  return false;
}

/* Documents that are alone in rows and without a label there are left out, of pairs both.
 */
START_TEST(rows_that_learn_nothing) {
  int32_t t[SEQ], l[SEQ];
  int first[200], n = 0, bare = 0, k = 0, at[2];
  int64_t dropped = 0;
  add_file("a", 120, 20);
  for (int i = 0; i < nids; i += length[k++]) {
    at[k % 2] = i;
    bool pair = _i == 1, has = pair ? has_label(at[0]) && has_label(i) : has_label(i);
    if (pair && k % 2 == 0) continue;
    if (has && pair) first[n++] = at[0];
    if (has) first[n++] = i;
    if (!has) bare += 1 + pair;
  }
  ck_assert_int_gt(bare, 4);
  Data *d = open_data((DataSpec){FILES("a"), .packed = {.on = true,
                                                        .size = SEQ,
                                                        .alone = true,
                                                        .pairs = _i == 1,
                                                        .too_long = TOO_LONG_TRUNCATE}});
  ck_assert_int_eq(data_windows(d), n);
  for (int i = n - 1; i >= 0; i--) { /* each is found without those before it */
    DataCounts c;
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    ck_assert_int_eq(data_counts(d, i, &c, &scratch_error), WEFT_OK);
    dropped += c.dropped;
    int end = MIN(ends[first[i]] - first[i], SEQ);
    for (int s = 0; s < end; s++) {
      ck_assert_int_eq(t[s], first[i] + s);
      ck_assert_int_eq(l[s], s + 1 < end ? next(t[s]) : END);
    }
  }
  int kept = 0;
  for (int i = 0; i < n; i++) kept += MIN(ends[first[i]] - first[i], SEQ);
  ck_assert_int_eq(dropped, nids - kept);
  ck_assert_ptr_nonnull(strstr(
      data_describe(d),
      arena_printf(scratch_arena, ", %d documents dropped, as nothing is learnt", bare)));
  data_close(d);
}
END_TEST

/* Documents that are left out before the first row and after the last one, and nothing
 * but one in the data, count once. */
START_TEST(left_out_at_both_ends) {
  static const int32_t lengths[] = {40, 3, 15, 50, 8, 60};
  int32_t all[176];
  static const int64_t dropped[] = {40, 50, 60}, padded[] = {13, 1, 8};
  for (int i = 0; i < LEN(all); i++) all[i] = i;
  megatron_put_ids("m", &(MegatronFile){4, LEN(lengths), 0, lengths, 0, NULL}, all);
  Data *d = open_data((DataSpec){
      FILES("m"), .packed = {.on = true, .size = SEQ, .too_long = TOO_LONG_DROP}});
  ck_assert_int_eq(data_windows(d), 3);
  for (int i = 0; i < 3; i++) {
    DataCounts c;
    ck_assert_int_eq(data_counts(d, i, &c, &scratch_error), WEFT_OK);
    ck_assert_int_eq(c.dropped, dropped[i]);
    ck_assert_int_eq(c.padded, padded[i]);
  }
  data_close(d);
}
END_TEST

/* ---- which masks are read ---- */

START_TEST(said) {
  add_file("a", 10, 30);
  int ones = 0;
  for (int i = 0; i < nids; i++) ones += learnt[i];
  DataSpec spec = {FILES("a"), .masks = MASKS_REQUIRED};
  Data *d = open_data(spec);
  ck_assert_str_eq(
      data_describe(d),
      arena_printf(scratch_arena,
                   "1 file (Megatron), %d tokens, %.1f %% of them learnt (masks)", nids,
                   100.0 * ones / nids));
  data_close(d);
  spec.masks = MASKS_NONE;
  d = open_data(spec);
  ck_assert_str_eq(data_describe(d),
                   arena_printf(scratch_arena,
                                "1 file (Megatron), %d tokens, all of them learnt: masks "
                                "= \"none\"",
                                nids));
  memset(learnt, 1, sizeof learnt);
  check_windows(d, data_windows(d));
  data_close(d);
  unlink(scratch_path("a.mask"));
  spec.masks = MASKS_AUTO;
  d = open_data(spec);
  ck_assert_str_eq(data_describe(d),
                   arena_printf(scratch_arena, "1 file (Megatron), %d tokens", nids));
  data_close(d);
  spec.masks = MASKS_REQUIRED;
  no_data(spec, "a.bin",
          arena_printf(scratch_arena, "has no mask, %s, as masks = \"required\" says",
                       scratch_path("a.mask")));
}
END_TEST

/* A pattern for all files of a folder finds masks, too, which are no tokens. */
START_TEST(patterns_for_all_files) {
  static const char *const patterns[] = {"*", "[ab]*", "?.*"};
  add_file("a", 10, 30);
  add_file("b", 10, 30);
  for (int i = 0; i < (int)LEN(patterns); i++)
    for (int none = 0; none < 2; none++) {
      Data *d = open_data(
          (DataSpec){FILES(patterns[i]), .masks = none ? MASKS_NONE : MASKS_REQUIRED});
      const char *begin =
          arena_printf(scratch_arena, "2 files (Megatron), %d tokens, ", nids);
      ck_assert_msg(strncmp(data_describe(d), begin, strlen(begin)) == 0, "%s",
                    data_describe(d));
      if (!none) check_windows(d, data_windows(d));
      data_close(d);
    }
  unlink(scratch_path("b.bin"));
  no_data((DataSpec){FILES("*.mask")}, "a.mask",
          "is no token file but a mask of tokens (.mask): name its .bin alone");
}
END_TEST

START_TEST(not_mixed_in_a_stream) {
  add_file("a", 10, 30);
  add_file("b", 10, 30);
  unlink(scratch_path("b.mask"));
  no_data(
      (DataSpec){FILES("*.bin")}, "b.bin",
      arena_printf(scratch_arena,
                   "has no mask and %s has one: make one, give these files to streams "
                   "of their own (weights), or say masks = \"none\" to learn every "
                   "token",
                   scratch_path("a.bin")));
  data_close(open_data((DataSpec){FILES("*.bin"), .masks = MASKS_NONE}));
}
END_TEST

START_TEST(that_learn_nothing) {
  static const uint8_t zero[MOST];
  add_file("a", 10, 30);
  mask_put("a", zero, nids);
  no_data((DataSpec){FILES("a")}, "a.mask", "says that no token is learnt");
}
END_TEST

/* A mask of other tokens is an error wherever it is read; so is a bit that is wrong. */
START_TEST(damaged) {
  uint64_t print;
  int32_t t[SEQ], l[SEQ];
  add_file("a", 40, 30);
  size_t n;
  char *s;
  ck_assert_int_eq(file_read(NULL, scratch_path("a.mask"), 1 << 20, &s, &n, NULL), 0);
  s[64] ^= 1;
  scratch_put("a.mask", s, n);
  mem_free(NULL, s, n + 1);
  Data *d = open_data((DataSpec){FILES("a")});
  for (int i = 0; i < 2; i++) {
    scratch_check_error(i ? data_look(d, &print, &scratch_error)
                          : data_sample(d, 0, t, l, &scratch_error),
                        WEFT_EFILE, scratch_path("a.mask"),
                        arena_printf(scratch_arena,
                                     "is damaged: the bits of tokens 0 to %d do not have "
                                     "the checksum that it says",
                                     nids - 1));
  }
  data_close(d);
  id[3]++;
  megatron_put_ids("a", &(MegatronFile){4, 40, 0, length, 0, NULL}, id);
  no_data((DataSpec){FILES("a")}, "a.mask",
          arena_printf(scratch_arena,
                       "is the mask of other tokens than those in %s; make both again",
                       scratch_path("a.bin")));
}
END_TEST

/* What identifies the data tells masks apart. */
START_TEST(prints_differ) {
  uint64_t print[3];
  add_file("a", 40, 30);
  for (int i = 0; i < 3; i++) {
    if (i == 2) learnt[5] ^= 1;
    mask_put("a", learnt, nids);
    Data *d =
        open_data((DataSpec){FILES("a"), .masks = i == 0 ? MASKS_NONE : MASKS_AUTO});
    ck_assert_int_eq(data_look(d, &print[i], &scratch_error), WEFT_OK);
    data_close(d);
  }
  ck_assert_uint_ne(print[0], print[1]);
  ck_assert_uint_ne(print[1], print[2]);
}
END_TEST

/* What is the same at both ends of the files is told apart inside: ids, bits of a mask,
 * where documents end. The same in another format is not. */
START_TEST(prints_of_the_inside) {
  enum { FIRST, SAME, OTHER_IDS, OTHER_BITS, OTHER_ENDS, FORMAT, WAYS, DOCS = 200 };
  uint64_t ends[WAYS];
  DataPrint print[WAYS];
  add_file("a", DOCS, SEQ - 2);
  ck_assert_int_gt(nids, 1200);
  int one = DOCS / 2; /* a document that can have a token less */
  while (length[one + 1] < 2) one++;
  for (int i = 0; i < WAYS; i++) {
    int at = nids / 2, type = i == FORMAT ? 5 : 4;
    while (i == OTHER_BITS && learnt[at] == learnt[at + 1]) at++;
    if (i == OTHER_BITS) learnt[at] ^= 1, learnt[at + 1] ^= 1;
    if (i == OTHER_IDS) id[at] ^= 1;
    if (i == OTHER_ENDS) length[one]++, length[one + 1]--;
    megatron_put_ids("a", &(MegatronFile){type, DOCS, 0, length, 0, NULL}, id);
    mask_put("a", learnt, nids);
    if (i == OTHER_BITS) learnt[at] ^= 1, learnt[at + 1] ^= 1;
    if (i == OTHER_IDS) id[at] ^= 1;
    if (i == OTHER_ENDS) length[one]--, length[one + 1]++;
    Data *d = open_data((DataSpec){FILES("a"), .packed = {.on = true, .size = SEQ}});
    ck_assert_int_eq(data_look(d, &ends[i], &scratch_error), WEFT_OK);
    ck_assert_int_eq(data_look_inside(d, &print[i], &scratch_error), WEFT_OK);
    ck_assert_int_eq(print[i].samples, data_windows(d));
    data_close(d);
    bool same = i == FIRST || i == SAME || i == FORMAT;
    ck_assert_msg((print[i].hash == print[0].hash) == same, "%d", i);
  }
}
END_TEST

Suite *masked_data_suite(void);
Suite *masked_data_suite(void) {
  Suite *s = suite_create("masked_data");
  TCase *t = tcase_create("masked_data");
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_add_test(t, windows);
  tcase_add_test(t, windows_for_validation);
  tcase_add_test(t, blends);
  tcase_add_loop_test(t, rows, 0, 3);
  tcase_add_loop_test(t, rows_that_learn_nothing, 0, 2);
  tcase_add_test(t, left_out_at_both_ends);
  tcase_add_test(t, said);
  tcase_add_test(t, patterns_for_all_files);
  tcase_add_test(t, not_mixed_in_a_stream);
  tcase_add_test(t, that_learn_nothing);
  tcase_add_test(t, damaged);
  tcase_add_test(t, prints_differ);
  tcase_add_test(t, prints_of_the_inside);
  suite_add_tcase(s, t);
  return s;
}
