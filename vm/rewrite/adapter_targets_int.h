/* adapter_targets_int.h - what adapter_targets.c and modules_to_save.c share: patterns of
 * the plan's adapter, and what is said of those that name nothing. */
#ifndef WEFT_ADAPTER_TARGETS_INT_H
#define WEFT_ADAPTER_TARGETS_INT_H

#include "adapter_targets.h"
#include "vm/shard/shard.h"

typedef struct Finder {
  const Graph *g;
  const Adapter *adapter;
  const AdapterTarget *target; /* of each op */
  Diags *d;
} Finder;

bool target_is_linear(const Graph *g, const Op *op);
/* A head that reads the table of embeddings. */
bool target_is_tied_head(const Graph *g, const Op *op);
/* What patterns name: a linear's module, or a weight of experts, of which their module
 * has several. */
const char *target_name(const Graph *g, const Op *op);
/* What the model's files have a part of which this name is; NULL: it is whole there. */
const char *target_whole(const Graph *g, const char *name);
/* "adapter.FIELD[ITEM]" */
const char *target_path(const Finder *f, const char *field, int item);
/* Adds what a user may have meant instead of a pattern: names of modules. */
void target_suggest(Diag *x, Arena *a, const char *pattern, const PatternList *names,
                    const char *what);
/* Adds the name of a module, as a pattern, and its last part. */
void target_add_name(Arena *a, PatternList *names, const char *module);
/* A folder of a tied model has no lm_head.weight that the head could begin as. */
extern const char target_untie[];

#endif
