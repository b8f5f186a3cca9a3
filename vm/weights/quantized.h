/* quantized.h - what parameters in 4 bits begin at: the weights of their base, in codes
 * and scales (vm/base/nf4.h). All of it follows from the whole matrix, so every mesh has
 * the same bits. */
#ifndef WEFT_QUANTIZED_H
#define WEFT_QUANTIZED_H

#include "magnitudes.h"
#include "vm/run/run.h"

typedef struct Quantized {
  const Compiled *c;
  BaseValues *values; /* of weights, as files or the model's initial values have them */
  const void *ud;
  float *offset; /* of each parameter that is codes; NULL: there are none */
} Quantized;
/* Reads all weights that the ranks of this process have in 4 bits, for their offsets. */
weft_status quantized_begin(const Run *r, BaseValues *values, const void *ud,
                            Quantized *out, weft_error *e);
void quantized_end(const Run *r, Quantized *q);
/* The codes or scales of a piece. */
weft_status quantized_init(const Quantized *q, int param, const Piece *part, float *local,
                           weft_error *e);
/* Weights of a base as ops read them, whatever they are stored in: `ud` is a Quantized.
 */
BaseValues quantized_values;
/* The number of the parameter with the codes that scales are of. */
int quantized_codes(const Compiled *c, int scales);
/* The number of the scales, or groups, of codes. */
int quantized_part(const Compiled *c, int codes, QuantPart part);

#endif
