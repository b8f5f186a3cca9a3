/* program_check.h - structural invariants of compiled programs. */
#ifndef WEFT_PROGRAM_CHECK_H
#define WEFT_PROGRAM_CHECK_H

#include "program.h"

/* WEFT_OK, or WEFT_EINTERNAL that names the pp rank, the instruction and what it breaks.
 * After it every index of a program may be followed without a test, and every operand
 * of every call lies inside the arena. prove() runs it first; it costs one look at each
 * instruction and one at each call. */
weft_status program_check(const Compiled *c, weft_error *e);

#endif
