/* clamped_swiglu.cu - the gate of gpt-oss over neighbours (g, u) of a row, and its
 * gradient: a clamped element has none. */
#include "kernels/cuda/kernel.cuh"

struct Gate {
  float g, u, sigmoid; /* both clamped; of alpha * g */
};

static __device__ __forceinline__ Gate gate_of(float g, float u, float most,
                                               float alpha) {
  g = g > most ? most : g;
  u = u > most ? most : u < -most ? -most : u;
  return Gate{g, u, sigmoid(alpha * g)};
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    gate_pairs(const T *x, T *y, int64_t n, float most, float alpha) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    Gate p = gate_of(load(x[2 * i]), load(x[2 * i + 1]), most, alpha);
    y[i] = rounded<T>(p.g * p.sigmoid * (p.u + 1.0f));
  }
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    gate_pairs_dx(const T *x, const T *dy, T *dx, int64_t n, float most, float alpha) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    float g = load(x[2 * i]), u = load(x[2 * i + 1]), d = load(dy[i]);
    Gate p = gate_of(g, u, most, alpha);
    float slope = p.sigmoid * (1.0f + alpha * p.g * (1.0f - p.sigmoid));
    dx[2 * i] = rounded<T>(g > most ? 0.0f : d * (p.u + 1.0f) * slope);
    dx[2 * i + 1] = rounded<T>(u > most || u < -most ? 0.0f : d * p.g * p.sigmoid);
  }
}

void cuda_clamped_swiglu(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((gate_pairs<T>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<T>(&a->out[0]), n, a->attr->limit,
           a->attr->scale);
  });
}

void cuda_clamped_swiglu_dx(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[1]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((gate_pairs_dx<T>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const T>(&a->in[1]), data<T>(&a->out[0]), n,
           a->attr->limit, a->attr->scale);
  });
}
