/* attention_delta.cu - see attention_delta.cuh. */
#include "attention_delta.cuh"

#include "kernels/cuda/rows.cuh"

/* Eight lanes have one. */
enum { DELTA_LANES = 8, DELTA_SIDE = BLOCK / DELTA_LANES };
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    deltas(const T *o, const T *d_o, float *delta, int64_t n, int d) {
  constexpr int N = EACH_OF<T>;
  int64_t i = (int64_t)blockIdx.x * DELTA_SIDE + threadIdx.x / DELTA_LANES;
  bool is = i < n;
  if (!is) i = n - 1;
  float sum = 0;
  for (int c = threadIdx.x % DELTA_LANES * N; c < d; c += DELTA_LANES * N) {
    Pack<T, N> x, y;
    get<WIDE>(x, o + i * d, c, d);
    get<WIDE>(y, d_o + i * d, c, d);
    UNROLL
    for (int j = 0; j < N; j++) sum += load(x.v[j]) * load(y.v[j]);
  }
  sum = lanes_sum(sum, DELTA_LANES);
  if (is && threadIdx.x % DELTA_LANES == 0) delta[i] = sum;
}

void attention_deltas(Device *dev, const KTensor *o, const KTensor *d_o, float *delta,
                      int64_t n, int d) {
  by_type(o->dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_bool(wide_rows<T>(d, o->p, d_o->p), [&](auto wide) {
      LAUNCH((deltas<decltype(wide)::is, T>), (unsigned)packs_of(n, DELTA_SIDE), BLOCK,
             cuda_stream(dev), data<const T>(o), data<const T>(d_o), delta, n, d);
    });
  });
}
