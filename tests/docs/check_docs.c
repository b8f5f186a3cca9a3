/* check_docs.c - the pages that repeat what the code says must say the same. */
#include <check.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/lang/report.h"
#include "bindings/script/api_doc.h"
#include "bindings/model/model.h"
#include "bindings/sandbox/stdlib.h"
#include "bindings/schema/schema.h"
#include "tests/harness/process.h"
#include "vm/io/io.h"

/* The page ends with what `write` writes, after the comment that begins so. */
static void ends_with(const char *path, const char *source, void (*write)(Text *out)) {
  char *page = NULL, marker[128];
  size_t n = 0;
  weft_error e = {.rank = -1};
  weft_status st = file_read(NULL, path, FILE_OWN_MAX, &page, &n, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  snprintf(marker, sizeof marker, "<!-- below: ./dev docs, from %s -->\n", source);
  const char *tables = strstr(page, marker);
  ck_assert_msg(tables != NULL, "%s has no line %s", path, marker);
  Text want = {0};
  write(&want);
  ck_assert_msg(strcmp(tables + strlen(marker), want.s) == 0,
                "%s differs from %s: run ./dev docs", path, source);
  text_free(&want);
  mem_free(NULL, page, n + 1);
}

START_TEST(plan_md_lists_the_fields) {
  ends_with(WEFT_SOURCE_DIR "/docs/plan.md", "bindings/schema/schema.def",
            schema_markdown);
}
END_TEST

/* Each symbol of a layout is one that plans may have. */
START_TEST(plan_md_explains_layouts) {
  static const char plan[] =
      "local weft = require 'weft'\nreturn weft.plan { model = weft.model { "
      "'llama-tiny', "
      "num_hidden_layers = 4 },\n  mesh = { pp = 2 }, mtp = { num_layers = 1 }, "
      "pp_plan = { layout = 'Et*2|tt mL' },\n  batch = { global = 2, micro = 1, seq = 8 "
      "} "
      "}\n";
  scratch_put("layout.lua", plan, strlen(plan));
  Outcome o = process_run(30, "$weft check layout.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *row =
      strstr(scratch_get(WEFT_SOURCE_DIR "/docs/plan.md"), "\n| `layout = ");
  ck_assert_ptr_nonnull(row);
  row = arena_strn(scratch_arena, row + 1, strcspn(row + 1, "\n"));
  static const char *const symbol[] = {"`E` ", "`t` ", "`m` ", "`L` ", "`x*n` "};
  for (int i = 0; i < LEN(symbol); i++)
    ck_assert_msg(strstr(row, symbol[i]) != NULL, "%s: %s", symbol[i], row);
  ck_assert_msg(!strstr(row, "error"), "%s", row);
}
END_TEST

START_TEST(scripting_md_lists_the_functions) {
  ends_with(WEFT_SOURCE_DIR "/docs/scripting.md", "bindings/script/api_doc.def",
            api_doc_markdown);
}
END_TEST

START_TEST(explain_md_lists_the_codes) {
  ends_with(WEFT_SOURCE_DIR "/docs/explain.md", "vm/base/diag.def",
            report_codes_markdown);
}
END_TEST

/* Tables of other systems' settings are those by which they are imported. */
START_TEST(import_md_shows_the_rows) {
  Outcome o = process_run(30, "sh -c 'cd " WEFT_SOURCE_DIR
                              " && $weft lua tests/docs/import_tables.lua check'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strncmp(o.out, "15 tables", 9) == 0, "%s", o.out);
}
END_TEST

/* Every code in the sources is in the table, and every row is the code of something. */
START_TEST(codes_are_those_of_the_sources) {
  Outcome o =
      process_run(60, "sh -c 'cd " WEFT_SOURCE_DIR
                      " && $weft explain --json | $weft lua tests/docs/codes.lua'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, ": 0 are not so") != NULL, "%s", o.out);
}
END_TEST

static const char models_md[] = WEFT_SOURCE_DIR "/docs/models.md";

START_TEST(models_md_lists_the_ops) {
  ends_with(models_md, "vm/graph/ops.def", graph_ops_markdown);
}
END_TEST

/* "| `head` | cp, tp |": the axes that may cut a tag. */
START_TEST(models_md_says_what_may_be_cut) {
  const char *page = scratch_get(models_md);
  for (int tag = 0; tag < TAG_N; tag++) {
    const char *axes = "";
    for (int a = 0; a < AX_N; a++)
      if (ax_may_cut((ShardAxis)a, (DimTag)tag) &&
          (a == 0 || !ax_of_one_factor((ShardAxis)a, (ShardAxis)(a - 1))))
        axes = arena_printf(scratch_arena, "%s%s%s", axes, *axes ? ", " : "",
                            ax_name((ShardAxis)a));
    const char *row = arena_printf(scratch_arena, "\n| `%s` | %s |",
                                   tag_name((DimTag)tag), *axes ? axes : "-");
    ck_assert_msg(strstr(page, row) != NULL, "docs/models.md has no row%s", row);
  }
}
END_TEST

/* Keys of config.json that mean something, under all their names. */
START_TEST(models_md_names_the_keys) {
  static const char plan[] =
      "for _, name in ipairs { 'gpt2', 'llama', 'qwen2', 'qwen3' } do\n"
      "  local arch = require('weft.models.' .. name)\n"
      "  for key in pairs(arch.defaults) do print(key) end\n"
      "  for key in pairs(arch.aliases) do print(key) end\n"
      "end\n"
      "return require('weft').plan { model = require('weft').model 'llama-tiny',\n"
      "                              batch = { global = 1, seq = 8 } }\n";
  scratch_put("keys.lua", plan, strlen(plan));
  Outcome o = process_run(30, "$weft check keys.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *page = scratch_get(models_md);
  int n = 0;
  for (char *at = arena_str(scratch_arena, o.err), *key;
       (key = strsep(&at, "\n")) != NULL && *key; n++)
    ck_assert_msg(strstr(page, arena_printf(scratch_arena, "`%s`", key)) != NULL,
                  "docs/models.md does not name the key %s", key);
  ck_assert_int_gt(n, 80);
}
END_TEST

/* The next block of Lua behind `at`, with `at` behind it; NULL: there is none. */
static const char *next_block(const char **at, const char *fence) {
  const char *from = strstr(*at, fence);
  if (!from) return NULL;
  from += strlen(fence);
  const char *stop = strstr(from, "\n```\n");
  ck_assert_ptr_nonnull(stop);
  *at = stop;
  return arena_printf(scratch_arena, "%.*s", (int)(stop + 1 - from), from);
}

/* Every block of Lua is a plan that is right, as it stands there. */
START_TEST(models_md_shows_plans) {
  const char *at = scratch_get(models_md), *block;
  int n = 0;
  while ((block = next_block(&at, "\n```lua\n")) != NULL) {
    scratch_put("plan.lua", block, strlen(block));
    Outcome o = process_run(100, "$weft verify plan.lua");
    ck_assert_msg(o.code == 0, "block %d: %s%s", n, o.out, o.err);
    n++;
  }
  ck_assert_int_eq(n, 2);
}
END_TEST

/* Lua without its comments and empty lines. */
static const char *code_of(const char *lua) {
  char *out = arena_str(scratch_arena, lua), *to = out, *rest = out, *line;
  while ((line = strsep(&rest, "\n")) != NULL) {
    char *comment = strstr(line, "--");
    if (comment) *comment = 0;
    size_t n = strlen(line);
    while (n && line[n - 1] == ' ') n--;
    if (!n) continue;
    memmove(to, line, n);
    to += n;
    *to++ = '\n';
  }
  *to = 0;
  return out;
}

/* The model that is made step by step is the one of the library. */
START_TEST(models_md_makes_a_model) {
  const char *at = scratch_get(models_md);
  const char *shown = next_block(&at, "\n```lua stdlib/models/arcee.lua\n");
  ck_assert_ptr_nonnull(shown);
  const char *file = scratch_get(WEFT_SOURCE_DIR "/stdlib/models/arcee.lua");
  ck_assert_str_eq(code_of(shown), code_of(file));
}
END_TEST

/* Each schedule of the library has its picture, and the guide shows it. */
START_TEST(schedules_have_their_pictures) {
  enum { LARGEST = 40 << 10 };
  const char *guide = scratch_get(WEFT_SOURCE_DIR "/docs/schedules.md");
  int n = 0;
  for (const StdlibFile *f = stdlib_files; f->name; f++) {
    if (strncmp(f->name, "schedules/", 10) != 0) continue;
    Outcome o = process_run(30,
                            "$weft show schedule " WEFT_SOURCE_DIR
                            "/docs/schedules/plan.lua --csv --set schedule=%s --svg new",
                            f->name + 10);
    ck_assert_msg(o.code == 0, "%s", o.err);
    const char *old =
        scratch_get(arena_printf(scratch_arena, WEFT_SOURCE_DIR "/docs/%s.svg", f->name));
    ck_assert_msg(strcmp(old, scratch_get(scratch_path("new"))) == 0,
                  "docs/%s.svg is not what is drawn now: run ./dev docs", f->name);
    ck_assert_uint_le(strlen(old), LARGEST);
    ck_assert_msg(strstr(guide, arena_printf(scratch_arena, "](%s.svg)", f->name)) !=
                      NULL,
                  "docs/schedules.md does not show %s.svg", f->name);
    n++;
  }
  glob_t g;
  ck_assert_int_eq(glob(WEFT_SOURCE_DIR "/docs/schedules/*.svg", 0, NULL, &g), 0);
  ck_assert_int_eq((int)g.gl_pathc, n);
  globfree(&g);
}
END_TEST

/* The faults of ./dev mutate are named by the text that they replace. */
START_TEST(mutants_are_of_this_source) {
  Outcome o = process_run(30, "sh -c 'cd " WEFT_SOURCE_DIR
                              " && $weft lua tests/mutate/mutate.lua --check'");
  ck_assert_msg(o.code == 0, "rows of tests/mutate/mutants.lua to put right:\n%s%s",
                o.out, o.err);
}
END_TEST

/* What a message tells a user to write is refused if the plan has no such field. */
START_TEST(messages_name_fields) {
  Outcome o = process_run(60, "sh -c 'cd " WEFT_SOURCE_DIR
                              " && $weft lua tests/docs/messages.lua'");
  ck_assert_msg(o.code == 0, "messages that name no field:\n%s%s", o.out, o.err);
}
END_TEST

/* A name that is not there sends a reader off to look for it. */
START_TEST(comments_name_what_is_there) {
  Outcome o = process_run(120, "sh -c 'cd " WEFT_SOURCE_DIR
                               " && $weft lua tests/cli/comments.lua'");
  ck_assert_msg(o.code == 0, "comments that name what is not there:\n%s%s", o.out, o.err);
}
END_TEST

/* Each room has a README that names what is there, no two files have one name, no room is
 * above itself. */
START_TEST(rooms_are_in_order) {
  Outcome o =
      process_run(30, "sh -c 'cd " WEFT_SOURCE_DIR " && $weft lua tests/docs/rooms.lua'");
  ck_assert_msg(o.code == 0, "rooms:\n%s%s", o.out, o.err);
}
END_TEST

/* No room is without a suite, and no suite that is named is missing. */
START_TEST(suites_cover_all_rooms) {
  Outcome o = process_run(30, "sh -c 'cd " WEFT_SOURCE_DIR
                              " && $weft lua tests/docs/covers.lua'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "\nvm/mesh                  mesh\n"), "%s", o.out);
}
END_TEST

/* Files and functions, in C and in Lua, in strings not. */
START_TEST(comments_are_read) {
  static const char c[] = "/* See gone.c, here.c and\n * was() or is(). */\n"
                          "int is(int x); /* x.h, DOC.md */ const char *s = \"no.c\";\n";
  static const char lua[] = "local x = 'a.lua' -- other.lua, io.open, gone.def.\n";
  scratch_put("here.c", c, strlen(c));
  scratch_put("x.lua", lua, strlen(lua));
  Outcome o = process_run(
      30, "sh -c 'cd %s && $weft lua " WEFT_SOURCE_DIR "/tests/cli/comments.lua'",
      scratch_path(""));
  ck_assert_int_ne(o.code, 0);
  const char *want[] = {"here.c:1: no file gone.c", "here.c:2: no function was()",
                        "here.c:3: no file x.h", "x.lua:1: no file other.lua",
                        "x.lua:1: no file gone.def"};
  int lines = 0;
  for (const char *at = o.out; *at; at++) lines += *at == '\n';
  for (int i = 0; i < LEN(want); i++)
    ck_assert_msg(strstr(o.out, want[i]) != NULL, "%s is not in:\n%s", want[i], o.out);
  ck_assert_msg(lines == LEN(want), "%s", o.out);
}
END_TEST

Suite *docs_suite(void) {
  Suite *s = suite_create("docs");
  TCase *t = tcase_create("docs");
  tcase_add_test(t, plan_md_lists_the_fields);
  tcase_add_test(t, scripting_md_lists_the_functions);
  tcase_add_test(t, explain_md_lists_the_codes);
  tcase_add_test(t, models_md_lists_the_ops);
  suite_add_tcase(s, t);
  t = tcase_create("models");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 300);
  tcase_add_test(t, plan_md_explains_layouts);
  tcase_add_test(t, import_md_shows_the_rows);
  tcase_add_test(t, codes_are_those_of_the_sources);
  tcase_add_test(t, models_md_says_what_may_be_cut);
  tcase_add_test(t, models_md_names_the_keys);
  tcase_add_test(t, models_md_shows_plans);
  tcase_add_test(t, models_md_makes_a_model);
  suite_add_tcase(s, t);
  t = tcase_create("schedules");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 300);
  tcase_add_test(t, schedules_have_their_pictures);
  tcase_add_test(t, mutants_are_of_this_source);
  tcase_add_test(t, messages_name_fields);
  tcase_add_test(t, comments_name_what_is_there);
  tcase_add_test(t, rooms_are_in_order);
  tcase_add_test(t, suites_cover_all_rooms);
  tcase_add_test(t, comments_are_read);
  suite_add_tcase(s, t);
  return s;
}
