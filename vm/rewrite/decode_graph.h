/* decode_graph.h - the graph of one decoding step: one token, with a key-value cache. */
#ifndef WEFT_DECODE_H
#define WEFT_DECODE_H

#include "vm/base/diag.h"
#include "vm/graph/graph.h"

/* requires a finished logical graph of one token (T = 1), before any pass; gives
 * attention a cache of `context` positions, indexed by the input IN_POSITIONS, and makes
 * the logits the result instead of the loss. It is an error if the loss is not the cross
 * entropy of logits. */
bool decode_graph(Graph *g, int64_t context, Diags *d);

#endif
