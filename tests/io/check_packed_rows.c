/* check_packed_rows.c - whole documents in rows, against a naive reference: it has all
 * documents in memory and fills rows in their order. */
#include <check.h>
#include <stdlib.h>

#include "tests/generate/megatron_files.h"
#include "tests/harness/scratch.h"
#include "vm/base/rng.h"
#include "vm/io/io.h"
#include "vm/io/source.h"

enum { SEQ = 16, SEP = 3, VOCAB = 1000, IDS = 1 << 18, DOCS = 1 << 17, END = -101 };

static int32_t stream[IDS];
static int32_t length[DOCS];
static int nids, ndocs;

/* Documents of `low` to `high` tokens, none of which is SEP but their last (or first). */
static void make(int documents, int low, int high, bool first) {
  Rng rng = rng_make(11, "rows");
  nids = 0;
  ndocs = documents;
  for (int i = 0; i < ndocs; i++) {
    length[i] = low + (int)(rng_u32(&rng, (uint64_t)i) % (uint32_t)(high - low + 1));
    for (int t = 0; t < length[i]; t++, nids++)
      stream[nids] = t == (first ? 0 : length[i] - 1) ? SEP : 4 + nids % (VOCAB - 4);
  }
}

static void put_raw(const char *name, int from, int to) {
  uint16_t *ids = malloc(sizeof *ids * (size_t)(to - from + 1));
  for (int i = from; i < to; i++) ids[i - from] = (uint16_t)stream[i];
  scratch_put(name, ids, sizeof *ids * (size_t)(to - from));
  free(ids);
}

static void put_indexed(const char *name) {
  megatron_put_ids(name, &(MegatronFile){4, ndocs, 0, length, 0, NULL}, stream);
}

/* ---- the reference ---- */

static int32_t (*row)[2][SEQ];
static int nrows;

static void place(const int32_t *ids, int n, int *room) {
  if (n > *room) {
    *room = SEQ;
    for (int t = 0; t < SEQ; t++) row[nrows][0][t] = 0, row[nrows][1][t] = END;
    nrows++;
  }
  int32_t(*r)[SEQ] = row[nrows - 1];
  for (int t = 0; t < n; t++) {
    r[0][SEQ - *room + t] = ids[t];
    r[1][SEQ - *room + t] = t + 1 < n ? ids[t + 1] : END;
  }
  *room -= n;
}

/* Of documents [from, to). */
static void pack(int from, int to, TooLong too_long, int32_t pad) {
  int room = 0, at = 0;
  nrows = 0;
  row = arena_alloc(scratch_arena, sizeof *row * (size_t)(nids + 1));
  for (int i = 0; i < to; at += length[i++]) {
    if (i < from || (length[i] > SEQ && too_long == TOO_LONG_DROP)) continue;
    for (int t = 0; t < length[i]; t += SEQ)
      place(stream + at + t, MIN(SEQ, length[i] - t), &room);
  }
  for (int i = 0; i < nrows; i++)
    for (int t = SEQ - 1; t >= 0 && row[i][0][t] == 0 && row[i][1][t] == END; t--)
      row[i][0][t] = pad;
}

/* ---- what is there ---- */

#define FILES(...)                                                                       \
  .files = (const char *[]){__VA_ARGS__}, .nfiles = LEN(((const char *[]){__VA_ARGS__}))

static Data *open_rows(DataSpec spec, bool val) {
  Data *d;
  spec.dir = scratch_dir;
  spec.packed.on = true;
  spec.packed.size = SEQ;
  weft_status st =
      (val ? data_open_val : data_open)(NULL, &spec, SEQ, VOCAB, 42, &d, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", scratch_error.file, scratch_error.text);
  return d;
}

static void check_row(const Data *d, int64_t sample, int k) {
  int32_t t[SEQ], l[SEQ];
  ck_assert_int_eq(data_sample(d, sample, t, l, &scratch_error), WEFT_OK);
  ck_assert_mem_eq(t, row[k][0], sizeof t);
  ck_assert_mem_eq(l, row[k][1], sizeof l);
}

static void check_rows(Data *d) {
  ck_assert_int_eq(data_windows(d), nrows);
  for (int k = 0; k < nrows; k++) check_row(d, k, k);
  check_row(d, nrows, 0);
  data_close(d);
}

/* An index, or separators, of documents that go on in the next file. */
START_TEST(rows_are_filled_in_order) {
  static const struct {
    int low, high;
    TooLong too_long;
  } cases[] = {{1, 8, TOO_LONG_ERROR},   {1, SEQ, TOO_LONG_ERROR},
               {9, SEQ, TOO_LONG_ERROR}, {1, 60, TOO_LONG_SPLIT},
               {1, 60, TOO_LONG_DROP},   {16, 48, TOO_LONG_SPLIT}};
  TooLong too_long = cases[_i].too_long;
  for (int first = 0; first < 2; first++) {
    Packed p = {
        .separated = true, .separator = SEP, .first = first, .too_long = too_long};
    make(900, cases[_i].low, cases[_i].high, first);
    pack(0, ndocs, too_long, 0);
    put_indexed("m");
    DataSpec spec = {.kind = DATA_TOKENS, FILES("m"), .packed = {.too_long = too_long}};
    check_rows(open_rows(spec, false));
    pack(0, ndocs, too_long, SEP);
    put_raw("a.bin", 0, nids / 3);
    put_raw("b.bin", nids / 3, nids / 3);
    put_raw("c.bin", nids / 3, nids);
    check_rows(open_rows(
        (DataSpec){.kind = DATA_TOKENS, FILES("a.bin", "b.bin", "c.bin"), .packed = p},
        false));
  }
}
END_TEST

/* A document does not go on behind a file with an index, nor into one. */
START_TEST(kinds_of_files_mix) {
  static const uint16_t before[] = {7, 8, SEP, 9, 10}, after[] = {11, 12, SEP, 13};
  static const int32_t between[] = {20, 21, 22, 23};
  scratch_put("a.bin", before, sizeof before);
  megatron_put_ids("b", &(MegatronFile){4, 2, 0, (int32_t[]){1, 3}, 0, NULL}, between);
  scratch_put("c.bin", after, sizeof after);
  Packed p = {.separated = true, .separator = SEP};
  Data *d =
      open_rows((DataSpec){.kind = DATA_TOKENS, FILES("*.bin"), .packed = p}, false);
  static const int32_t want[2][SEQ] = {
      {7, 8, SEP, 9, 10, 20, 21, 22, 23, 11, 12, SEP, 13, SEP, SEP, SEP},
      {8, SEP, END, 10, END, END, 22, 23, END, 12, SEP, END, END, END, END, END}};
  row = (void *)want;
  check_row(d, 0, 0);
  ck_assert_str_eq(data_describe(d),
                   "3 files (raw u16, Megatron), 13 tokens, whole documents in 1 row, "
                   "81.2 % of them filled");
  data_close(d);
}
END_TEST

/* No document is in both parts, and none is lost. */
START_TEST(validation_begins_with_a_document) {
  make(400, 1, SEQ, false);
  put_indexed("m");
  put_raw("r.bin", 0, nids);
  static const char *const names[] = {"m", "r.bin"};
  for (int i = 0; i < 2; i++) {
    DataSpec spec = {.kind = DATA_TOKENS,
                     FILES(names[i]),
                     .val_fraction = 0.1,
                     .packed = {.separated = i == 1, .separator = SEP}};
    int64_t cut = nids - (int64_t)(0.1 * nids), at = 0;
    int k = 0;
    while (at < cut) at += length[k++];
    pack(0, k, TOO_LONG_ERROR, i ? SEP : 0);
    check_rows(open_rows(spec, false));
    pack(k, ndocs, TOO_LONG_ERROR, i ? SEP : 0);
    check_rows(open_rows(spec, true));
  }
}
END_TEST

/* More rows than have marks: those between are found from the mark before. */
START_TEST(rows_between_marks) {
  ndocs = 100000;
  nids = 0;
  for (int i = 0; i < ndocs; i++) nids += length[i] = 2;
  for (int i = 0; i < nids; i++) stream[i] = 4 + i % (VOCAB - 4);
  put_indexed("m");
  Data *d;
  DataSpec spec = {.kind = DATA_TOKENS,
                   FILES("m"),
                   .dir = scratch_dir,
                   .packed = {.on = true, .size = 2}};
  ck_assert_int_eq(data_open(NULL, &spec, 2, VOCAB, 1, &d, &scratch_error), WEFT_OK);
  ck_assert_int_eq(data_windows(d), ndocs);
  ck_assert_int_eq(d->rows->stride, 2);
  for (int k = 0; k < ndocs; k += 77) {
    int32_t t[2], l[2];
    ck_assert_int_eq(data_sample(d, k, t, l, &scratch_error), WEFT_OK);
    ck_assert(t[0] == stream[2 * k] && t[1] == stream[2 * k + 1]);
    ck_assert(l[0] == t[1] && l[1] == END);
  }
  data_close(d);
}
END_TEST

START_TEST(rows_are_shuffled) {
  make(300, 1, SEQ, false);
  pack(0, ndocs, TOO_LONG_ERROR, 0);
  put_indexed("m");
  Data *d =
      open_rows((DataSpec){.kind = DATA_TOKENS, FILES("m"), .shuffle = true}, false);
  int *seen = calloc((size_t)nrows, sizeof *seen), moved = 0;
  for (int k = 0; k < nrows; k++) {
    int32_t t[SEQ], l[SEQ];
    int of = -1;
    ck_assert_int_eq(data_sample(d, k, t, l, &scratch_error), WEFT_OK);
    for (int i = 0; i < nrows && of < 0; i++)
      if (!seen[i] && memcmp(t, row[i][0], sizeof t) == 0) of = i;
    ck_assert_int_ge(of, 0);
    seen[of] = 1;
    moved += of != k;
  }
  ck_assert_int_gt(moved, nrows / 2);
  free(seen);
  data_close(d);
}
END_TEST

/* Tokens without documents: each row is one. */
START_TEST(synthetic_rows_are_documents) {
  int32_t t[SEQ], l[SEQ];
  Data *d = open_rows((DataSpec){.kind = DATA_SYNTHETIC}, false);
  ck_assert_int_eq(data_sample(d, 5, t, l, &scratch_error), WEFT_OK);
  ck_assert_mem_eq(l, t + 1, (SEQ - 1) * sizeof *t);
  ck_assert_int_eq(l[SEQ - 1], END);
  data_close(d);
}
END_TEST

START_TEST(documents_that_cannot_be_packed) {
  static const uint16_t ids[] = {7, SEP, 8, 9, 10, SEP};
  const char *path = scratch_put("r.bin", ids, sizeof ids);
  Data *d;
  DataSpec spec = {.kind = DATA_TOKENS,
                   FILES("r.bin"),
                   .dir = scratch_dir,
                   .packed = {.on = true, .size = 2}};
  scratch_check_error(
      data_open(NULL, &spec, 2, VOCAB, 1, &d, &scratch_error), WEFT_EFILE, path,
      "does not say where documents end, as packed.size needs: give packed "
      "= { ..., eot = the token that ends each } or bos");
  spec.packed.separated = true;
  spec.packed.separator = SEP;
  scratch_check_error(data_open(NULL, &spec, 2, VOCAB, 1, &d, &scratch_error), WEFT_EPLAN,
                      "",
                      arena_printf(scratch_arena,
                                   "what begins with token 2 of %s has 4 tokens, more "
                                   "than packed.size = 2; say packed = { ..., too_long = "
                                   "\"split\" }, \"truncate\" or \"drop\"",
                                   path));
  spec.packed.too_long = TOO_LONG_DROP;
  spec.packed.size = 1;
  scratch_check_error(data_open(NULL, &spec, 1, VOCAB, 1, &d, &scratch_error), WEFT_EPLAN,
                      "", "no document of the data fits into packed.size = 1");
}
END_TEST

/* Two documents are a pair, which no file and no empty document takes apart. */
static const struct {
  int32_t length[8]; /* of documents of a.bin, then of b.bin */
  int a, b;
  bool separated; /* without an index: ends are separators */
  const char *file, *says;
} pairs[] = {
    {{9, 8, 7, 6}, 2, 2, false, NULL, NULL},
    {{9, 8, 7, 6}, 2, 2, true, NULL, NULL},
    {{9, 8, 7, 6}, 4, 0, false, NULL, NULL},
    {{9, 8, 7, 6}, 3, 1, false, "a.bin", "ends with the first document of a pair: "},
    {{9, 8, 7, 6}, 3, 1, true, "a.bin", "ends with the first document of a pair: "},
    {{9, 8, 7, 6, 5}, 2, 3, false, "", "5 documents are no pairs, as the loss needs"},
    {{9, 0, 8, 0, 7, 6}, 4, 2, false, "a.idx", "document 1 is empty, and without it "},
    {{9, 8, 7, 6, 5, 0}, 2, 4, false, "b.idx", "document 3 is empty, and without it "},
};

static void put_documents(const char *name, const int32_t *docs, int n, bool separated) {
  uint16_t ids[80] = {0};
  int at = 0;
  if (!separated) {
    megatron_put(name, &(MegatronFile){8, n, 10, docs, 0, NULL});
    return;
  }
  for (int k = 0; k < n; k++, ids[at - 1] = SEP)
    for (int t = 0; t < docs[k]; t++) ids[at++] = (uint16_t)(10 + t);
  scratch_put(arena_printf(scratch_arena, "%s.bin", name), ids, 2 * (size_t)at);
}

START_TEST(documents_of_pairs) {
  const int32_t *docs = pairs[_i].length;
  int a = pairs[_i].a, b = pairs[_i].b;
  put_documents("a", docs, a, pairs[_i].separated);
  if (b) put_documents("b", docs + a, b, pairs[_i].separated);
  DataSpec spec = {.kind = DATA_TOKENS, FILES("*.bin"), .dir = scratch_dir};
  spec.packed = (Packed){.on = true, .size = SEQ, .alone = true, .pairs = true};
  spec.packed.separated = pairs[_i].separated, spec.packed.separator = SEP;
  Data *d;
  weft_status st = data_open(NULL, &spec, SEQ, VOCAB, 1, &d, &scratch_error);
  if (!pairs[_i].says) {
    ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
    ck_assert_int_eq(data_windows(d), a + b);
    data_close(d);
    return;
  }
  ck_assert_int_ne(st, WEFT_OK);
  ck_assert_msg(strstr(scratch_error.text, pairs[_i].says) != NULL, "%s",
                scratch_error.text);
  ck_assert_str_eq(scratch_error.file,
                   *pairs[_i].file ? scratch_path(pairs[_i].file) : "");
  err_clear(&scratch_error);
}
END_TEST

START_TEST(rows_hold_what_is_promised) {
  make(50, 1, SEQ, false);
  put_indexed("m");
  DataSpec spec = {.kind = DATA_TOKENS,
                   FILES("m"),
                   .dir = scratch_dir,
                   .packed = {.on = true, .size = SEQ}};
  weft_status status = WEFT_ENOMEM;
  for (int n = 0; status != WEFT_OK; n++) {
    ScratchMeter m = {n, 0};
    weft_alloc a = {scratch_alloc, &m};
    Data *d;
    status = data_open(&a, &spec, SEQ, VOCAB, 0, &d, &scratch_error);
    if (status == WEFT_OK) ck_assert_int_eq(m.held, (int64_t)data_bytes(&spec));
    data_close(d);
    ck_assert_int_eq(m.held, 0);
    err_clear(&scratch_error);
  }
}
END_TEST

Suite *packed_rows_suite(void);
Suite *packed_rows_suite(void) {
  Suite *s = suite_create("packed_rows");
  TCase *t = tcase_create("rows");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, rows_are_filled_in_order, 0, 6);
  tcase_add_test(t, kinds_of_files_mix);
  tcase_add_test(t, validation_begins_with_a_document);
  tcase_add_test(t, rows_between_marks);
  tcase_add_test(t, rows_are_shuffled);
  tcase_add_test(t, synthetic_rows_are_documents);
  tcase_add_test(t, documents_that_cannot_be_packed);
  tcase_add_loop_test(t, documents_of_pairs, 0, LEN(pairs));
  tcase_add_test(t, rows_hold_what_is_promised);
  suite_add_tcase(s, t);
  return s;
}
