/* trainable.h - which parameters learn, and in which group of the optimizer they are. */
#ifndef WEFT_TRAINABLE_H
#define WEFT_TRAINABLE_H

#include "vm/plan/plan.h"

/* requires a finished forward graph; sets Param.frozen and Param.group by the patterns of
 * the plan. False if one matches nothing, two groups want a parameter, or nothing is left
 * that learns (reported). */
bool trainable(Graph *g, const Plan *plan, Diags *d);

#endif
