/* check_plan_tokenizer.c - the tokenizer that a plan names: prompts and what ends them,
 * conversations, and the folder that is exported. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "vm/io/io.h"

enum { SECONDS = 60 };

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

static void put_plan(const char *name, const char *fields) {
  put(name,
      arena_printf(scratch_arena,
                   "local weft = require 'weft'\n"
                   "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
                   "  num_hidden_layers = 1, num_attention_heads = 2,\n"
                   "  intermediate_size = 16, vocab_size = 512 },\n"
                   "  batch = { global = 2, micro = 1, seq = 32 },\n"
                   "  train = { steps = 1 }, checkpoint = { dir = 'ck' },\n"
                   "  %s }\n",
                   fields));
}

static void setup(void) {
  char *s;
  size_t n;
  scratch_setup();
  const char *from = WEFT_SOURCE_DIR "/tests/tokenizer/gpt2.json";
  ck_assert_int_eq(file_read(NULL, from, FILE_OWN_MAX, &s, &n, &scratch_error), WEFT_OK);
  ck_assert_int_eq(mkdir(scratch_path("words"), 0755), 0);
  scratch_put("words/tokenizer.json", s, n);
  mem_free(NULL, s, n + 1);
  put("words/tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
  put_plan("plan.lua", "tokenizer = 'words'");
}

static Outcome expect(int code, const char *out, const char *err, const char *command) {
  Outcome o = process_run(SECONDS, "%s", command);
  ck_assert_msg(o.code == code && strstr(o.out, out) && strstr(o.err, err),
                "%s: %d\n%s%s", command, o.code, o.out, o.err);
  return o;
}

/* Tokenizers need a library that is opened together with a module. */
static bool opens(void) {
  Outcome o = process_run(SECONDS, "$weft check plan.lua");
  if (!strstr(o.err, "weft_text.so")) return true;
  printf("plan_tokenizer: skipped: %s", o.err);
  return false;
}

#define RUN "$weft run plan.lua --threads 1 -q"

START_TEST(prompts_take_it) {
  if (!opens()) return;
  expect(0, "", "", RUN);
  Outcome named = expect(
      0, "It is day", "",
      "$weft sample plan.lua --ckpt ck --greedy --prompt 'It is day' --max-tokens 5");
  put_plan("bare.lua", "name = 'bare'");
  Outcome given = expect(0, "It is day", "",
                         "$weft sample bare.lua --ckpt ck --greedy --prompt 'It is day' "
                         "--max-tokens 5 --tokenizer words");
  ck_assert_str_eq(named.out, given.out);
  expect(2, "", "it names no tokenizer (plan.tokenizer)",
         "$weft sample bare.lua --ckpt ck --prompt a");
  /* Beside weights, which may be named by their file. */
  expect(0, "", "", "$weft ckpt export plan.lua ck new");
  static const char *const weights[] = {"new", "new/model.safetensors"};
  for (int i = 0; i < LEN(weights); i++)
    expect(
        0, "It is day", "",
        arena_printf(scratch_arena,
                     "$weft sample bare.lua --weights %s --greedy --prompt 'It is day' "
                     "--max-tokens 5",
                     weights[i]));
  expect(2, "", "the plan names none (plan.tokenizer)",
         "$weft sample bare.lua --ckpt ck --chat --prompt a");
}
END_TEST

/* The folder is one that generates by itself: tokenizer, and what ends a text. */
START_TEST(exported_folders_have_it) {
  if (!opens()) return;
  expect(0, "", "", RUN " --export new");
  ck_assert_str_eq(scratch_get(scratch_path("new/tokenizer.json")),
                   scratch_get(scratch_path("words/tokenizer.json")));
  ck_assert_str_eq(scratch_get(scratch_path("new/tokenizer_config.json")),
                   scratch_get(scratch_path("words/tokenizer_config.json")));
  const char *made = scratch_get(scratch_path("new/generation_config.json"));
  ck_assert_msg(strstr(made, "{\n  \"eos_token_id\": "), "%s", made);
  put("hf.lua",
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf 'new', batch = { global = 1, seq = 32 } "
      "}\n");
  expect(0, "It is day", "",
         "$weft sample hf.lua --greedy --prompt 'It is day' --max-tokens 5");
  put("words/generation_config.json", "{\"eos_token_id\": [3, 5]}\n");
  expect(0, "", "", "$weft ckpt export plan.lua ck again");
  ck_assert_str_eq(scratch_get(scratch_path("again/generation_config.json")),
                   "{\"eos_token_id\": [3, 5]}\n");
}
END_TEST

/* The last token of a sample as JSON. */
static int last_token(const char *out) {
  const char *s = strstr(out, "\"tokens\""), *last = s;
  for (; *s && *s != ']'; s++)
    if (*s == ',') last = s;
  return atoi(last + 1);
}

/* Each token is an end token here: nothing follows the prompt. */
START_TEST(its_end_token_ends_a_text) {
  Text all = {0};
  if (!opens()) return;
  expect(0, "", "", RUN);
  text_add(&all, "{\"eos_token_id\": ");
  Outcome o =
      expect(0, "\"tokens\"", "",
             "$weft sample plan.lua --ckpt ck --greedy --tokens 1,2 --max-tokens 1 "
             "--json");
  text_printf(&all, "%d}", last_token(o.out));
  put("words/generation_config.json", all.s);
  text_free(&all);
  expect(0, "\"eos\"", "",
         "$weft sample plan.lua --ckpt ck --greedy --tokens 1,2 --max-tokens 1 --json");
}
END_TEST

#define END_ID "0" /* of <|endoftext|> */

/* A model whose folder has another tokenizer than the plan. */
static void put_base(void) {
  put_plan("base.lua", "name = 'base'");
  expect(0, "", "", "$weft run base.lua --threads 1 -q --export base");
  put("base/tokenizer.json", "{}");
  put("base/special_tokens_map.json", "{\"eos_token\": \"</s>\"}");
  put("base/chat_template.jinja", "of the base");
  put("base/generation_config.json", "{\"eos_token_id\": 2, \"temperature\": 0.5}\n");
  put("tuned.lua", "local weft = require 'weft'\n"
                   "local eos = weft.var('eos', 'of the tokenizer')\n"
                   "return weft.plan { model = weft.hf { 'base',\n"
                   "  weights = weft.var('weights', true), eos_token_id = tonumber(eos) "
                   "},\n"
                   "  tokenizer = 'words', batch = { global = 1, seq = 32 } }\n");
}

static void file_has(const char *path, const char *text) {
  const char *is = scratch_get(scratch_path(path));
  ck_assert_msg(strstr(is, text), "%s is not in %s: %s", text, path, is);
}

/* Its files are of one tokenizer: none of the base's are among them but settings of
 * generation, in which its end token ends texts beside that of the weights. */
START_TEST(a_folder_has_one_tokenizer) {
  if (!opens()) return;
  put_base();
  expect(0, "", "", "$weft run tuned.lua --threads 1 --steps 1 -q --export new");
  Outcome files = process_run(SECONDS, "sh -c 'ls new | tr \"\\n\" \" \"'");
  ck_assert_str_eq(files.out, "config.json generation_config.json model.safetensors "
                              "tokenizer.json tokenizer_config.json ");
  ck_assert_str_eq(scratch_get(scratch_path("new/tokenizer.json")),
                   scratch_get(scratch_path("words/tokenizer.json")));
  file_has("new/generation_config.json", "\"temperature\": 0.5");
  file_has("new/generation_config.json",
           "\"eos_token_id\": [\n    " END_ID ",\n    2\n  ]");
  file_has("new/config.json", "\"eos_token_id\": " END_ID ",");
  file_has("new/config.json", "\"bos_token_id\": null,");
  /* Without the weights of the base its ids say nothing. */
  expect(0, "", "",
         "$weft run tuned.lua --threads 1 --steps 1 -q --export drawn -D weights=false");
  ck_assert_str_eq(scratch_get(scratch_path("drawn/generation_config.json")),
                   "{\n  \"eos_token_id\": " END_ID "\n}\n");
  /* And what the plan says counts. */
  expect(0, "", "",
         "$weft run tuned.lua --threads 1 --steps 1 -q --export said -D eos=9");
  file_has("said/generation_config.json", "\"eos_token_id\": 9");
  file_has("said/config.json", "\"eos_token_id\": 9,");
  /* One that cannot be read is named. */
  put("base/generation_config.json", "{\"temperature\": NaN}\n");
  expect(2, "", "base/generation_config.json:1: error: is not JSON",
         "$weft run tuned.lua --threads 1 --steps 1 -q --export never");
}
END_TEST

/* The token that is likeliest ends a text, whether the weights, the tokenizer or the plan
 * say so; one that the plan says ends it alone. */
START_TEST(every_end_token_ends_a_text) {
  static const char sample[] =
      "$weft sample tuned.lua --greedy --tokens 1,2 --max-tokens 1 "
      "--json";
  if (!opens()) return;
  put_base();
  int id = last_token(expect(0, "\"length\"", "", sample).out);
  put("base/generation_config.json",
      arena_printf(scratch_arena, "{\"eos_token_id\": %d}", id));
  expect(0, "\"eos\"", "", sample);
  put("base/generation_config.json", "{\"eos_token_id\": 511}");
  put("words/generation_config.json",
      arena_printf(scratch_arena, "{\"eos_token_id\": %d}", id));
  expect(0, "\"eos\"", "", sample);
  expect(0, "\"length\"", "", arena_printf(scratch_arena, "%s -D eos=511", sample));
  put("words/generation_config.json", "{\"eos_token_id\": 510}");
  expect(0, "\"eos\"", "", arena_printf(scratch_arena, "%s -D eos=%d", sample, id));
}
END_TEST

START_TEST(conversations_take_it) {
  if (!opens()) return;
  Text rows = {0};
  for (int i = 0; i < 40; i++)
    text_add(&rows,
             "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
             "\"assistant\", \"content\": \"b\"}]}\n");
  put("a.jsonl", rows.s);
  text_free(&rows);
  put_plan("chat.lua",
           "tokenizer = 'words', data = weft.chat { 'a.jsonl', template = "
           "function(m) return { { 'x', learn = true }, { 'y', learn = true } "
           "} end }");
  expect(0, "no deadlock", "", "$weft check chat.lua");
}
END_TEST

/* What opens a plan's data or weights says the same of its tokenizer. */
#define ALL_VERBS(code, says, plan)                                                      \
  do {                                                                                   \
    expect(code, "", says, "$weft check " plan);                                         \
    expect(code, "", says, "$weft run --threads 1 -q " plan);                            \
    expect(code, "", says, "$weft eval --weights . " plan);                              \
    expect(code, "", says, "$weft sample --prompt a " plan);                             \
  } while (0)

/* A file that is damaged is none for prompts; a run needs the ids of its data alone. */
START_TEST(a_damaged_one_is_warned_of) {
  static const char says[] = "damaged.lua:7: warning: plan.tokenizer: prompts are not "
                             "possible: broken/tokenizer.json:2: is not JSON";
  ck_assert_int_eq(mkdir(scratch_path("broken"), 0755), 0);
  put("broken/tokenizer.json", "{\n");
  put_plan("damaged.lua", "tokenizer = 'broken'");
  expect(0, "", says, "$weft check damaged.lua");
  expect(0, "", says, "$weft run --threads 1 -q damaged.lua");
  expect(2, "", says, "$weft eval --weights broken damaged.lua");
  put("broken/tokenizer_config.json", "{\"eos_token\": \"</s>\"}");
  expect(0, "", says,
         "$weft run --threads 1 -q damaged.lua --export of "
         "--set checkpoint.dir=other");
  file_has("of/config.json", "\"eos_token_id\": null");
  expect(2, "", "broken/tokenizer.json:2: error: is not JSON",
         "$weft sample --prompt a damaged.lua");
}
END_TEST

/* A class that takes no null for an id has no key then, whatever makes it one. */
START_TEST(an_id_is_no_null_where_a_class_needs_it) {
  static const char plan[] =
      "local weft = require 'weft'\nlocal made = weft.var('made', false)\n"
      "return weft.plan { model = made and weft.hf { 'of', weights = false,\n"
      "    vocab_size = 40 } or weft.model { 'step3p5', hidden_size = 16,\n"
      "    num_hidden_layers = 1, num_attention_heads = 2, head_dim = 8,\n"
      "    num_attention_groups = 2, intermediate_size = 16, vocab_size = 64,\n"
      "    moe_layers_enum = '', layer_types = { 'full_attention' } },\n"
      "  batch = { global = 1, seq = 8 }, train = { steps = 1 },\n"
      "  data = weft.synthetic {} }\n";
  put("step.lua", plan);
  expect(0, "", "", "$weft run step.lua --threads 1 -q --export of");
  process_run(SECONDS,
              "sed -i 's/\"model_type\"/\"pad_token_id\": 50, &/' of/config.json");
  file_has("of/config.json", "\"pad_token_id\": 50");
  expect(0, "", "", "$weft run step.lua --threads 1 -q --export to -D made=true");
  file_has("to/config.json", "\"vocab_size\": 40");
  ck_assert_ptr_null(strstr(scratch_get(scratch_path("to/config.json")), "pad_token_id"));
}
END_TEST

static void put_words(const char *name) {
  put(name, "some text that is long enough for a sample of thirty-two bytes and more\n");
}

/* A folder's tokenizer makes the tokens of its model, so bytes are asked for by name. */
START_TEST(a_folder_with_one_learns_no_bytes) {
  static const char says[] =
      "hf.lua:3: error: plan.data: the tokens of weft.text are bytes, and those of the "
      "model are made by base/tokenizer.json: take weft.tokens, whose files weft "
      "tokenize "
      "writes, or say that bytes are meant with weft.text { ..., format = \"bytes\" }";
  put_words("a.txt");
  put_base();
  put("hf.lua",
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf 'base',\n"
      "  data = weft.text { 'a.txt' },\n"
      "  batch = { global = 2, micro = 1, seq = 32 }, train = { steps = 1 } }\n");
  ALL_VERBS(1, says, "hf.lua");
  expect(1, "", "plan.data.val: the tokens of weft.text are bytes",
         "$weft check hf.lua --set 'data=weft.tokens { \"a.bin\", val = weft.text "
         "\"a.txt\" }'");
#define BYTES " --set 'data.format=\"bytes\"'"
  expect(0, "", "", "$weft check hf.lua" BYTES);
  expect(0, "", "", "$weft run --threads 1 -q --export learnt hf.lua" BYTES);
  Outcome files = process_run(SECONDS, "sh -c 'ls learnt | tr \"\\n\" \" \"'");
  ck_assert_str_eq(files.out, "config.json generation_config.json model.safetensors ");
  ck_assert_int_eq(unlink(scratch_path("base/tokenizer.json")), 0);
  expect(0, "", "", "$weft check hf.lua");
}
END_TEST

/* Most rows of a large vocabulary are never learnt. */
START_TEST(bytes_of_a_large_vocabulary) {
  static const char says[] =
      "large.lua:7: warning: plan.data: the tokens of weft.text are bytes, ids below 256 "
      "of "
      "the model's 2000: weft tokenize makes token files of texts, for weft.tokens";
  put_words("a.txt");
  put_plan("large.lua", "data = weft.text { 'a.txt' }");
#define LARGE "large.lua --set model.vocab_size=2000"
  expect(0, "", says, "$weft check " LARGE);
  expect(0, "", says, "$weft run --threads 1 -q " LARGE " --set checkpoint.dir=other");
  Outcome o = expect(0, "", "", "$weft check " LARGE BYTES);
  ck_assert_msg(!strstr(o.err, "bytes"), "%s", o.err);
  o = expect(0, "", "", "$weft check large.lua");
  ck_assert_msg(!strstr(o.err, "bytes"), "%s", o.err);
  put("a.jsonl", "{\"text\": \"some text that is long enough for a sample\"}\n");
  expect(0, "",
         "large.lua:7: warning: plan.data: a.jsonl is taken as text, with the braces",
         "$weft check large.lua --set data.files=a.jsonl");
}
END_TEST

/* Weights that nobody wants to train on made-up tokens. */
START_TEST(weights_want_data) {
  static const char says[] =
      "warning: plan.data: the model begins with the weights of base, and without data a "
      "run trains them on made-up tokens";
  put_base();
  put("hf.lua", "local weft = require 'weft'\n"
                "return weft.plan { model = weft.hf 'base', train = { steps = 1 },\n"
                "  batch = { global = 2, micro = 1, seq = 32 } }\n");
  expect(0, "", says, "$weft check hf.lua");
  expect(0, "", says, "$weft run --threads 1 -q hf.lua");
  static const char *const meant[] = {"hf.lua --set 'data=weft.synthetic {}'",
                                      "hf.lua --set model.weights=false", "base.lua"};
  for (int i = 0; i < LEN(meant); i++) {
    Outcome o = process_run(SECONDS, "$weft check %s", meant[i]);
    ck_assert_msg(o.code == 0 && !strstr(o.err, "made-up"), "%s: %s", meant[i], o.err);
  }
}
END_TEST

START_TEST(what_is_wrong_has_its_line) {
  put_plan("none.lua", "tokenizer = 'no/where'");
  ALL_VERBS(1,
            "none.lua:7: error: plan.tokenizer: \"no/where\" is no folder with a "
            "tokenizer.json",
            "none.lua");
  put_plan("bytes.lua", "tokenizer = 'words', data = weft.text { 'a.txt' }");
  put_words("a.txt");
  ALL_VERBS(1, "bytes.lua:7: error: plan.tokenizer: the tokens of weft.text are bytes",
            "bytes.lua");
  put_plan("out.lua", "tokenizer = '/usr'");
  Outcome o = process_run(SECONDS, "$weft check out.lua");
  ck_assert_int_ne(o.code, 0);
  if (!opens()) return;
  expect(0, "", "plan.lua:7: warning: plan.tokenizer: ",
         "$weft check plan.lua --set model.vocab_size=64");
}
END_TEST

Suite *plan_tokenizer_suite(void) {
  Suite *s = suite_create("plan_tokenizer");
  TCase *c = tcase_create("plan_tokenizer");
  tcase_add_checked_fixture(c, setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_test(c, prompts_take_it);
  tcase_add_test(c, exported_folders_have_it);
  tcase_add_test(c, its_end_token_ends_a_text);
  tcase_add_test(c, a_folder_has_one_tokenizer);
  tcase_add_test(c, every_end_token_ends_a_text);
  tcase_add_test(c, conversations_take_it);
  tcase_add_test(c, what_is_wrong_has_its_line);
  tcase_add_test(c, a_folder_with_one_learns_no_bytes);
  tcase_add_test(c, bytes_of_a_large_vocabulary);
  tcase_add_test(c, weights_want_data);
  tcase_add_test(c, a_damaged_one_is_warned_of);
  tcase_add_test(c, an_id_is_no_null_where_a_class_needs_it);
  suite_add_tcase(s, c);
  return s;
}
