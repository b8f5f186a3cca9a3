/* check_consoles.c - what pages show of a console is what is printed, the tutorial is run
 * as it is written, and every page says what it is for and shows it. */
#include <check.h>
#include <glob.h>
#include <stdio.h>

#include "tests/harness/process.h"

/* The sweep of the README alone judges 864 points. */
enum { SECONDS = 400 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW true
#else
#define SLOW false
#endif

START_TEST(consoles_are_as_shown) {
  if (SLOW) {
    printf("consoles: skipped: pages print the same under a sanitizer, in ten minutes\n");
    return;
  }
  Outcome o = process_run(SECONDS, "sh -c 'cd " WEFT_SOURCE_DIR
                                   " && WEFT=$weft $weft lua tests/docs/consoles.lua'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, " outputs compared, 0 are not so"), "%s", o.out);
}
END_TEST

/* A change of what is printed is found: of a figure, of a line, of a command that fails.
 */
START_TEST(other_outputs_are_found) {
  static const char *const page[] = {
      "# x\n\n```\n$ weft check plans/llama3_8b.lua\nllama3-8b-h100x16: ok\n...\n```\n",
      "# x\n\n```\n$ weft check plans/llama3_8b.lua\nllama3-8b-h100x16: ok\n```\n",
      "# x\n\n```\n$ weft check plans/llama3_8b.lua\nllama3-8b-h100x17: ok\n...\n```\n",
      "# x\n\n```\n$ weft check plans/none.lua\n```\n",
      "# x\n\n```\n$ weft check plans/none.lua\n...\n```\n",
      "# x\n\n```\nstep     20/400  loss   2.9967  grad   1.0378  lr 2.996e-03  9.04 "
      "MiB\n```\n"};
  for (int i = 0; i < LEN(page); i++) {
    scratch_put("page.md", page[i], strlen(page[i]));
    Outcome o =
        process_run(SECONDS, "sh -c 'page=$PWD/page.md; cd " WEFT_SOURCE_DIR
                             " && WEFT=$weft $weft lua tests/docs/consoles.lua $page'");
    ck_assert_msg(o.code == (i > 0), "%d: %s%s", i, o.out, o.err);
  }
}
END_TEST

/* The text between a page's title and its second heading. */
static const char *opening(const char *page) {
  ck_assert_msg(strncmp(page, "# ", 2) == 0, "%.40s", page);
  const char *begin = strchr(page, '\n'), *end = strstr(begin, "\n## ");
  if (end && end - begin < 40) end = strstr(end + 1, "\n## ");
  size_t n = end ? (size_t)(end - begin) : strlen(begin);
  return arena_strn(scratch_arena, begin, n);
}

/* Before the second heading: words, and an example of something to write or to type. */
START_TEST(pages_open_with_an_example) {
  glob_t g;
  ck_assert_int_eq(glob(WEFT_SOURCE_DIR "/docs/*.md", 0, NULL, &g), 0);
  for (size_t i = 0; i < g.gl_pathc; i++) {
    const char *text = opening(scratch_get(g.gl_pathv[i]));
    ck_assert_msg(strlen(text) > 120, "%s does not say what it is for", g.gl_pathv[i]);
    ck_assert_msg(strstr(text, "\n```") || strstr(text, "Example: ") ||
                      strstr(text, "`weft ") || strstr(text, "`./dev "),
                  "%s opens without an example", g.gl_pathv[i]);
  }
  globfree(&g);
}
END_TEST

Suite *consoles_suite(void) {
  Suite *s = suite_create("consoles");
  TCase *c = tcase_create("consoles");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, SECONDS + 60);
  tcase_add_test(c, consoles_are_as_shown);
  tcase_add_test(c, other_outputs_are_found);
  tcase_add_test(c, pages_open_with_an_example);
  suite_add_tcase(s, c);
  return s;
}
