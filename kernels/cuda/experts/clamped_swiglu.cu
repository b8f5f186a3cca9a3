/* clamped_swiglu.cu - the gate of gpt-oss over neighbours (g, u) of a row, and its
 * gradient: a clamped element has none. */
#include "kernels/cuda/rows.cuh"

struct Gate {
  float g, u, sigmoid; /* both clamped; of alpha * g */
};

static __device__ __forceinline__ Gate gate_of(float g, float u, float most,
                                               float alpha) {
  g = g > most ? most : g;
  u = u > most ? most : u < -most ? -most : u;
  return Gate{g, u, sigmoid(alpha * g)};
}

/* N pairs a thread: 2 N elements of x are one vector. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    gate_pairs(const T *x, T *y, int64_t n, float most, float alpha) {
  constexpr int N = EACH_OF<T> / 2;
  int64_t step = (int64_t)gridDim.x * BLOCK * N;
  for (int64_t i = column_of(N); i < n; i += step) {
    Pack<T, 2 * N> v;
    Pack<T, N> to;
    get<WIDE>(v, x, 2 * i, 2 * n);
    UNROLL
    for (int j = 0; j < N; j++) {
      Gate p = gate_of(load(v.v[2 * j]), load(v.v[2 * j + 1]), most, alpha);
      to.v[j] = rounded<T>(p.g * p.sigmoid * (p.u + 1.0f));
    }
    put<WIDE>(y, i, n, to);
  }
}

template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    gate_pairs_dx(const T *x, const T *dy, T *dx, int64_t n, float most, float alpha) {
  constexpr int N = EACH_OF<T> / 2;
  int64_t step = (int64_t)gridDim.x * BLOCK * N;
  for (int64_t i = column_of(N); i < n; i += step) {
    Pack<T, 2 * N> v;
    Pack<T, N> by;
    get<WIDE>(v, x, 2 * i, 2 * n);
    get<WIDE>(by, dy, i, n);
    UNROLL
    for (int j = 0; j < N; j++) {
      float g = load(v.v[2 * j]), u = load(v.v[2 * j + 1]), d = load(by.v[j]);
      Gate p = gate_of(g, u, most, alpha);
      float slope = p.sigmoid * (1.0f + alpha * p.g * (1.0f - p.sigmoid));
      v.v[2 * j] = rounded<T>(g > most ? 0.0f : d * (p.u + 1.0f) * slope);
      v.v[2 * j + 1] = rounded<T>(u > most || u < -most ? 0.0f : d * p.g * p.sigmoid);
    }
    put<WIDE>(dx, 2 * i, 2 * n, v);
  }
}

void cuda_clamped_swiglu(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_bool(wide_rows<T>(2 * n, a->in[0].p, a->out[0].p), [&](auto wide) {
      LAUNCH((gate_pairs<decltype(wide)::is, T>), blocks_for(n, BLOCK * EACH_OF<T> / 2),
             BLOCK, cuda_stream(d), data<const T>(&a->in[0]), data<T>(&a->out[0]), n,
             a->attr->limit, a->attr->scale);
    });
  });
}

void cuda_clamped_swiglu_dx(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[1]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_bool(wide_rows<T>(2 * n, a->in[0].p, a->in[1].p, a->out[0].p), [&](auto wide) {
      LAUNCH((gate_pairs_dx<decltype(wide)::is, T>),
             blocks_for(n, BLOCK * EACH_OF<T> / 2), BLOCK, cuda_stream(d),
             data<const T>(&a->in[0]), data<const T>(&a->in[1]), data<T>(&a->out[0]), n,
             a->attr->limit, a->attr->scale);
    });
  });
}
