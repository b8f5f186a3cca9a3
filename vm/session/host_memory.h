/* host_memory.h - what a run holds besides its arenas. */
#ifndef WEFT_HOST_MEMORY_H
#define WEFT_HOST_MEMORY_H

#include "vm/plan/plan.h"
#include "vm/program/program.h"

typedef enum {
  HOST_MEMORY_RANK,
  HOST_MEMORY_PROCESS,
  HOST_MEMORY_LIBRARY
} HostMemoryOwner;
/* A line of host_memory.def. The lines with `known` of all ranks and of their process,
 * plus the arenas, are exactly the peak of what weft allocates in a run. */
typedef struct HostMemoryLine {
  const char *name, *what;
  HostMemoryOwner by;
  bool known; /* allocated by weft, so `bytes` is exact */
  uint64_t bytes;
} HostMemoryLine;
enum { HOST_MEMORY_MOST = 16 };
/* The lines of one owner, as the host memory of: each rank of pp rank `pp`, a process
 * with all ranks of the mesh, or libraries. Returns their number. `with` adds lines that
 * not every run has: reading weights, tracing. */
enum { HOST_MEMORY_WEIGHTS = 1, HOST_MEMORY_TRACE = 2 };
int host_memory_lines(const Plan *p, const Compiled *c, unsigned with, HostMemoryOwner by,
                      int pp, HostMemoryLine out[HOST_MEMORY_MOST]);

/* Bytes of the scores of a layer for a microbatch, as stacks without a kernel for
 * attention keep them: softmax (2), what dropout leaves of it (2), the mask (1), of a
 * rank's heads. Programs have none of them. */
double score_bytes(const Compiled *c);

#endif
