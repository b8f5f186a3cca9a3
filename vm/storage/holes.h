/* holes.h - best-fit allocator for a range of bytes that grows at its end: takes the
 * smallest hole that fits, of equal ones the first. */
#ifndef WEFT_HOLES_H
#define WEFT_HOLES_H

#include "vm/base/base.h"

typedef struct Hole {
  uint64_t off, size;
} Hole;

typedef struct Holes {
  Arena *arena;
  VEC(Hole) hole; /* by offset, never adjacent */
  uint64_t top;   /* the end of the range */
} Holes;

/* The caller aligns sizes; a size is not 0. */
uint64_t holes_take(Holes *h, uint64_t size);
void holes_give(Holes *h, uint64_t off, uint64_t size);

#endif
