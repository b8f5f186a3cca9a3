/* cublaslt_int.h - shared by cublaslt.c, cublaslt_algorithms.c and the device, which
 * caches choices of algorithms. */
#ifndef WEFT_CUDA_GEMM_INT_H
#define WEFT_CUDA_GEMM_INT_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "cublaslt.h"

enum { LT_ALIGNED = 16 }; /* required alignment of operands in bytes */

/* The state of a product's kernel. */
typedef struct Prepared {
  cublasLtMatmulDesc_t how;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algo;
  int64_t m, n, k; /* as those of Product */
} Prepared;

/* Everything that timings depend on. */
typedef struct GemmKey {
  int64_t m, n, k, a_row, a_col, b_row, b_col;
  uint64_t work;
  int32_t in, out, add;
  int32_t fp8; /* Product.fp8, and which operands are e5m2 */
} GemmKey;

/* Size of the cache of timed products. */
enum { GEMM_CHOICES = 64 };
typedef struct GemmChoices {
  int capability; /* of the GPU: 90 */
  cudaEvent_t begin, end;
  struct GemmChoice {
    GemmKey key;
    cublasLtMatmulAlgo_t algo;
  } at[GEMM_CHOICES];
  int n; /* number ever added; the oldest are replaced */
} GemmChoices;

/* out (+)= x y, scaled by what is at x_scale and y_scale if the operands are fp8: the
 * library refuses products of other types that have scales. */
typedef struct LtCall {
  const void *x, *y, *x_scale, *y_scale;
  void *out;
  bool add;
  void *work;
  size_t bytes; /* of work */
} LtCall;

/* ---- cublaslt.c ---- */
cublasStatus_t lt_multiply(const CudaContext *c, const Prepared *s,
                           const cublasLtMatmulAlgo_t *algo, const LtCall *x);
/* A launch of a prepared product; false if operands are not aligned. What the library
 * refuses is in CudaContext.refused. */
bool lt_launch(Device *d, const Prepared *s, const LtCall *x);

/* ---- cublaslt_algorithms.c ---- */
/* Selects the algorithm of a prepared product, with this much workspace; `add`: the
 * result may be accumulated. */
weft_status choose_algorithm(Device *d, Prepared *s, const Product *p, bool add,
                             uint64_t work, weft_error *e);

#endif
