/* check_docs.c - the pages that repeat what the code says must say the same. */
#include <check.h>
#include <stdlib.h>

#include "bindings/schema.h"
#include "vm/io/io.h"

START_TEST(plan_md_lists_the_fields) {
  static const char marker[] = "<!-- below: ./dev docs, from bindings/schema.def -->\n";
  char *page = NULL;
  size_t n = 0;
  weft_error e = {.rank = -1};
  weft_status st = file_read(NULL, WEFT_SOURCE_DIR "/docs/plan.md", &page, &n, &e);
  ck_assert_msg(st == WEFT_OK, "%s", e.text);
  const char *fields = strstr(page, marker);
  ck_assert_ptr_nonnull(fields);
  Text want = {0};
  schema_markdown(&want);
  ck_assert_msg(strcmp(fields + sizeof marker - 1, want.s) == 0,
                "docs/plan.md differs from bindings/schema.def: run ./dev docs");
  text_free(&want);
  mem_free(NULL, page, n + 1);
}
END_TEST

Suite *docs_suite(void) {
  Suite *s = suite_create("docs");
  TCase *t = tcase_create("docs");
  tcase_add_test(t, plan_md_lists_the_fields);
  suite_add_tcase(s, t);
  return s;
}
