/* budget.h - an allocator with a limit. It counts the memory of each part of a compile,
 * so that "out of memory" can say which part grew. */
#ifndef WEFT_BUDGET_H
#define WEFT_BUDGET_H

#include "base.h"

enum { BUDGET_PARTS = 8 };

typedef struct Budget {
  weft_alloc from;      /* where the memory comes from */
  uint64_t limit, used; /* bytes */
  bool over;            /* an allocation was refused */
  struct {
    const char *what; /* "the graph" */
    uint64_t before;  /* bytes in use when the part began */
  } part[BUDGET_PARTS];
  int nparts;
} Budget;

/* `limit` 0: half of the machine's memory. `from` NULL: the C library's heap. */
void budget_init(Budget *b, const weft_alloc *from, uint64_t limit);
/* A counting allocator; `b` outlives it. One thread at a time. */
weft_alloc budget_alloc(Budget *b);
/* The budget that an arena's allocator belongs to, or NULL. */
Budget *budget_of(const Arena *a);
/* The allocator below an arena's budget: for uncounted memory, and for several
 * threads. */
const weft_alloc *budget_below(const Arena *a);
/* Attributes what follows to part `what`; `a` may have no budget. */
void budget_part(const Arena *a, const char *what);
/* WEFT_ELIMIT: the limit, and how much of it each part has. */
weft_status budget_error(const Budget *b, weft_error *e);

#endif
