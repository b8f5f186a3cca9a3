/* check_chat_plan.c - weft.chat in a plan: conversations become token files beside it,
 * once for all that they depend on. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "vm/io/file.h"
#include "vm/text/regex.h"

enum { SECONDS = 60 };
#define GOOD                                                                             \
  "{\"messages\": [{\"role\": \"user\", \"content\": \"one and two\"}, {\"role\": "      \
  "\"assistant\", \"content\": \"three and four and five\"}]}\n"
#define LONG                                                                             \
  "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": "              \
  "\"assistant\", "                                                                      \
  "\"content\": \"three and four and five and six and seven and eight and nine and "     \
  "ten\"}]}\n"
#define MANY GOOD GOOD GOOD GOOD GOOD GOOD GOOD GOOD

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

/* A plan with these fields of weft.chat. */
static void put_plan(const char *fields) {
  put("plan.lua",
      arena_printf(scratch_arena,
                   "local weft = require 'weft'\n"
                   "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
                   "  num_hidden_layers = 1, num_attention_heads = 2,\n"
                   "  intermediate_size = 16, vocab_size = 512 },\n"
                   "  batch = { global = 2, micro = 1, seq = 16 },\n"
                   "  train = { steps = 1 },\n"
                   "  data = weft.chat { %s } }\n",
                   fields));
}

static void setup(void) {
  char *s;
  size_t n;
  scratch_setup();
  const char *from = WEFT_SOURCE_DIR "/tests/chat/nfc.json";
  ck_assert_int_eq(file_read(NULL, from, FILE_OWN_MAX, &s, &n, &scratch_error), WEFT_OK);
  scratch_put("tokenizer.json", s, n);
  mem_free(NULL, s, n + 1);
  put("a.jsonl", MANY);
}

static Outcome expect(int code, const char *out, const char *err, const char *command) {
  Outcome o = process_run(SECONDS, "%s", command);
  ck_assert_msg(o.code == code && strstr(o.out, out) && strstr(o.err, err),
                "%s: %d\n%s%s", command, o.code, o.out, o.err);
  return o;
}

/* How many data sets were written. */
static void caches(const char *n) {
  Outcome o = expect(0, "", "", "ls .weft 2>/dev/null | wc -l");
  ck_assert_msg(atoi(o.out) == atoi(n), "%s data sets, expected %s", o.out, n);
}

#define SET "'*.jsonl', tokenizer = '.', template = 'chatml'"

START_TEST(written_once) {
  put_plan(SET);
  expect(0, "plan: ok", "", "$weft check plan.lua");
  caches("1");
  Outcome one = expect(0, "", "", "cat .weft/*/1.bin .weft/*/1.mask | md5sum");
  Outcome two = expect(
      0, "", "",
      "sh -c '$weft tokenize --chat a.jsonl --tokenizer . --template chatml -o x.bin "
      ">&2; cat x.bin x.mask | md5sum'");
  ck_assert_str_eq(one.out, two.out);
  expect(0, "", "% of them learnt (masks)", "$weft run plan.lua");
  expect(0, "", "", "$weft run plan.lua --set batch.micro=2 --set data.shuffle=false -q");
  caches("1");
  expect(0, "", "", "$weft run plan.lua -q --set data.train_on=last");
  caches("2");
  put("a.jsonl", MANY MANY);
  expect(0, "", "", "$weft run plan.lua -q");
  caches("3");
}
END_TEST

/* A file that two names lead to counts once, as if the other name were not there. */
START_TEST(a_file_counts_once) {
  put_plan(SET);
  expect(0, "plan: ok", "", "$weft check plan.lua");
  put_plan("'*.jsonl', './a.jsonl', tokenizer = '.', template = 'chatml'");
  expect(0, "plan: ok", "", "$weft check plan.lua");
  caches("1");
}
END_TEST

/* A checkpoint says the same of conversations whether they are token files yet or not. */
START_TEST(checkpoints_are_converted) {
  put_plan(SET);
  expect(0, "", "", "$weft run plan.lua -q --set checkpoint.dir=runs");
  expect(0, "step 1", "", "$weft ckpt convert plan.lua plan.lua runs other");
  expect(0, "", "resumes from step 1",
         "$weft run plan.lua --set train.steps=2 --resume other");
}
END_TEST

/* Reasoning that a template leaves out is said, also of token files that are there. */
START_TEST(answers_without_their_reasoning) {
  static const char row[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": "
      "\"assistant\", \"content\": \"<think>two and</think>three\"}]}\n";
  static const char says[] =
      "warning: plan.data: 2 answers are learnt without the reasoning that they have: "
      "the "
      "template leaves it out, and keeps it with options = { keep_reasoning = true }";
  put("a.jsonl", arena_printf(scratch_arena, "%s%s", row, row));
#define DISTILLED "'a.jsonl', tokenizer = '.', template = 'deepseek-r1-distill'"
  put_plan(DISTILLED);
  for (int i = 0; i < 2; i++) expect(0, "plan: ok", says, "$weft check plan.lua");
  caches("1");
  expect(0, "learnt without the reasoning that the template leaves out: 2 answers", "",
         "$weft tokenize --chat a.jsonl --tokenizer . --template deepseek-r1-distill "
         "-o x.bin");
  put_plan(DISTILLED ", options = { keep_reasoning = true }");
  Outcome o = expect(0, "plan: ok", "", "$weft check plan.lua");
  ck_assert_msg(!strstr(o.err, "warning"), "%s", o.err);
}
END_TEST

#define OWN(end)                                                                         \
  "'a.jsonl', tokenizer = '.', template = function(messages)\n"                          \
  "  local out = {}\n"                                                                   \
  "  for i, m in ipairs(messages) do out[i] = { m.content .. '" end                      \
  "', learn = m.learn } end\n"                                                           \
  "  return out end"

START_TEST(a_function_of_the_plan) {
  put_plan(OWN("!"));
  expect(0, "plan: ok", "", "$weft check plan.lua");
  put_plan(OWN("?"));
  expect(0, "plan: ok", "", "$weft check plan.lua");
  expect(0, "plan: ok", "", "$weft check plan.lua");
  caches("2");
}
END_TEST

#define ASKS "'a.jsonl', tokenizer = '.', template = "

/* What the plan's run says of its data, of which there are n sets now. */
static const char *data_of(const char *n, const char *options) {
  const char *run = "$weft run plan.lua ";
  Outcome o = expect(0, "", "(masks)", arena_printf(scratch_arena, "%s%s", run, options));
  caches(n);
  const char *line = strstr(o.err, "1 file");
  return arena_strn(scratch_arena, line, strcspn(line, "\n"));
}

static void put_module(const char *end) {
  put("inner.lua", arena_printf(scratch_arena, "return '%s'\n", end));
}

/* Modules that a template asks for are not known before it is called. */
START_TEST(modules_of_a_template) {
  put("asked.lua", "local inner = require 'inner'\n"
                   "return function(messages)\n"
                   "  local out = {}\n"
                   "  for i, m in ipairs(messages) do\n"
                   "    out[i] = { m.content .. inner, learn = m.learn }\n"
                   "  end\n"
                   "  return out\n"
                   "end\n");
  put_plan(ASKS "function(...) return require('asked')(...) end");
  put_module("!");
  const char *one = data_of("1", "");
  ck_assert_str_eq(data_of("1", ""), one);
  put_module("four words and more");
  const char *two = data_of("2", "");
  put_module("six words and more and more");
  const char *three = data_of("3", "");
  ck_assert(strcmp(one, two) != 0 && strcmp(two, three) != 0);
  put_module("four words and more");
  ck_assert_str_eq(data_of("3", ""), two);
  put_module("!");
  ck_assert_str_eq(data_of("3", ""), one);
  unlink(scratch_path("inner.lua"));
  expect(2, "", "no file inner.lua below the plan's folder", "$weft check plan.lua");
  /* A set for validation finds no module that the other's template has loaded. */
  put_module("!");
  put_plan(ASKS "function(...) return require('asked')(...) end, val = weft.chat { " ASKS
                "function(...) return require('asked')(...) end, max_length = 40 }");
  expect(0, "plan: ok", "", "$weft check plan.lua");
  caches("4");
  expect(0, "plan: ok", "", "$weft check plan.lua");
  caches("4");
}
END_TEST

#define APPENDS(end)                                                                     \
  ASKS "(function()\n"                                                                   \
       "  local known = weft.var('sys', 'a')\n"                                          \
       "  return function(messages)\n"                                                   \
       "    local out = {}\n"                                                            \
       "    for i, m in ipairs(messages) do\n"                                           \
       "      out[i] = { m.content .. " end ", learn = m.learn }\n"                      \
       "    end\n"                                                                       \
       "    return out\n"                                                                \
       "  end\n"                                                                         \
       "end)()"

/* What a template reads when it is called, of metatables and of -D. */
START_TEST(values_of_a_template) {
  static const char *const reads[] = {
      APPENDS("weft.var('sys', 'a')"), APPENDS("weft.vars.sys"),
      APPENDS("require('asked')"),
      ASKS "(function()\n"
           "  local t = setmetatable({}, { __index = { s = weft.var('sys', 'a') } })\n"
           "  return function(messages)\n"
           "    return { { (messages[1].content .. t.s):rep(3), learn = true } }\n"
           "  end\n"
           "end)()"};
  put("asked.lua", "return require('weft').var('sys', 'a')\n");
  for (int i = 0; i < LEN(reads); i++) {
    expect(0, "", "", "rm -rf .weft");
    put_plan(reads[i]);
    const char *one = data_of("1", "-D sys=x");
    ck_assert_str_ne(data_of("2", "-D sys=four-words-and-more"), one);
    ck_assert_str_eq(data_of("2", "-D sys=x"), one);
  }
}
END_TEST

START_TEST(what_cannot_be_seen) {
  put_plan(ASKS "(function()\n"
                "  local known = { [print] = 1 }\n"
                "  return function(messages) return { { 'x' .. known[print] } } end\n"
                "end)()");
  expect(1, "", "a function of the plan captures a table with keys other than",
         "$weft check plan.lua");
}
END_TEST

START_TEST(data_for_validation_and_shares) {
  put("b.jsonl", MANY MANY);
  put_plan(
      "files = { 'a.jsonl', 'b.jsonl' }, weights = { 0.5, 0.5 }, tokenizer = '.', "
      "template = 'chatml', val = weft.chat { 'b.jsonl', tokenizer = '.', template = "
      "'chatml', max_length = 20 }");
  expect(0, "plan: ok",
         "plan.lua:7: warning: plan.data.val: 16 of 16 conversations were cut after "
         "max_length = 20 tokens",
         "$weft check plan.lua");
  expect(0, "2.bin\n", "", "ls .weft/*/");
  caches("2");
}
END_TEST

static const struct {
  const char *fields, *rows, *error;
} bad[] = {
    {"'a.jsonl', tokenizer = '.', template = 'chatmel'", MANY,
     "plan.lua:7: error: plan.data: there is no template \"chatmel\""},
    {"'a.jsonl', template = 'chatml'", MANY,
     "plan.lua:7: error: plan.data: tokenizer: which?"},
    {"'a.jsonl', tokenizer = '.', template = 3", MANY,
     "plan.data.template: expected a name or a function"},
    {"'a.jsonl', tokenizer = '.', format = { 'x' }", MANY, "plan.data.format: expected"},
    {"'a.jsonl', tokenizer = '.', format = 'sharegtp'", MANY,
     "plan.data.format: unknown value \"sharegtp\" (did you mean \"sharegpt\"?)"},
    {"'a.jsonl', tokenizer = '.', options = 3", MANY,
     "plan.data.options: expected a table"},
    {"'a.jsonl', tokenizer = '/usr', template = 'chatml'", MANY,
     "/usr: error: is outside of the plan's folder"},
    {"'a.jsonl', tokenizer = '.', template = 'chatml'", GOOD "{}",
     "a.jsonl:2: error: has no \"messages\""},
    {"'a.jsonl', tokenizer = '.', template = 'chatml'",
     "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": "
     "\"assistant\", \"content\": \"two\", \"train\": true, \"weight\": 0}]}",
     "a.jsonl:1: error: message 2: train is true, and weight is 0"},
    {"'b.jsonl', tokenizer = '.', template = 'chatml'", GOOD,
     "b.jsonl: error: no file matches"},
};

START_TEST(errors) {
  put("a.jsonl", bad[_i].rows);
  put_plan(bad[_i].fields);
  Outcome o = process_run(SECONDS, "$weft check plan.lua");
  ck_assert_msg(o.code != 0 && strstr(o.err, bad[_i].error), "%d\n%s%s", o.code, o.out,
                o.err);
  caches("0");
}
END_TEST

/* A row of a run cannot hold it, and a person looks for it in the conversations. */
START_TEST(a_conversation_longer_than_a_row) {
  put("b.jsonl", GOOD LONG GOOD);
  put_plan("'b.jsonl', tokenizer = '.', template = 'chatml' }, packed = { size = 40 ");
  for (int i = 0; i < 2; i++)
    expect(
        1, "",
        "plan.lua:7: error: plan.data: b.jsonl:2: the conversation has 49 tokens, more "
        "than packed.size = 40; say packed = { ..., too_long = \"truncate\" } or "
        "\"drop\", or max_length here",
        "$weft check plan.lua --set batch.seq=40");
  for (int i = 0; i < 2; i++)
    expect(0, "plan: ok", "1 of 3 conversations was cut after packed.size = 40 tokens",
           "$weft check plan.lua --set batch.seq=40 --set packed.too_long=truncate");
  expect(0, "plan: ok", "1 of 3 conversations was cut after max_length = 40 tokens",
         "$weft check plan.lua --set batch.seq=40 --set data.max_length=40");
}
END_TEST

/* Tokens that were added to a tokenizer, as <|im_start|> often is, before the model is
 * grown; said each time, from a cache, too. */
START_TEST(a_token_that_the_model_has_not) {
  put_plan("'a.jsonl', tokenizer = '.', template = 'chatml'");
  for (int i = 0; i < 2; i++)
    expect(
        1, "",
        "plan.lua:7: error: plan.data: a.jsonl:1: the token \"assistant\" has the id "
        "473, "
        "and the model has ids below 200: the tokenizer has tokens that the model was "
        "made without. Of weights of Hugging Face embedding and head grow by weft.hf { "
        "\"DIR\", vocab_size = 474, new_tokens = \"mean\" }; a model without weights "
        "needs a vocab_size of 474 or more",
        "$weft check plan.lua --set model.vocab_size=200");
  expect(0, "plan: ok", "", "$weft check plan.lua");
}
END_TEST

/* ---- preferences ---- */

#define SAYS(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define ASKED            SAYS("user", "one and two")
#define BETTER           SAYS("assistant", "three and four")
#define WORSE            SAYS("assistant", "five")
#define CONVERSATION(x)  "{\"messages\": [" ASKED ", " x "]}\n"
#define PAIR                                                                             \
  "{\"prompt\": [" ASKED "], \"chosen\": [" BETTER "], \"rejected\": [" WORSE "]}\n"
#define PAIR_WITHOUT_PROMPT                                                              \
  "{\"chosen\": [" ASKED ", " BETTER "], \"rejected\": [" ASKED ", " WORSE "]}\n"

static void put_preferences(const char *fields, const char *rest) {
  put("plan.lua",
      arena_printf(
          scratch_arena,
          "local weft = require 'weft'\n"
          "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
          "  num_hidden_layers = 1, num_attention_heads = 2,\n"
          "  intermediate_size = 16, vocab_size = 512 },\n"
          "  batch = { global = 4, micro = 2, seq = 64 },\n"
          "  packed = { size = 64, alone = true }, train = { steps = 1 },\n"
          "  data = weft.chat { 'p.jsonl', tokenizer = '.', template = 'chatml',\n"
          "    format = '%s' }, %s }\n",
          fields, rest));
}

/* Documents in turns: what the same conversations are, of which the answer is learnt. */
START_TEST(pairs_of_answers) {
  put("p.jsonl", PAIR PAIR_WITHOUT_PROMPT);
  put("m.jsonl",
      CONVERSATION(BETTER) CONVERSATION(WORSE) CONVERSATION(BETTER) CONVERSATION(WORSE));
  put_preferences("preference", "loss = 'dpo'");
  expect(0, "plan: ok", "", "$weft check plan.lua");
  expect(0, "loss   0.6931", "", "$weft run plan.lua");
  Outcome one = expect(0, "", "", "sh -c 'cat .weft/*/1.bin .weft/*/1.mask | md5sum'");
  Outcome two = expect(
      0, "", "",
      "sh -c '$weft tokenize --chat m.jsonl --tokenizer . --template chatml -o x.bin "
      ">&2; cat x.bin x.mask | md5sum'");
  ck_assert_str_eq(one.out, two.out);
}
END_TEST

/* What the tokenizer puts before a text, as Llama 3's begin token, stands before each. */
static void tokenizer_that_begins_texts(void) {
  char *s;
  size_t n;
  const char *from = WEFT_SOURCE_DIR "/tests/chat/nfc.json";
  ck_assert_int_eq(file_read(NULL, from, FILE_OWN_MAX, &s, &n, &scratch_error), WEFT_OK);
  char *at = strstr(s, "\"post_processor\":null");
  ck_assert_ptr_nonnull(at);
  put("tokenizer.json",
      arena_printf(scratch_arena,
                   "%.*s\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                   "{\"SpecialToken\":{\"id\":\"<|im_start|>\",\"type_id\":0}},"
                   "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
                   "\"special_tokens\":{\"<|im_start|>\":{\"id\":\"<|im_start|>\","
                   "\"ids\":[1],\"tokens\":[\"<|im_start|>\"]}}}%s",
                   (int)(at - s), s, strchr(at, ',')));
  mem_free(NULL, s, n + 1);
}

#define END    "<|im_end|>"
#define EOS    "{ \"eos_token\": \"" END "\" }"
#define ASKING "{\"prompt\": \"one \", \"chosen\": "
#define TEXTS(end)                                                                       \
  ASKING "\"two\", \"rejected\": \"three" end "\"}\n"                                    \
         "{\"prompt\": \"two \", \"chosen\": \"five" end "\", \"rejected\": \"four\"}\n"

static Outcome ids_of_pairs(void) {
  expect(0, "loss   0.6931", "", "$weft run plan.lua");
  Outcome o = expect(0, "", "", "sh -c 'cat .weft/*/1.bin | md5sum'");
  process_run(SECONDS, "rm -r .weft");
  return o;
}

/* The tokens of the same texts as documents; an end that a text has is not doubled. */
START_TEST(texts_that_are_preferred) {
  put("tokenizer_config.json", EOS);
  put("t.jsonl", "{\"text\": \"one two\"}\n{\"text\": \"one three\"}\n"
                 "{\"text\": \"two five\"}\n{\"text\": \"two four\"}\n");
  put_preferences("preference", "loss = 'dpo'");
  for (int begins = 0; begins < 2; begins++) {
    if (begins) tokenizer_that_begins_texts();
    expect(0, "", "", "$weft tokenize tokenizer.json t.jsonl --eot '" END "' -o t.bin");
    Outcome documents = expect(0, "", "", "sh -c 'cat t.bin | md5sum; rm t.bin t.idx'");
    put("p.jsonl", TEXTS(""));
    ck_assert_str_eq(ids_of_pairs().out, documents.out);
    put("p.jsonl", TEXTS(END));
    ck_assert_str_eq(ids_of_pairs().out, documents.out);
  }
}
END_TEST

/* A pair of which a row has no answer learns nothing, and would count in the mean. */
START_TEST(pairs_cut_before_an_answer) {
  put("tokenizer_config.json", EOS);
  put("p.jsonl", "{\"prompt\": \"one\", \"chosen\": \"two\", \"rejected\": \"three\"}\n"
                 "{\"prompt\": \"one two three four five six seven eight nine\", "
                 "\"chosen\": \"two\", \"rejected\": \"three\"}\n");
  put_preferences("preference", "loss = 'dpo'");
  expect(0, "plan: ok", "", "$weft check plan.lua");
  Outcome o =
      expect(0, "", "2 conversations are left out, because nothing in them is learnt",
             "$weft run plan.lua --set batch.seq=16 --set packed.size=16 "
             "--set packed.too_long=truncate");
  ck_assert_msg(strstr(o.err, "whole documents in 2 rows"), "%s", o.err);
}
END_TEST

static const struct {
  const char *row, *config, *fields, *text;
} bad_text[] = {
    {TEXTS(""), "{}", "", "no end token is known, which texts end with"},
    {TEXTS(END), EOS, ", refuse_special = true",
     "p.jsonl:1: error: \"rejected\": holds the special token " END},
    {ASKING "\"a <think>\", \"rejected\": \"b\"}\n", EOS, ", refuse_special = true",
     "p.jsonl:1: error: \"chosen\": holds the special token <think>"},
    {"{\"prompt\": \"<think>\", \"chosen\": \"a\", \"rejected\": \"b\"}\n", EOS,
     ", refuse_special = true", "\"prompt\": holds the special token <think>"},
};

START_TEST(texts_that_cannot_be_used) {
  put("tokenizer_config.json", bad_text[_i].config);
  put("p.jsonl", bad_text[_i].row);
  put_preferences(arena_printf(scratch_arena, "preference'%s, train_on = 'assistant",
                               bad_text[_i].fields),
                  "loss = 'dpo'");
  expect(2, "", bad_text[_i].text, "$weft check plan.lua");
}
END_TEST

/* Data with such a format, and others for validation. */
#define VAL(format, files)                                                               \
  format "', val = weft.chat { " files ", tokenizer = '.', template = 'chatml' }, "      \
         "train_on = 'assistant"

static const struct {
  const char *row, *format, *rest, *text;
} unpaired[] = {
    {"{\"prompt\": [" ASKED "], \"chosen\": [" BETTER "]}\n", "preference",
     "loss = 'dpo'", "p.jsonl:1: error: has no \"rejected\""},
    {"{\"chosen\": [" ASKED ", " BETTER "], \"rejected\": [" ASKED ", " BETTER "]}\n",
     "preference", "loss = 'dpo'", "do not differ in an answer"},
    {"{\"prompt\": [" ASKED "], \"chosen\": [], \"rejected\": [" BETTER "]}\n",
     "preference", "loss = 'dpo'", "\"chosen\" has no messages"},
    {"{\"chosen\": \"one\", \"rejected\": \"two\"}\n", "preference", "loss = 'dpo'",
     "has no \"prompt\""},
    {CONVERSATION(BETTER), "messages", "loss = 'dpo'",
     "plan.data.format: the loss is of pairs"},
    {PAIR, "preference", "", "are for a loss of pairs"},
    {PAIR, VAL("preference", "'p.jsonl'"), "loss = 'dpo'",
     "plan.data.val.format: the loss is of pairs"},
    {CONVERSATION(BETTER), VAL("messages", "'p.jsonl', format = 'preference'"), "",
     "plan.data.val.format: rows with a chosen and a rejected answer are for"},
    {PAIR,
     VAL("preference", "files = { 'p.jsonl', '*.jsonl' }, weights = { 1, 2 }, "
                       "format = 'preference'"),
     "loss = 'dpo'", "plan.data.val: a blend of pairs is not built"},
};

START_TEST(names_what_is_no_pair) {
  put("p.jsonl", unpaired[_i].row);
  put_preferences(unpaired[_i].format, unpaired[_i].rest);
  Outcome o = process_run(SECONDS, "$weft check plan.lua");
  ck_assert_int_ne(o.code, 0);
  ck_assert_msg(strstr(o.err, unpaired[_i].text), "%s\nhas no: %s", o.err,
                unpaired[_i].text);
}
END_TEST

Suite *chat_plan_suite(void);
Suite *chat_plan_suite(void) {
  Suite *s = suite_create("chat_plan");
  TCase *t = tcase_create("plans");
  const RegexApi *api;
  weft_error e;
  err_clear(&e);
  suite_add_tcase(s, t);
  if (regex_api(&api, &e) != WEFT_OK) {
    printf("chat_plan: skipped: %s\n", e.text);
    return s;
  }
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, written_once);
  tcase_add_test(t, a_file_counts_once);
  tcase_add_test(t, answers_without_their_reasoning);
  tcase_add_test(t, checkpoints_are_converted);
  tcase_add_test(t, pairs_of_answers);
  tcase_add_test(t, texts_that_are_preferred);
  tcase_add_test(t, pairs_cut_before_an_answer);
  tcase_add_loop_test(t, texts_that_cannot_be_used, 0, LEN(bad_text));
  tcase_add_loop_test(t, names_what_is_no_pair, 0, LEN(unpaired));
  tcase_add_test(t, a_function_of_the_plan);
  tcase_add_test(t, modules_of_a_template);
  tcase_add_test(t, values_of_a_template);
  tcase_add_test(t, what_cannot_be_seen);
  tcase_add_test(t, data_for_validation_and_shares);
  tcase_add_loop_test(t, errors, 0, LEN(bad));
  tcase_add_test(t, a_conversation_longer_than_a_row);
  tcase_add_test(t, a_token_that_the_model_has_not);
  return s;
}
