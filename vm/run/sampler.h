/* sampler.h - temperature, top-k and top-p sampling from logits. */
#ifndef WEFT_CHOOSE_H
#define WEFT_CHOOSE_H

#include "vm/base/base.h"

typedef struct SamplerOptions {
  bool greedy;        /* the largest; of equal ones the first */
  double temperature; /* logits are divided by it; 1 */
  int64_t top_k;      /* only of the k largest; 0: of all */
  double top_p;       /* only of the fewest that have this probability together; 1 */
  uint64_t seed;
} SamplerOptions;

/* `room` has space for n numbers. The same for the same logits, seed and position. */
int32_t sample_token(const SamplerOptions *c, const float *logits, int64_t n,
                     int64_t position, int32_t *room);

#endif
