/* multiply_bf16.cuh - products of bf16 by weft's own kernels on tensor cores: one product
 * of any layout and alignment, and those of experts, whose rows are counted on the
 * device. See multiply_mma.cuh. */
#ifndef WEFT_CUDA_MULTIPLY_BF16_H
#define WEFT_CUDA_MULTIPLY_BF16_H

#include "multiply.cuh"

/* c(m,n) (+)= a(m,k) b(k,n), both summed over `planes`, the next of which is `plane`
 * elements behind the one before in a; b is the same for all. c is dense, of f32 or bf16.
 */
struct Planes {
  int n;
  int64_t plane;
};
void multiply_bf16(Device *d, const Matrix<bfloat> &a, const Matrix<bfloat> &b, void *c,
                   DType type, int64_t m, int64_t n, int64_t k, bool add,
                   Planes planes = {1, 0});

/* y(rows,n) = x(rows,k) w[e] for the rows [ends[e], ends[e + 1]) of each expert; w has
 * strides w_row and w_col, one of which is 1. */
void multiply_experts(Device *d, const bfloat *x, const bfloat *w, const int32_t *ends,
                      bfloat *y, int64_t experts, int64_t rows, int64_t n, int64_t k,
                      int64_t w_row, int64_t w_col);

/* dw[e](m,n) (+)= a^T b over the rows of each expert, of a(rows,m) and b(rows,n). */
void multiply_expert_weights(Device *d, const bfloat *a, const bfloat *b,
                             const int32_t *ends, void *dw, DType type, int64_t experts,
                             int64_t m, int64_t n, bool add);

#endif
