/* kernel_values.h - what kernels are given and what they give, as numbers of the problems
 * of kernel_cases.h: buffers, and how far a result may be from the one that is wanted. */
#ifndef WEFT_TESTS_KERNEL_VALUES_H
#define WEFT_TESTS_KERNEL_VALUES_H

#include "kernel_cases.h"

int64_t kernel_count(const KTensor *t);
size_t kernel_bytes(const KTensor *t);
KTensor kernel_tensor(const Value *x);
/* The value's numbers in its type. */
void kernel_put(const Value *x, void *to);
double kernel_element(const void *p, DType t, int64_t i);

/* How far a result is from what is wanted. */
typedef struct KernelDifference {
  double norm;    /* of the difference over that of what is wanted */
  double element; /* the worst one, over the largest that is wanted */
  double limit;   /* of `norm`; of `element` it is four times that */
  int64_t odd;    /* an element that is finite in one of both, or nan; -1: none */
  bool ok;
} KernelDifference;
/* Limits are those of rounding to `type`. Where all that is wanted is 0, `nothing` is the
 * largest that is taken for it. With `nan_too` nan is as good as nan. */
KernelDifference kernel_difference(const KTensor *t, DType type, const double *want,
                                   double nothing, bool nan_too);

/* By how many units of the last place of bf16 two results differ, at most, each at the
 * larger of the two numbers. A millionth of what elements are in the mean is taken off
 * first: sums in f32 that cancel leave as much, whoever adds them. */
double kernel_roundings(const KTensor *a, const KTensor *b);

/* Results of CUDA kernels that are sums of products of rounded factors: as inexact as the
 * type of the operands, whatever their own. */
bool kernel_cuda_coarse(const Problem *p, int result);
/* See `nothing` above. */
double kernel_nothing(const Problem *p);

#endif
