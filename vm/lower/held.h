/* held.h - the held blocks of a rank, and what the passes make of them; see unshard.h. */
#ifndef WEFT_HELD_H
#define WEFT_HELD_H

#include "unshard.h"
#include "update.h"

/* requires a layout; establishes its held blocks. */
void held_of(const Stages *st, const Layout *l, int rank, Arena *a, Held *out);

/* Calls of a unit that bind the same. */
typedef struct BoundAt {
  uint32_t first;          /* in Program.bind */
  struct BoundAt *next;
} BoundAt;

/* While lower() writes the main list. */
typedef struct HeldNow {
  const Held *h;
  const int *unit_at;      /* unit -> its number in the program */
  uint64_t *copy, *sum, *part; /* where those of each held block lie */
  BoundAt **bound;         /* of each unit */
} HeldNow;
void held_begin(const Emit *e, const Held *h, const int *unit_at, HeldNow *out);
/* The instructions of a GATHER, KEEP, FREE, TAKE, SCATTER or ADD whose buffer lies at `at`. */
void emit_held(Emit *e, HeldNow *n, const Event *ev, uint64_t at);
/* The bindings of a call now: the first in Program.bind. */
uint32_t bind_held(Emit *e, HeldNow *n, int u, Phase ph);

#endif
