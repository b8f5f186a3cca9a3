/* build_units.h - the passes before the pipeline. */
#ifndef WEFT_BUILD_UNITS_H
#define WEFT_BUILD_UNITS_H

#include "vm/code/units.h"

/* On a finished logical graph, which stays as it is; units that repeat are compiled once,
 * unless in->dump shows them all. The result lies in `keep`, everything temporary in
 * in->arena; bodies keep their code only if `code`. Axes of the mesh but pp are those of
 * the plan, except that any dp above 1 may be given as 2: a rank has the same bytes and
 * does the same work. */
weft_status compile_units(const CompileInput *in, bool code, Arena *keep, Units **out,
                          Diags *d, weft_error *e);

#endif
