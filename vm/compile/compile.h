/* compile.h - from a plan, a logical graph and a schedule to one proven program per pp
 * rank. compile.c is the list of passes. */
#ifndef WEFT_COMPILE_H
#define WEFT_COMPILE_H

#include "vm/program/compile_input.h"

/* Errors in the combination of plan, model and schedule are added to `d`, and WEFT_EPLAN
 * is returned. Other failures fill `e`. */
weft_status compile(const CompileInput *in, Compiled **out, Diags *d, weft_error *e);

#endif
