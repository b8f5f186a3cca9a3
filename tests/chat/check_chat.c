/* check_chat.c - conversations as ids and masks. The conversations, and what Transformers
 * makes of them with the templates of TRL, are in tests/chat, written by generate.py;
 * WEFT_CHAT_CASES names another folder with more of them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/chat/chat.h"
#include "bindings/plan_table/loaded_plan.h"
#include "tests/harness/scratch.h"
#include "vm/io/file.h"
#include "vm/text/regex.h"

static const char *folder(void) {
  const char *own = getenv("WEFT_CHAT_CASES");
  return own ? own : WEFT_SOURCE_DIR "/tests/chat";
}

static char *read_text(const char *name) {
  char *s;
  size_t n;
  const char *path = arena_printf(scratch_arena, "%s/%s", folder(), name);
  weft_status st = file_read(NULL, path, FILE_OWN_MAX, &s, &n, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", path, scratch_error.text);
  char *copy = arena_str(scratch_arena, s);
  mem_free(NULL, s, n + 1);
  return copy;
}

static LangState *new_state(void) {
  static const LangOptions none;
  LangState *s;
  ck_assert_int_eq(
      plan_state_new(&none, scratch_arena, "cases", "", NULL, &s, &scratch_error),
      WEFT_OK);
  return s;
}

/* ---- goldens ---- */

/* The spec of a case; the order in which roles come is as random as all else. */
static void push_case(lua_State *L, void *ud) {
  const json_t *c = ud;
  json_push_ordered(L, json_object_get(c, "options"));
  for (lua_Integer i = 0; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
    lua_pushnil(L);
    lua_rawseti(L, -3, i);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  lua_pushboolean(L, 1);
  lua_setfield(L, -2, "any_order");
  lua_newtable(L);
  lua_insert(L, -2);
  lua_setfield(L, -2, "options");
  lua_pushstring(L, json_string_value(json_object_get(c, "template")));
  lua_setfield(L, -2, "template");
  lua_pushliteral(L, "messages");
  lua_setfield(L, -2, "format");
  lua_pushliteral(L, "assistant");
  lua_setfield(L, -2, "train_on");
}

static void same(const json_t *want, const ChatText *text, const ChatTokens *got,
                 const char *where) {
  const json_t *ids = json_object_get(want, "ids"), *mask = json_object_get(want, "mask");
  const char *s = json_string_value(json_object_get(want, "text"));
  ck_assert_msg(strcmp(text->text.s, s) == 0, "%s:\n%s\nexpected:\n%s", where,
                text->text.s, s);
  ck_assert_uint_eq(got->ids.n, json_array_size(ids));
  for (size_t i = 0; i < got->ids.n; i++) {
    ck_assert_msg(got->ids.at[i] == json_integer_value(json_array_get(ids, i)),
                  "%s: id %zu", where, i);
    ck_assert_msg(!mask || got->learnt[i] == json_integer_value(json_array_get(mask, i)),
                  "%s: whether token %zu is learnt", where, i);
  }
}

static void check_case(json_t *c, const Tokenizer *t, LangState *state) {
  const char *name = json_string_value(json_object_get(c, "template"));
  TokenizerConfig config = {.bos = json_string_value(json_object_get(c, "bos"))};
  ChatOpen o = {.path = "cases", .push_spec = push_case, .ud = c, .config = &config};
  ChatTemplate template;
  ChatText text = {0};
  ChatTokens tokens = {0};
  size_t i;
  json_t *row;
  weft_status st = chat_template_open(state, &o, &template, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", name, scratch_error.text);
  json_array_foreach(json_object_get(c, "rows"), i, row) {
    const char *where = arena_printf(scratch_arena, "%s, row %zu", name, i);
    st = chat_render(&template, row, 0, &text, &scratch_error);
    ck_assert_msg(st == WEFT_OK, "%s: %s", where, scratch_error.text);
    ck_assert_int_eq(chat_tokens(t, &text, &tokens, &scratch_error), WEFT_OK);
    same(json_array_get(json_object_get(c, "want"), i), &text, &tokens, where);
  }
  chat_text_free(&text);
  chat_tokens_free(&tokens);
  chat_template_close(&template);
}

START_TEST(text_and_tokens_are_those_of_transformers) {
  int n = 0;
  LangState *state = new_state();
  char *line, *rest = read_text("chat.cases");
  while ((line = strsep(&rest, "\n")) && *line) {
    Tokenizer *t;
    json_t *c = json_loads(line, 0, NULL);
    const char *kind = json_string_value(json_object_get(c, "tokenizer"));
    const char *path = arena_printf(scratch_arena, "%s/%s.json", folder(), kind);
    ck_assert_int_eq(tokenizer_open(NULL, path, &t, &scratch_error), WEFT_OK);
    check_case(c, t, state);
    tokenizer_close(t);
    json_decref(c);
    n++;
  }
  ck_assert_int_ge(n, 16);
  state_free(state);
}
END_TEST

/* ---- messages that are said to be learnt ---- */

static const char *const with_system[] = {
    "chatml",      "deepseek", "deepseek-r1-distill",
    "deepseek-v3", "gemma3",   "gpt-oss",
    "llama3",      "llama3.1", "mistral",
    "qwen2.5",     "qwen3",    "smollm2"};

/* The learnt parts of the text, each in brackets. */
static const char *learnt_parts(const ChatText *text) {
  const char *s = "";
  for (size_t i = 0; i < text->n; i++) {
    ChatRange r = text->learnt[i];
    s = arena_printf(scratch_arena, "%s[%.*s]", s, (int)(r.to - r.from),
                     text->text.s + r.from);
  }
  return s;
}

/* A system message with "train": true is learnt wherever its template puts it, without
 * what else stands there: dates, tools, the question. */
START_TEST(system_messages_may_be_learnt) {
  LangState *state = new_state();
  const char *name = with_system[_i];
  json_t *c = json_pack("{s:s, s:{s:s, s:s}}", "template", name, "options", "bos", "<b>",
                        "eos", "<e>");
  if (strcmp(name, "gpt-oss") == 0)
    json_object_set_new(json_object_get(c, "options"), "date", json_string("today"));
  json_t *row =
      json_loads("{\"messages\": [{\"role\": \"system\", \"content\": \"be brief\","
                 " \"train\": true}, {\"role\": \"user\", \"content\": \"hi\"},"
                 " {\"role\": \"assistant\", \"content\": \"no\", \"weight\": 0}]}",
                 0, NULL);
  TokenizerConfig config = {.bos = NULL};
  ChatOpen o = {.path = "cases", .push_spec = push_case, .ud = c, .config = &config};
  ChatTemplate template;
  ChatText text = {0};
  weft_status st = chat_template_open(state, &o, &template, &scratch_error);
  if (st == WEFT_OK) st = chat_render(&template, row, 0, &text, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s: %s", name, scratch_error.text);
  static const char *const ends[] = {"", "<|im_end|>\n", "<|eot_id|>"};
  const char *got = learnt_parts(&text);
  bool same = false;
  for (int i = 0; i < LEN(ends); i++)
    same |= str_eq(got, arena_printf(scratch_arena, "[be brief%s]", ends[i]));
  ck_assert_msg(same, "%s: \"%s\" of %s", name, got, text.text.s);
  chat_text_free(&text);
  chat_template_close(&template);
  json_decref(row);
  json_decref(c);
  state_free(state);
}
END_TEST

/* ---- reasoning ---- */

#define ROW(answer)                                                                      \
  "{\"messages\": [{\"role\": \"user\", \"content\": \"2+2?\"}, "                        \
  "{\"role\": \"assistant\", " answer "}]}"
#define INSIDE  ROW("\"content\": \"<think>\\nadd two\\n</think>\\n\\nIt is 4\"")
#define BESIDE  ROW("\"content\": \"It is 4\", \"reasoning_content\": \"add two\"")
#define THOUGHT "<think>\nadd two\n</think>\n\n"
#define FROM    "[<｜Assistant｜>"
#define TO      "<｜end▁of▁sentence｜>]"

/* What is learnt of an answer with reasoning, and whether it is counted as one without;
 * or what is wrong. */
static const struct {
  const char *name;
  bool keeps;
  const char *row, *learnt;
  int64_t unreasoned;
  const char *error;
} reasoned[] = {
    {"deepseek-r1-distill", false, INSIDE, FROM "\n\nIt is 4" TO, 1, NULL},
    {"deepseek-r1-distill", false, BESIDE, FROM "It is 4" TO, 1, NULL},
    {"deepseek-r1-distill", true, INSIDE, FROM THOUGHT "It is 4" TO, 0, NULL},
    {"deepseek-r1-distill", true, BESIDE, FROM THOUGHT "It is 4" TO, 0, NULL},
    {"deepseek", false, INSIDE, FROM "\n\nIt is 4" TO, 1, NULL},
    {"deepseek", true, INSIDE, FROM THOUGHT "It is 4" TO, 0, NULL},
    {"deepseek", true, BESIDE, FROM THOUGHT "It is 4" TO, 0, NULL},
    {"deepseek-v3", false, INSIDE, FROM THOUGHT "It is 4" TO, 0, NULL},
    {"deepseek-v3", false, BESIDE, FROM "It is 4" TO, 1, NULL},
    {"qwen3", false, INSIDE, "[" THOUGHT "It is 4<|im_end|>\n]", 0, NULL},
    {"qwen3", false, BESIDE, "[" THOUGHT "It is 4<|im_end|>\n]", 0, NULL},
    {"chatml", false, INSIDE, "[" THOUGHT "It is 4<|im_end|>\n]", 0, NULL},
    {"chatml", false, BESIDE, "[It is 4<|im_end|>\n]", 1, NULL},
    {"deepseek", false, ROW("\"content\": \"It is 4\", \"reasoning\": \" \""),
     FROM "It is 4" TO, 0, NULL},
    {"deepseek", false, ROW("\"content\": \"<think>add two</think>\\n\""), NULL, 0,
     "answer 1 is empty without its reasoning, which the template leaves out"},
    {"deepseek", true, ROW("\"content\": \"<think>add two</think>\""),
     FROM "<think>add two</think>" TO, 0, NULL},
};

START_TEST(reasoning_is_learnt_or_counted) {
  LangState *state = new_state();
  json_t *c = json_pack("{s:s, s:{}}", "template", reasoned[_i].name, "options");
  if (reasoned[_i].keeps)
    json_object_set_new(json_object_get(c, "options"), "keep_reasoning", json_true());
  json_t *row = json_loads(reasoned[_i].row, 0, NULL);
  TokenizerConfig config = {.bos = NULL};
  ChatOpen o = {.path = "cases", .push_spec = push_case, .ud = c, .config = &config};
  ChatTemplate template;
  ChatText text = {0};
  weft_status st = chat_template_open(state, &o, &template, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  st = chat_render(&template, row, 0, &text, &scratch_error);
  if (reasoned[_i].error) {
    ck_assert_int_eq(st, WEFT_EPLAN);
    ck_assert_str_eq(scratch_error.text, reasoned[_i].error);
  } else {
    ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
    ck_assert_str_eq(learnt_parts(&text), reasoned[_i].learnt);
    ck_assert_int_eq(text.unreasoned, reasoned[_i].unreasoned);
  }
  chat_text_free(&text);
  chat_template_close(&template);
  json_decref(row);
  json_decref(c);
  state_free(state);
}
END_TEST

/* ---- which template a model has ---- */

static void no_template(lua_State *L, void *ud) {
  lua_newtable(L);
  lua_newtable(L);
  lua_setfield(L, -2, "options");
  lua_pushliteral(L, "messages");
  lua_setfield(L, -2, "format");
  lua_pushliteral(L, "all");
  lua_setfield(L, -2, "train_on");
}

/* "HASH NAME [OPTION]" of every template that is recognised. */
static void recognise(lua_State *L, void *ud) {
  char *line, *rest = ud;
  int n = 0;
  ck_assert(stdlib_push(L, "chat/chat"));
  while ((line = strsep(&rest, "\n")) && *line) {
    const char *hash = strsep(&line, " "), *name = strsep(&line, " ");
    lua_getfield(L, -1, "recognize");
    lua_pushstring(L, hash);
    lua_call(L, 1, 2);
    ck_assert_msg(!lua_isnil(L, -2), "%s: %s", name, hash);
    ck_assert_str_eq(lua_tostring(L, -2), name);
    if (line) ck_assert_int_eq(lua_getfield(L, -1, line), LUA_TBOOLEAN);
    lua_settop(L, 2);
    n++;
  }
  ck_assert_int_ge(n, 23);
}

START_TEST(templates_are_recognised_by_their_hash) {
  LangState *state = new_state();
  char hex[65];
  ck_assert_int_eq(state_protect(state, recognise, read_text("hashes"), &scratch_error),
                   WEFT_OK);
  state_free(state);
  chat_template_hash("\n abc \r\n", hex);
  ck_assert_str_eq(hex,
                   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
END_TEST

START_TEST(other_templates_are_errors) {
  /* The length is what Transformers writes where there is none. */
  static const char config[] = "{\"model_max_length\": 1000000000000000019884624838656,\n"
                               "\"chat_template\": \"{{ messages }}\"}";
  LangState *state = new_state();
  TokenizerConfig c;
  ChatTemplate template;
  ChatOpen o = {.path = "cases", .push_spec = no_template, .config = &c};
  ck_assert_int_eq(tokenizer_config_read(scratch_arena, scratch_dir, &c, &scratch_error),
                   WEFT_OK);
  ck_assert_int_eq(chat_template_open(state, &o, &template, &scratch_error), WEFT_EPLAN);
  ck_assert_ptr_nonnull(strstr(scratch_error.text, "has no chat_template; name one"));
  err_clear(&scratch_error);
  const char *path = scratch_put("tokenizer_config.json", config, sizeof config - 1);
  ck_assert_int_eq(tokenizer_config_read(scratch_arena, path, &c, &scratch_error),
                   WEFT_OK);
  ck_assert_int_eq(chat_template_open(state, &o, &template, &scratch_error), WEFT_EPLAN);
  ck_assert_ptr_nonnull(strstr(scratch_error.text, "function(messages, tools, options)"));
  state_free(state);
}
END_TEST

Suite *chat_suite(void);
Suite *chat_suite(void) {
  Suite *s = suite_create("chat");
  TCase *t = tcase_create("templates");
  const RegexApi *api;
  weft_error e;
  err_clear(&e);
  suite_add_tcase(s, t);
  if (regex_api(&api, &e) != WEFT_OK) {
    printf("chat: skipped: %s\n", e.text);
    return s;
  }
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 300);
  tcase_add_test(t, text_and_tokens_are_those_of_transformers);
  tcase_add_loop_test(t, system_messages_may_be_learnt, 0, LEN(with_system));
  tcase_add_loop_test(t, reasoning_is_learnt_or_counted, 0, LEN(reasoned));
  tcase_add_test(t, templates_are_recognised_by_their_hash);
  tcase_add_test(t, other_templates_are_errors);
  return s;
}
