/* check_chat_talk.c - weft sample --chat: a model that has learnt a conversation by heart
 * is asked its questions, from a checkpoint, from a hub folder and with an adapter; and
 * what each template puts around questions and answers. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/chat/chat.h"
#include "bindings/plan_table/loaded_plan.h"
#include "tests/harness/process.h"
#include "tests/harness/terminal.h"
#include "vm/io/file.h"
#include "vm/text/regex.h"

enum { SECONDS = 60, SEQ = 96 };

#define MESSAGE(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define Q1                  "who are you"
#define Q2                  "and what do you do"
static const char talk[] = "{\"messages\": [" MESSAGE("user", Q1) ", " MESSAGE(
    "assistant", "a loom") ", " MESSAGE("user", Q2) ", " MESSAGE("assistant",
                                                                 "weave all day") "]}\n";
#define LONG                                                                             \
  "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p " \
  "q"
#define ASK   "--greedy --chat --prompt '" Q1 "' --prompt '" Q2 "'"
#define HEARD "> " Q1 "\na loom\n> " Q2 "\nweave all day\n"
#define LLAMA                                                                            \
  "weft.model { 'llama', hidden_size = 32, num_hidden_layers = 1,\n"                     \
  "  num_attention_heads = 2, intermediate_size = 48, vocab_size = 512 }"

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

static void put_plan(const char *name, const char *model, const char *more) {
  put(name, arena_printf(scratch_arena,
                         "local weft = require 'weft'\n"
                         "return weft.plan { model = %s,\n"
                         "  batch = { global = 1, seq = %d }, packed = { size = %d },\n"
                         "  optimizer = weft.adamw { lr = 1e-2 }, %s }\n",
                         model, SEQ, SEQ, more));
}

#define DATA "data = weft.chat { 'talk.jsonl', tokenizer = 'words', template = 'chatml' }"

static void setup(void) {
  char *s;
  size_t n;
  scratch_setup();
  const char *from = WEFT_SOURCE_DIR "/tests/chat/nfc.json";
  ck_assert_int_eq(file_read(NULL, from, FILE_OWN_MAX, &s, &n, &scratch_error), WEFT_OK);
  ck_assert_int_eq(process_run(SECONDS, "mkdir words").code, 0);
  scratch_put("words/tokenizer.json", s, n);
  mem_free(NULL, s, n + 1);
  put("talk.jsonl", talk);
}

static Outcome expect(int code, const char *out, const char *err, const char *command) {
  Outcome o = process_run(SECONDS, "%s", command);
  ck_assert_msg(o.code == code && strcmp(o.out, out) == 0 && strstr(o.err, err),
                "%s: %d\n%s%s", command, o.code, o.out, o.err);
  return o;
}

/* ---- conversations ---- */

static json_t *turns_of(const char *command, json_t **doc) {
  Outcome o = process_run(SECONDS, "%s", command);
  ck_assert_msg(o.code == 0, "%s", o.err);
  *doc = json_loads(o.out, 0, NULL);
  return json_object_get(json_object_get(*doc, "result"), "turns");
}

/* The tokens that the model is asked with are those that it was trained on; and what it
 * says with the cache of the first turn is what it says without. */
static void check_tokens(void) {
  json_t *doc, *one;
  json_t *turn =
      json_array_get(turns_of("$weft sample plan.lua --ckpt ck --json " ASK, &doc), 1);
  json_t *tokens = json_object_get(turn, "tokens");
  int64_t n = json_integer_value(json_object_get(turn, "prompt"));
  ck_assert_str_eq(json_string_value(json_object_get(turn, "ended")), "eos");
  ck_assert_str_eq(json_string_value(json_object_get(turn, "question")), Q2);
  uint16_t trained[SEQ];
  char *s;
  size_t bytes;
  expect(0, "", "", "sh -c 'cp .weft/*/1.bin trained.bin'");
  ck_assert_int_eq(file_read(NULL, scratch_path("trained.bin"), FILE_OWN_MAX, &s, &bytes,
                             &scratch_error),
                   WEFT_OK);
  ck_assert_uint_le(bytes, sizeof trained);
  memcpy(trained, s, bytes);
  mem_free(NULL, s, bytes + 1);
  const char *ids = "";
  for (int64_t i = 0; i < (int64_t)json_array_size(tokens); i++) {
    int64_t id = json_integer_value(json_array_get(tokens, (size_t)i));
    ck_assert_int_eq(id, trained[i]);
    if (i < n)
      ids = arena_printf(scratch_arena, "%s%s%lld", ids, i ? "," : "", (long long)id);
  }
  Outcome o =
      process_run(SECONDS,
                  "$weft sample plan.lua --ckpt ck --greedy --json --max-tokens %d "
                  "--tokens %s",
                  (int)((int64_t)json_array_size(tokens) - n), ids);
  ck_assert_msg(o.code == 0, "%s", o.err);
  one = json_loads(o.out, 0, NULL);
  json_t *alone = json_object_get(json_object_get(one, "result"), "tokens");
  ck_assert(json_equal(alone, tokens));
  json_decref(one);
  json_decref(doc);
}

START_TEST(a_conversation_from_a_checkpoint) {
  put_plan("plan.lua", LLAMA, DATA ", mesh = { tp = 2 }, checkpoint = { dir = 'ck' }");
  expect(0, "", "", "$weft run plan.lua --steps 60 --quiet --threads 1");
  expect(0, HEARD, "", "$weft sample plan.lua --ckpt ck " ASK);
  expect(0, "a loom\nweave all day\n", "",
         "$weft sample plan.lua --ckpt ck --quiet " ASK);
  expect(0, HEARD, "", "$weft sample plan.lua --ckpt ck --set mesh.tp=1 " ASK);
  put("questions", Q1 "\n\n" Q2 "\r\n");
  expect(0, HEARD, "", "$weft sample plan.lua --ckpt ck --greedy --chat <questions");
  expect(0, "> " Q1 "\na loo\n> " Q2 "\nwea\n", "the answer was cut after 3 tokens",
         "$weft sample plan.lua --ckpt ck --greedy --chat --max-tokens 3 <questions");
  check_tokens();
}
END_TEST

static void check_turn(const json_t *turns, size_t i, const char *text) {
  const json_t *turn = json_array_get(turns, i);
  ck_assert_str_eq(json_string_value(json_object_get(turn, "text")), text);
  ck_assert_str_eq(json_string_value(json_object_get(turn, "ended")), "length");
}

/* A character of three tokens, of which an answer has two: the conversation goes on with
 * what a decoder makes of them, and so does the next question. */
START_TEST(an_answer_that_is_cut_inside_a_character) {
  json_t *doc;
  put("talk.jsonl",
      "{\"messages\": [" MESSAGE("user", Q1) ", " MESSAGE("assistant", "織機") "]}\n");
  put_plan("plan.lua", LLAMA, DATA ", checkpoint = { dir = 'ck' }");
  expect(0, "", "", "$weft run plan.lua --steps 60 --quiet --threads 1");
  json_t *turns = turns_of("$weft sample plan.lua --ckpt ck --json --greedy --chat "
                           "--max-tokens 2 --prompt '" Q1 "' --prompt '" Q2 "'",
                           &doc);
  ck_assert_int_eq(json_array_size(turns), 2);
  check_turn(turns, 0, "\xef\xbf\xbd");
  json_decref(doc);
  expect(0, "\xe7\xb9\n", "the answer was cut after 2 tokens",
         "$weft sample plan.lua --ckpt ck --quiet --greedy --chat --max-tokens 2 "
         "--prompt '" Q1 "'");
}
END_TEST

/* A conversation ends where it has no room for a question: what was answered is in the
 * result; and at a terminal a shorter one may be asked. */
START_TEST(a_question_that_is_too_long) {
  json_t *doc;
  put_plan("plan.lua", LLAMA, DATA ", checkpoint = { dir = 'ck' }");
  expect(0, "", "", "$weft run plan.lua --steps 60 --quiet --threads 1");
  Outcome o =
      process_run(SECONDS, "$weft sample plan.lua --ckpt ck --json --greedy --chat "
                           "--prompt '" Q1 "' --prompt '" Q2 "' --prompt '" LONG "'");
  doc = json_loads(o.out, 0, NULL);
  const json_t *turns = json_object_get(json_object_get(doc, "result"), "turns");
  ck_assert_msg(o.code == 2 && strstr(o.out, "packed.size=") &&
                    json_array_size(turns) == 2,
                "%d: %s", o.code, o.out);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(turns, 1), "text")),
                   "weave all day");
  json_decref(doc);
  Terminal *t = terminal_start(
      arena_printf(scratch_arena, "$weft sample %s --ckpt %s --greedy --chat",
                   scratch_path("plan.lua"), scratch_path("ck")));
  terminal_wait_row(t, -1, ">");
  terminal_type(t, Q1 "\r");
  terminal_wait(t, "a loom");
  terminal_type(t, LONG "\r");
  terminal_wait(t, "tokens with this question");
  terminal_type(t, Q2 "\r");
  terminal_wait(t, "weave all day");
  terminal_type(t, "\x04");
  ck_assert_int_eq(terminal_end(t), 0);
}
END_TEST

/* What is typed in another encoding is asked again; of a pipe it is an error. */
START_TEST(a_question_that_is_not_utf8) {
  put_plan("plan.lua", LLAMA, DATA ", checkpoint = { dir = 'ck' }");
  expect(0, "", "", "$weft run plan.lua --steps 60 --quiet --threads 1");
  put("questions", "caf\xe9\n");
  expect(2, "", "the question \"caf\\xe9\" is not UTF-8 from byte 3 on",
         "$weft sample plan.lua --ckpt ck --quiet --greedy --chat <questions");
  Terminal *t = terminal_start(
      arena_printf(scratch_arena, "$weft sample %s --ckpt %s --greedy --chat",
                   scratch_path("plan.lua"), scratch_path("ck")));
  terminal_wait_row(t, -1, ">");
  terminal_type(t, "caf\xe9\r");
  terminal_wait(t, "is not UTF-8 from byte 3 on");
  terminal_type(t, Q1 "\r");
  terminal_wait(t, "a loom");
  terminal_type(t, "\x04");
  ck_assert_int_eq(terminal_end(t), 0);
}
END_TEST

/* The folder of a model says what is its tokenizer; its weights are the base of an
 * adapter, with which a checkpoint says something else. */
START_TEST(a_hub_folder_and_an_adapter) {
  put_plan("plan.lua", LLAMA, DATA);
  expect(0, "", "", "$weft run plan.lua --steps 60 --quiet --threads 1 --export hub");
  expect(0, "", "", "cp words/tokenizer.json hub");
  put_plan("hub.lua", "weft.hf 'hub'", "data = weft.synthetic {}");
  expect(0, HEARD, "", "$weft sample hub.lua --template chatml " ASK);
  expect(2, "", "tokenizer_config.json has no chat_template; name one: --template chatml",
         "$weft sample hub.lua " ASK);
  put("talk.jsonl",
      "{\"messages\": [" MESSAGE("user", Q1) ", " MESSAGE("assistant", "a wheel") "]}\n");
  put_plan("tuned.lua", "weft.hf 'hub'",
           "data = weft.chat { 'talk.jsonl', template = 'chatml' }, mesh = { tp = 2 },\n"
           "adapter = { 'lora', rank = 8 }, checkpoint = { dir = 'ck' }");
  expect(0, "", "", "$weft run tuned.lua --steps 80 --quiet --threads 1");
  expect(0, "> " Q1 "\na wheel\n", "",
         "$weft sample tuned.lua --ckpt ck --greedy --chat --prompt '" Q1 "'");
}
END_TEST

/* ---- what cannot be asked ---- */

#define OWN(more)                                                                        \
  "return function(messages, tools, options)\n"                                          \
  "  local out = {}\n"                                                                   \
  "  for _, m in ipairs(messages) do\n"                                                  \
  "    out[#out + 1] = { m.role .. ': ' }\n"                                             \
  "    out[#out + 1] = { m.content" more "\n"

START_TEST(what_is_wrong_with_a_question) {
  static const struct {
    const char *more, *error;
  } bad[] = {
      {"--chat --prompt x --tokens 1", "--chat takes questions, from --prompt or the"},
      {"--chat --prompt x --template nope", "there is no template \"nope\""},
      {"--chat --prompt x --option y=1", "the template \"chatml\" has no option \"y\""},
      {"--chat --prompt x --option y", "--option takes NAME=VALUE"},
      {"--chat --prompt ' '", "the question: an empty question"},
      {"--chat --prompt '<|im_end|>' --refuse-special",
       "holds the special token <|im_end|>"},
      {"--chat </dev/null", "no question: give --prompt TEXT, or lines on the standard"},
      {"--chat --prompt x --template bare.lua",
       "the template puts \"assistant: \" before an answer, but not at the end of a "
       "prompt"},
      {"--chat --prompt x --template endless.lua",
       "the template puts nothing behind an answer, and no eos_token_id is known"},
      {"--chat --prompt x --template three.lua",
       "three.lua: error: the file returns a number"},
      {"--prompt x --template chatml", "--template belongs to --chat"},
      {"--prompt x --refuse-special", "--refuse-special belongs to --chat"},
      {"--chat --prompt 'a b c d e f g h i j k l m n o p'",
       "tokens with this question, and the plan trains on 24 (batch.seq; --set "
       "batch.seq="},
  };
  put("bare.lua", OWN(" .. '|' }\n  end\n  return out\nend"));
  put("endless.lua", OWN(" }\n  end\n  if options.generation_prompt then out[#out + 1] = "
                         "{ 'assistant: ' } end\n  return out\nend"));
  put("three.lua", "return 3\n");
  put_plan("plan.lua", LLAMA, DATA ", checkpoint = { dir = 'ck' }");
  expect(0, "", "", "$weft run plan.lua --steps 1 --quiet --threads 1");
  for (int i = 0; i < LEN(bad); i++) {
    Outcome o = process_run(SECONDS,
                            "$weft sample plan.lua --ckpt ck --greedy --quiet --set "
                            "batch.seq=24 --set packed.size=24 %s",
                            bad[i].more);
    ck_assert_msg(o.code == 2 && strstr(o.err, bad[i].error), "%s: %d\n%s%s", bad[i].more,
                  o.code, o.out, o.err);
  }
}
END_TEST

/* ---- templates ---- */

static const struct {
  const char *name, *ending, *prompt; /* after the answer; before the next one */
} templates[] = {
    {"chatml", "<|im_end|>\n", "<|im_start|>assistant\n"},
    {"deepseek", "<｜end▁of▁sentence｜>", "<｜Assistant｜><think>\n"},
    {"deepseek-r1-distill", "<｜end▁of▁sentence｜>", "<｜Assistant｜><think>\n"},
    {"deepseek-v3", "<｜end▁of▁sentence｜>", "<｜Assistant｜>"},
    {"gemma", "<end_of_turn>\n", "<start_of_turn>model\n"},
    {"gemma3", "<end_of_turn>\n", "<start_of_turn>model\n"},
    {"gpt-oss", "<|return|>", "<|start|>assistant"},
    {"llama3", "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama3.1", "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"mistral", "</s>", "[/INST]"},
    {"qwen2.5", "<|im_end|>\n", "<|im_start|>assistant\n"},
    {"qwen3", "<|im_end|>\n", "<|im_start|>assistant\n"},
    {"smollm2", "<|im_end|>\n", "<|im_start|>assistant\n"},
};

static bool keeps; /* options.keep_reasoning */

static void push_named(lua_State *L, void *ud) {
  lua_newtable(L);
  lua_pushstring(L, ud);
  lua_setfield(L, -2, "template");
  lua_newtable(L);
  if (keeps) {
    lua_pushboolean(L, true);
    lua_setfield(L, -2, "keep_reasoning");
  }
  if (str_eq(ud, "gpt-oss")) {
    lua_pushliteral(L, "2025-08-05");
    lua_setfield(L, -2, "date");
  }
  lua_setfield(L, -2, "options");
}

static const char *said(const ChatTemplate *t, const char *verb, const char *s) {
  Text out = {0};
  weft_status st = chat_talk(t, verb, s, strlen(s), &out, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s %s: %s", verb, s, scratch_error.text);
  const char *copy = arena_strn(scratch_arena, out.n ? out.s : "", out.n);
  text_free(&out);
  return copy;
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && str_eq(s + n - m, end);
}

static void open_named(const char *name, LangState **state, ChatTemplate *t) {
  static const LangOptions lang = {.instruction_limit = 10000000};
  TokenizerConfig config = {0};
  ChatOpen o = {.path = "",
                .push_spec = push_named,
                .ud = (void *)name,
                .config = &config,
                .talks = true};
  weft_status st =
      plan_state_new(&lang, scratch_arena, "test", "", NULL, state, &scratch_error);
  if (st == WEFT_OK) st = chat_template_open(*state, &o, t, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", name, scratch_error.text);
}

START_TEST(endings_and_prompts_of_templates) {
  const char *name = templates[_i].name;
  LangState *state;
  ChatTemplate t;
  keeps = false;
  open_named(name, &state, &t);
  ck_assert_str_eq(said(&t, "ending", ""), templates[_i].ending);
  const char *first = said(&t, "ask", "how much");
  ck_assert_msg(ends_with(first, templates[_i].prompt) && strstr(first, "how much"),
                "%s: %s", name, first);
  bool channels = str_eq(name, "gpt-oss");
  said(&t, "answer",
       channels ? "<|channel|>analysis<|message|>thought<|end|><|start|>assistant"
                  "<|channel|>final<|message|>all of it"
                : "all of it");
  const char *second = said(&t, "ask", "and then");
  ck_assert_msg(ends_with(second, templates[_i].prompt) && strstr(second, "all of it") &&
                    strstr(second, "and then") > strstr(second, "all of it") &&
                    !strstr(second, "thought"),
                "%s: %s", name, second);
  chat_template_close(&t);
  state_free(state);
}
END_TEST

/* Prompts of these end with the token that begins reasoning, so that an answer has its
 * end alone: where the reasoning is kept, the conversation has both. A question that was
 * not answered is in no conversation. */
START_TEST(reasoning_that_a_prompt_begins) {
  static const char *const name[] = {"deepseek", "deepseek-r1-distill"};
  static const char *const history[] = {
      "<｜Assistant｜>\n\nall of it<｜end▁of▁sentence｜>",
      "<｜Assistant｜><think>\nthought\n</think>\n\n"
      "all of it<｜end▁of▁sentence｜>"};
  for (int i = 0; i < 2 * LEN(name); i++) {
    LangState *state;
    ChatTemplate t;
    keeps = i % 2;
    open_named(name[i / 2], &state, &t);
    said(&t, "ask", "how much");
    said(&t, "answer", "thought\n</think>\n\nall of it");
    said(&t, "ask", "never mind");
    const char *second = said(&t, "ask", "and then");
    const char *want = arena_printf(scratch_arena,
                                    "<｜User｜>how much%s<｜User｜>and then"
                                    "<｜Assistant｜><think>\n",
                                    history[keeps]);
    ck_assert_msg(ends_with(second, want), "%s: %s, not %s", name[i / 2], second, want);
    chat_template_close(&t);
    state_free(state);
  }
  keeps = false;
}
END_TEST

Suite *chat_talk_suite(void);
Suite *chat_talk_suite(void) {
  Suite *s = suite_create("chat_talk");
  TCase *t = tcase_create("templates");
  const RegexApi *api;
  weft_error e;
  err_clear(&e);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, endings_and_prompts_of_templates, 0, LEN(templates));
  tcase_add_test(t, reasoning_that_a_prompt_begins);
  suite_add_tcase(s, t);
  if (regex_api(&api, &e) != WEFT_OK) {
    printf("skipped: conversations with a model: %s\n", e.text);
    return s;
  }
  t = tcase_create("conversations");
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_set_timeout(t, 240);
  tcase_add_test(t, a_conversation_from_a_checkpoint);
  tcase_add_test(t, an_answer_that_is_cut_inside_a_character);
  tcase_add_test(t, a_question_that_is_too_long);
  tcase_add_test(t, a_question_that_is_not_utf8);
  tcase_add_test(t, a_hub_folder_and_an_adapter);
  tcase_add_test(t, what_is_wrong_with_a_question);
  suite_add_tcase(s, t);
  return s;
}
