/* check_sample.c - weft sample beside what it computes: bytes that are no text, results
 * before an error, files of --weights, the room that messages name, and prompts of
 * models that are others for long texts. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "tests/harness/process.h"
#include "tests/harness/terminal.h"

enum { SECONDS = 60 };

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

static const char *run(int code, const char *err, const char *command) {
  Outcome o = process_run(SECONDS, "%s", command);
  ck_assert_msg(o.code == code && strstr(o.err, err), "%s: %d\n%s%s", command, o.code,
                o.out, o.err);
  return o.out;
}

static json_t *result(const char *out, json_t **doc) {
  *doc = json_loads(out, JSON_ALLOW_NUL, NULL);
  return json_object_get(*doc, "result");
}

static void check_text(const json_t *one, const char *text, size_t n, const char *ended) {
  const json_t *s = json_object_get(one, "text");
  ck_assert_uint_eq(json_string_length(s), n);
  ck_assert_mem_eq(json_string_value(s), text, n);
  ck_assert_str_eq(json_string_value(json_object_get(one, "ended")), ended);
}

/* ---- a model of bytes that says what its weights say ---- */

enum { VOCAB = 320, WIDTH = 4, NEXT = 3 };

/* 'a' is followed by a byte 0, that by id 300, that by 'b', and after 'x' nothing is a
 * number. */
static void put_weights(const char *name) {
  static const int token[NEXT] = {'a', 0, 300}, next[NEXT] = {0, 300, 'b'};
  static float value[2][VOCAB][WIDTH];
  char header[256] = {0};
  Text t = {0};
  memset(value, 0, sizeof value);
  for (int i = 0; i < NEXT; i++) value[0][token[i]][i] = 1, value[1][next[i]][i] = 1;
  for (int k = 0; k < WIDTH; k++) value[0]['x'][k] = NAN;
  int bytes = VOCAB * WIDTH * (int)sizeof(float);
  snprintf(header, sizeof header,
           "{\"t\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
           "\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}}",
           VOCAB, WIDTH, bytes, VOCAB, WIDTH, bytes, 2 * bytes);
  uint64_t n = strlen(header);
  text_addn(&t, (const char *)&n, sizeof n);
  text_addn(&t, header, n);
  text_addn(&t, (const char *)value, sizeof value);
  scratch_put(name, t.s, t.n);
  text_free(&t);
}

static void put_bytes(void) {
  put("plan.lua",
      "local weft = require 'weft'\n"
      "local function f(g)\n"
      "  local size = { { 'vocab', 320 }, { 'hidden', 4 } }\n"
      "  local x = g:unit('embed', function()\n"
      "    return g:embedding(g:tokens(), g:param('t', size)) end)\n"
      "  return g:unit('head', function()\n"
      "    return g:cross_entropy(g:linear(x, g:param('w', size)), g:labels()) end)\n"
      "end\n"
      "return weft.plan { model = f, batch = { global = 1, seq = 8 },\n"
      "  data = weft.text { 'a.txt' }, train = { steps = 1 } }\n");
  put("a.txt", "a text of bytes");
  put_weights("w.safetensors");
}

#define BYTES "sample plan.lua --weights w.safetensors --greedy --max-tokens 3 "
#define SAID  "\0\xef\xbf\xbd"
#define ALL   SAID "b"

START_TEST(bytes_that_are_no_text) {
  json_t *doc;
  put_bytes();
  check_text(result(run(0, "", "$weft " BYTES "--json --prompt a"), &doc), ALL,
             sizeof ALL - 1, "length");
  json_decref(doc);
  check_text(result(run(0, "", "$weft " BYTES "--json --prompt a --stop b"), &doc), SAID,
             sizeof SAID - 1, "stop");
  json_decref(doc);
  /* The lowest byte of 300. */
  check_text(result(run(0, "", "$weft " BYTES "--json --prompt a --stop ,"), &doc), ALL,
             sizeof ALL - 1, "length");
  json_decref(doc);
  run(0, "", "sh -c '$weft " BYTES "--prompt a >said'");
  run(0, "", "sh -c 'printf \"a\\000\\357\\277\\275b\\n\" >want; cmp said want'");
  Terminal *t = terminal_start(arena_printf(
      scratch_arena, "$weft sample %s --weights %s --greedy --max-tokens 3 --prompt a",
      scratch_path("plan.lua"), scratch_path("w.safetensors")));
  terminal_wait(t, "a\\x00\xef\xbf\xbd"
                   "b");
  ck_assert_int_eq(terminal_end(t), 0);
}
END_TEST

/* What was complete before an error is in the result. */
START_TEST(results_before_an_error) {
  json_t *doc;
  put_bytes();
  const char *failed = "after token 0 the logit of token 0 is nan";
  const json_t *r =
      result(run(1, "", "$weft " BYTES "--json --prompt a --prompt x --prompt a"), &doc);
  const json_t *all = json_object_get(r, "samples");
  ck_assert_int_eq(json_array_size(all), 1);
  check_text(json_array_get(all, 0), ALL, sizeof ALL - 1, "length");
  const json_t *said = json_array_get(json_object_get(doc, "diagnostics"), 0);
  ck_assert_str_eq(json_string_value(json_object_get(said, "severity")), "error");
  json_decref(doc);
  r = result(run(1, "", "$weft " BYTES "--json --prompt x"), &doc);
  ck_assert(json_is_null(r));
  json_decref(doc);
  run(1, failed, "$weft " BYTES "--prompt a --prompt x");
}
END_TEST

/* ---- what a message names ---- */

/* The settings that the error of a command names, as it writes them. */
static const char *room_of(const char *command) {
  const char *err = process_run(SECONDS, "%s", command).err, *at = strstr(err, "(--set ");
  const char *end = at ? strstr(at, " has room for them)") : NULL;
  ck_assert_msg(at && end, "%s: %s", command, err);
  return arena_strn(scratch_arena, at + 1, (size_t)(end - at - 1));
}

START_TEST(room_that_a_plan_takes) {
  put("a.txt", "a text that is long enough for a row of bytes, and for another one\n");
  put("plan.lua",
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
      "    num_hidden_layers = 1, num_attention_heads = 4, intermediate_size = 16,\n"
      "    vocab_size = 256 },\n"
      "  mesh = { tp = 2, cp = weft.var('cp', 1) },\n"
      "  strategy = { 'zero', sequence_parallel = true },\n"
      "  batch = { global = 1, seq = 16 },\n"
      "  packed = weft.var('packed', false) and { size = 16, eot = 10,\n"
      "    too_long = 'split' } or nil,\n"
      "  data = weft.text { 'a.txt' }, train = { steps = 1 },\n"
      "  checkpoint = { dir = 'ck' } }\n");
  run(0, "", "$weft run plan.lua --quiet");
  static const char *const more[] = {"", "-D cp=2", "-D packed=true"};
  static const char *const room[] = {"--set batch.seq=32", "--set batch.seq=32",
                                     "--set batch.seq=32 --set packed.size=32"};
  for (int i = 0; i < LEN(more); i++) {
    const char *command = arena_printf(
        scratch_arena, "$weft sample plan.lua --ckpt ck --prompt abc --max-tokens 28 %s",
        more[i]);
    const char *settings = room_of(command);
    ck_assert_str_eq(settings, room[i]);
    run(0, "", arena_printf(scratch_arena, "%s %s", command, settings));
  }
}
END_TEST

/* ---- files of weights ---- */

/* A file is as good as the folder that it is in. */
START_TEST(ends_beside_a_file) {
  json_t *doc;
  put_bytes();
  put("generation_config.json", "{\"eos_token_id\": 300}");
  static const char *const weights[] = {".", "w.safetensors", "./w.safetensors"};
  put_weights("model.safetensors");
  for (int i = 0; i < LEN(weights); i++) {
    const json_t *r = result(
        run(0, "",
            arena_printf(scratch_arena,
                         "$weft sample plan.lua --weights %s --greedy --max-tokens 3 "
                         "--json --prompt a",
                         weights[i])),
        &doc);
    check_text(r, SAID, 1, "eos");
    json_decref(doc);
  }
}
END_TEST

/* ---- models that are others for long texts ---- */

/* The first 14 tokens of text `i` of a command. */
static const char *text_of(const char *prompts, int most, size_t i) {
  json_t *doc;
  const json_t *r =
      result(run(0, "",
                 arena_printf(
                     scratch_arena,
                     "$weft sample plan.lua --ckpt ck --greedy --max-tokens %d --json %s",
                     most, prompts)),
             &doc);
  const json_t *all = json_object_get(r, "samples");
  const json_t *tokens = json_object_get(all ? json_array_get(all, i) : r, "tokens");
  const char *out = "";
  for (size_t k = 0; k < 14; k++)
    out = arena_printf(scratch_arena, "%s %lld", out,
                       (long long)json_integer_value(json_array_get(tokens, k)));
  json_decref(doc);
  return out;
}

START_TEST(each_prompt_by_its_own_length) {
#define SHORT "--prompt abcdefgh "
#define LONG  "--prompt abcdefghijklmnopqrst "
  put("a.txt",
      "some bytes that nothing is learnt of, but that a row has, and one more\n");
  put("plan.lua",
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'phi3', hidden_size = 32,\n"
      "    initializer_range = 0.3, num_hidden_layers = 2, num_attention_heads = 4,\n"
      "    num_key_value_heads = 4, intermediate_size = 64, vocab_size = 256,\n"
      "    max_position_embeddings = 64, original_max_position_embeddings = 16,\n"
      "    rope_scaling = { type = 'longrope', short_factor = { 1, 2, 3, 4 },\n"
      "      long_factor = { 3, 6, 9, 12 } } },\n"
      "  batch = { global = 1, seq = 64 }, optimizer = weft.adamw { lr = 1e-6 },\n"
      "  data = weft.text { 'a.txt' }, train = { steps = 1 },\n"
      "  checkpoint = { dir = 'ck' } }\n");
  run(0, "", "$weft run plan.lua --quiet");
  const char *one = text_of(SHORT, 6, 0), *other = text_of(LONG, 6, 0);
  static const char *const all[] = {SHORT LONG SHORT, LONG SHORT LONG};
  for (size_t i = 0; i < 3; i++) {
    ck_assert_str_eq(text_of(all[0], 6, i), i == 1 ? other : one);
    ck_assert_str_eq(text_of(all[1], 6, i), i == 1 ? one : other);
  }
  ck_assert_str_ne(text_of(SHORT, 9, 0), one); /* the other list gives another text */
}
END_TEST

Suite *sample_suite(void);
Suite *sample_suite(void) {
  Suite *s = suite_create("sample");
  TCase *t = tcase_create("sample");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, bytes_that_are_no_text);
  tcase_add_test(t, results_before_an_error);
  tcase_add_test(t, room_that_a_plan_takes);
  tcase_add_test(t, ends_beside_a_file);
  tcase_add_test(t, each_prompt_by_its_own_length);
  suite_add_tcase(s, t);
  return s;
}
