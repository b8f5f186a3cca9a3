/* columns.cuh - sums over rows (gradients of biases and norm weights) in two stages, both
 * in a fixed order: the rounding error grows at most with the square root of the number
 * of rows, and the bits are the same each time. */
#ifndef WEFT_CUDA_COLUMNS_H
#define WEFT_CUDA_COLUMNS_H

#include "rows.cuh"

enum { COLUMN_ROWS = BLOCK / WARP }; /* rows that a block sums side by side */

/* term.add<WIDE>(r, c, width, to) adds N elements of row r from column c on to each of
 * OUT sums; for rows [blockIdx.y * each, ...), to part(OUT, parts, width). A warp has
 * every eighth row. */
template <bool WIDE, int OUT, int N, typename F>
__global__ void __launch_bounds__(BLOCK)
    column_parts(float *part, int64_t rows, int64_t width, int64_t each, F term) {
  __shared__ float all[COLUMN_ROWS][WARP * N + 1];
  int lane = threadIdx.x % WARP, mine = threadIdx.x / WARP;
  int64_t c0 = (int64_t)blockIdx.x * WARP * N, c = c0 + lane * N;
  float sum[OUT][N] = {};
  int64_t r0 = blockIdx.y * each, r1 = r0 + each < rows ? r0 + each : rows;
  if (c < width) {
    UNROLL_BY_4
    for (int64_t r = r0 + mine; r < r1; r += COLUMN_ROWS)
      term.template add<WIDE>(r, c, width, sum);
  }
  UNROLL
  for (int k = 0; k < OUT; k++) {
    UNROLL
    for (int j = 0; j < N; j++) all[mine][lane * N + j] = sum[k][j];
    __syncthreads();
    for (int i = threadIdx.x; i < WARP * N && c0 + i < width; i += BLOCK) {
      float x = all[0][i];
      for (int w = 1; w < COLUMN_ROWS; w++) x += all[w][i];
      part[((int64_t)k * gridDim.y + blockIdx.y) * width + c0 + i] = x;
    }
    __syncthreads();
  }
}

/* 32 columns a block; a warp sums every eighth part. Grid: columns, results. */
template <typename G, int OUT>
__global__ void __launch_bounds__(BLOCK)
    column_sums(const float *part, Pointers<G, OUT> out, int64_t parts, int64_t width,
                bool add) {
  __shared__ float all[COLUMN_ROWS][WARP];
  int lane = threadIdx.x % WARP, mine = threadIdx.x / WARP;
  int64_t c = (int64_t)blockIdx.x * WARP + lane;
  part += (int64_t)blockIdx.y * parts * width;
  float sum = 0;
  if (c < width) {
    UNROLL_BY_4
    for (int64_t i = mine; i < parts; i += COLUMN_ROWS) sum += part[i * width + c];
  }
  all[mine][lane] = sum;
  __syncthreads();
  if (mine > 0 || c >= width) return;
  for (int w = 1; w < COLUMN_ROWS; w++) sum += all[w][lane];
  UNROLL
  for (int k = 0; k < OUT; k++)
    if (k == (int)blockIdx.y)
      out.p[k][c] = rounded<G>(sum + (add ? load(out.p[k][c]) : 0));
}

/* Results 0 to OUT-1 of a, each of `width`, summed from the parts in its scratch. */
template <int OUT>
static void add_parts(Device *d, const KernelArgs *a, int64_t parts, int64_t width) {
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) G;
    Pointers<G, OUT> out;
    for (int k = 0; k < OUT; k++) out.p[k] = data<G>(&a->out[k]);
    LAUNCH((column_sums<G, OUT>), Dim3((unsigned)packs_of(width, WARP), OUT), BLOCK,
           cuda_stream(d), (const float *)a->work, out, parts, width, a->accumulate);
  });
}

/* Sums all rows in both stages; the terms are of type T. */
template <typename T, int OUT, typename F>
static void sum_columns(Device *d, const KernelArgs *a, int64_t rows, int64_t width,
                        bool wide, F term) {
  constexpr int N = EACH_OF<T>;
  int64_t parts = cuda_parts(rows), each = cuda_part_rows(rows);
  Dim3 grid((unsigned)packs_of(width, WARP * N), (unsigned)parts);
  by_bool(wide, [&](auto known) {
    LAUNCH((column_parts<decltype(known)::is, OUT, N, F>), grid, BLOCK, cuda_stream(d),
           (float *)a->work, rows, width, each, term);
  });
  add_parts<OUT>(d, a, parts, width);
}

#endif
