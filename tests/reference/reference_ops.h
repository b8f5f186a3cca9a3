/* reference_ops.h - the reference of every op: plain loops in f64, written from the
 * formulas alone. Operands are arrays of double for every type. */
#ifndef WEFT_TESTS_REF_H
#define WEFT_TESTS_REF_H

#include "vm/device/device.h"

typedef struct RefTensor {
  double *v;
  int ndim;
  int64_t dim[MAX_DIM];
} RefTensor;

/* What the gradients of attention return: the sums; sums of their terms' magnitudes; or
 * the same with magnitudes also for differences within terms, which bound the rounding in
 * f32. */
typedef enum { REF_SUMS, REF_SIZES, REF_PARTS } RefMode;

typedef struct RefArgs {
  const OpAttr *attr;
  RefTensor in[KERNEL_MAX_IN], out[KERNEL_MAX_OUT];
  int nin, nout;
  bool accumulate;
  int index;
  int heads_index;
  int shard;
  uint32_t unit; /* dropout: the number of the unit */
  RefMode mode;
  DType type; /* what an op of several keeps between them is rounded to it */
} RefArgs;

int64_t ref_count(const RefTensor *t);
/* Indexed by OpCode; NULL for communication. */
typedef void RefFn(RefArgs *a);
extern RefFn *const ref_ops[OP_N];

#endif
