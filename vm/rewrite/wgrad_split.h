/* wgrad_split.h - cheap weight gradients move into I where W runs apart from it. */
#ifndef WEFT_WGRAD_SPLIT_H
#define WEFT_WGRAD_SPLIT_H

#include "vm/shard/shard.h"

/* requires a sharded graph; moves ops from W to I. */
void split_wgrads(const Graph *logical, Sharded *s);

#endif
