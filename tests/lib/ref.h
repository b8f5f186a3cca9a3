/* ref.h - the reference of every op: plain loops in f64, written from the formulas alone.
 * Operands are arrays of double whatever their type is elsewhere. */
#ifndef WEFT_TESTS_REF_H
#define WEFT_TESTS_REF_H

#include "vm/device/device.h"

typedef struct RefTensor {
  double *v;
  int ndim;
  int64_t dim[MAX_DIM];
} RefTensor;

typedef struct RefArgs {
  const OpAttr *attr;
  RefTensor in[KERNEL_MAX_IN], out[KERNEL_MAX_OUT];
  int nin, nout;
  bool accumulate;
  int index;
} RefArgs;

int64_t ref_count(const RefTensor *t);
/* Indexed by OpCode; NULL for communication. */
typedef void RefFn(RefArgs *a);
extern RefFn *const ref_ops[OP_N];

#endif
