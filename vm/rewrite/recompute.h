/* recompute.h - activation checkpointing of marked forward ops. */
#ifndef WEFT_RECOMPUTE_H
#define WEFT_RECOMPUTE_H

#include "vm/shard/shard.h"

/* requires a finished forward graph; establishes which ops the plan wants to run again.
 * mark[] has room for all ops and is false. `hits`, NULL or one for each pattern of the
 * plan, counts ops that a pattern speaks of. */
void recompute_marks(const Graph *g, const Plan *plan, Arena *scratch, bool *mark,
                     int *hits);
/* False if a pattern speaks of nothing (reported). */
bool recompute_patterns(const Graph *g, const Plan *plan, Arena *scratch, Diags *d);
/* Sets Op.recomputed of a forward graph by its marks. */
void recompute_set(Graph *g, const Plan *plan, Arena *scratch);
/* requires a sharded graph, in which the ops of marked ones are marked; establishes
 * copies of those that the backward needs, before it. */
typedef struct RecomputeHow {
  bool share; /* W takes over what is gathered again for the copies of I */
  bool apart; /* W runs apart: it may have copies of its own */
} RecomputeHow;
void recompute(Graph *g, RecomputeHow how);

#endif
