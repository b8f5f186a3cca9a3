/* sampler.h - temperature, top-k and top-p sampling from logits. */
#ifndef WEFT_CHOOSE_H
#define WEFT_CHOOSE_H

#include "vm/base/base.h"

typedef struct SamplerOptions {
  bool greedy;        /* the largest logit; of equal ones the lowest id */
  double temperature; /* logits are divided by it; 1: unchanged */
  int64_t top_k;      /* only the k largest; 0: all */
  double top_p;       /* only the fewest ids with this probability in sum; 1: all */
  uint64_t seed;
} SamplerOptions;

/* Returns the id. `room` has space for n ids. Deterministic in logits, seed and position.
 */
int32_t sample_token(const SamplerOptions *c, const float *logits, int64_t n,
                     int64_t position, int32_t *room);

#endif
