/* check_finetune.c - the recipe of docs/finetune.md, run as it is written there, on a
 * folder of that name with random weights: its loss falls, the tuned model answers, and
 * the folders that it says are there. What PEFT makes of an adapter's folder is in
 * tests/oracle/adapters.py, which needs Python. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/harness/process.h"
#include "tests/harness/run_log.h"
#include "vm/io/file.h"
#include "vm/text/regex.h"

enum { SECONDS = 120, TALKS = 2400 };

static const char *read_whole(const char *path) {
  char *s;
  size_t n;
  ck_assert_int_eq(file_read(NULL, path, FILE_OWN_MAX, &s, &n, &scratch_error), WEFT_OK);
  const char *copy = arena_strn(scratch_arena, s, n);
  mem_free(NULL, s, n + 1);
  return copy;
}

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

/* The next fenced block behind *at, which is moved behind it. */
static const char *next_block(const char **at, const char *fence) {
  const char *from = strstr(*at, fence);
  ck_assert_ptr_nonnull(from);
  from += strlen(fence);
  const char *to = strstr(from, "```");
  ck_assert_ptr_nonnull(to);
  *at = to + 3;
  return arena_strn(scratch_arena, from, (size_t)(to - from));
}

static void expect_ok(const char *command) {
  Outcome o = process_run(SECONDS, "%s", command);
  ck_assert_msg(o.code == 0, "%s: %d\n%s%s", command, o.code, o.out, o.err);
}

static void setup(void) {
  scratch_setup();
  put("base.lua", "local weft = require 'weft'\n"
                  "return weft.plan { model = weft.model { 'llama', hidden_size = 32,\n"
                  "  num_hidden_layers = 2, num_attention_heads = 2,\n"
                  "  intermediate_size = 48, vocab_size = 512,\n"
                  "  initializer_range = 0.2 }, batch = { global = 1, seq = 8 } }\n");
  expect_ok("$weft run base.lua --steps 1 --quiet --export SmolLM2-135M-Instruct");
  put("SmolLM2-135M-Instruct/tokenizer.json",
      read_whole(WEFT_SOURCE_DIR "/tests/chat/nfc.json"));
  Text talks = {0};
  for (int i = 0; i < TALKS; i++)
    text_printf(
        &talks,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"and after %d\"}, "
        "{\"role\": \"assistant\", \"content\": \"it is all one and the same\"}]}\n",
        i % 10);
  scratch_put("talks.jsonl", talks.s, talks.n);
  text_free(&talks);
  put("questions", "and after 3\n");
}

/* The mean loss of the first and of the last steps of the log. */
static void check_log(void) {
  enum { SOME = 5, MOST = 500 };
  double loss[MOST], first = 0, last = 0;
  json_t *step[MOST];
  int n = log_steps("talks.log", step, MOST);
  for (int i = 0; i < n; i++) {
    loss[i] = json_real_value(json_object_get(step[i], "loss"));
    json_decref(step[i]);
  }
  ck_assert_int_ge(n, 3 * SOME);
  for (int i = 0; i < SOME; i++) first += loss[i] / SOME, last += loss[n - 1 - i] / SOME;
  ck_assert_msg(last < 0.7 * first, "loss %g, then %g", first, last);
}

START_TEST(the_recipe) {
  const char *at = strstr(read_whole(WEFT_SOURCE_DIR "/docs/finetune.md"),
                          "## From a folder to an adapter");
  ck_assert_ptr_nonnull(at);
  put("talks.lua", next_block(&at, "```lua\n"));
  char *lines = (char *)next_block(&at, "```\n"), *line;
  int n = 0;
  for (; (line = strsep(&lines, "\n")) && *line; n++) {
    bool asks = strstr(line, "sample") != NULL;
    ck_assert_msg(strncmp(line, "weft ", 5) == 0, "%s", line);
    Outcome o = process_run(SECONDS, "$%s%s", line, asks ? " --greedy <questions" : "");
    ck_assert_msg(o.code == 0, "%s: %d\n%s%s", line, o.code, o.out, o.err);
    if (asks) ck_assert_msg(strncmp(o.out, "> and after 3\n", 14) == 0, "%s", o.out);
  }
  ck_assert_int_eq(n, 4);
  check_log();
  expect_ok("test -s adapter/adapter_model.safetensors");
  expect_ok("test -s adapter/adapter_config.json");
  expect_ok("test -s merged/model.safetensors");
}
END_TEST

/* ---- a base model and a tokenizer with more tokens ---- */

#define TALK(answer)                                                                     \
  "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": "              \
  "\"assistant\", \"content\": \"" answer "\"}]}\n"

static void put_file(const char *name, const char *from) {
  put(name, read_whole(arena_printf(scratch_arena, WEFT_SOURCE_DIR "/tests/%s", from)));
}

static void setup_chatml(void) {
  scratch_setup();
  put("small.lua", "local weft = require 'weft'\n"
                   "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
                   "  num_hidden_layers = 1, num_attention_heads = 2,\n"
                   "  intermediate_size = 16, vocab_size = 300 },\n"
                   "  batch = { global = 1, seq = 8 }, data = weft.synthetic {} }\n");
  expect_ok("$weft run small.lua --steps 1 --quiet --export base");
  put_file("base/tokenizer.json", "tokenizer/gpt2.json");
  put("base/tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
  ck_assert_int_eq(mkdir(scratch_path("tk"), 0755), 0);
  put_file("tk/tokenizer.json", "chat/nfc.json");
  put("tk/tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
  put("one.jsonl", TALK("and two") TALK("and three") TALK("and four") TALK("and five"));
  put("plan.lua",
      "local weft = require 'weft'\n"
      "return weft.plan {\n"
      "  model = weft.hf { 'base', vocab_size = 512, new_tokens = 'mean' },\n"
      "  tokenizer = weft.var('tokenizer', 'none') ~= 'none' and\n"
      "    weft.var('tokenizer', 'none') or nil,\n"
      "  data = weft.chat { 'one.jsonl', template = 'chatml', tokenizer = 'tk' },\n"
      "  batch = { global = 2, micro = 1, seq = 64 }, packed = { size = 64 },\n"
      "  train = { steps = 1 }, checkpoint = { dir = 'ck' } }\n");
}

static void same_files(const char *a, const char *b) {
  ck_assert_str_eq(read_whole(scratch_path(a)), read_whole(scratch_path(b)));
}

static const char *said(const char *command) {
  Outcome o = process_run(SECONDS, "%s", command);
  ck_assert_msg(o.code == 0, "%s: %d\n%s%s", command, o.code, o.out, o.err);
  return o.out;
}

/* What was learnt by a token is asked by that token, wherever the weights are: in the
 * plan's checkpoint or in the folder that it became. */
START_TEST(an_export_has_the_tokenizer_of_its_conversations) {
  static const char ask[] =
      "$weft sample plan.lua --chat --greedy --json --max-tokens 1 --prompt one %s";
  expect_ok("$weft run plan.lua --quiet --export out");
  same_files("out/tokenizer.json", "tk/tokenizer.json");
  same_files("out/tokenizer_config.json", "tk/tokenizer_config.json");
  ck_assert_ptr_nonnull(
      strstr(read_whole(scratch_path("out/config.json")), "\"eos_token_id\": 2,"));
  const char *learnt = said(arena_printf(scratch_arena, ask, "--ckpt ck"));
  ck_assert_str_eq(learnt, said(arena_printf(scratch_arena, ask, "--weights out")));
  const char *first = strstr(learnt, "\"tokens\": [");
  ck_assert_msg(first && atoi(strchr(first, '[') + 1) == 1, "%s", learnt);
  /* One file of it may have another name. */
  expect_ok("cp tk/tokenizer.json tk/mine.json");
  expect_ok("$weft ckpt export plan.lua ck again --set data.tokenizer=tk/mine.json");
  same_files("again/tokenizer.json", "tk/tokenizer.json");
}
END_TEST

/* That of the model's folder, by whatever name, changes nothing in its config. */
START_TEST(the_models_own_tokenizer_is_no_other) {
  put_file("base/tokenizer.json", "chat/nfc.json");
  expect_ok("$weft run plan.lua --quiet --export of_base --set data.tokenizer=base/.");
  same_files("of_base/tokenizer_config.json", "base/tokenizer_config.json");
  expect_ok("test ! -e of_base/generation_config.json");
  ck_assert_ptr_nonnull(
      strstr(read_whole(scratch_path("of_base/config.json")), "\"eos_token_id\": null"));
}
END_TEST

START_TEST(two_tokenizers_are_warned_of) {
  static const char warning[] =
      "plan.lua:6: warning: plan.data.tokenizer: the conversations have tokens of "
      "tk/tokenizer.json, and the exported weights have plan.tokenizer, "
      "base/tokenizer.json";
  Outcome o = process_run(SECONDS, "$weft check plan.lua -D tokenizer=base");
  ck_assert_msg(o.code == 0 && strstr(o.err, warning), "%d\n%s", o.code, o.err);
  o = process_run(SECONDS, "$weft run --quiet plan.lua -D tokenizer=base");
  ck_assert_msg(o.code == 0 && strstr(o.err, warning), "%d\n%s", o.code, o.err);
  expect_ok("cp -r tk copy");
  o = process_run(SECONDS, "$weft check plan.lua -D tokenizer=copy");
  ck_assert_msg(o.code == 0 && !strstr(o.err, "warning"), "%d\n%s", o.code, o.err);
}
END_TEST

/* ---- the same data as conversations and as token files ---- */

#define PAIR(question, chosen, rejected)                                                 \
  "{\"prompt\": [{\"role\": \"user\", \"content\": \"" question                          \
  "\"}], \"chosen\": [{\"role\": \"assistant\", \"content\": \"" chosen                  \
  "\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"" rejected "\"}]}\n"

/* Of the first pair truncation leaves the question alone. */
static void put_pairs(void) {
  put("pairs.jsonl", PAIR("one and two and three and four and five and six and seven and "
                          "eight and nine and ten",
                          "me", "nobody") PAIR("one", "two", "three"));
  expect_ok("$weft tokenize --chat pairs.jsonl --tokenizer tk --template chatml "
            "--format preference -o pairs.bin");
  put("pairs.lua",
      "local weft = require 'weft'\n"
      "local dpo = weft.var('loss', 'dpo') == 'dpo'\n"
      "return weft.plan {\n"
      "  model = weft.hf { 'base', vocab_size = 512, new_tokens = 'mean' },\n"
      "  data = weft.var('chat', true) and weft.chat { 'pairs.jsonl', format =\n"
      "      'preference', template = 'chatml', tokenizer = 'tk' } or\n"
      "    weft.tokens { 'pairs.bin' },\n"
      "  batch = { global = 2, micro = 2, seq = 20 },\n"
      "  packed = { size = 20, alone = true, too_long = 'truncate' },\n"
      "  loss = dpo and { 'dpo', beta = 0.5 } or { 'cross_entropy', per = 'sequences' "
      "},\n"
      "  optimizer = weft.sgd { lr = 0.1, weight_decay = 0 }, train = { steps = 2 } "
      "}\n");
}

/* Loss and norm of each step of a run on conversations or on token files. */
static const char *numbers(bool chat) {
  const char *is = chat ? "true" : "false";
  json_t *step[8];
  const char *all = "";
  expect_ok(arena_printf(scratch_arena,
                         "$weft run pairs.lua --quiet --log %s.log -D chat=%s", is, is));
  int n = log_steps(arena_printf(scratch_arena, "%s.log", is), step, 8);
  for (int i = 0; i < n; i++) {
    all = arena_printf(scratch_arena, "%s%.9g %.9g\n", all,
                       json_real_value(json_object_get(step[i], "loss")),
                       json_real_value(json_object_get(step[i], "grad_norm")));
    json_decref(step[i]);
  }
  return all;
}

/* A pair whose answers are cut away counts in neither, where it would count as undecided.
 */
START_TEST(pairs_of_conversations_are_those_of_token_files) {
  put_pairs();
  const char *chat = numbers(true), *files = numbers(false);
  ck_assert_str_eq(chat, files);
  Outcome o =
      process_run(SECONDS, "$weft run pairs.lua --steps 1 -D chat=false -D loss=sft");
  ck_assert_msg(o.code == 0 && strstr(o.err, "2 documents dropped, as nothing is learnt "
                                             "of them, with "),
                "%d\n%s%s", o.code, o.out, o.err);
}
END_TEST

Suite *finetune_suite(void);
Suite *finetune_suite(void) {
  Suite *s = suite_create("finetune");
  TCase *t = tcase_create("finetune");
  const RegexApi *api;
  weft_error e;
  err_clear(&e);
  suite_add_tcase(s, t);
  if (regex_api(&api, &e) != WEFT_OK) {
    printf("finetune: skipped: %s\n", e.text);
    return s;
  }
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_set_timeout(t, 300);
  tcase_add_test(t, the_recipe);
  t = tcase_create("chatml");
  suite_add_tcase(s, t);
  tcase_add_checked_fixture(t, setup_chatml, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, an_export_has_the_tokenizer_of_its_conversations);
  tcase_add_test(t, the_models_own_tokenizer_is_no_other);
  tcase_add_test(t, two_tokenizers_are_warned_of);
  tcase_add_test(t, pairs_of_conversations_are_those_of_token_files);
  return s;
}
