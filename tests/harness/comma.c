/* comma.c - a locale with a decimal comma, by localedef; nothing else of it is defined.
 */
#include "comma.h"

#include <check.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

static const char source[] = "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\n"
                             "grouping 3;3\nEND LC_NUMERIC\n";

bool comma_set(void) {
  char number[8];
  const char *from = scratch_put("comma", source, sizeof source - 1);
  /* Its status is that of warnings: most of a locale is not defined. */
  int made = system(arena_printf(scratch_arena,
                                 "localedef -c -i %s %s/" COMMA_NAME " >%s.log 2>&1",
                                 from, scratch_dir, from));
  setenv("LOCPATH", scratch_dir, 1);
  bool set = made != -1 && setlocale(LC_ALL, COMMA_NAME);
  snprintf(number, sizeof number, "%.1f", set ? 1.5 : 0);
  if (strcmp(number, "1,5") == 0) return true;
  printf("skipped: localedef makes no locale with a decimal comma\n");
  comma_end();
  return false;
}

void comma_end(void) {
  setlocale(LC_ALL, "C");
  unsetenv("LOCPATH");
}
