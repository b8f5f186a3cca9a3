/* check_tokenize.c - weft tokenize, as a user sees it: what it writes is what runs read.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "vm/io/io.h"
#include "vm/text/regex.h"
#include "vm/text/tokenizer.h"

#define TOKENIZER WEFT_SOURCE_DIR "/tests/tokenizer/llama3.json"
enum { SECONDS = 30, EOT = 0 };
static const char *const texts[] = {"The tokens of a document.\n", "Straße 2024", "I'm"};

static void setup(void) {
  static const char lines[] =
      "{\"text\": \"Stra\\u00dfe 2024\", \"id\": 1}\n\n{\"text\": \"I'm\"}\n";
  scratch_setup();
  scratch_put("a.txt", texts[0], strlen(texts[0]));
  scratch_put("b.jsonl", lines, sizeof lines - 1);
}

static void expect(int code, const char *out, const char *err, const char *args) {
  Outcome o = process_run(SECONDS, "$weft tokenize %s", args);
  ck_assert_msg(o.code == code && strstr(o.out, out) && strstr(o.err, err),
                "weft tokenize %s: %d\n%s%s", args, o.code, o.out, o.err);
}

/* The ids of all documents, each between the begin token of the file and EOT. */
static TokenIds want(void) {
  Tokenizer *t;
  TokenIds ids = {0};
  ck_assert_int_eq(tokenizer_open(NULL, TOKENIZER, &t, &scratch_error), WEFT_OK);
  for (int i = 0; i < LEN(texts); i++) {
    ck_assert_int_eq(
        tokenizer_encode(t, texts[i], strlen(texts[i]), true, &ids, &scratch_error),
        WEFT_OK);
    ck_assert_int_eq(token_ids_add(&ids, EOT, &scratch_error), WEFT_OK);
  }
  tokenizer_close(t);
  return ids;
}

static void holds(const char *file, const char *described) {
  DataSpec spec = {.kind = DATA_TOKENS, .dir = scratch_dir, .files = &file, .nfiles = 1};
  TokenIds ids = want();
  int32_t *t = malloc(2 * ids.n * sizeof *t), *l = t + ids.n;
  Data *d;
  weft_status st =
      data_open(NULL, &spec, (int64_t)ids.n - 1, 1000, 0, &d, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  ck_assert_msg(strstr(data_describe(d), described), "%s", data_describe(d));
  ck_assert_int_eq(data_tokens(d), (int64_t)ids.n);
  ck_assert_int_eq(data_sample(d, 0, t, l, &scratch_error), WEFT_OK);
  ck_assert_mem_eq(t, ids.at, (ids.n - 1) * sizeof *t);
  data_close(d);
  free(t);
  token_ids_free(&ids);
}

START_TEST(runs_read_what_is_written) {
  expect(0, "out.bin: 3 documents, ", "",
         TOKENIZER " a.txt b.jsonl --eot '<|endoftext|>' --out out.bin");
  holds("out", "Megatron");
  expect(0, "llm.c\n", "",
         TOKENIZER " a.txt b.jsonl --eot '<|endoftext|>' -o l.bin --format llmc");
  holds("l.bin", "llm.c GPT-2");
  ck_assert_str_eq(scratch_list(), "a.txt b.jsonl l.bin out.bin out.idx ");
}
END_TEST

#define BOM "\xef\xbb\xbf"
#define ROW "{\"text\": \"Stra\\u00dfe 2024\"}"

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

/* Rows are found whatever the case of the name, as lines or as a list; a mark of byte
 * order is not text. */
START_TEST(names_of_rows) {
  static const struct {
    const char *name, *rows;
  } all[] = {
      {"U.JSONL", ROW "\n{\"text\": \"I'm\"}\n"},
      {"c.ndjson", BOM ROW "\r\n\r\n{\"text\": \"I'm\"}"},
      {"lines.json", ROW "\n{\"id\": [{}], \"text\": \"I'm\"}\n"},
      {"list.json", BOM "[" ROW ",\n {\"text\":\n \"I'm\"}]\n"},
  };
  put("bom.txt", arena_printf(scratch_arena, BOM "%s", texts[0]));
  for (int i = 0; i < LEN(all); i++) {
    put(all[i].name, all[i].rows);
    expect(0, ": 3 documents, ", "",
           arena_printf(scratch_arena,
                        TOKENIZER " bom.txt %s --eot '<|endoftext|>' -o o%d.bin",
                        all[i].name, i));
    holds(arena_printf(scratch_arena, "o%d", i), "Megatron");
  }
  /* What Python writes for floats and unsigned numbers that other columns have. */
  put("nan.json", "{\"text\": \"NaN\", \"score\": NaN, \"x\": [-Infinity, Infinity]}\n");
  expect(0, "nan.bin: 1 document, ", "", TOKENIZER " nan.json -o nan.bin");
  put("big.json", "{\"text\": \"1\", \"id\": 12345678901234567890, \"n\": -1}\n");
  expect(0, "big.bin: 1 document, ", "", TOKENIZER " big.json -o big.bin");
  put("nul.json", "[{\"text\": \"a\\u0000b\"}]");
  expect(0, "nul.bin: 1 document, ", "", TOKENIZER " nul.json -o nul.bin");
}
END_TEST

static const struct {
  const char *name, *text, *error;
} no_text[] = {
    {"rows.txt", BOM ROW "\n" ROW "\n",
     "rows.txt: error: holds rows of JSON with a \"text\", and would be read as one "
     "text: "
     "name it NAME.jsonl, NAME.ndjson or NAME.json"},
    {"rows", " [\n" ROW "]", "rows: error: holds rows of JSON"},
    {"a.parquet", "PAR1....", "a.parquet: error: is Parquet; rows are JSON: python3 -c"},
    {"a.json", "PAR1....", "to_pylist()]\" FILE >NAME.jsonl"},
    {"a.arrow", "ARROW1..", "a.arrow: error: is Arrow; rows are JSON"},
    {"a.jsonl.gz", "\x1f\x8b..", "is compressed by gzip; rows are JSON: zcat FILE >NAME"},
    {"l.json", "[" ROW ",\n{\"txt\": 1}]",
     "l.json:2: error: has no \"text\", as each row must"},
    {"m.json", "{\n\"text\": 1}\n", "m.json:1: error: is not JSON"},
    {"n.json", "3\n", "n.json:1: error: is not JSON"},
};

START_TEST(what_is_no_text) {
  put(no_text[_i].name, no_text[_i].text);
  expect(2, "", no_text[_i].error,
         arena_printf(scratch_arena, TOKENIZER " %s -o o.bin", no_text[_i].name));
  ck_assert_ptr_null(strstr(scratch_list(), "o.bin"));
}
END_TEST

/* Prose and programs that begin as JSON does are texts. */
START_TEST(texts_that_begin_with_brackets) {
  put("c.txt", "{ \"text\": a");
  put("d.txt", "[1] is the first reference.");
  put("e.txt", "{\"name\": \"x\"}");
  expect(0, "o.bin: 3 documents, ", "", TOKENIZER " c.txt d.txt e.txt -o o.bin");
}
END_TEST

/* Neither a token file nor one that would be read with the new one. */
START_TEST(what_is_there_stays) {
  static const struct {
    const char *name, *format, *said;
  } all[] = {
      {"o.bin", "megatron", "o.bin: error: cannot be written: File exists"},
      {"o.bin", "llmc", "o.bin: error: cannot be written: File exists"},
      {"o.idx", "megatron", "o.idx: error: cannot be written: File exists"},
      {"o.idx", "llmc", "o.idx: error: would be read as the index of o.bin"},
      {"o.mask", "megatron", "o.mask: error: would be read as the mask of o.bin"},
      {"o.mask", "llmc", "o.mask: error: would be read as the mask of o.bin"},
  };
  for (int i = 0; i < LEN(all); i++) {
    put(all[i].name, "mine");
    expect(2, "", all[i].said,
           arena_printf(scratch_arena, TOKENIZER " a.txt -o o.bin --format %s",
                        all[i].format));
    ck_assert_str_eq(scratch_get(scratch_path(all[i].name)), "mine");
    ck_assert_str_eq(scratch_list(),
                     arena_printf(scratch_arena, "a.txt b.jsonl %s ", all[i].name));
    unlink(scratch_path(all[i].name));
  }
}
END_TEST

static const struct {
  int signal, code;
} signals[] = {{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 129}};

/* One is enough; what was begun goes. */
START_TEST(a_signal_leaves_nothing) {
  enum { MANY = 200000 };
  FILE *f = fopen(scratch_path("many.jsonl"), "w");
  ck_assert_ptr_nonnull(f);
  for (int i = 0; i < MANY; i++) fputs(ROW "\n", f);
  ck_assert_int_eq(fclose(f), 0);
  Process p =
      process_start(SECONDS, "$weft tokenize " TOKENIZER " many.jsonl a.txt -o o.bin");
  const char *begun =
      scratch_path(arena_printf(scratch_arena, "o.bin.%d-0.tmp", (int)p.pid));
  for (int i = 0; i < 10000 && access(begun, F_OK) != 0; i++) usleep(1000);
  kill(p.pid, signals[_i].signal);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == signals[_i].code, "%d: %s%s", o.code, o.out, o.err);
  ck_assert_str_eq(o.err, "weft: interrupted\n");
  ck_assert_str_eq(scratch_list(), "a.txt b.jsonl many.jsonl ");
}
END_TEST

static const struct {
  const char *given, *error;
} of_chat[] = {
    {"--refuse-special", "--refuse-special belongs to --chat"},
    {"--drop-bad", "--drop-bad belongs to --chat"},
    {"--max-length 9", "--max-length belongs to --chat"},
    {"--train-on all", "--train-on belongs to --chat"},
    {"--template chatml", "--template belongs to --chat"},
    {"--option a=b", "--option belongs to --chat"},
    {"--tokenizer x", "--tokenizer belongs to --chat: of texts it is the first argument"},
};

START_TEST(options_of_conversations) {
  expect(2, "", of_chat[_i].error,
         arena_printf(scratch_arena, TOKENIZER " a.txt -o o.bin %s", of_chat[_i].given));
  ck_assert_str_eq(scratch_list(), "a.txt b.jsonl ");
}
END_TEST

START_TEST(wrong_calls) {
  static const char bad[] = "{\"text\": \"a\"}\n{\"txt\": 1}\n";
  scratch_put("bad.jsonl", bad, sizeof bad - 1);
  scratch_put("latin.txt", "na\xefve", 5);
  expect(2, "", "tokenize needs a tokenizer.json and files of text", TOKENIZER);
  expect(2, "", "tokenize needs --out NAME.bin", TOKENIZER " a.txt");
  expect(2, "", "--format is megatron or llmc, not raw",
         TOKENIZER " a.txt -o o.bin --format raw");
  expect(2, "", "llama3.json: error: has no token <s> for --eot",
         TOKENIZER " a.txt -o o.bin --eot '<s>'");
  expect(2, "", "bad.jsonl:2: error: has no \"text\", as each row must",
         TOKENIZER " bad.jsonl -o o.bin");
  expect(2, "", "latin.txt: error: the text is not UTF-8 from byte 2 on",
         TOKENIZER " latin.txt -o o.bin");
  expect(2, "", "no.txt: error: cannot be opened", TOKENIZER " no.txt -o o.bin");
  ck_assert_str_eq(scratch_list(), "a.txt b.jsonl bad.jsonl latin.txt ");
}
END_TEST

Suite *tokenize_suite(void);
Suite *tokenize_suite(void) {
  Suite *s = suite_create("tokenize");
  TCase *t = tcase_create("weft");
  const RegexApi *api;
  weft_error e;
  err_clear(&e);
  suite_add_tcase(s, t);
  if (regex_api(&api, &e) != WEFT_OK) {
    printf("tokenize: skipped: %s\n", e.text);
    return s;
  }
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_add_test(t, runs_read_what_is_written);
  tcase_add_test(t, names_of_rows);
  tcase_add_loop_test(t, what_is_no_text, 0, LEN(no_text));
  tcase_add_test(t, texts_that_begin_with_brackets);
  tcase_add_test(t, what_is_there_stays);
  tcase_add_loop_test(t, a_signal_leaves_nothing, 0, LEN(signals));
  tcase_add_loop_test(t, options_of_conversations, 0, LEN(of_chat));
  tcase_add_test(t, wrong_calls);
  return s;
}
