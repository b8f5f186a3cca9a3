/* bias.cu - add_bias, and sums over rows: its gradient and those of the norms' weights.
 */
#include "columns.cuh"

/* Logits of a router are f32 in any compute type. */
template <typename T, typename B>
__global__ void __launch_bounds__(BLOCK)
    add_bias_rows(const T *x, const B *b, T *y, int64_t n, int64_t width) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = rounded<T>(load(x[i]) + load(b[i % width]));
}

template <typename T, typename B> static void add_bias(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  LAUNCH((add_bias_rows<T, B>), blocks_for(n), BLOCK, cuda_stream(d),
         data<const T>(&a->in[0]), data<const B>(&a->in[1]), data<T>(&a->out[0]), n,
         cuda_last(&a->in[0]));
}

void cuda_add_bias(Device *d, const KernelArgs *a) {
  bool logits = a->in[0].dtype != a->in[1].dtype;
  by_type(a->in[1].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    if (logits)
      add_bias<float, T>(d, a);
    else
      add_bias<T, T>(d, a);
  });
}

template <typename T> struct BiasTerm {
  const T *dy;
  __device__ void operator()(int64_t r, int64_t c, int64_t width, float *to) const {
    to[0] += load(dy[r * width + c]);
  }
};

void cuda_bias_dw(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    sum_columns<1>(d, a, cuda_rows(&a->in[0]), cuda_last(&a->in[0]),
                   BiasTerm<T>{data<const T>(&a->in[0])});
  });
}
