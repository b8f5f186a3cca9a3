/* check_tokenize_chat.c - weft tokenize --chat, as a user sees it: what it writes and
 * says, and what it says of conversations that cannot be used. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "vm/io/file.h"
#include "vm/io/token_mask.h"
#include "vm/text/regex.h"
#include "vm/text/tokenizer.h"

#define TOKENIZER " --tokenizer " WEFT_SOURCE_DIR "/tests/chat/nfc.json"
#define CHATML    TOKENIZER " --template chatml -o o.bin"
enum { SECONDS = 60 };

#define ASK(q)    "{\"role\": \"user\", \"content\": \"" q "\"}"
#define ANSWER(a) "{\"role\": \"assistant\", \"content\": \"" a "\"}"
#define ROW(list) "{\"messages\": [" list "]}\n"
#define GOOD      ROW(ASK("one") ", " ANSWER("two"))
#define PART      "{\"type\": \"text\", \"text\": \"s\"}"
#define CALLS                                                                            \
  "{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"look\", "      \
  "\"arguments\": {}}}]}"
#define DEVELOPER "{\"role\": \"developer\", \"content\": \"d\"}"
#define SYSTEM    "{\"role\": \"system\", \"content\": \"s\"}"
#define IPYTHON   "{\"role\": \"ipython\", \"content\": \"r\"}"
#define CALL(arguments)                                                                  \
  "{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"look\", "      \
  "\"arguments\": {" arguments "}}}]}"
#define RESULT(content, id)                                                              \
  "{\"role\": \"tool\", \"content\": \"" content "\", \"tool_call_id\": \"" id "\"}"
#define IM(role, x) "<|im_start|>" role "\n" x "<|im_end|>\n"

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

static void expect(int code, const char *out, const char *err, const char *args) {
  static const char *const written[] = {"o.bin", "o.idx", "o.mask"};
  for (int i = 0; i < LEN(written); i++) unlink(scratch_path(written[i]));
  Outcome o = process_run(SECONDS, "$weft tokenize --chat %s", args);
  ck_assert_msg(o.code == code && strstr(o.out, out) && strstr(o.err, err),
                "weft tokenize --chat %s: %d\n%s%s", args, o.code, o.out, o.err);
}

/* Of o.bin: the text, and what is learnt of it. */
static void holds(const char *text, const char *learnt) {
  char *ids;
  size_t n;
  Tokenizer *t;
  Text all = {0}, some = {0};
  File bin;
  TokenMask mask;
  ck_assert_int_eq(
      tokenizer_open(NULL, WEFT_SOURCE_DIR "/tests/chat/nfc.json", &t, &scratch_error),
      WEFT_OK);
  const char *path = arena_printf(scratch_arena, "%s/o.bin", scratch_dir);
  ck_assert_int_eq(file_read(NULL, path, FILE_OWN_MAX, &ids, &n, &scratch_error),
                   WEFT_OK);
  ck_assert_int_eq(file_open(path, &bin, &scratch_error), WEFT_OK);
  weft_status st = token_mask_open(token_mask_of(scratch_arena, path), &bin,
                                   (int64_t)n / 2, &mask, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  for (size_t i = 0; i < n / 2; i++) {
    int32_t id = ((uint16_t *)ids)[i];
    uint8_t is;
    ck_assert_int_eq(token_mask_read(&mask, (int64_t)i, 1, &is, &scratch_error), WEFT_OK);
    tokenizer_decode(t, &id, 1, true, &all, &scratch_error);
    if (is) tokenizer_decode(t, &id, 1, true, &some, &scratch_error);
  }
  ck_assert_str_eq(all.s, text);
  ck_assert_str_eq(some.s, learnt);
  file_close(&mask.file);
  file_close(&bin);
  text_free(&all);
  text_free(&some);
  mem_free(NULL, ids, n + 1);
  tokenizer_close(t);
}

#define TWO IM("user", "one") IM("assistant", "two") IM("user", "3") IM("assistant", "4")

START_TEST(what_is_learnt) {
  put("a.jsonl", ROW(ASK("one") "," ANSWER("two") "," ASK("3") "," ANSWER("4")));
  put("b.jsonl",
      ROW(ASK("one") ", {\"role\": \"assistant\", \"content\": \"two\", \"weight\": 0}, "
                     "{\"role\": \"user\", \"content\": \"3\", \"train\": true}, " ANSWER(
                         "4")));
  expect(0, "o.bin: 1 conversation, ", "", "a.jsonl" CHATML);
  holds(TWO, "two<|im_end|>\n4<|im_end|>\n");
  ck_assert_str_eq(scratch_list(), "a.jsonl b.jsonl o.bin o.idx o.mask ");
  expect(0, "", "", "a.jsonl --train-on last" CHATML);
  holds(TWO, "4<|im_end|>\n");
  expect(0, "(100.0 %)", "", "a.jsonl --train-on all" CHATML);
  holds(TWO, TWO);
  expect(0, "", "", "b.jsonl" CHATML);
  holds(TWO, "3<|im_end|>\n4<|im_end|>\n");
  expect(2, "", "b.jsonl:1: error: message 2 is not to be learnt",
         "b.jsonl --train-on all" CHATML);
}
END_TEST

static const struct {
  const char *rows, *args, *text;
} formats[] = {
    {GOOD, "", IM("user", "one") IM("assistant", "two")},
    {"[" GOOD " , \n" GOOD "]\n", "",
     IM("user", "one") IM("assistant", "two") IM("user", "one") IM("assistant", "two")},
    {"{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
     "\"value\": \"b\"}], \"system\": \"s\"}",
     "--format sharegpt", IM("system", "s") IM("user", "a") IM("assistant", "b")},
    {"{\"instruction\": \"a\", \"input\": \"b\", \"output\": \"c\", \"history\": "
     "[[\"x\", \"y\"]]}",
     "--format alpaca",
     IM("user", "x") IM("assistant", "y") IM("user", "a\nb") IM("assistant", "c")},
    {"{\"q\": \"a\", \"a\": \"b\"}", "--format prompt=q,response=a",
     IM("user", "a") IM("assistant", "b")},
    {"{\"prompt\": [" ASK("a") "], \"completion\": [" ANSWER("b") "]}",
     "--format prompt=prompt,response=completion", IM("user", "a") IM("assistant", "b")},
    {GOOD, "--option system=hi",
     IM("system", "hi") IM("user", "one") IM("assistant", "two")},
    {ROW(DEVELOPER "," ASK("a") "," ANSWER("b")), "--option system=hi",
     IM("developer", "d") IM("user", "a") IM("assistant", "b")},
};

START_TEST(formats_of_rows) {
  put("rows", formats[_i].rows);
  expect(0, "conversation", "",
         arena_printf(scratch_arena, "rows %s" CHATML, formats[_i].args));
  char *ids;
  size_t n;
  Tokenizer *t;
  Text all = {0};
  ck_assert_int_eq(
      tokenizer_open(NULL, WEFT_SOURCE_DIR "/tests/chat/nfc.json", &t, &scratch_error),
      WEFT_OK);
  const char *path = arena_printf(scratch_arena, "%s/o.bin", scratch_dir);
  ck_assert_int_eq(file_read(NULL, path, FILE_OWN_MAX, &ids, &n, &scratch_error),
                   WEFT_OK);
  for (size_t i = 0; i < n / 2; i++)
    tokenizer_decode(t, &(int32_t){((uint16_t *)ids)[i]}, 1, true, &all, &scratch_error);
  ck_assert_str_eq(all.s, formats[_i].text);
  text_free(&all);
  mem_free(NULL, ids, n + 1);
  tokenizer_close(t);
}
END_TEST

static const struct {
  const char *rows, *args, *error;
} bad[] = {
    {GOOD GOOD ROW(ASK("a") "," ASK("b")), "",
     "rows:3: error: message 2: a question comes after a question"},
    {GOOD ROW(ANSWER("a")), "",
     "rows:2: error: message 1: an answer comes after the beginning"},
    {ROW(ASK("a") "," ANSWER(" \\u3000\\n")), "",
     "rows:1: error: message 2: an empty answer"},
    {ROW(ASK("") "," ANSWER("a")), "", "rows:1: error: message 1: an empty question"},
    {ROW("{\"role\": \"bot\", \"content\": \"a\"}"), "",
     "rows:1: error: message 1: the role is \"bot\", and not"},
    {GOOD "{\"messages\": 3}", "", "rows:2: error: messages is not a list of messages"},
    {ROW(""), "", "rows:1: error: has no messages"},
    {"[[1]]", "", "rows:1: error: is not an object"},
    {"{\"conversations\": []}", "", "needs, but \"conversations\": format \"sharegpt\"?"},
    {GOOD "{\"messages\": [", "", "rows:2: error: is not JSON"},
    {"[" GOOD, "", "rows:1: error: the list of rows does not end"},
    {"[" GOOD "] x", "", "rows:2: error: something follows the list of rows"},
    {GOOD "\n{\"messages\": \"na\xefve\"}", "",
     "rows:3: error: is not UTF-8: unable to decode"},
    {ROW(ASK("a") ", {\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0.5}"), "",
     "rows:1: error: message 2: weight is 0 or 1"},
    {ROW(ASK("a") ", {\"role\": \"assistant\", \"content\": [{\"type\": \"image\"}]}"),
     "", "rows:1: error: message 2: part 1 of content is \"image\"; only texts"},
    {GOOD ROW(ASK("a\\u0000b") "," ANSWER("b")), "",
     "rows:2: error: holds the character \\u0000, which no text may have"},
    {GOOD "{\"messages\": [" ASK("a") "," ANSWER("b") "], \"tools\": \"look\"}", "",
     "rows:2: error: tools is a text that is no JSON"},
    {GOOD "{\"messages\": [" ASK("a") "," ANSWER("b") "], \"tools\": \"[]\"}", "",
     "rows:2: error: chatml has no place for tools"},
    {GOOD ROW(ASK("a") "," CALLS), "",
     "rows:2: error: message 2: chatml has no place for tool calls"},
    {ROW(ASK("a") "," CALLS), "--template llama3",
     "rows:1: error: message 2: llama3 has no place for tool calls"},
    {ROW(ASK("a") "," CALLS), "--template gemma",
     "rows:1: error: message 2: gemma has no place for tool calls"},
    {ROW("{\"role\": \"system\", \"content\": [" PART "," PART "]}," ASK("a")),
     "--template gemma3", "rows:1: error: gemma3 reads one part of a system message"},
    {GOOD ROW(DEVELOPER "," ASK("a") "," ANSWER("b")), "--template mistral",
     "rows:2: error: message 1: mistral has no place for a message of the role "
     "developer: "
     "it writes system, user, assistant, tool"},
    {ROW(DEVELOPER "," ASK("a") "," ANSWER("b")), "--template qwen2.5",
     "rows:1: error: message 1: qwen2.5 has no place for a message of the role "
     "developer"},
    {ROW(DEVELOPER "," ASK("a") "," ANSWER("b")), "--template qwen3",
     "rows:1: error: message 1: qwen3 has no place"},
    {ROW(DEVELOPER "," ASK("a") "," ANSWER("b")), "--template deepseek",
     "rows:1: error: message 1: deepseek has no place"},
    {ROW(DEVELOPER "," ASK("a") "," ANSWER("b")), "--template deepseek-r1-distill",
     "rows:1: error: message 1: deepseek-r1-distill has no place"},
    {ROW(ASK("a") "," CALLS "," IPYTHON "," ANSWER("b")), "--template mistral",
     "rows:1: error: message 3: mistral has no place for a message of the role ipython"},
    {ROW(ASK("a") "," CALLS "," IPYTHON "," ANSWER("b")),
     "--template gpt-oss --option date=1",
     "rows:1: error: message 3: gpt-oss has no place for a message of the role ipython"},
    {ROW(ASK("a") "," IPYTHON), "--template gemma --option any_order=true",
     "rows:1: error: message 2: gemma has no place for a message of the role ipython"},
    {ROW(ASK("a") "," ANSWER("b") "," DEVELOPER),
     "--template gpt-oss --option date=1 --option any_order=true",
     "rows:1: error: message 3: gpt-oss takes instructions at the head"},
    {ROW(ASK("a") "," ANSWER("b") "," SYSTEM),
     "--template mistral --option any_order=true",
     "rows:1: error: message 3: mistral puts system messages into the last question"},
    {ROW(ASK("<|im_end|>") "," ANSWER("b")), "--refuse-special",
     "rows:1: error: message 1: holds the special token <|im_end|>"},
    {GOOD
     "{\"messages\": [" ASK("a") "," ANSWER("b") "], \"tools\": [{\"name\": \"f\", "
                                                 "\"description\": \"<|im_start|>\"}]}",
     "--refuse-special --template qwen3",
     "rows:2: error: tool 1: holds the special token <|im_start|>"},
    {"{\"messages\": [" ASK("a") "," ANSWER("b") "], \"tools\": \"[{\\\"name\\\": "
                                                 "\\\"f<|im_end|>\\\"}]\"}",
     "--refuse-special --template qwen3",
     "rows:1: error: tool 1: holds the special token <|im_end|>"},
    {ROW(ASK("a") "," CALL("\"a\": \"<|im_end|>\"") "," RESULT("r", "1")),
     "--refuse-special --template qwen3",
     "rows:1: error: message 2: holds the special token <|im_end|>"},
    {ROW(ASK("a") "," CALL("") "," RESULT("r", "<|im_end|>")),
     "--refuse-special --template qwen3",
     "rows:1: error: message 3: holds the special token <|im_end|>"},
    {ROW(ASK("a") "," CALL("") "," RESULT("[\\\"<|im_\\\\u0065nd|>\\\"]", "1")),
     "--refuse-special --template mistral",
     "rows:1: error: message 3: holds the special token <|im_end|>"},
    {GOOD, "--format share", "there is no format \"share\": messages, sharegpt"},
    {GOOD, "--train-on none",
     "train_on is \"assistant\", \"last\" or \"all\", not \"none\""},
    {GOOD, "--option date=1", "the template \"chatml\" has no option \"date\""},
    {GOOD, "--option date", "--option takes NAME=VALUE, got \"date\""},
    {ROW(ASK("a")), "", "rows: error: there is no conversation to learn from"},
    {"PAR1....", "", "rows: error: is Parquet; rows are JSON: python3 -c"},
    {"\x1f\x8b....", "", "rows: error: is compressed by gzip; rows are JSON: zcat"},
};

START_TEST(bad_rows) {
  bool own = strstr(bad[_i].args, "--template") != NULL;
  put("rows", bad[_i].rows);
  expect(2, "", bad[_i].error,
         arena_printf(scratch_arena, "rows %s%s", bad[_i].args,
                      own ? TOKENIZER " -o o.bin" : CHATML));
  ck_assert_str_eq(scratch_list(), "rows ");
}
END_TEST

START_TEST(bad_calls) {
  put("rows", GOOD);
  put("bad.lua", "return 3");
  expect(2, "", "tokenize needs a tokenizer.json and files of text", "-o o.bin");
  expect(2, "", "tokenize --chat needs --tokenizer DIR", "rows -o o.bin");
  expect(2, "", "tokenize needs --out NAME.bin", "rows" TOKENIZER);
  expect(2, "", "has no chat_template; name one", "rows -o o.bin" TOKENIZER);
  expect(2, "", "there is no template \"lama3\": chatml, deepseek",
         "rows -o o.bin --template lama3" TOKENIZER);
  expect(2, "", "bad.lua: error: the file returns a number",
         "rows -o o.bin --template bad.lua" TOKENIZER);
  expect(2, "", "none.jsonl: error: cannot be opened", "none.jsonl" CHATML);
  ck_assert_str_eq(scratch_list(), "bad.lua rows ");
}
END_TEST

/* Each of the files that are written may be somebody's work. */
START_TEST(what_is_there_stays) {
  static const char *const names[] = {"o.bin", "o.idx", "o.mask"};
  put("rows", GOOD);
  for (int i = 0; i < LEN(names); i++) {
    put(names[i], "mine");
    Outcome o = process_run(SECONDS, "$weft tokenize --chat rows" CHATML);
    const char *said = arena_printf(
        scratch_arena, "%s: error: cannot be written: File exists", names[i]);
    ck_assert_msg(o.code == 2 && strstr(o.err, said), "%d\n%s", o.code, o.err);
    ck_assert_str_eq(scratch_get(scratch_path(names[i])), "mine");
    ck_assert_str_eq(scratch_list(), arena_printf(scratch_arena, "%s rows ", names[i]));
    unlink(scratch_path(names[i]));
  }
}
END_TEST

START_TEST(a_long_row) {
  enum { N = 17 << 20 };
  char *s = malloc(N);
  memset(s, ' ', N);
  memcpy(s, GOOD "{", strlen(GOOD "{"));
  scratch_put("rows", s, N);
  free(s);
  expect(2, "", "rows:2: error: the row is longer than 16 MiB", "rows" CHATML);
  ck_assert_str_eq(scratch_list(), "rows ");
}
END_TEST

START_TEST(what_is_dropped_is_counted) {
  put("rows", GOOD ROW(ASK("a")) ROW(ASK("a") "," ANSWER("")) GOOD);
  expect(
      0,
      "o.bin: 2 conversations, 34 tokens, 10 learnt (29.4 %); 0 truncated, 2 dropped\n"
      "  dropped: 1 with nothing that is learnt\n"
      "  dropped: 1 that cannot be used, the first: rows:3: message 2: an empty answer\n",
      "", "rows --drop-bad" CHATML);
  expect(0, "3 conversations, 28 tokens, 28 learnt (100.0 %); 2 truncated, 1 dropped", "",
         "- < rows --max-length 10 --train-on all --drop-bad" CHATML);
}
END_TEST

#define THINKS(r, a)                                                                     \
  "{\"role\": \"assistant\", \"reasoning\": \"" r "\", \"content\": \"" a "\"}"
#define THOUGHT(r, a) "<think>\n" r "\n</think>\n\n" a "<|im_end|>\n"
#define HEADED(r, a)  "<|im_start|>assistant\n" THOUGHT(r, a)
#define PAIR(a, b)                                                                       \
  "{\"chosen\": [" ASK("q") "," a "], \"rejected\": [" ASK("q") "," b "]}\n"

/* What both answers of a pair begin with is the prompt: the same to every template. */
START_TEST(pairs_that_differ_in_reasoning) {
  put("rows", PAIR(THINKS("a", "x"), THINKS("b", "x")));
  expect(0, "2 conversations", "",
         "rows --format preference --template qwen3 -o o.bin" TOKENIZER);
  holds(IM("user", "q") HEADED("a", "x") IM("user", "q") HEADED("b", "x"),
        THOUGHT("a", "x") THOUGHT("b", "x"));
  put("rows", PAIR(THINKS("a", "x") "," ASK("r") "," ANSWER("y"),
                   THINKS("b", "x") "," ASK("r") "," ANSWER("z")));
  expect(0, "2 conversations", "",
         "rows --format preference --template qwen3 --option keep_reasoning=true -o "
         "o.bin" TOKENIZER);
  holds(IM("user", "q") HEADED("a", "x") IM("user", "r") HEADED("", "y") IM("user", "q")
            HEADED("b", "x") IM("user", "r") HEADED("", "z"),
        THOUGHT("a", "x") THOUGHT("", "y") THOUGHT("b", "x") THOUGHT("", "z"));
}
END_TEST

START_TEST(a_template_of_the_user) {
  put("rows", GOOD);
  put("own.lua", "return function(messages, tools, options)\n"
                 "  local out = {}\n"
                 "  for _, m in ipairs(messages) do\n"
                 "    out[#out + 1] = { m.role .. ': ' }\n"
                 "    out[#out + 1] = { m.content .. options.stop, learn = m.learn }\n"
                 "  end\n"
                 "  return out\n"
                 "end\n");
  expect(0, "", "", "rows --template own.lua --option stop=! -o o.bin" TOKENIZER);
  holds("user: one!assistant: two!", " two!"); /* a token with a learnt byte is learnt */
  expect(2, "",
         "rows:1: error: attempt to concatenate a nil value (field 'stop') (own.lua:5)",
         "rows --template own.lua -o o.bin" TOKENIZER);
}
END_TEST

Suite *tokenize_chat_suite(void);
Suite *tokenize_chat_suite(void) {
  Suite *s = suite_create("tokenize_chat");
  TCase *t = tcase_create("weft");
  const RegexApi *api;
  weft_error e;
  err_clear(&e);
  suite_add_tcase(s, t);
  if (regex_api(&api, &e) != WEFT_OK) {
    printf("tokenize_chat: skipped: %s\n", e.text);
    return s;
  }
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, what_is_learnt);
  tcase_add_loop_test(t, formats_of_rows, 0, LEN(formats));
  tcase_add_loop_test(t, bad_rows, 0, LEN(bad));
  tcase_add_test(t, bad_calls);
  tcase_add_test(t, what_is_there_stays);
  tcase_add_test(t, a_long_row);
  tcase_add_test(t, what_is_dropped_is_counted);
  tcase_add_test(t, pairs_that_differ_in_reasoning);
  tcase_add_test(t, a_template_of_the_user);
  return s;
}
