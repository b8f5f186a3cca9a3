/* compile.h - from a plan, a logical graph and a schedule to proven programs. compile.c
 * is the list of passes. */
#ifndef WEFT_COMPILE_H
#define WEFT_COMPILE_H

#include "vm/program/compile_input.h"

/* Everything that is wrong with the combination goes to `d`. Returns WEFT_EPLAN if
 * there was an error there; other codes come with `e`. */
weft_status compile(const CompileInput *in, Compiled **out, Diags *d, weft_error *e);

#endif
