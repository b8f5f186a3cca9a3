/* emulated.c - an emulated suite in builds without the emulator. */
#include "emulated.h"

#include <stdio.h>

START_TEST(is_skipped) { printf(EMULATED_SKIPPED); }
END_TEST

Suite *emulated_suite_without(const char *name) {
  Suite *s = suite_create(name);
  TCase *t = tcase_create("skipped");
  tcase_add_test(t, is_skipped);
  suite_add_tcase(s, t);
  return s;
}
