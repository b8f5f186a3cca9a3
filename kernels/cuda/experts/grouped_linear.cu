/* grouped_linear.cu - multiplies the rows of each expert by its weight, in one launch for
 * all experts: their numbers of rows are read on the device. bf16 on tensor cores
 * (multiply_bf16.cuh), f32 by the plain tiles below. */
#include "kernels/cuda/gemm/multiply_bf16.cuh"
#include "kernels/cuda/rows.cuh"

/* The expert and the first row of tile y, over the tiles of all experts; false past the
 * last. */
static __device__ bool tile_of(const int32_t *ends, int64_t experts, int64_t y,
                               int64_t *e, int64_t *m0) {
  for (int64_t i = 0; i < experts; i++) {
    int64_t tiles = (ends[i + 1] - ends[i] + TILE_M - 1) / TILE_M;
    if (y < tiles) {
      *e = i, *m0 = y * TILE_M;
      return true;
    }
    y -= tiles;
  }
  return false;
}

/* y(R,n) = x(R,k) @ w[e], where w has strides w_row and w_col. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    multiply_rows(const T *x, const T *w, const int32_t *ends, T *y, int64_t experts,
                  int64_t n, int64_t k, int64_t w_row, int64_t w_col) {
  int64_t e, m0;
  if (!tile_of(ends, experts, blockIdx.y, &e, &m0)) return;
  int64_t first = ends[e];
  Matrix<T> a = {x + first * k, k, 1}, b = {w + e * n * k, w_row, w_col};
  multiply_tile(a, b, y + first * n, ends[e + 1] - first, n, k, m0,
                (int64_t)blockIdx.x * TILE_N, false);
}

static void grouped(Device *d, const KernelArgs *a, bool forward) {
  const KTensor *w = &a->in[1];
  int64_t experts = w->dim[0], rows = a->in[0].dim[0];
  int64_t k = cuda_last(&a->in[0]), n = cuda_last(&a->out[0]);
  int64_t tiles = (rows + TILE_M - 1) / TILE_M + experts;
  Dim3 grid((unsigned)((n + TILE_N - 1) / TILE_N), (unsigned)tiles);
  const int32_t *ends = data<const int32_t>(&a->in[2]);
  bool rows_out = forward == (a->attr->layout == 0); /* a row of w is one of y */
  by_type(w->dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *x = data<const T>(&a->in[0]);
    T *y = data<T>(&a->out[0]);
    int64_t w_row = rows_out ? 1 : n, w_col = rows_out ? k : 1;
    if constexpr (sizeof(T) == sizeof(bfloat))
      multiply_experts(d, x, data<const T>(w), ends, y, experts, rows, n, k, w_row,
                       w_col);
    else
      LAUNCH((multiply_rows<T>), grid, BLOCK, cuda_stream(d), x, data<const T>(w), ends,
             y, experts, n, k, w_row, w_col);
    RowGrid rest = row_grid(packs_of(n, EACH_OF<T>), rows);
    by_bool(wide_rows<T>(n, y), [&](auto wide) {
      LAUNCH((clear_rows<decltype(wide)::is, T>), rest.blocks, rest.threads,
             cuda_stream(d), ends + experts, y, rows, n);
    });
  });
}

void cuda_grouped_linear(Device *d, const KernelArgs *a) { grouped(d, a, true); }
void cuda_grouped_linear_dx(Device *d, const KernelArgs *a) { grouped(d, a, false); }

/* dW[e](m,n) = dy^T x over the expert's rows; for layout 1 x^T dy. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    multiply_weights(const T *x, const T *dy, const int32_t *ends, G *dw, int64_t m,
                     int64_t n, bool add) {
  int64_t e = blockIdx.z, first = ends[e];
  Matrix<T> a = {dy + first * m, 1, m}, b = {x + first * n, n, 1};
  multiply_tile(a, b, dw + e * m * n, m, n, ends[e + 1] - first,
                (int64_t)blockIdx.y * TILE_M, (int64_t)blockIdx.x * TILE_N, add);
}

void cuda_grouped_linear_dw(Device *d, const KernelArgs *a) {
  const KTensor *dw = &a->out[0];
  int64_t m = dw->dim[1], n = dw->dim[2];
  bool turned = a->attr->layout != 0;
  Dim3 grid((unsigned)((n + TILE_N - 1) / TILE_N), (unsigned)((m + TILE_M - 1) / TILE_M),
            (unsigned)dw->dim[0]);
  const int32_t *ends = data<const int32_t>(&a->in[2]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *x = data<const T>(&a->in[turned ? 1 : 0]);
    const T *dy = data<const T>(&a->in[turned ? 0 : 1]);
    if constexpr (sizeof(T) == sizeof(bfloat)) {
      multiply_expert_weights(d, dy, x, ends, dw->p, dw->dtype, dw->dim[0], m, n,
                              a->accumulate);
      return;
    }
    by_type(dw->dtype, [&](auto *g) {
      typedef TYPE_OF(g) G;
      LAUNCH((multiply_weights<T, G>), grid, BLOCK, cuda_stream(d), x, dy, ends,
             data<G>(dw), m, n, a->accumulate);
    });
  });
}
