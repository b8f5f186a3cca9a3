/* check_token_files.c - token files by form: which are recognised, what their headers and
 * indices must say, and several of them blended by weight. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/generate/megatron_files.h"
#include "tests/harness/scratch.h"
#include "vm/io/io.h"
#include "vm/io/source.h"

#define FILES(...)                                                                       \
  .files = (const char *[]){__VA_ARGS__}, .nfiles = LEN(((const char *[]){__VA_ARGS__}))

static Data *open_data(DataSpec spec, int64_t seq, int64_t vocab) {
  Data *d;
  spec.dir = scratch_dir;
  spec.kind = DATA_TOKENS;
  weft_status st = data_open(NULL, &spec, seq, vocab, 42, &d, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", scratch_error.file, scratch_error.text);
  return d;
}

static void no_data(DataSpec spec, const char *file, const char *text) {
  Data *d;
  spec.dir = scratch_dir;
  spec.kind = DATA_TOKENS;
  scratch_check_error(data_open(NULL, &spec, 2, 256, 0, &d, &scratch_error), WEFT_EFILE,
                      file, text);
}

/* The ids of the whole stream count up from `first`. */
static void counts_up(const Data *d, int first) {
  int32_t t[2], l[2];
  for (int64_t i = 0; i < data_windows(d); i++) {
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    ck_assert_int_eq(t[0], first + 2 * i);
    ck_assert_int_eq(t[1], first + 2 * i + 1);
    ck_assert_int_eq(l[1], first + 2 * i + 2);
  }
}

/* ---- Megatron ---- */

static const int32_t lengths[] = {3, 0, 4, 2};

START_TEST(types_of_an_index) {
  static const int types[] = {1, 2, 3, 4, 5, 8};
  megatron_put("m", &(MegatronFile){types[_i], LEN(lengths), 5, lengths, 0, NULL});
  Data *d = open_data((DataSpec){FILES("m.bin")}, 2, 256);
  ck_assert_str_eq(data_describe(d), "1 file (Megatron), 9 tokens");
  counts_up(d, 5);
  data_close(d);
}
END_TEST

/* A prefix, the index, the tokens, a pattern for both, or said: always the one file. */
START_TEST(names_of_an_indexed_file) {
  static const char *const names[] = {"m", "m.idx", "m.bin", "m*", "./m"};
  megatron_put("m", &(MegatronFile){4, LEN(lengths), 0, lengths, 0, NULL});
  for (int i = 0; i < LEN(names); i++)
    for (int said = 0; said < 2; said++) {
      Data *d = open_data(
          (DataSpec){FILES(names[i]), .format = said ? TOKENS_MEGATRON : TOKENS_AUTO}, 2,
          256);
      ck_assert_int_eq(data_tokens(d), 9);
      counts_up(d, 0);
      data_close(d);
    }
  Data *d = open_data((DataSpec){FILES("m.bin"), .format = TOKENS_RAW}, 2, 256);
  ck_assert_str_eq(data_describe(d), "1 file (raw u16), 18 tokens");
  data_close(d);
}
END_TEST

/* Another file with this ending says nothing of the tokens. */
START_TEST(an_index_of_something_else) {
  static const uint16_t ids[] = {1, 2, 3, 4};
  const char *path = scratch_put("t.bin", ids, sizeof ids);
  scratch_put("t.idx", "MMID", 4);
  Data *d = open_data((DataSpec){FILES("t.bin")}, 2, 256);
  ck_assert_str_eq(data_describe(d), "1 file (raw u16), 4 tokens");
  data_close(d);
  no_data((DataSpec){FILES("t.bin"), .packed = {.on = true, .size = 2}}, path,
          "does not say where documents end, as packed.size needs: give packed = { ..., "
          "eot = the token that ends each } or bos");
  no_data((DataSpec){FILES("t.bin"), .format = TOKENS_MEGATRON}, path,
          "has no index of Megatron beside it: the same name with .idx");
  unlink(scratch_path("t.idx"));
  no_data((DataSpec){FILES("t.bin"), .format = TOKENS_MEGATRON}, path,
          "has no index of Megatron beside it: the same name with .idx");
}
END_TEST

/* Changes of the index of four sequences in four documents, u16. */
static const struct {
  int at, bytes;
  uint64_t value;
  const char *text;
} broken[] = {
    {9, 8, 2, "index of version 2; version 1 is supported"},
    {17, 1, 0, "the type of ids has the code 0; 1 to 8 are known"},
    {17, 1, 9, "the type of ids has the code 9; 1 to 8 are known"},
    {17, 1, 7, "holds numbers of type f32; ids of tokens are integers"},
    {17, 1, 4, "sequence 1 begins at byte 6 of the .bin, but byte 12 comes next"},
    {18, 8, 5,
     "the header says 5 sequences and 5 entries of documents, which does not make 122 "
     "bytes"},
    {18, 8, UINT64_MAX / 12,
     "the header says 1537228672809129301 sequences and 5 entries of documents, which "
     "does not make 122 bytes"},
    {26, 8, UINT64_MAX,
     "the header says 4 sequences and 18446744073709551615 entries of documents, which "
     "does not make 122 bytes"},
    {26, 8, 0,
     "the header says 4 sequences and 0 entries of documents, which does not make 122 "
     "bytes"},
    {34, 4, 2, "sequence 1 begins at byte 6 of the .bin, but byte 4 comes next"},
    {34, 4, 0xffffffff, "sequence 0 has -1 tokens"},
    {34 + 12, 4, 3, "its sequences end at byte 20 of the .bin, which has 18 bytes"},
    {50, 8, 2, "sequence 0 begins at byte 2 of the .bin, but byte 0 comes next"},
    {50 + 24, 8, INT64_MAX,
     "sequence 3 begins at byte 9223372036854775807 of the .bin, but byte 14 comes next"},
    {82, 8, 1, "the first document begins with sequence 1"},
    {82 + 16, 8, 5, "document 2 begins with sequence 5 of 4"},
    {82 + 16, 8, 0, "document 2 begins with sequence 0 of 4"},
    {82 + 32, 8, 3, "the documents end with sequence 3 of 4"},
};

START_TEST(broken_indices) {
  char s[122];
  const char *path = scratch_path("m.idx");
  megatron_put("m", &(MegatronFile){8, LEN(lengths), 0, lengths, 0, NULL});
  FILE *f = fopen(path, "rb");
  ck_assert_uint_eq(fread(s, 1, sizeof s, f), sizeof s);
  ck_assert_int_eq(getc(f), EOF);
  fclose(f);
  memcpy(s + broken[_i].at, &broken[_i].value, (size_t)broken[_i].bytes);
  scratch_put("m.idx", s, sizeof s);
  no_data((DataSpec){FILES("m")}, path, broken[_i].text);
}
END_TEST

START_TEST(an_index_that_is_cut) {
  static const char head[33] = "MMIDIDX\0";
  static const uint16_t ids[] = {1, 2, 3, 4};
  scratch_put("m.bin", ids, sizeof ids);
  no_data((DataSpec){FILES("m")}, scratch_path("m"), "no file matches");
  const char *path = scratch_put("m.idx", head, sizeof head);
  no_data((DataSpec){FILES("m")}, path, "has 33 bytes, less than its header");
  unlink(scratch_path("m.bin"));
  no_data((DataSpec){FILES("m")}, scratch_path("m.bin"),
          "cannot be opened: No such file or directory");
}
END_TEST

START_TEST(modes_are_not_supported) {
  const char *path = scratch_path("m.idx");
  megatron_put("m", &(MegatronFile){8, LEN(lengths), 0, lengths, 0, NULL});
  FILE *f = fopen(path, "ab");
  ck_assert_uint_eq(fwrite("\0\0\0\0", 1, 4, f), 4);
  fclose(f);
  no_data(
      (DataSpec){FILES("m")}, path,
      "gives each sequence a mode, for several kinds of data; only text is supported");
}
END_TEST

/* Of texts without a token. Its size is that of one with modes, too, of which it has
 * none. */
START_TEST(an_index_of_nothing) {
  megatron_put("a", &(MegatronFile){8, 0, 0, lengths, 0, NULL});
  no_data((DataSpec){FILES("a")}, scratch_path("a.bin"), "no data: 1 file, all empty");
  megatron_put("b", &(MegatronFile){8, LEN(lengths), 0, lengths, 0, NULL});
  Data *d = open_data((DataSpec){FILES("a", "b")}, 2, 100);
  ck_assert_int_gt(data_windows(d), 0);
  counts_up(d, 0);
  data_close(d);
}
END_TEST

/* More sequences than are looked at when the file is opened. */
START_TEST(long_indices) {
  enum { N = 5000 };
  static int32_t many[N];
  int64_t at;
  for (int i = 0; i < N; i++) many[i] = i % 7;
  megatron_put("m", &(MegatronFile){4, N, 0, many, 0, NULL});
  Data *d = open_data((DataSpec){FILES("m")}, 2, 20000);
  const Part *p = &d->part[0];
  ck_assert_int_eq(p->documents, N);
  counts_up(d, 0);
  for (int64_t k = 0, sum = 0; k <= N; sum += many[k++]) {
    ck_assert_int_eq(megatron_documents(p, k, 1, &at, &scratch_error), WEFT_OK);
    ck_assert_int_eq(at, sum);
    if (k == N) break;
  }
  data_close(d);
}
END_TEST

START_TEST(negative_ids) {
  static const int32_t ids[] = {1, 2, -1};
  megatron_put_ids("m", &(MegatronFile){4, 1, 0, (int32_t[]){3}, 0, NULL}, ids);
  Data *d = open_data((DataSpec){FILES("m")}, 2, 256);
  int32_t t[2], l[2];
  scratch_check_error(data_sample(d, 0, t, l, &scratch_error), WEFT_EFILE,
                      scratch_path("m.bin"),
                      "token -1 at offset 2 is not below the model's vocabulary of 256");
  data_close(d);
}
END_TEST

/* ---- forms that are said ---- */

START_TEST(what_is_said_must_be) {
  static int32_t file[256 + 8];
  file[0] = 20240801, file[1] = 7, file[2] = 8;
  for (int i = 0; i < 8; i++) file[256 + i] = i;
  const char *path = scratch_put("t.bin", file, sizeof file);
  Data *d = open_data((DataSpec){FILES("t.bin"), .format = TOKENS_LLMC}, 2, 256);
  ck_assert_str_eq(data_describe(d), "1 file (llm.c Llama 3), 8 tokens");
  counts_up(d, 0);
  data_close(d);
  no_data((DataSpec){FILES("t.bin"), .format = TOKENS_AUTOMODEL}, path,
          "does not begin with a header of NeMo AutoModel (278895051), as format = "
          "\"automodel\" says");
  d = open_data((DataSpec){FILES("t.bin"), .format = TOKENS_RAW, .width = 4}, 2,
                INT32_MAX);
  ck_assert_str_eq(data_describe(d), "1 file (raw u32), 264 tokens");
  data_close(d);
  file[0] = 20240522;
  scratch_put("t.bin", file, sizeof file);
  no_data((DataSpec){FILES("t.bin"), .format = TOKENS_LLMC}, path,
          "does not begin with a header of llm.c (20240520 or 20240801), as format = "
          "\"llmc\" says");
  no_data((DataSpec){FILES("t.bin")}, path,
          "is no token file but one of llm.c's questions for evaluation");
}
END_TEST

/* ---- blends ---- */

/* The order as Megatron makes it, in floating point and without a cycle. */
static void reference(const double *weight, int n, int samples, int *turn) {
  double had[8] = {0};
  for (int s = 0; s < samples; s++) {
    double most = -1e300;
    for (int i = 0; i < n; i++) {
      double lags = weight[i] * (s > 0 ? s : 1) - had[i];
      if (lags > most) most = lags, turn[s] = i;
    }
    had[turn[s]]++;
  }
}

static Blend blend_of(const double *weight, int n) {
  Blend b = {.n = n, .share = NEW_N(scratch_arena, int64_t, n)};
  ck_assert_int_eq(blend_fill(NULL, weight, &b, &scratch_error), WEFT_OK);
  return b;
}

START_TEST(the_order_is_megatrons) {
  static const double weights[][4] = {
      {0.5, 0.5}, {0.75, 0.25}, {0.25, 0.5, 0.25}, {0.125, 0.375, 0.25, 0.25}};
  static const int cycles[] = {2, 4, 4, 8};
  int n = 2 + (_i > 1) + (_i > 2), turn[8];
  Blend b = blend_of(weights[_i], n);
  ck_assert_int_eq(b.cycle, cycles[_i]);
  reference(weights[_i], n, (int)b.cycle, turn);
  for (int i = 0; i < b.cycle; i++) ck_assert_int_eq(b.turn[i], turn[i]);
  blend_free(NULL, &b);
}
END_TEST

/* Exact proportions in a cycle, and never far from them before; every stream's samples in
 * their order, each once. */
START_TEST(shares_are_exact) {
  static const struct {
    double weight[5];
    int n;
    int64_t cycle, share[5];
  } cases[] = {{{3, 7}, 2, 10, {3, 7}},
               {{1, 1, 1}, 3, 3, {1, 1, 1}},
               {{0.1, 0.2, 0.7}, 3, 10, {1, 2, 7}},
               {{0.00005, 0.99995}, 2, 20000, {1, 19999}},
               {{1, 3.14159265358979}, 2, 65536, {15824, 49712}},
               {{1e-9, 1, 1e-9, 2, 1e-9}, 5, 65536, {1, 21844, 1, 43689, 1}}};
  Blend b = blend_of(cases[_i].weight, cases[_i].n);
  ck_assert_int_eq(b.cycle, cases[_i].cycle);
  int64_t had[5] = {0};
  for (int64_t i = 0; i < b.cycle; i++) {
    ck_assert_int_eq(b.nth[i], had[b.turn[i]]);
    had[b.turn[i]]++;
    for (int k = 0; k < b.n; k++)
      ck_assert_int_le(llabs(had[k] * b.cycle - b.share[k] * (i + 1)), 2 * b.cycle);
  }
  for (int k = 0; k < b.n; k++) {
    ck_assert_int_eq(b.share[k], cases[_i].share[k]);
    ck_assert_int_eq(had[k], b.share[k]);
  }
  blend_free(NULL, &b);
}
END_TEST

/* Streams of 20 and 40 windows with 3 : 1: each goes through its own epochs, shuffled by
 * itself. */
START_TEST(blended_samples) {
  enum { SAMPLES = 160 };
  static const double weights[] = {0.75, 0.25};
  int32_t small[41], large[81], t[2], l[2];
  for (int i = 0; i < 41; i++) small[i] = i;
  for (int i = 0; i < 81; i++) large[i] = 100 + i;
  megatron_put_ids("s", &(MegatronFile){4, 1, 0, (int32_t[]){41}, 0, NULL}, small);
  megatron_put_ids("l", &(MegatronFile){4, 1, 0, (int32_t[]){81}, 0, NULL}, large);
  DataSpec spec = {FILES("s", "l"), .weights = weights, .nweights = 2, .shuffle = true};
  Data *d = open_data(spec, 2, 256);
  ck_assert_str_eq(data_describe(d), "75 % of 1 file (Megatron), 41 tokens; 25 % of 1 "
                                     "file (Megatron), 81 tokens");
  ck_assert_int_eq(data_windows(d), 60);
  ck_assert_int_eq(data_tokens(d), 122);
  int seen[2][40] = {{0}}, order[2][40], n[2] = {0};
  for (int i = 0; i < SAMPLES; i++) {
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    int of = t[0] >= 100, w = (t[0] - 100 * of) / 2;
    ck_assert_int_eq(of, i % 4 == 1);
    if (n[of] < 40) order[of][n[of]] = w;
    n[of]++;
    seen[of][w]++;
  }
  ck_assert(n[0] == 120 && n[1] == 40);
  for (int i = 0; i < 40; i++)
    ck_assert(seen[1][i] == 1 && seen[0][i] == (i < 20 ? 6 : 0));
  ck_assert_mem_ne(order[0], order[1], 20 * sizeof **order);
  uint64_t print, other;
  ck_assert_int_eq(data_look(d, &print, &scratch_error), WEFT_OK);
  data_close(d);
  spec.weights = (const double[]){0.25, 0.75};
  d = open_data(spec, 2, 256);
  ck_assert_int_eq(data_look(d, &other, &scratch_error), WEFT_OK);
  ck_assert(print != other);
  data_close(d);
}
END_TEST

/* The samples before the first stream begins anew: each is another, and the next is not.
 */
START_TEST(samples_that_are_each_another) {
  static const struct {
    int windows[2];
    double weights[2];
  } rows[] = {{{20, 40}, {0.75, 0.25}},
              {{1, 40}, {0.5, 0.5}},
              {{40, 1}, {0.9, 0.1}},
              {{30, 10}, {0.75, 0.25}},
              {{7, 7}, {0.4, 0.6}}};
  int32_t t[2], l[2];
  for (int r = 0; r < (int)LEN(rows); r++) {
    for (int k = 0; k < 2; k++)
      megatron_put(k ? "l" : "s",
                   &(MegatronFile){4, 1, 100 * k, (int32_t[]){2 * rows[r].windows[k] + 1},
                                   0, NULL});
    DataSpec spec = {FILES("s", "l"), .weights = rows[r].weights, .nweights = 2};
    Data *d = open_data(spec, 2, 256);
    bool seen[256] = {false}, again = false;
    int64_t n = 0;
    for (; !again; n += !again) {
      ck_assert_int_eq(data_sample(d, n, t, l, &scratch_error), WEFT_OK);
      again = seen[t[0]];
      seen[t[0]] = true;
    }
    int ends = -1;
    ck_assert_int_eq(data_once(d, &ends), n);
    ck_assert_int_eq(ends, data_source(d, n));
    data_close(d);
  }
}
END_TEST

/* Each stream has its own end for validation. */
START_TEST(blended_validation) {
  static const double weights[] = {1, 1};
  megatron_put("a", &(MegatronFile){4, 1, 0, (int32_t[]){100}, 0, NULL});
  megatron_put("b", &(MegatronFile){4, 1, 100, (int32_t[]){50}, 0, NULL});
  DataSpec spec = {FILES("a", "b"),     .weights = weights, .nweights = 2,
                   .val_fraction = 0.1, .dir = scratch_dir, .kind = DATA_TOKENS};
  Data *d;
  int32_t t[2], l[2];
  ck_assert_int_eq(data_open_val(NULL, &spec, 2, 256, 0, &d, &scratch_error), WEFT_OK);
  static const int begins[] = {90, 145, 92, 147, 94, 145};
  for (int i = 0; i < LEN(begins); i++) {
    ck_assert_int_eq(data_sample(d, i, t, l, &scratch_error), WEFT_OK);
    ck_assert_int_eq(t[0], begins[i]);
  }
  data_close(d);
}
END_TEST

/* What is allocated is what is said, and all of it is given back when memory runs out. */
START_TEST(blends_hold_what_is_promised) {
  static const double weights[] = {1, 3.14159265358979};
  megatron_put("a", &(MegatronFile){4, 1, 0, (int32_t[]){100}, 0, NULL});
  DataSpec spec = {FILES("a", "a.bin"), .weights = weights, .nweights = 2,
                   .dir = scratch_dir, .kind = DATA_TOKENS};
  weft_status status = WEFT_ENOMEM;
  for (int n = 0; status != WEFT_OK; n++) {
    ScratchMeter m = {n, 0};
    weft_alloc a = {scratch_alloc, &m};
    Data *d;
    ck_assert_int_lt(n, 100);
    status = data_open(&a, &spec, 2, 256, 0, &d, &scratch_error);
    if (status == WEFT_OK) ck_assert_int_eq(m.held, (int64_t)data_bytes(&spec));
    data_close(d);
    ck_assert_int_eq(m.held, 0);
    err_clear(&scratch_error);
  }
}
END_TEST

Suite *token_files_suite(void);
Suite *token_files_suite(void) {
  Suite *s = suite_create("token_files");
  TCase *t = tcase_create("token_files");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, types_of_an_index, 0, 6);
  tcase_add_test(t, names_of_an_indexed_file);
  tcase_add_test(t, an_index_of_something_else);
  tcase_add_loop_test(t, broken_indices, 0, LEN(broken));
  tcase_add_test(t, an_index_that_is_cut);
  tcase_add_test(t, modes_are_not_supported);
  tcase_add_test(t, an_index_of_nothing);
  tcase_add_test(t, long_indices);
  tcase_add_test(t, negative_ids);
  tcase_add_test(t, what_is_said_must_be);
  tcase_add_loop_test(t, the_order_is_megatrons, 0, 4);
  tcase_add_loop_test(t, shares_are_exact, 0, 6);
  tcase_add_test(t, blended_samples);
  tcase_add_test(t, samples_that_are_each_another);
  tcase_add_test(t, blended_validation);
  tcase_add_test(t, blends_hold_what_is_promised);
  suite_add_tcase(s, t);
  return s;
}
