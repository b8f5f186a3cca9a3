/* reduce.h - element-wise reduction of a block, shared by backends.
 *
 * A caller loads the first member's block, adds the others in group order and stores the
 * result: the order is fixed, so the bits are too. bf16 and f16 accumulate in f32 and are
 * rounded once, by reduce_store. A NaN on any member makes the result NaN, also for
 * max. */
#ifndef WEFT_REDUCE_H
#define WEFT_REDUCE_H

#include "vm/program/program.h"

enum { REDUCE_BLOCK = 2048 }; /* elements; an accumulator fits the L1 cache */

typedef union ReduceAcc {
  float f32[REDUCE_BLOCK]; /* also bf16, f16 */
  double f64[REDUCE_BLOCK];
  int32_t i32[REDUCE_BLOCK];
} ReduceAcc;

/* n <= REDUCE_BLOCK elements of type t. */
void reduce_load(DType t, ReduceAcc *acc, const void *in, size_t n);
void reduce_add(DType t, RedOp op, ReduceAcc *acc, const void *in, size_t n);
void reduce_store(DType t, void *out, const ReduceAcc *acc, size_t n);

#endif
