/* lifetimes.h - the bytes of a pp rank's buffers for all units of a shape, without a
 * program.
 *
 * When buffers are allocated and released depends on schedule and stages, how large they
 * are on the units. The bytes are exactly those that offsets() finds in each area: slots
 * of each size, or holes where these are better. */
#ifndef WEFT_LIFETIMES_H
#define WEFT_LIFETIMES_H

#include "unshard.h"

/* The sizes that the buffers of an area have. */
typedef struct BufferSizes {
  int *group, nwhat; /* Interval.what -> number of its size, -1: no bytes */
  uint64_t *size;    /* by that number: aligned bytes */
  int n;
} BufferSizes;
/* Those of the activations of some units. */
void buffer_sizes(const Units *u, Arena *a, BufferSizes *out);
/* Those of what a rank holds whole for a while. */
void unsharded_sizes(const UnshardedList *h, Area area, Arena *a, BufferSizes *out);
/* The same text for units whose buffers live equally long on equal stages and schedules
 * and have equal sizes where the others have, whatever these sizes are. */
void buffer_shape(const Units *u, const BufferSizes *s, Text *out);

typedef struct Lifetimes {
  uint64_t copies, moved, moved_kept; /* AREA_GATHER: as in MainList */
  int *most, nsize;                   /* slots of each size: see BufferSizes */
  bool tight;                         /* all are in use at once: holes cannot be better */
  /* If they might be: what happens, step by step. */
  int n;         /* buffers, numbered in the order in which they are taken */
  int32_t *what; /* Interval.what of each */
  int32_t *step; /* >= 0: this buffer is taken; ~x: buffer x is given back */
  int nstep;
  /* In steps [first, first + repeats * period) the same comes again and again: each time
   * `taken` buffers more. From the start of repetition `settled` on, those in use at the
   * start of a repetition are `moving` (numbers at `settled`, later ones `taken` higher)
   * and others that stay. period 0: nothing repeats. */
  int first, period, repeats, taken, settled;
  int32_t *moving;
  int nmoving;
} Lifetimes;

/* requires the order of sends; establishes the lifetimes of a rank's buffers, by area. */
void lifetimes(const Transfers *t, const Strategy *how, const UnshardedList *held,
               const BufferSizes f[AREA_N], int rank, Arena *scratch, Arena *a,
               Lifetimes out[AREA_N]);

/* Bytes of all buffers of units of this shape. */
uint64_t lifetimes_slots(const Lifetimes *l, const BufferSizes *f);
/* The same if holes are better: at most `limit`, else more than that. */
uint64_t lifetimes_holes(const Lifetimes *l, const BufferSizes *f, uint64_t limit,
                         Arena *scratch);

#endif
