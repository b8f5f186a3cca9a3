/* chunked_loss.h - cross entropy of a linear in pieces of the rows, so that the logits of
 * all rows never exist. */
#ifndef WEFT_CHUNKED_LOSS_H
#define WEFT_CHUNKED_LOSS_H

#include "vm/shard/shard.h"

/* requires a finished forward graph; marks the linear whose logits the loss is of as
 * recomputed, so that the backward has a product of its own. */
void chunked_loss_marks(Graph *g);
/* requires a sharded graph, after recompute and fuse_ops; replaces that linear, cross
 * entropy and their gradients. False after an error, which names what is in the way. */
bool chunked_loss(const Plan *plan, Graph *g, Diags *d);

#endif
