/* fp8_linears.h - precision = "fp8": linears become linear_fp8, with the ops that find
 * their scales. */
#ifndef WEFT_FP8_LINEARS_H
#define WEFT_FP8_LINEARS_H

#include "vm/plan/plan.h"
#include "vm/graph/graph.h"

/* "14 of 15 linears, tensorwise; not lm_head": what a plan says of a model's graph,
 * without adapters. */
const char *fp8_summary(const Graph *g, const Plan *plan, Arena *a);

/* requires adapters; false: patterns of the plan that fit nothing, or no linear that is
 * left (reported) */
bool fp8_linears(Graph *g, const Plan *plan, Diags *d);

#endif
