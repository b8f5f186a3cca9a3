/* bias.cu - add_bias, and sums over rows: its gradient and those of the norms' weights.
 */
#include "columns.cuh"

/* Logits of a router are f32 in any compute type. */
template <bool WIDE, typename T, typename B>
__global__ void __launch_bounds__(BLOCK)
    add_bias_rows(const T *x, const B *b, T *y, int64_t rows, int64_t width) {
  constexpr int N = EACH_OF<T>;
  int64_t c = column_of(N);
  if (c >= width) return;
  Pack<B, N> by;
  get<WIDE>(by, b, c, width);
  for_rows(0, rows, [&](int64_t r) {
    Pack<T, N> v;
    get<WIDE>(v, x + r * width, c, width);
    UNROLL
    for (int j = 0; j < N; j++) v.v[j] = rounded<T>(load(v.v[j]) + load(by.v[j]));
    put<WIDE>(y + r * width, c, width, v);
  });
}

template <typename T, typename B> static void add_bias(Device *d, const KernelArgs *a) {
  int64_t width = cuda_last(&a->in[0]), rows = cuda_rows(&a->in[0]);
  RowGrid g = row_grid(packs_of(width, EACH_OF<T>), rows);
  by_bool(wide_rows<T>(width, a->in[0].p, a->in[1].p, a->out[0].p), [&](auto wide) {
    LAUNCH((add_bias_rows<decltype(wide)::is, T, B>), g.blocks, g.threads, cuda_stream(d),
           data<const T>(&a->in[0]), data<const B>(&a->in[1]), data<T>(&a->out[0]), rows,
           width);
  });
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
  template <bool WIDE, int N>
  __device__ void add(int64_t r, int64_t c, int64_t width, float (&to)[1][N]) const {
    Pack<T, N> v;
    get<WIDE>(v, dy + r * width, c, width);
    UNROLL
    for (int j = 0; j < N; j++) to[0][j] += load(v.v[j]);
  }
};

void cuda_bias_dw(Device *d, const KernelArgs *a) {
  int64_t width = cuda_last(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    sum_columns<T, 1>(d, a, cuda_rows(&a->in[0]), width, wide_rows<T>(width, a->in[0].p),
                      BiasTerm<T>{data<const T>(&a->in[0])});
  });
}
