/* budget.h - an allocator with a limit. It counts what each part of a compile took, so
 * that "out of memory" can say which part grew. */
#ifndef WEFT_BUDGET_H
#define WEFT_BUDGET_H

#include "base.h"

enum { BUDGET_PARTS = 8 };

typedef struct Budget {
  weft_alloc from;      /* where the memory comes from */
  uint64_t limit, used; /* bytes */
  bool over;            /* something was refused */
  struct {
    const char *what; /* "the graph" */
    uint64_t before;  /* used when it began to grow */
  } part[BUDGET_PARTS];
  int nparts;
} Budget;

/* `limit` 0: half of the machine's memory. `from` may be NULL: the C library's. */
void budget_init(Budget *b, const weft_alloc *from, uint64_t limit);
/* Memory that counts; `b` outlives it. One thread at a time. */
weft_alloc budget_alloc(Budget *b);
/* The budget behind an arena, NULL if there is none. */
Budget *budget_of(const Arena *a);
/* What an arena takes its memory from, below its budget: for what does not count, and for
 * several threads. */
const weft_alloc *budget_below(const Arena *a);
/* From now on `what` grows; `a` may have no budget. */
void budget_part(const Arena *a, const char *what);
/* WEFT_ELIMIT: the limit, and what has taken how much of it. */
weft_status budget_error(const Budget *b, weft_error *e);

#endif
