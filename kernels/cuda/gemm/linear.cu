/* linear.cu - linear and its gradients, through cuBLASLt (cublaslt.c) or, where that does
 * not support an operand, by weft's own kernels with f32 sums in one order: bf16 on
 * tensor cores (multiply_bf16.cuh), f32 by plain tiles. */
#include "cublaslt.h"
#include "multiply_bf16.cuh"

template <typename T, typename TO>
__global__ void __launch_bounds__(BLOCK)
    multiply(Matrix<T> a, Matrix<T> b, TO *c, int64_t m, int64_t n, int64_t k, bool add) {
  multiply_tile(a, b, c, m, n, k, (int64_t)blockIdx.y * TILE_M,
                (int64_t)blockIdx.x * TILE_N, add);
}

template <typename T, typename TO>
static void gemm(Device *d, Matrix<T> a, Matrix<T> b, TO *c, int64_t m, int64_t n,
                 int64_t k, bool add) {
  Dim3 grid((unsigned)((n + TILE_N - 1) / TILE_N), (unsigned)((m + TILE_M - 1) / TILE_M));
  LAUNCH((multiply<T, TO>), grid, BLOCK, cuda_stream(d), a, b, c, m, n, k, add);
}

/* Uses cuBLASLt if that was prepared. */
static void product(Device *d, int op, const KernelArgs *a) {
  Product p = cuda_product(op, a);
  if (cuda_multiply_lt(d, &p, a)) return;
  by_type(p.in, [&](auto *in) {
    typedef TYPE_OF(in) T;
    Matrix<T> x = {data<const T>(&a->in[p.a]), p.a_row, p.a_col};
    Matrix<T> y = {data<const T>(&a->in[p.b]), p.b_row, p.b_col};
    by_type(p.out, [&](auto *out) {
      typedef TYPE_OF(out) TO;
      if constexpr (sizeof(T) == sizeof(bfloat))
        multiply_bf16(d, x, y, a->out[0].p, p.out, p.m, p.n, p.k, a->accumulate);
      else
        gemm<T, TO>(d, x, y, data<TO>(&a->out[0]), p.m, p.n, p.k, a->accumulate);
    });
  });
}

void cuda_linear(Device *d, const KernelArgs *a) { product(d, OP_linear, a); }
void cuda_linear_dx(Device *d, const KernelArgs *a) { product(d, OP_linear_dx, a); }
void cuda_linear_dw(Device *d, const KernelArgs *a) { product(d, OP_linear_dw, a); }
