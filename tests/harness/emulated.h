/* emulated.h - suites that run CUDA sources on the CPU. */
#ifndef WEFT_TESTS_EMULATED_H
#define WEFT_TESTS_EMULATED_H

#include <check.h>

/* Why they are skipped in this build. */
#define EMULATED_SKIPPED                                                                 \
  "skipped: CUDA sources are run on the CPU where there is a C++ compiler, and not "     \
  "with the thread sanitizer\n"

/* The suite in builds without the emulator: one test that says so. */
Suite *emulated_suite_without(const char *name);

#endif
