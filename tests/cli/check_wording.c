/* check_wording.c - what a user reads: one of a thing is said in the singular by every
 * screen, and a terminal that shows a plan and a report shows nothing twice. */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/process.h"
#include "tests/harness/terminal.h"

static void put(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

/* The first "1 things" of a text, or NULL: a one that is no part of another number, and
 * behind it a word that ends with one s; "1 s" is a second. */
static const char *plural_of_one(const char *text) {
  for (const char *s = strstr(text, "1 "); s; s = strstr(s + 1, "1 ")) {
    if (s > text && (isalnum((unsigned char)s[-1]) || strchr(".,/-=", s[-1]))) continue;
    const char *word = s + 2, *end = word;
    while (islower((unsigned char)*end)) end++;
    if (end - word > 2 && end[-1] == 's' && end[-2] != 's' && *end != '/') return s;
  }
  return NULL;
}

START_TEST(one_is_singular) {
  static const char *const verb[] = {
      "check one.lua",
      "verify one.lua --steps 1",
      "run one.lua",
      "report one.lua",
      "show mesh one.lua",
      "show stages one.lua",
      "show schedule one.lua",
      "show memory one.lua",
      "show comm one.lua",
      "show rank 0 one.lua",
      "show program 0 one.lua",
      "sim one.lua --set cluster=h100-sxm",
      "launch one.lua --mpirun",
      "best one.lua clock=1 --set cluster=h100-sxm",
      "sweep one_point.lua",
      "lua plan_object.lua",
      "ckpt ls ckpt",
      "ckpt verify ckpt",
      "ckpt diff ckpt ckpt",
      "ckpt plan one.lua",
      "eval one.lua --ckpt ckpt",
  };
  put("one.lua", "local weft = require \"weft\"\n"
                 "return weft.plan {\n"
                 "  name = \"one\",\n"
                 "  model = weft.model { \"llama-tiny\", num_hidden_layers = 1 },\n"
                 "  mesh = { world = 1 },\n"
                 "  batch = { global = 1, micro = 1, seq = 16 },\n"
                 "  data = weft.synthetic {},\n"
                 "  train = { steps = 1 },\n"
                 "  checkpoint = { dir = \"ckpt\" },\n"
                 "}\n");
  put("one_point.lua", "local weft = require \"weft\"\n"
                       "print(weft.sweep { plan = \"one.lua\", over = weft.grid { { "
                       "\"mesh.tp\", 1 } } })\n");
  put("plan_object.lua", "local weft = require \"weft\"\n"
                         "local p = weft.load \"one.lua\"\n"
                         "print(p, p.mesh, p:verify { steps = 1 })\n");
  ck_assert(plural_of_one("in 1 steps") && plural_of_one("1 microbatches, "));
  ck_assert(!plural_of_one("in 1 step; 11 steps, 2.1 tokens, 1 s, 1 pass, 1/1 rows"));
  for (int i = 0; i < LEN(verb); i++) {
    Outcome o = process_run(60, "$weft %s", verb[i]);
    const char *wrong = plural_of_one(o.out);
    if (!wrong) wrong = plural_of_one(o.err);
    ck_assert_msg(o.code == 0, "weft %s: %d: %s%s", verb[i], o.code, o.out, o.err);
    ck_assert_msg(!wrong, "weft %s: %.80s", verb[i], wrong);
    ck_assert_msg(!strstr(o.out, "one rank, 1 rank"), "weft %s: %s", verb[i], o.out);
  }
}
END_TEST

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *s = strstr(text, what); s; s = strstr(s + 1, what)) n++;
  return n;
}

/* The comments of an imported plan say what its report says. */
START_TEST(import_lists_once) {
  put("t.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
                "[training]\nlocal_batch_size = 1\nseq_len = 2048\nsteps = 10\n");
  Terminal *t =
      terminal_start(arena_printf(scratch_arena, "$weft import %s/t.toml", scratch_dir));
  ck_assert_int_eq(terminal_end(t), 0);
  const char *screen = terminal_rows(t, 0, t->row);
  ck_assert_msg(count(screen, "made-up tokens") == 2, "%s",
                screen); /* the field, the list */
  ck_assert_msg(strstr(screen, "settings of torchtitan: 5 translated, 4 assumed; "), "%s",
                screen);
  Outcome o = process_run(20, "$weft import t.toml");
  ck_assert_msg(strstr(o.err, "translated (5):\n"), "%s", o.err);
}
END_TEST

Suite *wording_suite(void) {
  Suite *s = suite_create("wording");
  TCase *t = tcase_create("wording");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 200);
  tcase_add_test(t, one_is_singular);
  tcase_add_test(t, import_lists_once);
  suite_add_tcase(s, t);
  return s;
}
