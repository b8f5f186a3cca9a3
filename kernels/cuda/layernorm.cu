/* layernorm.cu - layernorm over rows and its gradients; stats: (mean, rstd) of a row. And
 * rows less their mean. A block per row; weights are w + plus. */
#include "columns.cuh"

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    layernorm_rows(const T *x, const T *w, const T *b, T *y, float *stats, int64_t n,
                   float eps, float plus) {
  int64_t r = blockIdx.x;
  x += r * n, y += r * n;
  float sum = 0, var = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) sum += load(x[i]);
  float mean = block_sum<BLOCK>(sum) / (float)n;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
    float d = load(x[i]) - mean;
    var += d * d;
  }
  float rstd = 1.0f / sqrtf(block_sum<BLOCK>(var) / (float)n + eps);
  if (threadIdx.x == 0) stats[2 * r] = mean, stats[2 * r + 1] = rstd;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK)
    y[i] = rounded<T>((load(x[i]) - mean) * rstd * (load(w[i]) + plus) + load(b[i]));
}

void cuda_layernorm(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((layernorm_rows<T>), (unsigned)cuda_rows(&a->in[0]), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const T>(&a->in[1]), data<const T>(&a->in[2]),
           data<T>(&a->out[0]), data<float>(&a->out[1]), cuda_last(&a->in[0]),
           a->attr->eps, attr_weight_plus(a->attr));
  });
}

/* dx = rstd * (dy*w - mean(dy*w) - xhat * mean(dy*w*xhat)), xhat = (x - mean) * rstd. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    layernorm_dx_rows(const T *x, const T *w, const float *stats, const T *dy, T *dx,
                      int64_t n, float plus) {
  int64_t r = blockIdx.x;
  x += r * n, dy += r * n, dx += r * n;
  float mean = stats[2 * r], rstd = stats[2 * r + 1], sum = 0, dot = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
    float d = load(dy[i]) * (load(w[i]) + plus);
    sum += d;
    dot += d * ((load(x[i]) - mean) * rstd);
  }
  sum = block_sum<BLOCK>(sum) / (float)n;
  dot = block_sum<BLOCK>(dot) / (float)n;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK)
    dx[i] = rounded<T>(
        (load(dy[i]) * (load(w[i]) + plus) - sum - (load(x[i]) - mean) * rstd * dot) *
        rstd);
}

void cuda_layernorm_dx(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((layernorm_dx_rows<T>), (unsigned)cuda_rows(&a->in[0]), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const T>(&a->in[1]),
           data<const float>(&a->in[2]), data<const T>(&a->in[3]), data<T>(&a->out[0]),
           cuda_last(&a->in[0]), attr_weight_plus(a->attr));
  });
}

template <typename T> struct LayerTerm {
  const T *x, *dy;
  const float *stats;
  __device__ void operator()(int64_t r, int64_t c, int64_t width, float *to) const {
    float d = load(dy[r * width + c]);
    to[0] += d * ((load(x[r * width + c]) - stats[2 * r]) * stats[2 * r + 1]);
    to[1] += d;
  }
};

void cuda_layernorm_dw(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    sum_columns<2>(d, a, cuda_rows(&a->in[0]), cuda_last(&a->in[0]),
                   LayerTerm<T>{data<const T>(&a->in[0]), data<const T>(&a->in[2]),
                                data<const float>(&a->in[1])});
  });
}

template <typename T>
__global__ void __launch_bounds__(BLOCK) center_rows(const T *x, T *y, int64_t n) {
  int64_t r = blockIdx.x;
  x += r * n, y += r * n;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) sum += load(x[i]);
  float mean = block_sum<BLOCK>(sum) / (float)n;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) y[i] = rounded<T>(load(x[i]) - mean);
}

void cuda_center(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((center_rows<T>), (unsigned)cuda_rows(&a->in[0]), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<T>(&a->out[0]), cuda_last(&a->in[0]));
  });
}
