/* ckpt_compare.h - differences between two checkpoints, tensor by tensor, whatever meshes
 * wrote them (weft ckpt diff). */
#ifndef WEFT_CKPT_COMPARE_H
#define WEFT_CKPT_COMPARE_H

#include "ckpt.h"

typedef enum {
  TENSOR_SAME,
  TENSOR_DIFFERS,
  TENSOR_SHAPE,
  TENSOR_ONE,
  TENSOR_OTHER
} TensorDiff;
typedef struct CompareRow {
  const char *name;          /* of the parameter */
  const char *kind;          /* ckpt_kind_name */
  TensorDiff is;             /* ONE, OTHER: only that checkpoint has it */
  int64_t elements, differ;  /* those with other bits */
  double most_abs, most_rel; /* largest |a - b|, and of it by max(|a|, |b|) */
} CompareRow;
/* Calls `fn` for each tensor; those that only `b` has come last. */
weft_status ckpt_compare(const Ckpt *a, const Ckpt *b,
                         void (*fn)(void *ud, const CompareRow *row), void *ud,
                         const StopFlag *stop, weft_error *e);

#endif
