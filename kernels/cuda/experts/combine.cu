/* combine.cu - sums over a token's choices: combine and its gradients, and the gradient
 * of permute. */
#include "kernels/cuda/rows.cuh"

/* weight NULL: all 1. Grid: vectors of columns, tokens. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    sum_choices(const T *x, const int32_t *rows, const float *weight, T *y,
                int64_t tokens, int64_t k, int64_t width) {
  constexpr int N = EACH_OF<T>;
  int64_t c = column_of(N);
  if (c >= width) return;
  for_rows(0, tokens, [&](int64_t t) {
    float sum[N] = {};
    UNROLL_BY_4
    for (int64_t j = t * k; j < (t + 1) * k; j++) {
      int64_t row = rows[j];
      if (row < 0) continue;
      float by = weight ? weight[j] : 1;
      Pack<T, N> v;
      get<WIDE>(v, x + row * width, c, width);
      UNROLL
      for (int i = 0; i < N; i++) sum[i] += by * load(v.v[i]);
    }
    Pack<T, N> to;
    UNROLL
    for (int i = 0; i < N; i++) to.v[i] = rounded<T>(sum[i]);
    put<WIDE>(y + t * width, c, width, to);
  });
}

static void sum_on(Device *d, const KernelArgs *a, const KTensor *rows,
                   const float *weight) {
  int64_t width = cuda_last(&a->out[0]), k = cuda_last(rows);
  int64_t tokens = cuda_count(&a->out[0]) / width;
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    RowGrid g = row_grid(packs_of(width, EACH_OF<T>), tokens);
    by_bool(wide_rows<T>(width, a->in[0].p, a->out[0].p), [&](auto wide) {
      LAUNCH((sum_choices<decltype(wide)::is, T>), g.blocks, g.threads, cuda_stream(d),
             data<const T>(&a->in[0]), data<const int32_t>(rows), weight,
             data<T>(&a->out[0]), tokens, k, width);
    });
  });
}

void cuda_permute_dx(Device *d, const KernelArgs *a) { sum_on(d, a, &a->in[1], NULL); }

void cuda_combine(Device *d, const KernelArgs *a) {
  sum_on(d, a, &a->in[2], data<const float>(&a->in[1]));
}

/* Clears the rows that no choice uses, which are behind the others. Grid: vectors of
 * columns, rows. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    clear_unused(const int32_t *rows, T *y, int64_t n, int64_t all, int64_t width) {
  constexpr int N = EACH_OF<T>;
  int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), used = 0;
  __shared__ int part[BLOCK / WARP];
  for (int64_t i = thread; i < n; i += BLOCK) used += rows[i] >= 0;
  used = lanes_sum(used);
  if (thread % WARP == 0) part[thread / WARP] = used;
  __syncthreads();
  used = 0;
  for (int w = 0; w < BLOCK / WARP; w++) used += part[w];
  for (int64_t c = column_of(N); c < width; c += (int64_t)gridDim.x * blockDim.x * N)
    for_rows(used, all,
             [&](int64_t r) { put<WIDE>(y + r * width, c, width, Pack<T, N>{}); });
}

/* A warp per token, which goes through its choices; each has a row of its own. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    combine_dx_token(const T *x, const float *weight, const int32_t *rows, const T *dy,
                     T *dx, float *dweight, int64_t tokens, int64_t k, int64_t width) {
  constexpr int N = EACH_OF<T>;
  int64_t t = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
  if (t >= tokens) return;
  for (int64_t i = t * k; i < (t + 1) * k; i++) {
    int64_t row = rows[i];
    float sum = 0, by = weight[i];
    UNROLL_BY_4
    for (int64_t c = threadIdx.x % WARP * N; c < width && row >= 0; c += WARP * N) {
      Pack<T, N> g, v;
      get<WIDE>(g, dy + t * width, c, width);
      get<WIDE>(v, x + row * width, c, width);
      UNROLL
      for (int j = 0; j < N; j++) {
        sum += load(g.v[j]) * load(v.v[j]);
        v.v[j] = rounded<T>(by * load(g.v[j]));
      }
      put<WIDE>(dx + row * width, c, width, v);
    }
    sum = lanes_sum(sum);
    if (threadIdx.x % WARP == 0) dweight[i] = sum;
  }
}

void cuda_combine_dx(Device *d, const KernelArgs *a) {
  const KTensor *w = &a->in[1];
  int64_t n = cuda_count(w), k = cuda_last(w), width = cuda_last(&a->in[0]);
  int64_t all = a->in[0].dim[0];
  const int32_t *rows = data<const int32_t>(&a->in[2]);
  enum { CLEARING = 64 };
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    RowGrid g = row_grid(packs_of(width, EACH_OF<T>), CLEARING);
    g.blocks.x = 1;
    by_bool(wide_rows<T>(width, a->in[0].p, a->in[3].p, a->out[0].p), [&](auto wide) {
      constexpr bool WIDE = decltype(wide)::is;
      LAUNCH((clear_unused<WIDE, T>), g.blocks, g.threads, cuda_stream(d), rows,
             data<T>(&a->out[0]), n, all, width);
      LAUNCH((combine_dx_token<WIDE, T>), (unsigned)packs_of(n / k, BLOCK / WARP), BLOCK,
             cuda_stream(d), data<const T>(&a->in[0]), data<const float>(w), rows,
             data<const T>(&a->in[3]), data<T>(&a->out[0]), data<float>(&a->out[1]),
             n / k, k, width);
    });
  });
}
