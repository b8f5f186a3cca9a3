/* check_seed_forms.c - settings as other systems write them: what works, what is refused
 * for which reason, and what is told weft's name. */
#include <check.h>
#include <string.h>

#include "tests/harness/lang_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

typedef enum { FORM_WORKS, FORM_TOLD, FORM_REFUSED } FormIs;
static const struct Form {
  const char *fields;
  FormIs is;
  const char *with;
} forms[] = {
#define WORKS(fields)           {fields, FORM_WORKS, ""},
#define TOLD(fields, name)      {fields, FORM_TOLD, name},
#define REFUSED(fields, reason) {fields, FORM_REFUSED, reason},
#include "seed_forms.def"
};

static bool has_field(const char *fields, const char *name) {
  size_t n = strlen(name);
  for (const char *p = fields; (p = strstr(p, name)); p += n)
    if (p == fields || (p >= fields + 2 && p[-1] == ' ' && p[-2] == ',')) return true;
  return false;
}

/* Is the text in what an error says: "weft's name is mesh.tp"? */
static bool error_says(const char *text) {
  for (int i = 0; i < t.d.list.n; i++) {
    const Diag *g = &t.d.list.at[i];
    if (g->severity != DIAG_ERROR) continue;
    if (strstr(g->summary, text) || (g->suggestion && strstr(g->suggestion, text)))
      return true;
  }
  return false;
}

static const char *plan_of(const struct Form *f) {
  const char *model =
      has_field(f->fields, "model =") ? "" : "model = weft.model 'llama-tiny', ";
  const char *batch = has_field(f->fields, "batch =")
                          ? ""
                          : "batch = { global = 8, micro = 1, seq = 16 },";
  return arena_printf(t.arena, HEAD "return weft.plan { %s,\n%s%s }", f->fields, model,
                      batch);
}

static bool holds(const struct Form *f) {
  weft_status st = lang_test_text(&t, plan_of(f));
  return f->is == FORM_WORKS ? st == WEFT_OK : st == WEFT_EPLAN && error_says(f->with);
}

/* Of all forms 98 in a hundred hold; the others are said when they are too many. */
START_TEST(what_becomes_of_forms) {
  const char *wrong = "";
  int held = 0;
  for (int i = 0; i < LEN(forms); i++) {
    if (holds(&forms[i]))
      held++;
    else
      wrong = arena_printf(t.arena, "%s\n%s: %s%s%s", wrong, forms[i].fields,
                           forms[i].with, "\n", lang_test_report(&t, scratch_dir));
  }
  ck_assert_msg(held * 100 >= 98 * LEN(forms), "%d of %d hold%s", held, (int)LEN(forms),
                wrong);
}
END_TEST

Suite *seed_forms_suite(void);
Suite *seed_forms_suite(void) {
  Suite *s = suite_create("seed_forms");
  TCase *c = tcase_create("forms");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, what_becomes_of_forms);
  tcase_set_timeout(c, 60);
  suite_add_tcase(s, c);
  return s;
}
