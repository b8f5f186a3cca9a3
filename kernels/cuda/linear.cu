/* linear.cu - products of matrices: linear and its gradients, through cuBLASLt (gemm.c) or,
 * where that does not take an operand, by tiles in shared memory with sums in f32: every
 * shape and layout, and one order of sums. */
#include "gemm.h"
#include "kernel.cuh"

/* c(m,n) (+)= sum over k of a(m,k) b(k,n), with strides of rows and columns. */
template <typename T> struct Matrix {
  const T *p;
  int64_t row, col;
};

enum { TILE_M = 64, TILE_N = 64, TILE_K = 16, EACH = 4 };

/* A block of 16 x 16 threads, each with EACH x EACH results, TILE_M / EACH apart. */
template <typename T, typename TO>
__global__ void __launch_bounds__(BLOCK)
    multiply(Matrix<T> a, Matrix<T> b, TO *c, int64_t m, int64_t n, int64_t k, bool add) {
  __shared__ float at[TILE_K][TILE_M + 1], bt[TILE_K][TILE_N + 1];
  int64_t m0 = (int64_t)blockIdx.y * TILE_M, n0 = (int64_t)blockIdx.x * TILE_N;
  int row = threadIdx.x / 16, col = threadIdx.x % 16;
  float sum[EACH][EACH] = {};
  for (int64_t k0 = 0; k0 < k; k0 += TILE_K) {
    for (int i = threadIdx.x; i < TILE_M * TILE_K; i += BLOCK) {
      /* Neighbouring threads read what lies side by side. */
      bool by_row = a.col == 1;
      int64_t y = by_row ? i / TILE_K : i % TILE_M, x = by_row ? i % TILE_K : i / TILE_M;
      bool in = m0 + y < m && k0 + x < k;
      at[x][y] = in ? load(a.p[(m0 + y) * a.row + (k0 + x) * a.col]) : 0;
    }
    for (int i = threadIdx.x; i < TILE_N * TILE_K; i += BLOCK) {
      bool by_row = b.col == 1;
      int64_t y = by_row ? i / TILE_N : i % TILE_K, x = by_row ? i % TILE_N : i / TILE_K;
      bool in = k0 + y < k && n0 + x < n;
      bt[y][x] = in ? load(b.p[(k0 + y) * b.row + (n0 + x) * b.col]) : 0;
    }
    __syncthreads();
    for (int p = 0; p < TILE_K; p++)
      for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
          sum[i][j] += at[p][row + 16 * i] * bt[p][col + 16 * j];
    __syncthreads();
  }
  for (int i = 0; i < EACH; i++)
    for (int j = 0; j < EACH; j++) {
      int64_t y = m0 + row + 16 * i, x = n0 + col + 16 * j;
      if (y < m && x < n)
        c[y * n + x] = rounded<TO>(sum[i][j] + (add ? load(c[y * n + x]) : 0));
    }
}

template <typename T, typename TO>
static void gemm(Device *d, Matrix<T> a, Matrix<T> b, TO *c, int64_t m, int64_t n,
                 int64_t k, bool add) {
  Dim3 grid((unsigned)((n + TILE_N - 1) / TILE_N), (unsigned)((m + TILE_M - 1) / TILE_M));
  LAUNCH((multiply<T, TO>), grid, BLOCK, cuda_stream(d), a, b, c, m, n, k, add);
}

/* Through cuBLASLt where that was prepared. */
static void product(Device *d, int op, const KernelArgs *a) {
  Product p = cuda_product(op, a);
  if (cuda_multiply_lt(d, &p, a)) return;
  by_type(p.in, [&](auto *in) {
    typedef TYPE_OF(in) T;
    Matrix<T> x = {data<const T>(&a->in[p.a]), p.a_row, p.a_col};
    Matrix<T> y = {data<const T>(&a->in[p.b]), p.b_row, p.b_col};
    by_type(p.out, [&](auto *out) {
      typedef TYPE_OF(out) TO;
      gemm<T, TO>(d, x, y, data<TO>(&a->out[0]), p.m, p.n, p.k, a->accumulate);
    });
  });
}

void cuda_linear(Device *d, const KernelArgs *a) { product(d, OP_linear, a); }
void cuda_linear_dx(Device *d, const KernelArgs *a) { product(d, OP_linear_dx, a); }
void cuda_linear_dw(Device *d, const KernelArgs *a) { product(d, OP_linear_dw, a); }
