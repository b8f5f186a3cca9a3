/* rng.h - counter-based random numbers (Philox4x32-10, Salmon et al., SC'11).
 *
 * A value depends only on (seed, stream name, element index), so any sharding of
 * a parameter gets the bits that the whole parameter would have. */
#ifndef WEFT_RNG_H
#define WEFT_RNG_H

#include "philox.h"

typedef struct Rng {
  uint32_t key[2];
} Rng;
/* The stream `name` of `seed`. */
Rng rng_make(uint64_t seed, const char *name);
uint32_t rng_u32(const Rng *r, uint64_t index);
double rng_uniform(const Rng *r, uint64_t index); /* [0, 1), 32 bits */
/* Standard normal by Box-Muller through weft's own log and cos: the same bits on
 * every machine and with every C library. */
float rng_normal(const Rng *r, uint64_t index);
/* out[i] = rng_normal(r, first + i) * scale for i < n, at less than half the cost. */
void rng_normals(const Rng *r, uint64_t first, uint64_t n, float scale, float *out);
/* A permutation of [0, n): the image of i under a keyed Feistel network. */
uint64_t rng_permute(const Rng *r, uint64_t i, uint64_t n);

#endif
