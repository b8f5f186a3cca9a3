/* recompute.h - activation checkpointing of marked forward ops. */
#ifndef WEFT_RECOMPUTE_H
#define WEFT_RECOMPUTE_H

#include "vm/shard/shard.h"

/* requires a finished forward graph; marks the ops that the plan recomputes. mark[] has
 * an entry for each op, initially false. `hits`, NULL or one for each pattern of the
 * plan, counts the ops that a pattern matches. */
void recompute_marks(const Graph *g, const Plan *plan, Arena *scratch, bool *mark,
                     int *hits);
/* False if a pattern matches nothing (reported). */
bool recompute_patterns(const Graph *g, const Plan *plan, Arena *scratch, Diags *d);
/* Warns of words of the plan that stand for no op of the model. */
void recompute_words(const Graph *g, const Plan *plan, Diags *d);
/* Sets Op.recomputed of a forward graph. */
void recompute_set(Graph *g, const Plan *plan, Arena *scratch);
/* requires a sharded graph with Op.recomputed set; writes copies of those ops that the
 * backward needs. */
typedef struct RecomputeHow {
  bool share; /* W may use what was gathered for the copies of I */
  bool apart; /* I and W are split: W may have copies of its own */
} RecomputeHow;
void recompute(Graph *g, RecomputeHow how);

#endif
