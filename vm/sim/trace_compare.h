/* trace_compare.h - kernels of a run that was traced beside what the clock says of them.
 */
#ifndef WEFT_TRACE_COMPARE_H
#define WEFT_TRACE_COMPARE_H

#include "step_cost.h"

/* An op in one step on all ranks of the trace. */
typedef struct ComparedOp {
  int op; /* OpCode */
  DType dtype;
  int64_t count;              /* of kernels */
  double measured, predicted; /* seconds */
  CostFrom from;              /* the least certain of its kernels */
} ComparedOp;

typedef struct Compared {
  ComparedOp *op; /* by the difference, the largest first */
  int n, steps;   /* steps: that were looked at */
  double measured, predicted;
} Compared;

/* `path`: a trace that weft run has written of these programs. Of each instruction the
 * median counts; of several steps the first one is left out. */
weft_status trace_compare(const Compiled *c, const CostSource *s, const char *path,
                          Arena *a, Compared *out, weft_error *e);

#endif
