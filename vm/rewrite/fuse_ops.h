/* fuse_ops.h - fusion of memory-bound ops. */
#ifndef WEFT_FUSE_H
#define WEFT_FUSE_H

#include "vm/graph/graph.h"

/* requires a sharded graph whose forward ops run again where they do; establishes fused
 * ops in the place of some of its ops: every tensor that anything reads is made as
 * before, in the same unit. Where a fused op makes gradients of weights beside those of
 * inputs, the former are made in I. */
void fuse_ops(Graph *g);

#endif
