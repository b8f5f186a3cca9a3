/* adapter_targets.h - which linears and experts the plan's adapter is of. */
#ifndef WEFT_REWRITE_ADAPTER_TARGETS_H
#define WEFT_REWRITE_ADAPTER_TARGETS_H

#include "vm/base/diag.h"
#include "vm/graph/graph.h"
#include "vm/plan/plan.h"

typedef struct AdapterTarget {
  int64_t rank; /* 0: none */
  double alpha;
  bool packed; /* it is a part of a module of the model's files that has one adapter: A is
                  that of the module, and B some rows of the module's */
} AdapterTarget;
/* Whether a pattern is this module, or the end of its name: "q_proj", as PEFT has it. */
bool adapter_names_module(const char *pattern, const char *module);
/* Of a module that has an adapter. */
AdapterTarget adapter_target_of(const Adapter *a, const char *module);
/* Of each op; errors go to `d`. */
AdapterTarget *adapter_targets(const Graph *g, const Adapter *a, Diags *d);
/* modules_to_save.c: of each parameter, whether it learns beside the adapter. */
bool *adapter_saved(const Graph *g, const Adapter *a, const AdapterTarget *target,
                    Diags *d);

#endif
