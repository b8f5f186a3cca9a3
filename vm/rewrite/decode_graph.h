/* decode_graph.h - the graph of one decoding step: one token, with a cache of keys and
 * values. */
#ifndef WEFT_DECODE_H
#define WEFT_DECODE_H

#include "vm/base/diag.h"
#include "vm/graph/graph.h"

/* requires a finished logical graph of one token (T = 1), before any pass; attention then
 * keeps the keys and values of `context` positions, which inputs say (IN_POSITIONS), and
 * what the model gives are its logits instead of the loss of them. A model whose loss is
 * not the cross entropy of its logits is an error. */
bool decode_graph(Graph *g, int64_t context, Diags *d);

#endif
