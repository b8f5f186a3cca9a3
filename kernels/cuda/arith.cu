/* arith.cu - add, mul, scale, acc and cast: sums and products of equal shapes. */
#include "rows.cuh"

ELEMENTS(add, 2, 0, in[0] + in[1])
ELEMENTS(mul, 2, 0, in[0] * in[1])
ELEMENTS(scale, 1, a->attr->scale, in[0] * k)

template <int N> struct Sum {
  __device__ void operator()(const float *in, float *out) const {
    float sum = in[0];
    for (int k = 1; k < N; k++) sum += in[k];
    out[0] = sum;
  }
};

/* In f32, so that bf16 operands are rounded once, at the end. */
template <int N> static void acc_some(Device *d, const KernelArgs *a) {
  if constexpr (N > 0) {
    if (a->nin == N)
      map<N, 1>(d, a, Sum<N>{});
    else
      acc_some<N - 1>(d, a);
  }
}
void cuda_acc(Device *d, const KernelArgs *a) { acc_some<KERNEL_MAX_IN>(d, a); }

/* ---- cast ---- to a partial sum only the first rank adds a replicated value */

template <bool WIDE, typename TI, typename TO>
__global__ void __launch_bounds__(BLOCK)
    cast_elements(const TI *x, TO *y, int64_t n, bool here, bool add) {
  constexpr int N = EACH_OF<TI> < EACH_OF<TO> ? EACH_OF<TI> : EACH_OF<TO>;
  int64_t step = (int64_t)gridDim.x * BLOCK * N;
  for (int64_t i = column_of(N); i < n; i += step) {
    Pack<TI, N> v = {};
    Pack<TO, N> to = {};
    if (here) get<WIDE>(v, x, i, n);
    if (add) get<WIDE>(to, y, i, n);
    UNROLL
    for (int j = 0; j < N; j++)
      to.v[j] = rounded<TO>(add ? load(to.v[j]) + load(v.v[j]) : load(v.v[j]));
    put<WIDE>(y, i, n, to);
  }
}

void cuda_cast(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]);
  bool here = !a->attr->cut || a->index == 0;
  by_type(a->in[0].dtype, [&](auto *from) {
    typedef TYPE_OF(from) TI;
    by_type(a->out[0].dtype, [&](auto *to) {
      typedef TYPE_OF(to) TO;
      by_bool(wide_rows<bfloat>(n, a->in[0].p, a->out[0].p), [&](auto wide) {
        LAUNCH((cast_elements<decltype(wide)::is, TI, TO>), blocks_for(n, BLOCK * 4),
               BLOCK, cuda_stream(d), data<const TI>(&a->in[0]), data<TO>(&a->out[0]), n,
               here, a->accumulate);
      });
    });
  });
}
