/* program_check_int.h - what the parts of program_check() share. */
#ifndef WEFT_PROGRAM_CHECK_INT_H
#define WEFT_PROGRAM_CHECK_INT_H

#include "program_check.h"

typedef struct Check {
  const Compiled *c;
  const Program *p;
  weft_error *e;
} Check;

/* Says what is wrong with an instruction of main (`b` is NULL) or of a body. */
weft_status check_fail(const Check *k, uint32_t pc, const Body *b, const char *fmt, ...)
    PRINTF(4, 5);
#define FAIL(...) return check_fail(k, pc, b, __VA_ARGS__)

/* Says that a number of the tables is not what it may be at most. */
weft_status check_limit(const Check *k, const char *what, uint64_t got, uint64_t limit);

/* check_regions.c */
weft_status check_regions(const Check *k);

/* check_overlap.c; requires that indices are in range. */
weft_status check_overlap(const Check *k, Arena *a);

#endif
