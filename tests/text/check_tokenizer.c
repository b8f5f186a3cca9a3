/* check_tokenizer.c - text to ids as the library `tokenizers` does it, and back. The
 * texts and their ids are in tests/tokenizer, written by generate.py;
 * WEFT_TOKENIZER_CASES names another folder with more of them. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/scratch.h"
#include "vm/io/io.h"
#include "vm/text/regex.h"
#include "vm/text/tokenizer.h"

static const char *const kinds[] = {"gpt2", "llama3", "qwen2", "smollm", "prefix"};

static const char *folder(void) {
  const char *own = getenv("WEFT_TOKENIZER_CASES");
  return own ? own : WEFT_SOURCE_DIR "/tests/tokenizer";
}

static Tokenizer *open_kind(const char *kind) {
  Tokenizer *t;
  const char *path = arena_printf(scratch_arena, "%s/%s.json", folder(), kind);
  weft_status st = tokenizer_open(NULL, path, &t, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", path, scratch_error.text);
  return t;
}

static void same_ids(const Tokenizer *t, const char *s, size_t n, bool special,
                     const json_t *want) {
  TokenIds ids = {0};
  weft_status st = tokenizer_encode(t, s, n, special, &ids, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", s, scratch_error.text);
  for (size_t i = 0; i < MAX(ids.n, json_array_size(want)); i++) {
    json_int_t id = json_integer_value(json_array_get(want, i));
    ck_assert_msg(i < ids.n && i < json_array_size(want) && ids.at[i] == id,
                  "\"%s\": id %zu of %zu is %d, expected %lld of %zu", s, i, ids.n,
                  i < ids.n ? ids.at[i] : -1, (long long)id, json_array_size(want));
  }
  token_ids_free(&ids);
}

/* Of a tokenizer that keeps every byte. */
static void comes_back(const Tokenizer *t, const char *s, size_t n) {
  TokenIds ids = {0};
  Text out = {0};
  ck_assert_int_eq(tokenizer_encode(t, s, n, true, &ids, &scratch_error), WEFT_OK);
  ck_assert_int_eq(tokenizer_decode(t, ids.at, ids.n, true, &out, &scratch_error),
                   WEFT_OK);
  ck_assert_uint_eq(out.n, n);
  if (n) ck_assert_mem_eq(out.s, s, n);
  text_free(&out);
  token_ids_free(&ids);
}

START_TEST(ids_are_those_of_the_library) {
  const char *kind = kinds[_i];
  char *s;
  size_t n, i;
  json_t *one;
  Tokenizer *t = open_kind(kind);
  const char *path = arena_printf(scratch_arena, "%s/%s.cases", folder(), kind);
  ck_assert_int_eq(file_read(NULL, path, FILE_OWN_MAX, &s, &n, &scratch_error), WEFT_OK);
  json_t *cases = json_loadb(s, n, JSON_ALLOW_NUL, NULL);
  ck_assert_uint_ge(json_array_size(cases), 50);
  json_array_foreach(cases, i, one) {
    const json_t *text = json_array_get(one, 0);
    const char *x = json_string_value(text);
    size_t bytes = json_string_length(text);
    same_ids(t, x, bytes, true, json_array_get(one, 1));
    same_ids(t, x, bytes, false, json_array_get(one, 2));
    if (_i == 0) comes_back(t, x, bytes);
  }
  json_decref(cases);
  mem_free(NULL, s, n + 1);
  tokenizer_close(t);
}
END_TEST

START_TEST(special_tokens) {
  Tokenizer *t = open_kind("llama3");
  static const int32_t ids[] = {0, 1};
  static const int32_t bad[] = {100000};
  Text out = {0};
  ck_assert_int_eq(tokenizer_find(t, "<|endoftext|>"), 0);
  ck_assert_int_eq(tokenizer_find(t, "<none>"), -1);
  ck_assert_int_eq(tokenizer_decode(t, ids, 2, false, &out, &scratch_error), WEFT_OK);
  ck_assert_uint_eq(out.n, 0);
  ck_assert_int_eq(tokenizer_decode(t, ids, 2, true, &out, &scratch_error), WEFT_OK);
  ck_assert_str_eq(out.s, "<|endoftext|><|im_start|>");
  ck_assert_int_eq(tokenizer_decode(t, bad, 1, true, &out, &scratch_error), WEFT_EFILE);
  ck_assert_ptr_nonnull(strstr(scratch_error.text, "has no token with the id 100000"));
  text_free(&out);
  tokenizer_close(t);
}
END_TEST

/* A word of many merges takes no longer than its length asks for. */
START_TEST(long_words) {
  enum { N = 1 << 20 };
  Tokenizer *t = open_kind("gpt2");
  TokenIds ids = {0};
  char *s = malloc(N);
  memset(s, 'a', N);
  ck_assert_int_eq(tokenizer_encode(t, s, N, false, &ids, &scratch_error), WEFT_OK);
  ck_assert_uint_gt(ids.n, 1);
  token_ids_free(&ids);
  s[N / 2] = '\xff';
  ck_assert_int_eq(tokenizer_encode(t, s, N, false, &ids, &scratch_error), WEFT_EFILE);
  ck_assert_str_eq(scratch_error.text, "the text is not UTF-8 from byte 524288 on");
  free(s);
  tokenizer_close(t);
}
END_TEST

#define MODEL                                                                            \
  "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":"
#define CUT  "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}"
#define GOOD MODEL "[\"a b\"]}," CUT

/* ---- the module ---- */

static const RegexApi *module(void) {
  const RegexApi *api;
  ck_assert_int_eq(regex_api(&api, &scratch_error), WEFT_OK);
  return api;
}

/* What is no UTF-8, and where: bytes that are none, cut and overlong sequences, halves of
 * pairs of UTF-16, and what is beyond Unicode. Nothing of it can be normalized. */
START_TEST(texts_that_are_no_utf8) {
  static const struct {
    const char *s;
    size_t at;
  } wrong[] = {{"\xff", 0},
               {"a\x80", 1},
               {"ab\xc3", 2},
               {"\xe2\x82", 0},
               {"a\xc0\x80", 1},
               {"\xed\xa0\x80", 0},
               {"\xf4\x90\x80\x80", 0},
               {"\xc3\xa9\xc3(", 2}};
  const RegexApi *api = module();
  for (int i = 0; i < LEN(wrong); i++) {
    size_t n = strlen(wrong[i].s), length = 7;
    ck_assert_uint_eq(api->valid(wrong[i].s, n), wrong[i].at);
    ck_assert_ptr_null(api->compose(wrong[i].s, n, &length));
  }
  ck_assert_uint_eq(api->valid("a\0\xc3\xa9", 4), 4);
  ck_assert_uint_eq(api->valid("", 0), 0);
}
END_TEST

START_TEST(texts_are_composed) {
  static const struct {
    const char *s, *want;
  } texts[] = {
      {"", ""}, {"a", "a"}, {"e\xcc\x81x", "\xc3\xa9x"}, {"\xcc\x81", "\xcc\x81"}};
  const RegexApi *api = module();
  for (int i = 0; i < LEN(texts); i++) {
    size_t n = 0;
    char *s = api->compose(texts[i].s, strlen(texts[i].s), &n);
    ck_assert_uint_eq(n, strlen(texts[i].want));
    ck_assert_mem_eq(s, texts[i].want, n);
    free(s);
  }
}
END_TEST

/* Matches begin at the place or behind it, and see what is before it. */
START_TEST(searches) {
  const RegexApi *api = module();
  char why[128];
  size_t begin, end;
  void *regex = api->compile("(?<=a)b+|^c", why);
  ck_assert_int_eq(api->search(regex, "cabbab", 6, 0, &begin, &end), 1);
  ck_assert(begin == 0 && end == 1);
  ck_assert_int_eq(api->search(regex, "cabbab", 6, 1, &begin, &end), 1);
  ck_assert(begin == 2 && end == 4);
  ck_assert_int_eq(api->search(regex, "cabbab", 6, 3, &begin, &end), 1);
  ck_assert(begin == 5 && end == 6);
  ck_assert_int_eq(api->search(regex, "cabbab", 6, 6, &begin, &end), 0);
  ck_assert_int_eq(api->search(regex, "cabb", 3, 2, &begin, &end), 1);
  ck_assert_uint_eq(end, 3);
  api->release(regex);
  ck_assert_ptr_null(api->compile("a(", why));
  ck_assert_str_eq(why, "end pattern with unmatched parenthesis");
  ck_assert_ptr_null(api->compile(arena_printf(scratch_arena, "\\p{%0200d}", 7), why));
  ck_assert_uint_lt(strlen(why), sizeof why);
}
END_TEST

/* An empty match cuts, as in the library `tokenizers` (0.23), which gave the pieces. */
static const struct {
  const char *pattern, *behavior, *text, *pieces;
} splits[] = {
    {"(?=b)", "Isolated", "aabab", "aa|ba|b"},
    {"(?=b)", "Removed", "aabab", "aa|ba|b"},
    {"(?=b)", "Isolated", "baab", "baa|b"},
    {"b*", "Isolated", "abba", "a|bb|a"},
    {"b*", "Removed", "abba", "a|a"},
    {"a|(?=a)", "Isolated", "aab", "a|a|b"},
    {"a|(?<=a)", "Isolated", "aabab", "a|a|b|a|b"},
    {"ab|(?=b)", "Isolated", "abba", "ab|ba"},
    {"(?=(aa)+(?!a))", "Isolated", "aaab", "a|aab"},
};

START_TEST(empty_matches_cut) {
  Tokenizer *t;
  TokenIds ids = {0};
  Text got = {0};
  const char *json = arena_printf(
      scratch_arena,
      "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"ba\":3,\"aa\":"
      "4,"
      "\"bb\":5,\"aab\":6,\"baa\":7},\"merges\":[\"a b\",\"b a\",\"a a\",\"b b\",\"a "
      "ab\",\"ba a\"]},"
      "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
      "\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"%s\"},{\"type\":\"ByteLevel\",\"use_"
      "regex\":"
      "false,\"add_prefix_space\":false}]}}",
      splits[_i].pattern, splits[_i].behavior);
  scratch_put("tokenizer.json", json, strlen(json));
  weft_status st = tokenizer_open(NULL, scratch_dir, &t, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  const char *text = splits[_i].text;
  ck_assert_int_eq(tokenizer_encode(t, text, strlen(text), false, &ids, &scratch_error),
                   WEFT_OK);
  for (size_t i = 0; i < ids.n; i++) {
    if (i) text_printf(&got, "|");
    tokenizer_decode(t, &ids.at[i], 1, true, &got, &scratch_error);
  }
  ck_assert_str_eq(got.s, splits[_i].pieces);
  text_free(&got);
  token_ids_free(&ids);
  tokenizer_close(t);
}
END_TEST

/* A search of which the library gives up is not one without a match. */
START_TEST(a_search_without_end) {
  enum { N = 40 };
  Tokenizer *t;
  TokenIds ids = {0};
  char s[N + 1];
  const char *text =
      "{" MODEL "[]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
      "\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a|aa)+$\"},"
      "\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":"
      "false,\"add_prefix_space\":false}]}}";
  memset(s, 'a', N);
  s[N] = 'b';
  scratch_put("tokenizer.json", text, strlen(text));
  weft_status st = tokenizer_open(NULL, scratch_dir, &t, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  ck_assert_int_eq(tokenizer_encode(t, s, N + 1, false, &ids, &scratch_error),
                   WEFT_EFILE);
  ck_assert_str_eq(scratch_error.text,
                   "the search for the next word in 41 bytes of text was given up");
  token_ids_free(&ids);
  tokenizer_close(t);
}
END_TEST

/* A piece of a text may end within a character. */
START_TEST(a_piece_that_is_no_utf8) {
  Tokenizer *t;
  Text out = {0};
  const char *path = WEFT_SOURCE_DIR "/tests/chat/nfc.json";
  ck_assert_int_eq(tokenizer_open(NULL, path, &t, &scratch_error), WEFT_OK);
  ck_assert_int_eq(tokenizer_normal(t, "ae\xcc\x81", 4, &out, &scratch_error), WEFT_OK);
  ck_assert_str_eq(out.s, "a\xc3\xa9");
  ck_assert_int_eq(tokenizer_normal(t, "ae\xcc", 3, &out, &scratch_error), WEFT_EFILE);
  ck_assert_str_eq(scratch_error.text, "the text is not UTF-8 from byte 2 on");
  text_free(&out);
  tokenizer_close(t);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
  const char *text, *error;
} refused[] = {
    {"{}", "has no model: is it a tokenizer.json of Hugging Face?"},
    {"[1", "is not JSON: ']' expected near end of file"},
    {"{\"model\":{\"type\":\"Unigram\"}}",
     "its model is Unigram; byte-level BPE is supported"},
    {"{\"model\":{\"type\":\"BPE\"}}", "its model has no vocab and merges"},
    {"{" MODEL "[\"a b\"],\"byte_fallback\":true}," CUT "}",
     "model.byte_fallback is not supported"},
    {"{" MODEL "[\"a b\"],\"end_of_word_suffix\":\"</w>\"}," CUT "}",
     "model.end_of_word_suffix is not supported"},
    {"{" MODEL "[\"a b\"],\"dropout\":0.1}," CUT "}", "model.dropout is not supported"},
    {"{" MODEL "[\"a c\"]}," CUT "}",
     "model.merges[0]: the vocabulary has no token \"c\""},
    {"{" MODEL "[\"b a\"]}," CUT "}",
     "model.merges[0]: the vocabulary has no token \"ba\""},
    {"{" MODEL "[\"ab\"]}," CUT "}", "model.merges[0]: expected two tokens"},
    {"{" MODEL "[[\"a\",\"b\"],\"a b\"]}," CUT "}",
     "model.merges[1]: \"a\" and \"b\" are merged before"},
    {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}",
     "model.vocab: the id of \"a\" is no number below 2097152"},
    {"{\"model\":{\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}",
     "model.vocab: two tokens have the id 1"},
    {"{" GOOD ",\"normalizer\":{\"type\":\"Lowercase\"}}",
     "normalizer Lowercase is not supported; NFC is"},
    {"{" MODEL "[]}}",
     "pre_tokenizer (none) is not supported; ByteLevel, Split and Digits are"},
    {"{" MODEL "[]},\"pre_tokenizer\":{\"type\":\"Metaspace\"}}",
     "pre_tokenizer Metaspace is not supported; ByteLevel, Split and Digits are"},
    {"{" MODEL "[]},\"pre_tokenizer\":{\"type\":\"Digits\"}}",
     "its pre_tokenizer has no ByteLevel; byte-level BPE is supported"},
    {"{" MODEL "[]},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
     "\"behavior\":\"Isolated\"}}",
     "the pattern ( cannot be used: end pattern with unmatched parenthesis"},
    {"{" MODEL "[]},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
     "\"behavior\":\"MergedWithNext\"}}",
     "pre_tokenizer Split with behavior MergedWithNext is not supported; Isolated and "
     "Removed are"},
    {"{" GOOD ",\"post_processor\":{\"type\":\"BertProcessing\"}}",
     "post_processor BertProcessing is not supported; ByteLevel and TemplateProcessing "
     "are"},
    {"{" GOOD ",\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"lstrip\":true}]}",
     "added_tokens[0] (\"x\"): lstrip is not supported"},
    {"{" GOOD ",\"added_tokens\":[{\"content\":\"x\"}]}",
     "added_tokens[0] has no id or no content"},
    {"{" GOOD ",\"truncation\":{\"max_length\":8}}", "truncation is not supported"},
    {"{" GOOD ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
     "\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}]}}",
     "post_processor: special_tokens has no ids of \"<s>\""},
};

START_TEST(other_tokenizers_are_refused) {
  Tokenizer *t;
  const char *text = refused[_i].text;
  const char *path = scratch_put("tokenizer.json", text, strlen(text));
  ck_assert_int_eq(tokenizer_open(NULL, scratch_dir, &t, &scratch_error), WEFT_EFILE);
  ck_assert_str_eq(scratch_error.text, refused[_i].error);
  ck_assert_str_eq(scratch_error.file, path);
}
END_TEST

START_TEST(a_byte_without_a_token) {
  Tokenizer *t;
  TokenIds ids = {0};
  scratch_put("tokenizer.json", "{" GOOD "}", strlen("{" GOOD "}"));
  ck_assert_int_eq(tokenizer_open(NULL, scratch_dir, &t, &scratch_error), WEFT_OK);
  ck_assert_int_eq(tokenizer_ids(t), 3);
  ck_assert_int_eq(tokenizer_encode(t, "ab", 2, true, &ids, &scratch_error), WEFT_EFILE);
  ck_assert_str_eq(scratch_error.text,
                   "has no token for the byte 0x20, which is in the text");
  token_ids_free(&ids);
  tokenizer_close(t);
}
END_TEST

START_TEST(tokenizers_give_back_what_they_took) {
  scratch_put("tokenizer.json", "{" GOOD "}", strlen("{" GOOD "}"));
  weft_status st = WEFT_ENOMEM;
  for (int n = 0; st != WEFT_OK; n++) {
    ScratchMeter m = {n, 0};
    weft_alloc a = {scratch_alloc, &m};
    Tokenizer *t;
    ck_assert_int_lt(n, 1000);
    st = tokenizer_open(&a, scratch_dir, &t, &scratch_error);
    tokenizer_close(t);
    ck_assert_int_eq(m.held, 0);
    ck_assert_int_eq(st, st == WEFT_OK ? WEFT_OK : WEFT_ENOMEM);
    err_clear(&scratch_error);
  }
}
END_TEST

Suite *tokenizer_suite(void);
Suite *tokenizer_suite(void) {
  Suite *s = suite_create("tokenizer");
  TCase *t = tcase_create("tokenizer");
  const RegexApi *api;
  weft_error e;
  err_clear(&e);
  suite_add_tcase(s, t);
  if (regex_api(&api, &e) != WEFT_OK) {
    printf("tokenizer: skipped: %s\n", e.text);
    return s;
  }
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, ids_are_those_of_the_library, 0, LEN(kinds));
  tcase_add_test(t, special_tokens);
  tcase_add_test(t, long_words);
  tcase_add_test(t, texts_that_are_no_utf8);
  tcase_add_test(t, texts_are_composed);
  tcase_add_test(t, searches);
  tcase_add_loop_test(t, empty_matches_cut, 0, LEN(splits));
  tcase_add_test(t, a_search_without_end);
  tcase_add_test(t, a_piece_that_is_no_utf8);
  tcase_add_loop_test(t, other_tokenizers_are_refused, 0, LEN(refused));
  tcase_add_test(t, a_byte_without_a_token);
  tcase_add_test(t, tokenizers_give_back_what_they_took);
  return s;
}
