/* check_finetune.c - the recipe of docs/finetune.md, run as it is written there, on a
 * folder of that name with random weights: its loss falls, the tuned model answers, and
 * the folders that it says are there. What PEFT makes of an adapter's folder is in
 * tests/oracle/adapters.py, which needs Python. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

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
  return s;
}
