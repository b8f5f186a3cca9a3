/* only.h - which checks of the suites are run, and, where it is recorded what each of
 * them runs (tests/mutate/cover.lua), their names for that. */
#ifndef WEFT_TESTS_ONLY_H
#define WEFT_TESTS_ONLY_H
#include <stdbool.h>

/* In the environment WEFT_ROWS=K/N leaves, of checks that run for each row of a table,
 * each N-th row. */

/* Takes an argument of weft-tests: SUITE, SUITE:CHECK, SUITE:CHECK:ITERATION, or @FILE
 * with such names, a line each. Says what is wrong and returns false. */
bool only_add(const char *argument);

/* Whether anything of the suite is wanted; the checks that are made from now on are its.
 */
bool only_suite(const char *suite);

#endif
