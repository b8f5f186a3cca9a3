/* cublaslt.h - the GEMMs of linear and its gradients through cuBLASLt. */
#ifndef WEFT_CUDA_GEMM_H
#define WEFT_CUDA_GEMM_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c(m,n) (+)= a(m,k) b(k,n) of operands `a` and `b`; c is dense. In each, rows or
 * columns have stride 1. */
typedef struct Product {
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col;
  int a, b;
  DType in, out;
  /* Operands are codes of fp8 with scales by this recipe (OpAttr.fp8), e4m3 unless said,
   * and bytes of scales; 0: `in` is their type. */
  int fp8;
  bool a_e5m2, b_e5m2;
  uint64_t a_scales, b_scales;
} Product;
Product cuda_product(int op, const KernelArgs *a);

/* Of an op that a file's prepare() has with others. */
#define PREPARES(op)                                                                     \
  weft_status prepare_##op##_lt(Device *d, KernelArgs *a, weft_error *e) {               \
    return prepare(d, a, OP_##op, e);                                                    \
  }

/* The choice of an algorithm, made when a program is loaded and kept in KernelArgs.state.
 */
weft_status prepare_linear_lt(Device *d, KernelArgs *a, weft_error *e);
weft_status prepare_linear_dx_lt(Device *d, KernelArgs *a, weft_error *e);
weft_status prepare_linear_dw_lt(Device *d, KernelArgs *a, weft_error *e);
void release_lt(Device *d, KernelArgs *a);
/* Of any product, with this much scratch. */
weft_status prepare_product_lt(Device *d, KernelArgs *a, const Product *p, uint64_t work,
                               weft_error *e);
/* The same for the products of a head in pieces (linear_ce_lt.c). */
weft_status prepare_linear_ce_stats_lt(Device *d, KernelArgs *a, weft_error *e);
weft_status prepare_linear_ce_back_lt(Device *d, KernelArgs *a, weft_error *e);
weft_status prepare_linear_ce_dx_lt(Device *d, KernelArgs *a, weft_error *e);
weft_status prepare_linear_ce_dw_lt(Device *d, KernelArgs *a, weft_error *e);
void release_linear_ce_lt(Device *d, KernelArgs *a);
/* False if nothing was enqueued: not prepared, or an operand is not aligned. */
bool cuda_multiply_lt(Device *d, const Product *p, const KernelArgs *a);

/* cublasLtHandle_t; or NULL and the reason. */
void *cuda_lt_open(const char **why);
void cuda_lt_close(void *lt);

#ifdef __cplusplus
}
#endif

#endif
