/* check_newcomers.c - a plan with one mistake: the line of the error is right, it says
 * how to put it right, and suggests nothing else. */
#include <check.h>
#include <string.h>

#include "tests/harness/lang_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

static const char *const plan[] = {
    "local weft = require \"weft\"",
    "return weft.plan {",
    "  model     = weft.model \"llama-tiny\",",
    "  mesh      = { world = 8, tp = 2, pp = 2 },",
    "  strategy  = { \"zero\", stage = 1, sequence_parallel = true },",
    "  schedule  = \"1f1b\",",
    "  precision = \"bf16\",",
    "  batch     = { global = 16, micro = 1, seq = 32 },",
    "  optimizer = weft.adamw { lr = weft.cosine { max = 3e-4, min = 3e-5, warmup = 20 } "
    "},",
    "  data      = weft.synthetic {},",
    "  train     = { steps = 50 },",
    "}",
};

static const struct Mistake {
  int line, below;
  const char *text, *fix;
} mistakes[] = {
#define MISTAKE(line, text, fix)     {line, 0, text, fix},
#define BELOW(line, more, text, fix) {line, more, text, fix},
#include "newcomers.def"
};

static const char *with_mistake(const struct Mistake *m) {
  const char *text = "";
  for (int i = 0; i < LEN(plan); i++)
    text = arena_printf(t.arena, "%s%s\n", text, i + 1 == m->line ? m->text : plan[i]);
  return text;
}

/* The error that is read first; NULL: there is none. */
static const Diag *first_error(void) {
  for (int i = 0; i < t.d.list.n; i++)
    if (t.d.list.at[i].severity == DIAG_ERROR) return &t.d.list.at[i];
  return NULL;
}

static bool says(const Diag *g, const char *fix) {
  return strstr(g->summary, fix) || strstr(g->path, fix) ||
         (g->suggestion && strstr(g->suggestion, fix));
}

START_TEST(the_plan_is_right) {
  const char *text = "";
  for (int i = 0; i < LEN(plan); i++)
    text = arena_printf(t.arena, "%s%s\n", text, plan[i]);
  lang_test_good(&t, text);
}
END_TEST

static bool line_is_right(const struct Mistake *m, const Diag *g) {
  return g && g->line == m->line + m->below;
}

static bool fix_is_said(const struct Mistake *m, const Diag *g) {
  return g && says(g, m->fix);
}

/* A name that is suggested is believed. */
static bool nothing_else_is_suggested(const struct Mistake *m, const Diag *g) {
  return !g || !g->suggestion || strchr(g->suggestion, ' ') || says(g, m->fix);
}

static const struct Figure {
  const char *name;
  bool (*holds)(const struct Mistake *m, const Diag *g);
  int least; /* of a hundred */
} figures[] = {{"the line is right", line_is_right, 97},
               {"the fix is said", fix_is_said, 95},
               {"nothing else is suggested", nothing_else_is_suggested, 100}};

START_TEST(what_mistakes_are_told) {
  const struct Figure *f = &figures[_i];
  const char *wrong = "";
  int held = 0;
  for (int i = 0; i < LEN(mistakes); i++) {
    lang_test_text(&t, with_mistake(&mistakes[i]));
    if (f->holds(&mistakes[i], first_error()))
      held++;
    else
      wrong = arena_printf(t.arena, "%s\n%s: %s\n%s", wrong, mistakes[i].text,
                           mistakes[i].fix, lang_test_report(&t, scratch_dir));
  }
  ck_assert_msg(held * 100 >= f->least * LEN(mistakes), "%s: %d of %d%s", f->name, held,
                (int)LEN(mistakes), wrong);
}
END_TEST

Suite *newcomers_suite(void);
Suite *newcomers_suite(void) {
  Suite *s = suite_create("newcomers");
  TCase *c = tcase_create("mistakes");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, the_plan_is_right);
  tcase_add_loop_test(c, what_mistakes_are_told, 0, LEN(figures));
  tcase_set_timeout(c, 60);
  suite_add_tcase(s, c);
  return s;
}
