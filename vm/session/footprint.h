/* footprint.h - what a run holds besides its arenas. */
#ifndef WEFT_FOOTPRINT_H
#define WEFT_FOOTPRINT_H

#include "vm/plan/plan.h"
#include "vm/program/program.h"

typedef enum { FOOTPRINT_RANK, FOOTPRINT_PROCESS, FOOTPRINT_LIBRARY } FootprintOwner;
/* A line of footprint.def. The lines with `known` of all ranks and of their process, plus
 * the arenas, are exactly the peak of what weft allocates in a run. */
typedef struct FootprintLine {
  const char *name, *what;
  FootprintOwner by;
  bool known; /* allocated by weft, so `bytes` is exact */
  uint64_t bytes;
} FootprintLine;
enum { FOOTPRINT_MOST = 16 };
/* The lines of one owner, as the host memory of: each rank of pp rank `pp`, a process
 * with all ranks of the mesh, or libraries. Returns their number. `with` adds lines that
 * not every run has: reading weights, tracing. */
enum { FOOTPRINT_WEIGHTS = 1, FOOTPRINT_TRACE = 2 };
int footprint_lines(const Plan *p, const Compiled *c, unsigned with, FootprintOwner by,
                    int pp, FootprintLine out[FOOTPRINT_MOST]);

/* Bytes of the scores of a layer for a microbatch, as stacks without a kernel for
 * attention keep them: softmax (2), what dropout leaves of it (2), the mask (1), of a
 * rank's heads. Programs have none of them. */
double footprint_scores(const Compiled *c);

#endif
