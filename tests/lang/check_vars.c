/* check_vars.c - variables of a plan: weft.var, weft.vars, and a -D that is not read. */
#include <check.h>
#include <string.h>

#include "tests/harness/lang_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

/* Loads the plan with the definitions "A=1 B": up to three, separated by spaces. */
static weft_status load(const char *text, const char *definitions) {
  const char **list = NEW_N(t.arena, const char *, 4);
  t.o.define = list;
  for (t.o.ndefine = 0; *definitions; t.o.ndefine++) {
    size_t n = strcspn(definitions, " ");
    list[t.o.ndefine] = arena_strn(t.arena, definitions, n);
    definitions += n + (definitions[n] == ' ');
  }
  return lang_test_text(&t, text);
}

static const char *asserts(const char *condition) {
  return arena_printf(t.arena, HEAD "assert(%s)\n" GOOD, condition);
}

static const struct Value {
  const char *definitions, *condition;
} values[] = {
    /* without -D the default, with it a value of the default's type */
    {"",
     "weft.var('n', 3) == 3 and weft.var('s', 'x') == 'x' and not weft.var('b', false)"},
    {"n=16", "weft.var('n', 3) == 16"},
    {"n=5e7",
     "math.type(weft.var('n', 3)) == 'integer' and weft.var('n', 3) == 50000000"},
    {"n=0.5", "weft.var('n', 3) == 0.5"},
    {"n=64/8", "weft.var('n', 3) == 8"},
    {"n=1e-3", "weft.var('n', 0.1) == 0.001"},
    {"s=bf16", "weft.var('s', 'f32') == 'bf16'"},
    {"s=8", "weft.var('s', 'f32') == '8'"},
    {"s=true", "weft.var('s', 'f32') == 'true'"},
    {"s='8'", "weft.var('s', 'f32') == '8'"},
    {"s=", "weft.var('s', 'f32') == ''"},
    {"b", "weft.var('b', false) == true"},
    {"b=false", "weft.var('b', true) == false"},
    {"n=1 n=2", "weft.var('n', 3) == 2"},
    /* declared twice, and read where it was declared */
    {"n=4", "weft.var('n', 3) == 4 and weft.var('n', 3) == 4 and weft.vars.n == 4"},
    {"", "weft.var('n', 3) == 3 and weft.vars.n == 3"},
    {"s=8", "weft.var('s', '') == '8' and weft.vars.s == '8'"},
    /* not declared: as a literal, or all of them */
    {"n=16 s=bf16 on",
     "weft.vars.n == 16 and weft.vars.s == 'bf16' and weft.vars.on == true"},
    {"list={1,2}", "weft.vars.list[2] == 2"},
    {"b=1 a=2",
     "(function() local s = '' for k, v in pairs(weft.vars) do s = s .. k .. v end "
     "return s end)() == 'a2b1'"},
};

START_TEST(values_of_variables) {
  const struct Value *v = &values[_i];
  weft_status st = load(asserts(v->condition), v->definitions);
  ck_assert_msg(st == WEFT_OK, "-D %s: %s: %s%s", v->definitions, v->condition,
                lang_test_report(&t, scratch_dir), t.e.text);
}
END_TEST

static const struct Wrong {
  const char *definitions, *code, *says;
} wrongs[] = {
    {"steps=abc", "weft.var('steps', 3)",
     "-D steps=abc: weft.var(\"steps\", 3) takes a number"},
    {"steps", "weft.var('steps', 3)", "-D steps: weft.var(\"steps\", 3) takes a number"},
    {"b=yes", "weft.var('b', false)",
     "-D b=yes: weft.var(\"b\", false) takes true or false"},
    {"b=1", "weft.var('b', true)", "takes true or false"},
    {"s", "weft.var('s', 'x')", "-D s: weft.var(\"s\", \"x\") takes a string"},
    {"", "weft.var('s')", "weft.vars.s is a variable without one"},
    {"", "weft.var('s', {})", "the default is a number, a string, true or false"},
    {"", "weft.var('s', 1) + weft.var('s', 2)",
     "weft.var(\"s\", 2): its default was 1 before"},
    {"", "weft.var {}", "string expected"},
    {"", "weft.vars.steps",
     "weft.vars.steps has no value: give -D steps=VALUE, or write weft.var(\"steps\", "
     "DEFAULT)\n"},
    {"steps=3", "weft.vars.stpes", "(did you mean 'steps'?)"},
    {"", "weft.var('steps', 3) + weft.vars.step", "(did you mean 'steps'?)"},
    {"", "weft.vars[1]", "weft.vars has values by name"},
    {"", "(function() weft.vars.x = 1 end)()", "weft.vars cannot be changed"},
    {"", "weft.vra", "(did you mean 'var'?)"},
};

START_TEST(wrong_variables) {
  const struct Wrong *w = &wrongs[_i];
  weft_status st = load(asserts(w->code), w->definitions);
  const char *report = lang_test_report(&t, scratch_dir);
  ck_assert_msg(st == WEFT_EPLAN, "%s", w->code);
  ck_assert_msg(strncmp(report, "plan.lua:2: ", 12) == 0, "%s", report);
  ck_assert_msg(strstr(report, w->says) != NULL, "%s: %s", w->code, report);
}
END_TEST

static const struct Unread {
  const char *definitions, *code, *says;
} unread[] = {
    {"x=1", "true", "-D x=1: %s has no variable 'x'"},
    {"stpes=5", "weft.var('steps', 3)",
     "-D stpes=5: %s has no variable 'stpes' (did you mean 'steps'?)"},
    {"q=5", "weft.var('steps', 3) and weft.var('dir', 'runs') and weft.var('tp', 1)",
     "-D q=5: %s has no variable 'q'; it has dir, steps and tp"},
    {"steps=4 q", "weft.vars.steps", "-D q: %s has no variable 'q'; it has steps"},
    {"=3", "true", "-D =3: %s has no variable ''"},
};

START_TEST(unread_definitions) {
  const struct Unread *u = &unread[_i];
  weft_status st = load(asserts(u->code), u->definitions);
  ck_assert_msg(st == WEFT_EUSAGE, "%s: %d", u->code, st);
  Text want = {0};
  for (const char *p = u->says; *p; p += *p == '%' ? 2 : 1)
    if (*p == '%')
      text_add(&want, scratch_path("plan.lua"));
    else
      text_printf(&want, "%c", *p);
  ck_assert_str_eq(t.e.text, want.s);
  text_free(&want);
}
END_TEST

/* A file that never asks for the table weft has no variables either. */
START_TEST(a_plan_without_weft) {
  ck_assert_int_eq(load("return {}", "x=1"), WEFT_EUSAGE);
}
END_TEST

/* Modules of a plan read and declare, too. */
START_TEST(modules_read) {
  lang_test_file("part.lua", "return require('weft').var('seq', 16)\n");
  const char *text = HEAD "local seq = require 'part'\n"
                          "return weft.plan { model = weft.model 'llama-tiny', "
                          "batch = { global = 8, seq = seq } }\n";
  ck_assert_int_eq(load(text, "seq=32"), WEFT_OK);
  ck_assert_int_eq(lang_plan(t.lp)->batch.seq, 32);
}
END_TEST

Suite *vars_suite(void);
Suite *vars_suite(void) {
  Suite *s = suite_create("vars");
  TCase *c = tcase_create("variables");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_loop_test(c, values_of_variables, 0, LEN(values));
  tcase_add_loop_test(c, wrong_variables, 0, LEN(wrongs));
  tcase_add_loop_test(c, unread_definitions, 0, LEN(unread));
  tcase_add_test(c, a_plan_without_weft);
  tcase_add_test(c, modules_read);
  suite_add_tcase(s, c);
  return s;
}
