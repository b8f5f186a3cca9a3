/* check_embed.c - the example of docs/embedding.md prints what the page says, and the
 * page shows the example as it is. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "vm/io/io.h"

static char *read_all(const char *path) {
  char *s;
  size_t n;
  weft_error e = {.rank = -1};
  ck_assert_msg(file_read(NULL, path, FILE_OWN_MAX, &s, &n, &e) == WEFT_OK, "%s: %s",
                path, e.text);
  return s;
}

/* The text between the fences of the page's block `number` (from 0) of `language`. */
static char *block(char *page, const char *language, int number) {
  char fence[64];
  int n = snprintf(fence, sizeof fence, "\n```%s\n", language);
  char *at = page;
  for (int i = 0; i <= number; i++) {
    at = strstr(at, fence);
    ck_assert_msg(at != NULL, "the page has no block %d of %s", i, language);
    at += n;
  }
  char *end = strstr(at, "\n```");
  ck_assert_ptr_nonnull(end);
  end[1] = 0;
  return at;
}

START_TEST(the_example_prints_what_the_page_says) {
  char printed[8192];
  FILE *f = popen("cd '" WEFT_SOURCE_DIR "' && '" WEFT_BINARY_DIR
                  "/weft-embed' plans/quickstart.lua 2>&1 </dev/null",
                  "r");
  ck_assert_ptr_nonnull(f);
  size_t n = fread(printed, 1, sizeof printed - 1, f);
  printed[n] = 0;
  int status = pclose(f);
  ck_assert_msg(status == 0, "status %d: %s", status, printed);
  char *page = read_all(WEFT_SOURCE_DIR "/docs/embedding.md");
  ck_assert_str_eq(printed, block(page, "text", 0));
  free(page);
}
END_TEST

/* Every block of C on the page is a piece of the example. */
START_TEST(the_page_shows_the_example) {
  char *source = read_all(WEFT_SOURCE_DIR "/tests/api/embed.c");
  for (int i = 0; i < 3; i++) {
    char *page = read_all(WEFT_SOURCE_DIR "/docs/embedding.md");
    const char *piece = block(page, "c", i);
    ck_assert_msg(strstr(source, piece) != NULL, "not in tests/api/embed.c:\n%s", piece);
    free(page);
  }
  free(source);
}
END_TEST

Suite *embed_suite(void) {
  Suite *s = suite_create("embed");
  TCase *tc = tcase_create("example");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, the_example_prints_what_the_page_says);
  tcase_add_test(tc, the_page_shows_the_example);
  suite_add_tcase(s, tc);
  return s;
}
