/* check_json_page.c - docs/json.md: each command on it prints the members that its table
 * has, of their types, and no others; every verb with --json is on it. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/cli/cli.h"
#include "tests/harness/process.h"

static const char *type_of(const json_t *v) {
  switch (json_typeof(v)) {
  case JSON_OBJECT: return "object";
  case JSON_ARRAY: return "list";
  case JSON_STRING: return "string";
  case JSON_INTEGER: return "integer";
  case JSON_REAL: return "number";
  case JSON_NULL: return "null";
  default: return "boolean";
  }
}

/* The types of a member, "object or null": those behind its name in the row that has it.
 */
static const char *documented(const char *section, const char *member) {
  const char *name = arena_printf(scratch_arena, "`%s`", member);
  for (const char *row = section; (row = strstr(row, "\n| `")) != NULL; row++) {
    const char *end = row + 1 + strcspn(row + 1, "\n");
    const char *is = strstr(row, " | "), *at = strstr(row, name);
    if (is && is < end && at && at < is)
      return arena_printf(scratch_arena, "%.*s", (int)strcspn(is + 3, ":|\n"), is + 3);
  }
  return NULL;
}

static void check_members(const char *section, json_t *object, const char *command) {
  const char *member;
  json_t *value;
  size_t n = 0, rows = 0;
  json_object_foreach(object, member, value) {
    const char *is = documented(section, member), *type = type_of(value);
    ck_assert_msg(is != NULL, "docs/json.md does not say that %s prints %s", command,
                  member);
    bool fits = strstr(is, type) || (str_eq(type, "integer") && strstr(is, "number"));
    ck_assert_msg(fits, "%s: %s is a %s, docs/json.md says: %s", command, member, type,
                  is);
    n++;
  }
  /* Every member that is in front of a row is printed. */
  for (const char *row = section; (row = strstr(row, "\n| `")) != NULL; row++)
    for (const char *at = row + 3, *is = strstr(row, " | "); at < is && *at == '`';) {
      const char *end = strchr(at + 1, '`');
      const char *name = arena_printf(scratch_arena, "%.*s", (int)(end - at - 1), at + 1);
      ck_assert_msg(json_object_get(object, name) != NULL, "%s prints no %s", command,
                    name);
      rows++;
      at = end + 1 + strspn(end + 1, ", ");
    }
  ck_assert_uint_eq(n, rows);
}

/* The section of a heading, up to the next one. */
static const char *section_at(const char *heading) {
  const char *next = strstr(heading + 1, "\n#");
  return next ? arena_printf(scratch_arena, "%.*s", (int)(next - heading), heading)
              : heading;
}

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = 2 },\n"
    "  mesh = { dp = 2 }, batch = { global = 4, seq = 16 }, train = { steps = 1 },\n"
    "  checkpoint = { dir = 'ckpt', every = 1 } }\n";

/* The folder in which the commands run: the tree's plans, and a plan with a checkpoint.
 */
static void folder(void) {
  scratch_put("plan.lua", plan, strlen(plan));
  Outcome o = process_run(60, "sh -c 'ln -s " WEFT_SOURCE_DIR "/plans plans && "
                              "exec $weft run plan.lua --quiet'");
  ck_assert_msg(o.code == 0, "%s", o.err);
}

START_TEST(every_verb_is_on_the_page) {
  static const struct {
    unsigned bit;
    const char *name;
  } verbs[] = {
#define VERB(ID, name, ...) {ON_##ID, #name},
#include "bindings/cli/verbs.def"
  };
#define FLAG(member, name, shorter, on) {name, on},
#define INTEGER(...)
#define NUMBER(...)
#define WORD(...)
#define CHOICE(...)
#define LIST(...)
  static const struct {
    const char *name;
    unsigned on;
  } flags[] = {
#include "bindings/cli/options.def"
  };
  const char *page = scratch_get(WEFT_SOURCE_DIR "/docs/json.md");
  int n = 0;
  for (int f = 0; f < LEN(flags); f++) {
    if (!str_eq(flags[f].name, "--json")) continue;
    for (int v = 0; v < LEN(verbs); v++) {
      if (!(flags[f].on & verbs[v].bit)) continue;
      const char *heading = arena_printf(scratch_arena, "\n## weft %s", verbs[v].name);
      ck_assert_msg(strstr(page, heading) != NULL, "docs/json.md has no%s", heading);
      n++;
    }
  }
  ck_assert_int_gt(n, 12);
}
END_TEST

START_TEST(commands_print_what_the_page_says) {
  folder();
  const char *page = scratch_get(WEFT_SOURCE_DIR "/docs/json.md");
  const char *frame = section_at(strstr(page, "\n## The frame"));
  int n = 0;
  for (const char *at = page; (at = strstr(at, "\n## weft ")) != NULL; at++, n++) {
    const char *section = section_at(at), *line = strstr(section, "\n\n`weft ");
    ck_assert_msg(line != NULL, "%s: no command", section);
    const char *command =
        arena_printf(scratch_arena, "%.*s", (int)strcspn(line + 8, "`"), line + 8);
    Outcome o = process_run(100, "$weft %s --json", command);
    json_t *doc = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(doc != NULL, "%s: %s%s", command, o.out, o.err);
    json_t *result = json_object_get(doc, "result");
    if (result) check_members(frame, doc, command);
    check_members(section, result ? result : doc, command);
    json_decref(doc);
  }
  ck_assert_int_ge(n, 20);
}
END_TEST

Suite *json_page_suite(void) {
  Suite *s = suite_create("json_page");
  TCase *t = tcase_create("page");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 200);
  tcase_add_test(t, every_verb_is_on_the_page);
  tcase_add_test(t, commands_print_what_the_page_says);
  suite_add_tcase(s, t);
  return s;
}
