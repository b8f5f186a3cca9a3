/* memory_plan.h - static memory planning: from lifetimes (intervals) to offsets. */
#ifndef WEFT_MEMORY_PLAN_H
#define WEFT_MEMORY_PLAN_H

#include "vm/device/device.h"

typedef struct Interval {
  int start, end; /* inclusive positions */
  uint64_t size, off;
  int32_t what; /* of actions(): 3 * unit + frame class, or 3 * units + tensor */
} Interval;
/* Gives every interval an offset such that no two that overlap in time overlap in space.
 * Returns the bytes that are needed. */
uint64_t offsets(Arena *a, Interval *v, int n);
/* The allocations and frees of buffers in order: i >= 0: buffer v[i] is allocated; ~i: it
 * is freed, before those with a later start are allocated. Returns how many; step[2 *
 * n]. */
int buffer_steps(const Interval *v, int n, Arena *scratch, int32_t *step);
/* Alignment of every offset in an arena. */
enum { ALIGN = DEVICE_ALIGN };
static inline uint64_t align_up(uint64_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

#endif
