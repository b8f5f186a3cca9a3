/* quantized_base.h - stores the frozen weights that an adapter is added to in 4 bits. */
#ifndef WEFT_QUANTIZED_BASE_H
#define WEFT_QUANTIZED_BASE_H

#include "vm/graph/graph.h"
#include "vm/plan/plan.h"

/* requires adapters; establishes the op nf4 before the linears of layers. False: that is
 * impossible (reported). */
bool quantized_base(Graph *g, const Plan *plan, Diags *d);

#endif
