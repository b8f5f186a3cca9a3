/* check_init.c - weft init: a folder whose plan is right and runs, and annotations of
 * every field and function for editors. */
#include <check.h>
#include <lauxlib.h>

#include "bindings/schema/schema.h"
#include "bindings/script/api_doc.h"
#include "tests/harness/process.h"
#include "tests/harness/scratch.h"

START_TEST(the_plan_runs) {
  Outcome o = process_run(30, "$weft init 'my plan'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "weft verify 'my plan/plan.lua'\n"), "%s", o.out);
  o = process_run(30, "$weft check 'my plan/plan.lua'");
  ck_assert_msg(o.code == 0 && !*o.err, "%s%s", o.out, o.err);
  o = process_run(120,
                  "$weft run 'my plan/plan.lua' -D tp=2 --steps 2 --quiet --threads 1");
  ck_assert_msg(o.code == 0 && !strstr(o.err, "warning"), "%s%s", o.out, o.err);
}
END_TEST

/* Nothing of a name acts on the terminal. */
START_TEST(a_name_is_shown) {
  Outcome o = process_run(30, "$weft init \"$(printf 'a\\033[31mb')\"");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "a\\x1b[31mb: plan.lua, ") && !strchr(o.out, '\033'), "%s",
                o.out);
}
END_TEST

/* A folder in the place of a plan, by what is in it. */
START_TEST(a_folder_says_what_it_has) {
  static const struct {
    const char *make, *says;
  } cases[] = {
      {"$weft init 'd é'", "its plan is d é/plan.lua"},
      {"mkdir 'd é'",
       "it has no Lua file: weft init NEW makes a folder with a plan in it"},
      {"mkdir 'd é' && touch 'd é/b.lua' 'd é/c.lua' 'd é/a.lua' 'd é/x.d.lua' 'd "
       "é/.h.lua'",
       "it has 3 Lua files, name one of them: a.lua, b.lua, c.lua)"},
      {"mkdir 'd é' && touch 'd é/e.lua' 'd é/c.lua' 'd é/d.lua' 'd é/b.lua' 'd é/a.lua'",
       "it has 5 Lua files, name one of them: a.lua, b.lua, c.lua and 2 more)"},
      {"mkdir 'd é' && touch 'd é/config.json'",
       "weft import d é -o plan.lua makes a plan"},
      {"mkdir -p 'd é/step-00000100'",
       "it has checkpoints, which weft ckpt ls d é lists"},
      {"mkdir 'd é' && touch 'd é/r.yaml'",
       "of settings, weft import d é/r.yaml makes one"},
  };
  for (int i = 0; i < LEN(cases); i++) {
    process_run(30, "rm -rf 'd é'");
    Outcome o = process_run(30, "sh -c \"%s\"", cases[i].make);
    ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
    o = process_run(30, "$weft check 'd é/'");
    ck_assert_msg(o.code == 2 && strstr(o.err, cases[i].says), "%d: %s", i, o.err);
    ck_assert_msg(strstr(o.err, ": error: is a folder, a plan is a file ("), "%s", o.err);
  }
}
END_TEST

/* A field's line in a class of its scope, of which there may be several. */
static bool annotated(const char *text, const Field *f) {
  char head[128], field[128];
  snprintf(head, sizeof head, "\n---@class weft.%s\n", f->scope);
  snprintf(field, sizeof field, "\n---@field %s%s ", f->key,
           schema_required(f) ? "" : "?");
  for (const char *at = text; (at = strstr(at, head)); at++) {
    const char *end = strstr(at, "\n\n"), *line = strstr(at, field);
    if (line && end && line < end) return line[strlen(field)] != ' '; /* has a type */
  }
  return false;
}

START_TEST(annotations_name_everything) {
  Text t = {0};
  api_doc_stub(&t);
  for (const Field *f = schema; f->scope; f++) {
    bool refused =
        f->type == FIELD_REFUSED || f->type == FIELD_ALIAS || f->type == FIELD_NOOP;
    ck_assert_msg(annotated(t.s, f) == !refused, "%s.%s", f->scope, f->key);
  }
  for (const ApiDoc *d = api_doc; d->object; d++) {
    char name[128];
    snprintf(name, sizeof name, "\n%s.%s = nil\n", d->object, d->name);
    bool there = strstr(t.s, name) != NULL;
    const char *const forms[] = {"\nfunction %s:%s(", "\nfunction %s.%s("};
    for (int i = 0; i < 2; i++) {
      snprintf(name, sizeof name, forms[i], d->object, d->name);
      there |= strstr(t.s, name) != NULL;
    }
    ck_assert_msg(there, "%s.%s", d->object, d->name);
  }
  ck_assert_ptr_nonnull(
      strstr(t.s, "\n---@param options? weft.plan|any\n---@return weft.object.plan\n"
                  "function weft.plan(options) end\n"));
  text_free(&t);
}
END_TEST

START_TEST(annotations_are_lua) {
  Text t = {0};
  api_doc_stub(&t);
  lua_State *L = luaL_newstate();
  int code = luaL_loadbuffer(L, t.s, t.n, "=weft.d.lua");
  ck_assert_msg(code == LUA_OK, "%s", lua_tostring(L, -1));
  lua_close(L);
  text_free(&t);
}
END_TEST

/* The current folder, which may be a new repository, and folders on the way. */
START_TEST(folders_that_are_there_and_that_are_not) {
  Outcome o = process_run(30, "sh -c 'mkdir -p e/.git && cd e && exec $weft init .'");
  ck_assert_msg(o.code == 0 && strstr(o.out, "weft verify ./plan.lua\n"), "%s%s", o.out,
                o.err);
  o = process_run(30, "$weft check e/plan.lua --quiet");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  o = process_run(30, "sh -c 'cd e && exec $weft init .'");
  ck_assert_msg(o.code == 2 && strstr(o.err, ".: exists and is not empty"), "%s", o.err);
  o = process_run(30, "$weft init new/folders/");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  o = process_run(30, "$weft check new/folders/plan.lua train.steps=5 --quiet");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  o = process_run(30, "$weft check new/folders/plan.lua mesh.pt=5");
  ck_assert_msg(o.code == 1 && strstr(o.err, "--set mesh.pt=5: error: plan.mesh.pt"),
                "%s", o.err);
}
END_TEST

START_TEST(bad_input) {
  Outcome o =
      process_run(30, "sh -c 'mkdir there && touch there/x && exec $weft init there'");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "there: exists and is not empty"), "%s", o.err);
  ck_assert_str_eq(o.out, "");
  o = process_run(30, "$weft init there/x/new");
  ck_assert_msg(o.code == 2 && strstr(o.err, "there/x"), "%s", o.err);
  o = process_run(30, "$weft init a b");
  ck_assert_msg(o.code == 2 && strstr(o.err, "init takes one"), "%s", o.err);
}
END_TEST

Suite *init_suite(void) {
  Suite *s = suite_create("init");
  TCase *tc = tcase_create("init");
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, the_plan_runs);
  tcase_add_test(tc, a_name_is_shown);
  tcase_add_test(tc, a_folder_says_what_it_has);
  tcase_add_test(tc, annotations_name_everything);
  tcase_add_test(tc, annotations_are_lua);
  tcase_add_test(tc, folders_that_are_there_and_that_are_not);
  tcase_add_test(tc, bad_input);
  suite_add_tcase(s, tc);
  return s;
}
