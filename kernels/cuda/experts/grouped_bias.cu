/* grouped_bias.cu - adds the bias of its expert to each row, and its gradient. Of rows
 * that are parts of sums over ranks, the first of these adds it. */
#include "kernels/cuda/kernel.cuh"

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

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    add_biases(const T *x, const T *b, const int32_t *ends, T *y, int64_t rows,
               int64_t width, int64_t experts, bool adds) {
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    int64_t e = expert_of(ends, experts, r);
    for (int64_t i = threadIdx.x; i < width; i += BLOCK) {
      float v = e < 0 ? 0 : load(x[r * width + i]);
      y[r * width + i] = rounded<T>(e < 0 || !adds ? v : v + load(b[e * width + i]));
    }
  }
}

void cuda_grouped_bias(Device *d, const KernelArgs *a) {
  int64_t rows = a->in[0].dim[0];
  bool adds = adds_here(a);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((add_biases<T>), blocks_for(rows, 1), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const T>(&a->in[1]),
           data<const int32_t>(&a->in[2]), data<T>(&a->out[0]), rows,
           cuda_last(&a->in[0]), a->in[1].dim[0], adds);
  });
}

/* Grid: columns, a thread each; experts. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    sum_biases(const T *dy, const int32_t *ends, G *db, int64_t width, bool adds,
               bool add) {
  int64_t e = blockIdx.y, c = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (c >= width) return;
  float sum = 0;
  for (int64_t r = ends[e]; r < ends[e + 1] && adds; r++) sum += load(dy[r * width + c]);
  G *to = db + e * width + c;
  *to = rounded<G>(add ? load(*to) + sum : sum);
}

void cuda_grouped_bias_dw(Device *d, const KernelArgs *a) {
  int64_t width = cuda_last(&a->in[0]);
  bool adds = adds_here(a);
  Dim3 grid((unsigned)((width + BLOCK - 1) / BLOCK), (unsigned)a->out[0].dim[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_type(a->out[0].dtype, [&](auto *g) {
      typedef TYPE_OF(g) G;
      LAUNCH((sum_biases<T, G>), grid, BLOCK, cuda_stream(d), data<const T>(&a->in[0]),
             data<const int32_t>(&a->in[1]), data<G>(&a->out[0]), width, adds,
             a->accumulate);
    });
  });
}
