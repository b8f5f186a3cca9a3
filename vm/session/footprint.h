/* footprint.h - what a run holds besides its arenas. */
#ifndef WEFT_FOOTPRINT_H
#define WEFT_FOOTPRINT_H

#include "vm/plan/plan.h"
#include "vm/program/program.h"

typedef enum { FOOTPRINT_RANK, FOOTPRINT_PROCESS, FOOTPRINT_LIBRARY } FootprintOwner;
/* A line of footprint.def. The lines of all ranks and that of their process, with the
 * arenas, are to the byte the most that weft allocates in a run. */
typedef struct FootprintLine {
  const char *name, *what;
  FootprintOwner by;
  bool known; /* `bytes` says how many: what weft allocates */
  uint64_t bytes;
} FootprintLine;
enum { FOOTPRINT_MOST = 16 };
/* The lines of each rank of a pp rank (FOOTPRINT_RANK), of a process with all ranks of
 * the mesh, or of the libraries below weft; returns their number. `with`: what not every
 * run has, a file of weights and a trace. */
enum { FOOTPRINT_WEIGHTS = 1, FOOTPRINT_TRACE = 2 };
int footprint_lines(const Plan *p, const Compiled *c, unsigned with, FootprintOwner by,
                    int pp, FootprintLine out[FOOTPRINT_MOST]);

#endif
