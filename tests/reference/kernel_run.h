/* kernel_run.h - the kernels of a device against the reference. */
#ifndef WEFT_TESTS_KERNEL_RUN_H
#define WEFT_TESTS_KERNEL_RUN_H

#include "kernel_values.h"

/* The kernels of a device whose memory is the host's. */
typedef struct KernelSet {
  const char *name;
  /* May be NULL: each element of a result in bf16 is within one rounding of theirs. */
  const struct KernelSet *like;
  const Kernel *(*kernel)(int op);
  uint64_t (*work)(int op, const KernelArgs *a);
  uint64_t (*state)(int op, const KernelArgs *a); /* NULL: kernels keep nothing */
  /* Results that are sums of products of rounded factors: as inexact as the type of the
   * operands, whatever their own; may be NULL. */
  bool (*coarse)(const Problem *p, int result);
  Device device;
  int threads; /* with 1 to so many of them */
} KernelSet;

/* The kernel once, on fresh buffers, through prepare and release; what it was given. */
KernelArgs kernel_run(const KernelSet *set, const Problem *p, int threads,
                      bool accumulate);
void kernel_free(const Problem *p, KernelArgs *a);

/* One problem, twice with each number of threads: within rounding of the reference, the
 * same bits each time, nothing written past a result or the scratch. The problem's
 * results become those of the reference. */
void kernel_agrees(const KernelSet *set, Problem *p, bool accumulate, const char *type);

/* Every result that units may place over an operand (in_place.def) is the same bits there
 * as elsewhere, in the cases of these types; each row is tried. */
void kernel_places_hold(const KernelSet *set, const DType *types, int ntype);

/* Its results once, each element within its bound of the number that is wanted. `bound`
 * and `want` have an array for each result, or NULL. */
void kernel_within(const KernelSet *set, const Problem *p, double *const *want,
                   double *const *bound, const char *what);

/* Parts of it: a buffer with the value's numbers and a margin behind it. */
void *kernel_typed(const Value *x);
/* Scratch of any content (NaN), and that nothing was written behind it. */
void *kernel_guarded(uint64_t bytes);
void kernel_check_guard(const void *at, uint64_t bytes);
/* Result `i` of `what` against the numbers that are wanted, within the rounding of
 * `type`; where all of them are 0, `nothing` is the largest that is taken for it. */
void kernel_result_agrees(const KTensor *t, DType type, const double *want,
                          double nothing, const char *what, int i);

#endif
