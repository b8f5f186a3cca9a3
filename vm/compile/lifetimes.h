/* lifetimes.h - when the buffers of a pp rank are taken and given back, apart from how
 * large they are: found once for a schedule, then packed with the sizes of any front of
 * the same shape. The offsets, and so the bytes, are those that offsets() finds. */
#ifndef WEFT_LIFETIMES_H
#define WEFT_LIFETIMES_H

#include "passes.h"

typedef struct Lifetimes {
  int n;                 /* buffers, numbered in the order in which they are taken */
  int32_t *what;         /* Interval.what of each */
  int32_t *step;         /* >= 0: this buffer is taken; ~x: buffer x is given back */
  int nstep;
  /* In steps [first, first + repeats * period) the same comes again and again: each time
   * `taken` buffers more. From the start of repetition `settled` on, those in use at the
   * start of a repetition are `moving` (numbers at `settled`, later ones `taken` higher)
   * and others that stay. period 0: nothing repeats. */
  int first, period, repeats, taken, settled;
  int32_t *moving;
  int nmoving;
} Lifetimes;

/* `b` with stages, schedule, microbatches and the order of sends; b->arena is scratch. */
void lifetimes(Build *b, int rank, Arena *a, Lifetimes *out);

/* Bytes of all buffers, exactly; more than `limit` if that is exceeded. `size` is by
 * `what`. */
uint64_t lifetimes_pack(const Lifetimes *l, const uint64_t *size, uint64_t limit,
                        Arena *scratch);

#endif
