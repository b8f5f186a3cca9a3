/* lifetimes.h - the exact bytes of a pp rank's buffers without a program, for sweeps.
 *
 * When buffers are allocated and released depends on schedule and stages, their sizes
 * depend on the units. So the walk is done once per schedule shape, and sizes are filled
 * in for each variant of the units. The bytes equal those that offsets() finds in each
 * area: one slot size after the other, or first fit into holes where that is smaller. */
#ifndef WEFT_LIFETIMES_H
#define WEFT_LIFETIMES_H

#include "unshard.h"

/* The distinct buffer sizes of an area. */
typedef struct BufferSizes {
  int *group, nwhat; /* Interval.what -> index in `size`, -1: no bytes */
  uint64_t *size;    /* aligned bytes */
  int n;
} BufferSizes;
/* The sizes of the activation buffers of these units. */
void buffer_sizes(const Units *u, Arena *a, BufferSizes *out);
/* The sizes of unsharded parameters and gradients in an area. */
void unsharded_sizes(const UnshardedList *h, Area area, Arena *a, BufferSizes *out);
/* Appends a key that is equal for units whose buffers have equal lifetimes on equal
 * stages and schedules, and equal sizes in the same places, whatever these sizes are. */
void buffer_shape(const Units *u, const BufferSizes *s, Text *out);

typedef struct Lifetimes {
  uint64_t copies, moved, moved_experts, moved_kept; /* for AREA_GATHER: as in MainList */
  int *most, nsize; /* most buffers in use at once, for each size: see BufferSizes */
  bool tight; /* these are all in use at the same time, so that packing into holes cannot
                 be smaller */
  /* For packing into holes; not set if `tight`: */
  int n;         /* buffers, numbered in the order of allocation */
  int32_t *what; /* Interval.what of each */
  int32_t *step; /* x >= 0: buffer x is allocated; ~x: buffer x is released */
  int nstep;
  /* Steps [first, first + repeats * period) are periodic, with `taken` allocations per
   * period. From the start of period `settled` on, the buffers in use at the start of a
   * period are `moving` (numbers at `settled`, `taken` higher in each later period) and
   * others that live through all periods. period 0: nothing is periodic. */
  int first, period, repeats, taken, settled;
  int32_t *moving;
  int nmoving;
} Lifetimes;

/* requires the order of sends; establishes the lifetimes of a rank's buffers in each
 * area. */
void lifetimes(const Transfers *t, const Strategy *how, const UnshardedList *buckets,
               const BufferSizes f[AREA_N], int rank, Arena *scratch, Arena *a,
               Lifetimes out[AREA_N]);

/* Bytes of all buffers with these sizes, each size in slots of its own. */
uint64_t lifetimes_slots(const Lifetimes *l, const BufferSizes *f);
/* The same packed into holes: exact if at most `limit`, else some number above it. */
uint64_t lifetimes_holes(const Lifetimes *l, const BufferSizes *f, uint64_t limit,
                         Arena *scratch);

#endif
