/* fuse_ops.h - fusion of memory-bound ops. */
#ifndef WEFT_FUSE_H
#define WEFT_FUSE_H

#include "vm/graph/graph.h"

/* requires a sharded graph, after recompute; replaces some ops by fused ones: every
 * tensor that is read is still computed in the same unit. A fused op that computes
 * gradients of weights along with those of inputs is in I. */
void fuse_ops(Graph *g);

#endif
