/* wgrad_split.h - moves cheap weight gradients into I where the schedule splits I and W.
 */
#ifndef WEFT_WGRAD_SPLIT_H
#define WEFT_WGRAD_SPLIT_H

#include "vm/shard/shard.h"

/* requires a sharded graph; moves ops from W to I. */
void split_wgrads(const Graph *logical, Sharded *s);

#endif
