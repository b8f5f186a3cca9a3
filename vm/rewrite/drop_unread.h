/* drop_unread.h - leaves out what a sharded backward moves although no op reads it. */
#ifndef WEFT_DROP_UNREAD_H
#define WEFT_DROP_UNREAD_H

#include "vm/graph/graph.h"

/* requires a sharded graph; removes sums, pieces and collectives of the backward whose
 * results no op reads and that are no gradients of parameters of `logical`. */
void drop_unread(const Graph *logical, Graph *g);

#endif
