/* kernel_run.h - the kernels of a device against the reference. */
#ifndef WEFT_TESTS_KERNEL_RUN_H
#define WEFT_TESTS_KERNEL_RUN_H

#include "kernel_values.h"

/* The kernels of a device with host memory. */
typedef struct KernelSet {
  const char *name;
  /* May be NULL: each bf16 element of a result is within one rounding of these
   * kernels'. */
  const struct KernelSet *like;
  const Kernel *(*kernel)(int op);
  uint64_t (*work)(int op, const KernelArgs *a);
  uint64_t (*state)(int op, const KernelArgs *a); /* NULL: kernels have no state */
  /* True for results that sum products of rounded factors: as inexact as the operands'
   * type, whatever the result's; may be NULL. */
  bool (*coarse)(const Problem *p, int result);
  Device device;
  int threads; /* tested with 1 to this many threads */
} KernelSet;

/* Runs the kernel once, on fresh buffers, through prepare and release; returns its
 * arguments. */
KernelArgs kernel_run(const KernelSet *set, const Problem *p, int threads,
                      bool accumulate);
void kernel_free(const Problem *p, KernelArgs *a);

/* Runs a problem twice with each number of threads: within rounding of the reference, the
 * same bits each time, nothing written past a result or the scratch. The problem's
 * results become the reference's. */
void kernel_agrees(const KernelSet *set, Problem *p, bool accumulate, const char *type);

/* Checks that every result that units may place over an operand (in_place.def) has the
 * same bits in place, for the cases of these types; each row is tried. */
void kernel_places_hold(const KernelSet *set, const DType *types, int ntype);

/* Checks its results once, each element within its bound of the expected number. `bound`
 * and `want` have an array per result, or NULL. */
void kernel_within(const KernelSet *set, const Problem *p, double *const *want,
                   double *const *bound, const char *what);

/* A buffer with the value's numbers and a guard margin behind it. */
void *kernel_typed(const Value *x);
/* Scratch filled with NaN; and a check that nothing was written behind it. */
void *kernel_guarded(uint64_t bytes);
void kernel_check_guard(const void *at, uint64_t bytes);
/* Compares result `i` of `what` with the expected numbers, within the rounding of `type`;
 * where all are 0, up to `nothing`. */
void kernel_result_agrees(const KTensor *t, DType type, const double *want,
                          double nothing, const char *what, int i);

#endif
