/* cublaslt_int.h - shared by cublaslt.c, cublaslt_algorithms.c and the device, which
 * keeps what was chosen. */
#ifndef WEFT_CUDA_GEMM_INT_H
#define WEFT_CUDA_GEMM_INT_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "cublaslt.h"

enum { LT_ALIGNED = 16 }; /* bytes: operands begin at a multiple */

/* The state of a product's kernel. */
typedef struct Prepared {
  cublasLtMatmulDesc_t how;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algo;
} Prepared;

/* All that times depend on. */
typedef struct GemmKey {
  int64_t m, n, k, a_row, a_col, b_row, b_col;
  uint64_t work;
  int32_t in, out, add;
  int32_t zero;
} GemmKey;

/* Products that were timed: equal ones are timed once. */
enum { GEMM_CHOICES = 64 };
typedef struct GemmChoices {
  cudaEvent_t begin, end;
  struct GemmChoice {
    GemmKey key;
    cublasLtMatmulAlgo_t algo;
  } at[GEMM_CHOICES];
  int n; /* ever; the oldest go */
} GemmChoices;

/* ---- cublaslt.c ---- */
/* out (+)= x y, of a product that was described. */
cublasStatus_t lt_multiply(const CudaContext *c, const Prepared *s,
                           const cublasLtMatmulAlgo_t *algo, const void *x, const void *y,
                           void *out, bool add, void *work, size_t bytes);

/* ---- cublaslt_algorithms.c ---- */
/* Fills in the algorithm of a product that was described, with so many bytes of scratch;
 * `add`: it may be added to what is there. */
weft_status choose_algorithm(Device *d, Prepared *s, const Product *p, bool add,
                             uint64_t work, weft_error *e);

#endif
