/* plan_fixture.c - see plan_fixture.h. */
#include "plan_fixture.h"
#include "bindings/model/model.h"
#include "bindings/lang/report.h"

#include <check.h>
#include <stdlib.h>

static int count(const char *const *list) {
  int n = 0;
  while (list && list[n]) n++;
  return n;
}

/* No guard is set: an arena that runs out of memory aborts the test, which Check
 * reports. */
weft_status fixture_open(PlanFixture *f, const char *file, const char *const *define,
                         const char *const *set) {
  static const weft_alloc libc_alloc;
  *f = (PlanFixture){.arena = arena_new(&libc_alloc)};
  ck_assert_ptr_nonnull(f->arena);
  f->d.arena = f->arena;
  err_clear(&f->e);
  LangOptions o = {.alloc = &libc_alloc,
                   .define = define,
                   .ndefine = count(define),
                   .set = set,
                   .nset = count(set)};
  const char *path =
      *file == '/' ? file : arena_printf(f->arena, "%s/%s", WEFT_SOURCE_DIR, file);
  return lang_load(&o, path, &f->lp, &f->d, &f->e);
}

void fixture_close(PlanFixture *f) {
  lang_free(f->lp);
  arena_free(f->arena);
}

weft_status fixture_graph(PlanFixture *f, int64_t B, int64_t T, Graph **g) {
  *g = graph_new(f->arena, B, T);
  weft_status st = lang_build_graph(f->lp, lang_plan(f->lp), B, T, *g, &f->d, &f->e);
  if (st != WEFT_OK) lang_locate(f->lp, &f->d);
  return st;
}

const char *fixture_report(PlanFixture *f) {
  Text t = {0};
  report_text(&f->d, false, &t);
  const char *s = arena_printf(f->arena, "%s%s", t.s ? t.s : "", f->e.text);
  text_free(&t);
  return s;
}
