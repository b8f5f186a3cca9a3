/* check_docs.c - the pages that repeat what the code says must say the same. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/api_doc.h"
#include "bindings/schema.h"
#include "vm/io/io.h"

/* The page ends with what `write` writes, after the comment that begins so. */
static void ends_with(const char *path, const char *source, void (*write)(Text *out)) {
  char *page = NULL, marker[128];
  size_t n = 0;
  weft_error e = {.rank = -1};
  weft_status st = file_read(NULL, path, &page, &n, &e);
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
  ends_with(WEFT_SOURCE_DIR "/docs/plan.md", "bindings/schema.def", schema_markdown);
}
END_TEST

START_TEST(scripting_md_lists_the_functions) {
  ends_with(WEFT_SOURCE_DIR "/docs/scripting.md", "bindings/api_doc.def",
            api_doc_markdown);
}
END_TEST

Suite *docs_suite(void) {
  Suite *s = suite_create("docs");
  TCase *t = tcase_create("docs");
  tcase_add_test(t, plan_md_lists_the_fields);
  tcase_add_test(t, scripting_md_lists_the_functions);
  suite_add_tcase(s, t);
  return s;
}
