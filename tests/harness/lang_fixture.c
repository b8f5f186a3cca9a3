/* lang_fixture.c - see lang_fixture.h. */
#include "lang_fixture.h"
#include "bindings/lang/report.h"

#include <check.h>
#include <stdio.h>

static void keep_print(void *ud, const char *line) {
  LangTest *t = ud;
  size_t n = strlen(t->printed);
  snprintf(t->printed + n, sizeof t->printed - n, "%s\n", line);
}

void lang_test_begin(LangTest *t) {
  scratch_setup();
  memset(t, 0, sizeof *t);
  t->arena = scratch_arena;
  t->d.arena = t->arena;
  t->o.print = keep_print;
  t->o.ud = t;
  err_clear(&t->e);
}

void lang_test_end(LangTest *t) {
  lang_free(t->lp);
  scratch_teardown();
}

void lang_test_file(const char *name, const char *text) {
  scratch_put(name, text, strlen(text));
}

weft_status lang_test_path(LangTest *t, const char *path) {
  lang_free(t->lp);
  t->lp = NULL;
  t->d = (Diags){.arena = t->arena};
  err_clear(&t->e);
  return lang_load(&t->o, path, &t->lp, &t->d, &t->e);
}

weft_status lang_test_text(LangTest *t, const char *text) {
  lang_test_file("plan.lua", text);
  return lang_test_path(t, scratch_path("plan.lua"));
}

const char *lang_test_report(LangTest *t, const char *dir) {
  Text report = {0}, out = {0};
  report_text(&t->d, false, &report);
  const char *prefix = arena_printf(t->arena, "%s/", dir);
  size_t n = strlen(prefix);
  for (const char *p = report.s ? report.s : ""; *p;) {
    if (strncmp(p, prefix, n) == 0)
      p += n;
    else
      text_addn(&out, p++, 1);
  }
  const char *s = arena_str(t->arena, out.s ? out.s : "");
  text_free(&report);
  text_free(&out);
  return s;
}

const Plan *lang_test_good(LangTest *t, const char *text) {
  weft_status st = lang_test_text(t, text);
  ck_assert_msg(st == WEFT_OK, "%s%s", lang_test_report(t, scratch_dir), t->e.text);
  return lang_plan(t->lp);
}

void lang_test_bad(LangTest *t, const char *text, const char *report) {
  ck_assert_int_eq(lang_test_text(t, text), WEFT_EPLAN);
  ck_assert_str_eq(lang_test_report(t, scratch_dir), report);
}
