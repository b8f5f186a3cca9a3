/* linear.cu - products of matrices: linear and its gradients, by tiles in shared memory
 * with sums in f32. It takes every shape and layout and has one order of sums. */
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

/* w as (in, out). */
template <typename T> static Matrix<T> weight(const KernelArgs *a, const KTensor *w) {
  int64_t width = w->dim[1];
  return a->attr->layout ? Matrix<T>{data<const T>(w), width, 1}
                         : Matrix<T>{data<const T>(w), 1, width};
}

void cuda_linear(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_rows(&a->in[0]), in = cuda_last(&a->in[0]), out = cuda_last(&a->out[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    gemm<T, T>(d, Matrix<T>{data<const T>(&a->in[0]), in, 1}, weight<T>(a, &a->in[1]),
               data<T>(&a->out[0]), rows, out, in, false);
  });
}

void cuda_linear_dx(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_rows(&a->in[0]), out = cuda_last(&a->in[0]), in = cuda_last(&a->out[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    Matrix<T> w = weight<T>(a, &a->in[1]);
    gemm<T, T>(d, Matrix<T>{data<const T>(&a->in[0]), out, 1}, Matrix<T>{w.p, w.col, w.row},
               data<T>(&a->out[0]), rows, in, out, false);
  });
}

/* dW(out, in) = dy^T x, or dW(in, out) = x^T dy. */
void cuda_linear_dw(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_rows(&a->in[0]), in = cuda_last(&a->in[0]), out = cuda_last(&a->in[1]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *x = data<const T>(&a->in[0]), *dy = data<const T>(&a->in[1]);
    float *dw = data<float>(&a->out[0]);
    if (a->attr->layout)
      gemm<T, float>(d, Matrix<T>{x, 1, in}, Matrix<T>{dy, out, 1}, dw, in, out, rows,
                     a->accumulate);
    else
      gemm<T, float>(d, Matrix<T>{dy, 1, out}, Matrix<T>{x, in, 1}, dw, out, in, rows,
                     a->accumulate);
  });
}
