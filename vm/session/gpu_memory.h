/* gpu_memory.h - what CUDA, NCCL and cuDNN take of a GPU besides the arena of a rank. */
#ifndef WEFT_GPU_MEMORY_H
#define WEFT_GPU_MEMORY_H

#include "vm/plan/plan.h"
#include "vm/program/program.h"

/* Bytes of the first rank of pipeline rank `pp`: estimates, by rules of NCCL's sources,
 * for the GPU of the plan's cluster, or an H100 in machines of eight. Scratch comes from
 * `a`. */
typedef struct GpuMemory {
  uint64_t context; /* of CUDA, with kernels */
  uint64_t groups;  /* buffers of communicators of collectives, */
  uint64_t pairs;   /* of those of sends and receives */
  uint64_t arena;   /* what NCCL rounds the arena up by */
  uint64_t windows; /* buffers of symmetric kernels; 0: the plan asks for none */
  uint64_t
      scratch; /* of cuDNN's attention, at most; 0: it is in the arena, or not used */
  int ngroup, npair; /* how many of them have two or more members */
  int nwindow;       /* groups that may have symmetric windows */
  int group_ctas, pair_ctas;
} GpuMemory;
GpuMemory gpu_memory(Arena *a, const Plan *p, const Compiled *c, int pp);
/* All of it. */
uint64_t gpu_memory_sum(const GpuMemory *m);
/* The most that a rank takes of its GPU: its arena and all of this; `pp`: which pipeline
 * rank does. One between two others has more buffers than the first, whose arena may be
 * larger. */
uint64_t gpu_memory_worst(Arena *a, const Plan *p, const Compiled *c, int *pp);

#endif
