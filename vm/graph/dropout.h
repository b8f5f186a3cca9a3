/* dropout.h - which elements dropout keeps, for the kernels of all devices.
 *
 * Philox draws a word for each element from its place in training and in the model: the
 * number of the token, the column, the unit, and which dropout of the unit (attr.site) it
 * is; in attention the query's token, the key's position, the head, unit and site. So a
 * mask depends on neither the mesh nor the device, and the backward pass and
 * recomputation draw it again instead of keeping it. */
#ifndef WEFT_DROPOUT_H
#define WEFT_DROPOUT_H

#include "graph.h"
#include "vm/base/philox.h"

enum { DROPOUT_WORDS = 4 }; /* columns, or keys, that one counter serves */

typedef struct Dropout {
  uint32_t key[2], site, unit;
  uint32_t least; /* smaller words drop; 0: nothing is dropped */
  float scale;    /* of what is kept: the mean stays */
} Dropout;

static inline Dropout dropout_of(const OpAttr *a, uint32_t unit) {
  Dropout d;
  d.key[0] = (uint32_t)a->seed, d.key[1] = (uint32_t)(a->seed >> 32);
  d.site = (uint32_t)a->site, d.unit = unit;
  d.least = (uint32_t)(a->rate * 0x1p32);
  d.scale = (float)(1 / (1 - a->rate));
  return d;
}

/* That of attention for head 0: it has another key, since seeds are below 2^53, and adds
 * the head to the site. */
static inline Dropout dropout_of_heads(const OpAttr *a, uint32_t unit) {
  Dropout d = dropout_of(a, unit);
  d.key[1] |= 0x80000000u;
  d.site <<= 16;
  return d;
}

/* Those of columns, or keys, 4 group to 4 group + 3. */
PHILOX_FN void dropout_words(const Dropout *d, uint32_t token, uint32_t group,
                             uint32_t head, uint32_t word[DROPOUT_WORDS]) {
  uint32_t counter[4] = {token, group, d->site + head, d->unit};
  philox4x32(counter, d->key, word);
}

/* What a kept or dropped element is multiplied by. */
PHILOX_FN float dropout_factor(const Dropout *d, uint32_t word) {
  return word >= d->least ? d->scale : 0;
}

/* Uniform between -reach and reach. */
PHILOX_FN float noise_of(float reach, uint32_t word) {
  return reach * ((float)word * 0x1p-31f - 1);
}

#endif
