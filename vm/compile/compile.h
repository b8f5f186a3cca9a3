/* compile.h - from a plan, a logical graph and a schedule to programs.
 *
 * compile.c is the list of passes: those up to units are in vm/units (front.c), then they
 * are files of vm/pipeline, vm/lower and vm/program. */
#ifndef WEFT_COMPILE_H
#define WEFT_COMPILE_H

#include "vm/units/input.h"

/* Everything that is wrong with the combination goes to `d`. Returns WEFT_EPLAN if
 * there was an error there; other codes come with `e`. */
weft_status compile(const CompileInput *in, Compiled **out, Diags *d, weft_error *e);

#endif
