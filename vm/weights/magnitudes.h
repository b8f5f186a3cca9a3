/* magnitudes.h - initial values of the magnitudes of adapters (DoRA): the norms of the
 * weights that they are of, over the inputs of each output feature. */
#ifndef WEFT_MAGNITUDES_H
#define WEFT_MAGNITUDES_H

#include "vm/rank/rank.h"

/* Gives elements [from, from + n) of a whole parameter. */
typedef weft_status BaseValues(const void *ud, int param, int64_t from, int64_t n,
                               float *to, weft_error *e);

static inline bool magnitudes(const CompiledParam *p) {
  return p->init == INIT_ROW_NORMS || p->init == INIT_COLUMN_NORMS;
}
/* Values of a piece of magnitudes, of a base as the ops read it, in the compute type. */
weft_status magnitudes_init(const Compiled *c, int param, const Piece *part,
                            BaseValues *values, const void *ud, float *local,
                            weft_error *e);

#endif
