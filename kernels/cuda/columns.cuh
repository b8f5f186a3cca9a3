/* columns.cuh - sums over rows (gradients of biases and norm weights) in two stages, both
 * in a fixed order: the rounding error grows at most with the square root of the number
 * of rows, and the bits are the same each time. */
#ifndef WEFT_CUDA_COLUMNS_H
#define WEFT_CUDA_COLUMNS_H

#include "kernel.cuh"

/* to[k] of column c += term, of rows [blockIdx.y * each, ...), in part(OUT, parts,
 * width). */
template <int OUT, typename F>
__global__ void __launch_bounds__(BLOCK)
    column_parts(float *part, int64_t rows, int64_t width, int64_t each, F term) {
  int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= width) return;
  float sum[OUT];
  for (int k = 0; k < OUT; k++) sum[k] = 0;
  int64_t r0 = blockIdx.y * each, r1 = r0 + each < rows ? r0 + each : rows;
  for (int64_t r = r0; r < r1; r++) term(r, c, width, sum);
  for (int k = 0; k < OUT; k++)
    part[((int64_t)k * gridDim.y + blockIdx.y) * width + c] = sum[k];
}

template <typename G, int OUT>
__global__ void __launch_bounds__(BLOCK)
    column_sums(const float *part, Pointers<G, OUT> out, int64_t parts, int64_t width,
                bool add) {
  int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= width) return;
  for (int k = 0; k < OUT; k++) {
    float sum = 0;
    for (int64_t i = 0; i < parts; i++) sum += part[((int64_t)k * parts + i) * width + c];
    out.p[k][c] = rounded<G>(sum + (add ? load(out.p[k][c]) : 0));
  }
}

/* Results 0 to OUT-1 of a, each of `width`, summed from the parts in its scratch. */
template <int OUT>
static void add_parts(Device *d, const KernelArgs *a, int64_t parts, int64_t width) {
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) G;
    Pointers<G, OUT> out;
    for (int k = 0; k < OUT; k++) out.p[k] = data<G>(&a->out[k]);
    LAUNCH((column_sums<G, OUT>), (unsigned)((width + BLOCK - 1) / BLOCK), BLOCK,
           cuda_stream(d), (const float *)a->work, out, parts, width, a->accumulate);
  });
}

/* Sums all rows in both stages; term(r, c, width, sums) adds one element. */
template <int OUT, typename F>
static void sum_columns(Device *d, const KernelArgs *a, int64_t rows, int64_t width,
                        F term) {
  int64_t parts = cuda_parts(rows), each = cuda_part_rows(rows);
  unsigned blocks = (unsigned)((width + BLOCK - 1) / BLOCK);
  LAUNCH((column_parts<OUT, F>), Dim3(blocks, (unsigned)parts), BLOCK, cuda_stream(d),
         (float *)a->work, rows, width, each, term);
  add_parts<OUT>(d, a, parts, width);
}

#endif
