/* adapters.h - low-rank adapters of the model's linears, as parameters and ops. */
#ifndef WEFT_ADAPTERS_H
#define WEFT_ADAPTERS_H

#include "vm/plan/plan.h"

/* requires a finished forward graph that is a fork; establishes an adapter beside each
 * linear that the plan targets, and freezes all other parameters. False if a pattern
 * matches nothing or a weight cannot be adapted (reported). */
bool adapters(Graph *g, const Plan *plan, Diags *d);

#endif
