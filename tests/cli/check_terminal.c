/* check_terminal.c - text of plans, files and peers on a terminal: nothing in it acts
 * there or looks like a line of its own. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/harness/process.h"
#include "vm/base/diag.h"
#include "vm/base/terminal.h"

/* ---- the function ---- */

static char *shown(const char *s, ShownLines lines) {
  Text t = {0};
  size_t n = strlen(s);
  text_add(&t, "");
  ck_assert_uint_eq(text_add_shown(&t, s, n, lines, true), n);
  return t.s;
}

START_TEST(what_is_shown) {
  static const struct {
    const char *text, *name, *message, *lines;
  } row[] = {
      {"", "", "", ""},
      {"layers.0.mlp", "layers.0.mlp", "layers.0.mlp", "layers.0.mlp"},
      {"Zürich 日本 🙂", "Zürich 日本 🙂", "Zürich 日本 🙂",
       "Zürich 日本 🙂"},
      {"a\\n", "a\\n", "a\\n", "a\\n"},
      {"a\nb", "a\\nb", "a\\nb", "a\nb"},
      {"a\n  b\n", "a\\n  b\\n", "a\n  b\\n", "a\n  b\n"},
      {"a\n b\tc\rd", "a\\n b\\tc\\rd", "a\\n b\\tc\\rd", "a\n b\tc\\rd"},
      {"\33[2J\a\177", "\\x1b[2J\\x07\\x7f", "\\x1b[2J\\x07\\x7f", "\\x1b[2J\\x07\\x7f"},
      {"\xc2\x9b"
       "31m",
       "\\u{9b}31m", "\\u{9b}31m", "\\u{9b}31m"},
      {"a\xe2\x80\xae"
       "b\xe2\x81\xa6",
       "a\\u{202e}b\\u{2066}", "a\\u{202e}b\\u{2066}", "a\\u{202e}b\\u{2066}"},
      {"\xe2\x80\x8b\xef\xbb\xbf\xd8\x9c", "\\u{200b}\\u{feff}\\u{61c}",
       "\\u{200b}\\u{feff}\\u{61c}", "\\u{200b}\\u{feff}\\u{61c}"},
      {"\xf3\xa0\x81\x81", "\\u{e0041}", "\\u{e0041}", "\\u{e0041}"},
      /* No UTF-8: a lone byte, a longer form than need be, a surrogate, a cut end. */
      {"\x9b"
       "1",
       "\\x9b1", "\\x9b1", "\\x9b1"},
      {"\xc0\x8a", "\\xc0\\x8a", "\\xc0\\x8a", "\\xc0\\x8a"},
      {"\xe0\x82\x9b", "\\xe0\\x82\\x9b", "\\xe0\\x82\\x9b", "\\xe0\\x82\\x9b"},
      {"\xed\xa0\x80", "\\xed\\xa0\\x80", "\\xed\\xa0\\x80", "\\xed\\xa0\\x80"},
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", "\\xf4\\x90\\x80\\x80",
       "\\xf4\\x90\\x80\\x80"},
      {"\xe6\x97", "\\xe6\\x97", "\\xe6\\x97", "\\xe6\\x97"},
  };
  Arena *a = arena_new(NULL);
  for (int i = 0; i < LEN(row); i++) {
    const char *want[] = {row[i].name, row[i].message, row[i].lines};
    for (int k = 0; k < 3; k++) {
      char *s = shown(row[i].text, (ShownLines)k), room[512];
      ck_assert_str_eq(s, want[k]);
      ck_assert_str_eq(arena_shown(a, arena_str(a, row[i].text), (ShownLines)k), want[k]);
      snprintf(room, sizeof room, "%s", row[i].text);
      show_in(room, sizeof room, (ShownLines)k);
      ck_assert_str_eq(room, want[k]);
      free(s);
    }
    ck_assert_str_eq(SHOWN(row[i].text), row[i].name);
    ck_assert(has_control(row[i].text) == (strcmp(row[i].text, row[i].name) != 0));
  }
  ck_assert_str_eq(SHOWN(NULL), "");
  arena_free(a);
}
END_TEST

/* What is written out is not cut in two, nor is a character. */
START_TEST(it_fits) {
  char small[8] = "abc\33de";
  show_in(small, sizeof small, ONE_LINE);
  ck_assert_str_eq(small, "abc\\x1b");
  char wide[8] = "abcde\xc3\xbc";
  show_in(wide, sizeof wide, ONE_LINE);
  ck_assert_str_eq(wide, "abcde\xc3\xbc");
  ck_assert_str_eq(show_name("abc\xe6\x97\xa5", (char[6]){0}, 6), "abc");
  /* A character that comes in two pieces waits for the second. */
  Text t = {0};
  ck_assert_uint_eq(text_add_shown(&t, "a\xe6\x97", 3, FREE_LINES, false), 1);
  ck_assert_uint_eq(text_add_shown(&t, "\xe6\x97\xa5", 3, FREE_LINES, false), 3);
  ck_assert_str_eq(t.s, "a\xe6\x97\xa5");
  text_free(&t);
}
END_TEST

/* No byte of random text acts, and showing it again changes nothing. */
START_TEST(random_bytes) {
  static const char pool[] =
      "a \n\t\33\x9b\xc2\x80\xe2\x80\xae\xf3\xa0\x81\xef\xbb\xbf\\";
  uint64_t state = 1;
  for (int i = 0; i < 20000; i++) {
    char s[24], room[512];
    for (int k = 0; k < 23; k++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      s[k] = pool[(state >> 33) % (sizeof pool - 1)];
    }
    s[23] = 0;
    const char *name = show_name(s, room, sizeof room);
    for (const char *p = name; *p; p++)
      ck_assert_msg((unsigned char)*p >= ' ' && *p != 127, "%s", name);
    ck_assert(!has_control(name));
    char *once = shown(s, ONE_LINE);
    ck_assert_str_eq(once, name);
    free(once);
  }
}
END_TEST

/* ---- channels ---- */

#define EVIL   "a\\nforged: all is well\\27[2J\\7\\194\\155\\226\\128\\174z" /* in Lua */
#define EVIL_C "a\nforged: all is well\33[2J\a\xc2\x9b\xe2\x80\xaez"
#define EVIL_SHELL                                                                       \
  "$(printf 'a\\nforged: all is well\\033[2J\\007\\302\\233\\342\\200\\256z')"

static void harmless(const char *what, const char *s) {
  ck_assert_msg(strncmp(s, "forged", 6) != 0 && !strstr(s, "\nforged"), "%s:\n%s", what,
                s);
  for (const char *p = s; *p; p++)
    ck_assert_msg(((unsigned char)*p >= ' ' && *p != 127) || strchr("\n\t", *p),
                  "%s:\n%s", what, s);
  ck_assert_msg(!strstr(s, "\xc2\x9b") && !strstr(s, "\xe2\x80\xae"), "%s:\n%s", what, s);
}

static Outcome harmless_run(const char *what, const char *command) {
  Process p = process_start(60, "%s", command);
  Outcome o = process_end(&p);
  harmless(what, o.out);
  harmless(what, o.err);
  return o;
}

/* The command's output, which has the word in it. */
static void run(const char *what, const char *word, const char *command) {
  Outcome o = harmless_run(what, command);
  ck_assert_msg(strstr(o.out, word) || strstr(o.err, word), "%s:\n%s\n%s", what, o.out,
                o.err);
}

#define MODEL "model = weft.model 'llama-tiny', batch = { global = 8, seq = 16 }"
#define FULL  "all is well"

START_TEST(plans) {
  static const struct {
    const char *what, *word, *text;
  } plan[] = {
      {"name", "plan.name: a string of a plan has no control characters",
       "return weft.plan { name = '" EVIL "', " MODEL " }"},
      {"key", FULL, "return weft.plan { ['" EVIL "'] = 1, " MODEL " }"},
      {"key of a key", FULL,
       "return weft.plan { mesh = { ['" EVIL "'] = 1 }, " MODEL " }"},
      {"value", "plan.schedule", "return weft.plan { schedule = '" EVIL "', " MODEL " }"},
      {"file", "plan.data",
       "return weft.plan { data = weft.text '" EVIL "', " MODEL " }"},
      {"axis", "plan.mesh.order",
       "return weft.plan { mesh = { order = { '" EVIL "' } }, " MODEL " }"},
      {"model", "plan.model",
       "return weft.plan { model = weft.model '" EVIL
       "', batch = { global = 1, seq = 1 } }"},
      {"error", FULL, "error('" EVIL "')"},
      {"error without a place", FULL, "error('" EVIL "', 0)"},
      {"error that is a table", FULL,
       "error(setmetatable({}, { __tostring = function() return '" EVIL "' end }))"},
      {"name of a type", FULL, "return 1 + setmetatable({}, { __name = '" EVIL "' })"},
      {"global", FULL, "return _ENV['" EVIL "']"},
      {"module", FULL, "require '" EVIL "'"},
      {"member", FULL, "return weft['" EVIL "']"},
      {"parameter", FULL,
       "return weft.plan { model = function(g) g:param('" EVIL "', { { 'a', 2 } }) end, "
       "batch = { global = 8, seq = 16 } }"},
      {"module of an op", FULL,
       "return weft.plan { model = function(g) local w = g:param('w', { { 'vocab', 8 }, "
       "{ 'hidden', 8 } }) g:embedding(g:tokens(), w, { name = '" EVIL "' }) end, "
       "batch = { global = 8, seq = 16 } }"},
      {"method", FULL,
       "return weft.plan { model = function(g) g['" EVIL
       "'](g) end, batch = { global = 8, "
       "seq = 16 } }"},
      {"schedule's error", FULL,
       "return weft.plan { schedule = function(s) error('" EVIL
       "') end, mesh = { pp = 2 }, " MODEL " }"},
  };
  for (int i = 0; i < LEN(plan); i++) {
    char text[1200];
    int n = snprintf(text, sizeof text, "local weft = require 'weft'\n%s", plan[i].text);
    scratch_put("plan.lua", text, (size_t)n);
    run(plan[i].what, plan[i].word, "$weft check plan.lua");
    harmless_run(plan[i].what, "$weft check plan.lua --json");
  }
}
END_TEST

/* A plan's print may have lines, and nothing else that acts. */
START_TEST(print_of_a_plan) {
  static const char text[] = "print('one\\ntwo\\tthree\\27[2J\\7')\nreturn {}";
  scratch_put("plan.lua", text, sizeof text - 1);
  Process p = process_start(20, "$weft check plan.lua");
  Outcome o = process_end(&p);
  ck_assert_msg(strstr(o.err, "one\ntwo\tthree\\x1b[2J\\x07\n"), "%s", o.err);
}
END_TEST

START_TEST(paths_and_arguments) {
  static const char good[] = "return require 'weft'.plan { "
                             "model = require 'weft'.model "
                             "'llama-tiny', batch = { global = 8, seq = 16 } }";
  scratch_put("good.lua", good, sizeof good - 1);
  scratch_put(EVIL_C ".lua", "return 1", 8);
  scratch_put("ok" EVIL_C ".lua", good, sizeof good - 1);
  run("name of a plan without one", FULL, "$weft check \"ok" EVIL_SHELL ".lua\"");
  run("file of a plan", FULL, "$weft check \"" EVIL_SHELL ".lua\"");
  run("no such file", FULL, "$weft check \"no" EVIL_SHELL "\"");
  run("verb", FULL, "$weft \"" EVIL_SHELL "\"");
  run("option", FULL, "$weft check \"--" EVIL_SHELL "\" good.lua");
  run("--set", FULL, "$weft check --set \"" EVIL_SHELL "=1\" good.lua");
  run("--set to", "plan.name", "$weft check --set \"name=" EVIL_SHELL "\" good.lua");
  run("device", FULL, "$weft run --device \"" EVIL_SHELL "\" good.lua");
  run("checkpoint", FULL, "$weft ckpt ls \"" EVIL_SHELL "\"");
}
END_TEST

/* The name of an architecture, and keys that are not known. */
START_TEST(files_of_models) {
  static const char config[] =
      "{ \"model_type\": \"a\\nforged: all is well\\u001b[2J\\u0007\\u009b\\u202ez\" }";
  static const char keys[] =
      "{ \"model_type\": \"llama\", \"hidden_size\": \"a\\nforged: all is "
      "well\\u001b[2J\", "
      "\"a\\nforged: all is well\\u001b[2J\\u0007\\u009b\\u202ez\": 4 }";
  static const char plan[] =
      "local weft = require 'weft'\nreturn weft.plan { model = weft.hf "
      "'hub', batch = { global = 8, seq = 16 } }";
  ck_assert_int_eq(mkdir(scratch_path("hub"), 0755), 0);
  scratch_put("plan.lua", plan, sizeof plan - 1);
  scratch_put("hub/config.json", config, sizeof config - 1);
  run("model_type", FULL, "$weft check plan.lua");
  scratch_put("hub/config.json", keys, sizeof keys - 1);
  run("keys", FULL, "$weft check plan.lua");
}
END_TEST

/* What a peer says becomes an error's text, and what a plan says a diagnostic's. */
START_TEST(errors_and_diagnostics) {
  weft_error e;
  err_clear(&e);
  err_file(&e, WEFT_ERUN, EVIL_C, 0, "rank 3 on host %s: %s", EVIL_C, EVIL_C);
  harmless("text", e.text);
  harmless("file", e.file);
  ck_assert_ptr_null(strchr(e.text, '\n'));
  Diags d = {.arena = arena_new(NULL)};
  harmless("summary", diag_error(&d, "type", "", "%s", EVIL_C)->summary);
  arena_free(d.arena);
}
END_TEST

Suite *terminal_suite(void) {
  Suite *s = suite_create("terminal");
  TCase *c = tcase_create("text");
  tcase_add_test(c, what_is_shown);
  tcase_add_test(c, it_fits);
  tcase_add_test(c, random_bytes);
  tcase_add_test(c, errors_and_diagnostics);
  suite_add_tcase(s, c);
  c = tcase_create("channels");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_test(c, plans);
  tcase_add_test(c, print_of_a_plan);
  tcase_add_test(c, paths_and_arguments);
  tcase_add_test(c, files_of_models);
  suite_add_tcase(s, c);
  return s;
}
