/* multiply.cuh - a GEMM tile through shared memory, sums in f32 in a fixed order. */
#ifndef WEFT_CUDA_MULTIPLY_H
#define WEFT_CUDA_MULTIPLY_H

#include "kernels/cuda/kernel.cuh"

/* c(m,n) (+)= sum over k of a(m,k) b(k,n), with strides of rows and columns. Anything
 * with these strides and an element at (row, column) is an operand of multiply_tile. */
template <typename T> struct Matrix {
  const T *p;
  int64_t row, col;
  __device__ __forceinline__ float at(int64_t y, int64_t x) const {
    return load(p[y * row + x * col]);
  }
};

enum { TILE_M = 64, TILE_N = 64, TILE_K = 16, EACH = 4 };

/* The tile of c at (m0, n0), by a block of 16 x 16 threads, each with EACH x EACH
 * results, TILE_M / EACH apart. */
template <typename A, typename B, typename TO>
__device__ void multiply_tile(A a, B b, TO *c, int64_t m, int64_t n, int64_t k,
                              int64_t m0, int64_t n0, bool add) {
  __shared__ float at[TILE_K][TILE_M + 1], bt[TILE_K][TILE_N + 1];
  int row = threadIdx.x / 16, col = threadIdx.x % 16;
  float sum[EACH][EACH] = {};
  for (int64_t k0 = 0; k0 < k; k0 += TILE_K) {
    for (int i = threadIdx.x; i < TILE_M * TILE_K; i += BLOCK) {
      /* Neighbouring threads read neighbouring elements (coalesced). */
      bool by_row = a.col == 1;
      int64_t y = by_row ? i / TILE_K : i % TILE_M, x = by_row ? i % TILE_K : i / TILE_M;
      bool in = m0 + y < m && k0 + x < k;
      at[x][y] = in ? a.at(m0 + y, k0 + x) : 0;
    }
    for (int i = threadIdx.x; i < TILE_N * TILE_K; i += BLOCK) {
      bool by_row = b.col == 1;
      int64_t y = by_row ? i / TILE_N : i % TILE_K, x = by_row ? i % TILE_N : i / TILE_K;
      bool in = k0 + y < k && n0 + x < n;
      bt[y][x] = in ? b.at(k0 + y, n0 + x) : 0;
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

#endif
