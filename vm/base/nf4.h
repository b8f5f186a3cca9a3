/* nf4.h - weights in blocks of 64 codes of 4 bits, as bitsandbytes has them: NF4 with
 * quantised scales (QLoRA, arXiv:2305.14314).
 *
 * A weight is its level times the scale of its block, the largest magnitude there. Scales
 * less their mean over the matrix, the offset, are codes of 8 bits, in groups of 256
 * blocks, whose scale is an f32. Blocks and groups follow each other along the rows of
 * the whole matrix. Two codes are in a byte, the first in its high half. */
#ifndef WEFT_NF4_H
#define WEFT_NF4_H

#include <stdint.h>

enum { NF4_BLOCK = 64, NF4_GROUP = 256, NF4_BYTES = NF4_BLOCK / 2, NF4_LEVELS = 16 };

extern const float nf4_level[NF4_LEVELS];
/* What a code of 8 bits stands for. */
float nf4_scale(uint8_t code);

/* The largest magnitude of n weights. */
float nf4_largest(const float *w, int n);
/* Codes of a block. */
void nf4_pack(const float w[NF4_BLOCK], uint8_t to[NF4_BYTES]);
/* Codes of n <= NF4_GROUP scales, those of a group; returns the group's own. */
float nf4_pack_scales(const float *scale, int n, float offset, uint8_t *to);
/* The scale of a block; the product is rounded before the sum, as bitsandbytes does. Not
 * in this header: kernels are compiled to fuse the two. */
float nf4_unpack_scale(uint8_t code, float group, float offset);

#endif
