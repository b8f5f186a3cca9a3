/* emulated.c - what such a suite is without a C++ compiler. */
#include "emulated.h"

#include <stdio.h>

START_TEST(needs_a_compiler) {
  printf("skipped: CUDA sources are run on the CPU where there is a C++ compiler\n");
}
END_TEST

Suite *emulated_suite_without(const char *name) {
  Suite *s = suite_create(name);
  TCase *t = tcase_create("skipped");
  tcase_add_test(t, needs_a_compiler);
  suite_add_tcase(s, t);
  return s;
}
