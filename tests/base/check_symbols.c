/* check_symbols.c - what the two libraries export: weft_* and nothing else, and all that
 * weft.h declares. Skipped, with the reason, where there is no nm. */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "vm/io/io.h"

static Text exported(const char *library) {
  char command[1024], chunk[4096];
  Text t = {0};
  snprintf(command, sizeof command, "nm -D --defined-only '%s/%s'", WEFT_BINARY_DIR,
           library);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) text_addn(&t, chunk, n);
  ck_assert_msg(pclose(f) == 0 && t.n > 0, "%s gives nothing", command);
  return t;
}

static bool has_nm(void) {
  if (system("command -v nm >/dev/null 2>&1") == 0) return true;
  printf("symbols: skipped: there is no nm (Debian: binutils)\n");
  return false;
}

/* Lines are "address type name"; names that C reserves are the compiler's. */
static void check_names(const char *library) {
  Text t = exported(library);
  int n = 0;
  char name[256];
  for (char *s = t.s; *s; s += strcspn(s, "\n"), s += *s == '\n', n++) {
    ck_assert_int_eq(sscanf(s, "%*s %*c %255s", name), 1);
    ck_assert_msg(strncmp(name, "weft_", 5) == 0 || strncmp(name, "__", 2) == 0,
                  "%s exports %s", library, name);
  }
  ck_assert_int_ge(n, 8);
  text_free(&t);
}

START_TEST(only_weft_is_exported) {
  if (!has_nm()) return;
  check_names("libweft.so");
  check_names("libweftlua.so");
}
END_TEST

static bool has_symbol(const Text *t, const char *name) {
  char line[256];
  snprintf(line, sizeof line, " T %s\n", name);
  return strstr(t->s, line) != NULL;
}

/* The name before the first '(' of each declaration that begins with WEFT_API. */
START_TEST(all_that_is_declared_is_exported) {
  if (!has_nm()) return;
  Text t = exported("libweftlua.so");
  char *header;
  size_t size;
  int n = 0;
  ck_assert_int_eq(
      file_read(NULL, WEFT_SOURCE_DIR "/vm/weft.h", FILE_OWN_MAX, &header, &size, NULL),
      0);
  for (char *s = header; (s = strstr(s, "\nWEFT_API ")) != NULL; n++) {
    char *end = s = strchr(s, '('), saved = *end;
    while (isalnum((unsigned char)s[-1]) || s[-1] == '_') s--;
    *end = 0;
    ck_assert_msg(strncmp(s, "weft_", 5) == 0, "weft.h declares %s", s);
    ck_assert_msg(has_symbol(&t, s), "libweftlua.so lacks %s", s);
    *end = saved;
  }
  ck_assert_int_ge(n, 30);
  mem_free(NULL, header, size + 1);
  text_free(&t);
}
END_TEST

Suite *symbols_suite(void) {
  Suite *s = suite_create("symbols");
  TCase *tc = tcase_create("libraries");
  tcase_add_test(tc, only_weft_is_exported);
  tcase_add_test(tc, all_that_is_declared_is_exported);
  suite_add_tcase(s, tc);
  return s;
}
