/* grouped_bias.cu - adds the bias of its expert to each row, and its gradient. Of rows
 * that are parts of sums over ranks, the first of these adds it. */
#include "kernels/cuda/rows.cuh"

static bool adds_here(const KernelArgs *a) { return !a->attr->cut || a->index == 0; }

/* The expert of a row, or -1 behind all of them. */
static __device__ __forceinline__ int64_t expert_of(const int32_t *ends, int64_t experts,
                                                    int64_t r) {
  int64_t lo = 0, hi = experts;
  if (r >= ends[experts]) return -1;
  while (hi - lo > 1) {
    int64_t mid = (lo + hi) / 2;
    if (ends[mid] <= r)
      lo = mid;
    else
      hi = mid;
  }
  return lo;
}

/* Grid: vectors of columns, rows. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    add_biases(const T *x, const T *b, const int32_t *ends, T *y, int64_t rows,
               int64_t width, int64_t experts, bool adds) {
  constexpr int N = EACH_OF<T>;
  int64_t c = column_of(N);
  if (c >= width) return;
  for_rows(0, rows, [&](int64_t r) {
    int64_t e = expert_of(ends, experts, r);
    Pack<T, N> v = {}, by = {};
    if (e >= 0) get<WIDE>(v, x + r * width, c, width);
    if (e >= 0 && adds) get<WIDE>(by, b + e * width, c, width);
    UNROLL
    for (int j = 0; j < N && e >= 0 && adds; j++)
      v.v[j] = rounded<T>(load(v.v[j]) + load(by.v[j]));
    put<WIDE>(y + r * width, c, width, v);
  });
}

void cuda_grouped_bias(Device *d, const KernelArgs *a) {
  int64_t rows = a->in[0].dim[0], width = cuda_last(&a->in[0]);
  bool adds = adds_here(a);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    RowGrid g = row_grid(packs_of(width, EACH_OF<T>), rows);
    by_bool(wide_rows<T>(width, a->in[0].p, a->in[1].p, a->out[0].p), [&](auto wide) {
      LAUNCH((add_biases<decltype(wide)::is, T>), g.blocks, g.threads, cuda_stream(d),
             data<const T>(&a->in[0]), data<const T>(&a->in[1]),
             data<const int32_t>(&a->in[2]), data<T>(&a->out[0]), rows, width,
             a->in[1].dim[0], adds);
    });
  });
}

/* Grid: 32 vectors of columns, experts. A warp sums every eighth row. */
template <bool WIDE, typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    sum_biases(const T *dy, const int32_t *ends, G *db, int64_t width, bool adds,
               bool add) {
  constexpr int N = EACH_OF<T>, SIDE = BLOCK / WARP;
  __shared__ float all[SIDE][WARP * N + 1];
  int lane = threadIdx.x % WARP, mine = threadIdx.x / WARP;
  int64_t e = blockIdx.y, c0 = (int64_t)blockIdx.x * WARP * N, c = c0 + lane * N;
  float sum[N] = {};
  for (int64_t r = ends[e] + mine; r < ends[e + 1] && adds && c < width; r += SIDE) {
    Pack<T, N> v;
    get<WIDE>(v, dy + r * width, c, width);
    UNROLL
    for (int j = 0; j < N; j++) sum[j] += load(v.v[j]);
  }
  UNROLL
  for (int j = 0; j < N; j++) all[mine][lane * N + j] = sum[j];
  __syncthreads();
  for (int i = threadIdx.x; i < WARP * N && c0 + i < width; i += BLOCK) {
    float x = all[0][i];
    for (int w = 1; w < SIDE; w++) x += all[w][i];
    G *to = db + e * width + c0 + i;
    *to = rounded<G>(add ? load(*to) + x : x);
  }
}

void cuda_grouped_bias_dw(Device *d, const KernelArgs *a) {
  int64_t width = cuda_last(&a->in[0]);
  bool adds = adds_here(a);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    Dim3 grid((unsigned)packs_of(width, WARP * EACH_OF<T>), (unsigned)a->out[0].dim[0]);
    by_type(a->out[0].dtype, [&](auto *g) {
      typedef TYPE_OF(g) G;
      by_bool(wide_rows<T>(width, a->in[0].p), [&](auto wide) {
        LAUNCH((sum_biases<decltype(wide)::is, T, G>), grid, BLOCK, cuda_stream(d),
               data<const T>(&a->in[0]), data<const int32_t>(&a->in[1]),
               data<G>(&a->out[0]), width, adds, a->accumulate);
      });
    });
  });
}
