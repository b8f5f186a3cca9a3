/* kernel.h - what the CPU kernels share: element types and the split over threads.
 *
 * A kernel is a function over a range of independent items (rows, columns, tiles).
 * each_part() splits the items over the threads; no result depends on the split, so a
 * kernel gives the same bits for every number of threads. */
#ifndef WEFT_KERNEL_H
#define WEFT_KERNEL_H

#include "vm/base/f16.h"
#include "vm/device/device.h"

#include <math.h>
#include <omp.h>

#ifdef WEFT_SANITIZED
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

/* Every op's kernel is cpu_<op>; those that keep a state also prepare and release it. */
typedef void RunFn(Device *dev, const KernelArgs *a);
typedef weft_status PrepareFn(Device *dev, KernelArgs *a, weft_error *e);
typedef void ReleaseFn(Device *dev, KernelArgs *a);
#define OP(name, nin, nout, infer, grad, shard, cost, doc) extern RunFn cpu_##name;
#include "vm/graph/ops.def"
extern PrepareFn prepare_linear, prepare_linear_dx, prepare_linear_dw, prepare_linear_fp8,
    prepare_linear_fp8_dx, prepare_linear_fp8_dw, prepare_rope, prepare_attention,
    prepare_grouped_linear, prepare_grouped_linear_dx, prepare_grouped_linear_dw,
    prepare_linear_ce_stats, prepare_linear_ce_back, prepare_linear_ce_dx,
    prepare_linear_ce_dw;
extern ReleaseFn release_gemm, release_linear_ce;
/* Of an op that a file's prepare() has with others. */
#define PREPARES(op)                                                                     \
  weft_status prepare_##op(Device *dev, KernelArgs *a, weft_error *e) {                  \
    return prepare(dev, a, OP_##op, e);                                                  \
  }

/* ---- element types ---- */

/* Element i of an array of compute type. Kernels are compiled once per type: `t` is a
 * constant there (see BY_TYPE), so that the loops vectorise. */
INLINE float get(const void *p, DType t, int64_t i) {
  if (t == DT_F32) return ((const float *)p)[i];
  return t == DT_BF16 ? bf16_to_f32(((const bf16 *)p)[i])
                      : f16_to_f32(((const f16 *)p)[i]);
}

/* A value rounded to a 16-bit type, as bits. */
INLINE uint16_t half_of(DType t, float v) {
  return t == DT_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
}

INLINE void put(void *p, DType t, int64_t i, float v) {
  if (t == DT_F32)
    ((float *)p)[i] = v;
  else
    ((uint16_t *)p)[i] = half_of(t, v);
}

/* Element i of a gradient: it is added to in f32, and rounded once. */
INLINE void put_gradient(const KTensor *to, int64_t i, float v, bool accumulate) {
  put(to->p, to->dtype, i, v + (accumulate ? get(to->p, to->dtype, i) : 0));
}

/* The address of element i. */
INLINE void *at(const void *p, DType t, int64_t i) {
  return (char *)p + i * (t == DT_F32 ? 4 : 2);
}

/* Calls f with the type as a constant. */
#define WITH_TYPE(type, f, ...)                                                          \
  switch (type) {                                                                        \
  case DT_F32: f(__VA_ARGS__, DT_F32); break;                                            \
  case DT_BF16: f(__VA_ARGS__, DT_BF16); break;                                          \
  case DT_F16: f(__VA_ARGS__, DT_F16); break;                                            \
  default: assert(!"a compute type");                                                    \
  }

/* Defines name_part from `INLINE void name(a, lo, hi, DType)`: picks the copy of the type
 * of the operand `of`. */
#define BY_TYPE(name, of)                                                                \
  static void name##_part(const KernelArgs *a, int64_t lo, int64_t hi) {                 \
    WITH_TYPE(a->of.dtype, name, a, lo, hi)                                              \
  }

/* ---- shapes ---- */

INLINE int64_t count_of(const KTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
  return n;
}

INLINE int64_t last_dim(const KTensor *t) { return t->dim[t->ndim - 1]; }

INLINE int64_t rows_of(const KTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim - 1; i++) n *= t->dim[i];
  return n;
}

/* ---- threads ---- */

typedef void (*PartFn)(const KernelArgs *a, int64_t lo, int64_t hi);

/* Runs fn over [0, n) in at most dev->threads contiguous parts whose bounds are multiples
 * of `grain`. One part runs in the calling thread: virtual ranks that run at the same
 * time must not start teams. */
static inline void each_part(const Device *dev, const KernelArgs *a, int64_t n,
                             int64_t grain, PartFn fn) {
  int64_t grains = (n + grain - 1) / grain;
  int parts = (int)MIN((int64_t)dev->threads, grains);
  if (parts <= 1) {
    if (n > 0) fn(a, 0, n);
    return;
  }
#pragma omp parallel num_threads(parts)
  {
    int t = omp_get_thread_num(), team = omp_get_num_threads();
    int64_t lo = grains * t / team * grain, hi = grains * (t + 1) / team * grain;
    if (lo < MIN(hi, n)) fn(a, lo, MIN(hi, n));
  }
}

/* Grain for rows of c elements, such that a thread gets about 10,000 elements. */
INLINE int64_t row_grain(int64_t c) { return MAX(1, 8192 / MAX(c, 1)); }
enum { ELEMENT_GRAIN = 8192, COLUMN_GRAIN = 32 };

/* Runs fn over the rows of x. */
static inline void each_row(const Device *dev, const KernelArgs *a, const KTensor *x,
                            PartFn fn) {
  each_part(dev, a, rows_of(x), row_grain(last_dim(x)), fn);
}

/* A token's choice of an expert; sorted by weight to drop some (permute.c). */
typedef struct Choice {
  float weight;
  int32_t at;
} Choice;

/* Most blocks of a sum over a whole tensor (step_scalars.c, xielu.c). */
enum { SQNORM_BLOCKS = 256 };

#endif
