/* kernel_values.h - operands and results of kernels as numbers of the problems in
 * kernel_cases.h: fills buffers, and measures the difference of a result from the
 * expected one. */
#ifndef WEFT_TESTS_KERNEL_VALUES_H
#define WEFT_TESTS_KERNEL_VALUES_H

#include "kernel_cases.h"

int64_t kernel_count(const KTensor *t);
size_t kernel_bytes(const KTensor *t);
KTensor kernel_tensor(const Value *x);
/* The value's numbers in its type. */
void kernel_put(const Value *x, void *to);
double kernel_element(const void *p, DType t, int64_t i);

/* The difference of a result from the expected one. */
typedef struct KernelDifference {
  double norm;    /* norm of the difference over the expected norm */
  double element; /* largest difference over the largest expected element */
  double limit;   /* bound of `norm`; four times that for `element` */
  int64_t odd; /* index of an element that is not finite in only one of them; -1: none */
  bool ok;
} KernelDifference;
/* Bounds are those of rounding to `type`. If all expected elements are 0, results up to
 * `nothing` count as 0. `nan_too`: NaN equals NaN. */
KernelDifference kernel_difference(const KTensor *t, DType type, const double *want,
                                   double nothing, bool nan_too);

/* The same with another bound of `norm`. */
KernelDifference kernel_compare(const KTensor *t, double limit, const double *want,
                                double nothing, bool nan_too);
double kernel_limit(DType type);

/* The largest difference of two results in bf16 units of the last place, each at the
 * larger of the two numbers. A millionth of the mean magnitude is subtracted first: the
 * error of cancelling f32 sums in any order. */
double kernel_roundings(const KTensor *a, const KTensor *b);

/* True for results of CUDA kernels that sum products of rounded factors: as inexact as
 * the operands' type, whatever the result's. */
bool kernel_cuda_coarse(const Problem *p, int result);
/* Bound of results of a GPU for a result that has that of `type` on the stand-in. Tensor
 * cores of Hopper keep about 14 bits of sums of fp8 before these are added up in f32. */
double kernel_gpu_limit(const Problem *p, DType type);
/* What an op rounds between its parts, such as logits, may round the other way: its
 * results are as exact as its type, whatever theirs. */
bool kernel_coarse(const Problem *p, int result);
/* See `nothing` above. */
double kernel_nothing(const Problem *p);

#endif
