/* graph_passes.h - the passes from a logical graph to units: everything before the
 * pipeline. */
#ifndef WEFT_GRAPH_PASSES_H
#define WEFT_GRAPH_PASSES_H

#include "vm/code/units.h"

/* Takes a finished logical graph, which is not changed. Equal layers are compiled once,
 * unless in->dump prints the graph of every layer. The result is allocated in `keep`,
 * temporaries in in->arena; instructions of bodies are kept only if `code`. Axes of the
 * mesh other than pp must be those of the plan, except that a dp above 1 may be given as
 * 2: a rank then has the same bytes and the same work. */
weft_status compile_units(const CompileInput *in, bool code, Arena *keep, Units **out,
                          Diags *d, weft_error *e);

#endif
