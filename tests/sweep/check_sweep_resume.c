/* check_sweep_resume.c - rows of a file count only where all that they depend on is what
 * it was: a sweep of which something else has changed is refused. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/harness/process.h"

#define PLANS WEFT_SOURCE_DIR "/plans/"
#define USE   "local weft = require 'weft'\n"

static Outcome sweep(const char *option, const char *text) {
  scratch_put("s.lua", text, strlen(text));
  return process_run(60, "$weft sweep %s s.lua", option);
}

static void refused(Outcome o, const char *why) {
  ck_assert_msg(o.code == 2 && strstr(o.err, why), "exit %d\n%s%s", o.code, o.out, o.err);
}

/* A function may read anything, such as another plan with other fields. */
#define GIVEN                                                                            \
  USE "local function plan(p)\n"                                                         \
      "  return weft.load('" PLANS "quickstart.lua'):with { ['mesh.tp'] = p.tp }\n"      \
      "end\n"                                                                            \
      "print(weft.sweep { plan = plan, over = { { 'tp', 1, 2 } } })\n"

START_TEST(functions) {
  Outcome o = sweep("--jsonl f.jsonl", GIVEN);
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *rows = scratch_get(scratch_path("f.jsonl"));
  o = sweep("--resume f.jsonl", GIVEN);
  ck_assert_msg(o.code == 1, "exit %d\n%s%s", o.code, o.out, o.err);
  ck_assert_ptr_nonnull(strstr(o.err, "resume needs a plan or a file, not a function"));
  ck_assert_str_eq(scratch_get(scratch_path("f.jsonl")), rows);
  o = sweep("--jsonl f.jsonl", GIVEN);
  refused(o, "exists and is not empty; give another name");
}
END_TEST

static void put_model(const char *dir, int wide) {
  const char *text = arena_printf(
      scratch_arena,
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"vocab_size\": 128,\n"
      " \"intermediate_size\": %d, \"num_hidden_layers\": 2, \"rms_norm_eps\": 1e-5,\n"
      " \"num_attention_heads\": 4, \"num_key_value_heads\": 4,\n"
      " \"tie_word_embeddings\": false, \"max_position_embeddings\": 64}\n",
      wide);
  mkdir(scratch_path(dir), 0777);
  scratch_put(arena_printf(scratch_arena, "%s/config.json", dir), text, strlen(text));
}

static const char plan_of_folder[] =
    USE "return weft.plan { model = weft.hf { 'M', weights = false },\n"
        "  batch = { global = 8, seq = 16 } }\n";

/* The file is resumed while `change` has not been made, and refused then. */
static void follows(const char *text, void (*change)(void)) {
  Outcome o = sweep("--jsonl h.jsonl", text);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = sweep("--resume h.jsonl", text);
  ck_assert_msg(o.code == 0 && strstr(o.out, " of them before"), "%s%s", o.out, o.err);
  ck_assert_ptr_null(strstr(o.out, "points/s")); /* none was judged */
  change();
  refused(sweep("--resume h.jsonl", text), "is not of this sweep");
  ck_assert_int_eq(remove(scratch_path("h.jsonl")), 0);
}

static void widen(void) { put_model("M", 256); }
static void widen_other(void) { put_model("N", 256); }

START_TEST(folders) {
  put_model("M", 128);
  put_model("N", 128);
  scratch_put("p.lua", plan_of_folder, strlen(plan_of_folder));
  follows(
      "print(require 'weft'.sweep { plan = 'p.lua', over = { { 'mesh.tp', 1, 2 } } })\n",
      widen);
  follows(USE
          "print(weft.sweep { plan = 'p.lua', over = { { 'model',\n"
          "  weft.hf { 'M', weights = false }, weft.hf { 'N', weights = false } } } })\n",
          widen_other);
}
END_TEST

static void put_csv(const char *first) {
  const char *text = arena_printf(scratch_arena, "%s\n1F0,1F1,1B0,1B1\n", first);
  scratch_put("t.csv", text, strlen(text));
}
static void other_order(void) { put_csv("0F0,0F1,,,,0B0,0B1"); }

static const char plan_of_csv[] =
    USE "return weft.plan { model = weft.model 'llama-tiny', mesh = { pp = 2 },\n"
        "  schedule = weft.schedule_csv 't.csv',\n"
        "  batch = { global = 4, micro = 2, seq = 16 } }\n";

START_TEST(tables) {
  put_csv("0F0,0F1,0B0,0B1");
  scratch_put("p.lua", plan_of_csv, strlen(plan_of_csv));
  follows(USE
          "print(weft.sweep { plan = 'p.lua', over = { { 'batch.seq', 16, 32 } } })\n",
          other_order);
}
END_TEST

/* Figures of two builds may differ: which one wrote the rows is in the first line. */
START_TEST(versions) {
  static const char text[] = USE "print(weft.sweep { plan = '" PLANS "quickstart.lua',\n"
                                 "  over = { { 'mesh.tp', 1, 2 } } })\n";
  Outcome o = sweep("--jsonl v.jsonl", text);
  ck_assert_msg(o.code == 0, "%s", o.err);
  char *rows = arena_str(scratch_arena, scratch_get(scratch_path("v.jsonl")));
  char *at = strstr(rows, "\"weft\":\"");
  ck_assert_msg(at && at < strchr(rows, '\n'), "%s", rows);
  at[8]++;
  scratch_put("v.jsonl", rows, strlen(rows));
  o = sweep("--resume v.jsonl", text);
  refused(o, "was written by weft ");
  ck_assert_str_eq(scratch_get(scratch_path("v.jsonl")), rows);
}
END_TEST

/* Rows behind a gap, as an interrupted sweep leaves them, are in the file while the gap
 * is filled, too: the sweep may be killed then. The rows are in order in the end. */
START_TEST(rows_behind_a_gap) {
  static const char text[] =
      USE "local sizes = { 'batch.global' }\n"
          "for i = 1, 1500 do sizes[i + 1] = 8 * i end\n"
          "print(weft.sweep { plan = '" PLANS "quickstart.lua', over = { sizes } })\n";
  Outcome o = sweep("--jsonl g.jsonl", text);
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *whole = arena_str(scratch_arena, scratch_get(scratch_path("g.jsonl")));
  const char *second = strchr(strchr(whole, '\n') + 1, '\n') + 1;
  const char *last = strrchr(arena_strn(scratch_arena, whole, strlen(whole) - 1), '\n');
  const char *part =
      arena_printf(scratch_arena, "%.*s%s\n", (int)(second - whole), whole, last + 1);
  scratch_put("g.jsonl", part, strlen(part));
  Process p = process_start(60, "$weft sweep --resume g.jsonl s.lua");
  bool goes_on = process_wait_for(&p, scratch_path("g.jsonl"), "\"n\":1,");
  kill(p.pid, SIGKILL);
  o = process_end(&p);
  ck_assert_msg(goes_on, "%d: %s", o.code, o.err);
  ck_assert_ptr_nonnull(strstr(scratch_get(scratch_path("g.jsonl")), last));
  o = sweep("--resume g.jsonl", text);
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_str_eq(scratch_get(scratch_path("g.jsonl")), whole);
}
END_TEST

Suite *sweep_resume_suite(void) {
  Suite *s = suite_create("sweep_resume");
  TCase *t = tcase_create("sweep_resume");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, functions);
  tcase_add_test(t, folders);
  tcase_add_test(t, tables);
  tcase_add_test(t, versions);
  tcase_add_test(t, rows_behind_a_gap);
  suite_add_tcase(s, t);
  return s;
}
