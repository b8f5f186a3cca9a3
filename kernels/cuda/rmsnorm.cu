/* rmsnorm.cu - rmsnorm over groups of G elements of a row, and its gradients. A group is a
 * warp's work, or a block's where it is long. */
#include "columns.cuh"

/* Sum over the THREADS threads that share a group. */
template <int THREADS> __device__ __forceinline__ float group_sum(float x) {
  if constexpr (THREADS == WARP)
    return lanes_sum(x);
  else
    return block_sum<THREADS>(x);
}

/* THREADS threads a group, BLOCK / THREADS groups a block. */
template <typename T, int THREADS>
__global__ void __launch_bounds__(BLOCK)
    rmsnorm_groups(const T *x, const T *w, T *y, float *rstd, int64_t n, int64_t g,
                   float eps) {
  int64_t r = (int64_t)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
  int first = threadIdx.x % THREADS;
  if (r >= n) return;
  x += r * g, y += r * g;
  float sum = 0;
  for (int64_t i = first; i < g; i += THREADS) sum += load(x[i]) * load(x[i]);
  float s = 1.0f / sqrtf(group_sum<THREADS>(sum) / (float)g + eps);
  if (first == 0) rstd[r] = s;
  for (int64_t i = first; i < g; i += THREADS)
    y[i] = rounded<T>(load(x[i]) * s * load(w[i]));
}

/* dx = rstd * (dy*w - xhat * mean(dy*w*xhat)), xhat = x * rstd. */
template <typename T, int THREADS>
__global__ void __launch_bounds__(BLOCK)
    rmsnorm_dx_groups(const T *x, const T *w, const float *rstd, const T *dy, T *dx,
                      int64_t n, int64_t g) {
  int64_t r = (int64_t)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
  int first = threadIdx.x % THREADS;
  if (r >= n) return;
  x += r * g, dy += r * g, dx += r * g;
  float s = rstd[r], dot = 0;
  for (int64_t i = first; i < g; i += THREADS)
    dot += load(dy[i]) * load(w[i]) * load(x[i]);
  float k = group_sum<THREADS>(dot) * s * s * s / (float)g;
  for (int64_t i = first; i < g; i += THREADS)
    dx[i] = rounded<T>(load(dy[i]) * load(w[i]) * s - load(x[i]) * k);
}

/* Groups up to this length are a warp's. */
enum { WARP_GROUP = 1024 };

void cuda_rmsnorm(Device *d, const KernelArgs *a) {
  int64_t g = cuda_last(&a->in[1]), n = cuda_count(&a->in[0]) / g;
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *x = data<const T>(&a->in[0]), *w = data<const T>(&a->in[1]);
    T *y = data<T>(&a->out[0]);
    float *rstd = data<float>(&a->out[1]);
    if (g <= WARP_GROUP)
      LAUNCH((rmsnorm_groups<T, WARP>), (unsigned)((n + BLOCK / WARP - 1) / (BLOCK / WARP)),
             BLOCK, cuda_stream(d), x, w, y, rstd, n, g, a->attr->eps);
    else
      LAUNCH((rmsnorm_groups<T, BLOCK>), (unsigned)n, BLOCK, cuda_stream(d), x, w, y, rstd,
             n, g, a->attr->eps);
  });
}

void cuda_rmsnorm_dx(Device *d, const KernelArgs *a) {
  int64_t g = cuda_last(&a->in[1]), n = cuda_count(&a->in[0]) / g;
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *x = data<const T>(&a->in[0]), *w = data<const T>(&a->in[1]);
    const T *dy = data<const T>(&a->in[3]);
    const float *rstd = data<const float>(&a->in[2]);
    T *dx = data<T>(&a->out[0]);
    if (g <= WARP_GROUP)
      LAUNCH((rmsnorm_dx_groups<T, WARP>),
             (unsigned)((n + BLOCK / WARP - 1) / (BLOCK / WARP)), BLOCK, cuda_stream(d), x,
             w, rstd, dy, dx, n, g);
    else
      LAUNCH((rmsnorm_dx_groups<T, BLOCK>), (unsigned)n, BLOCK, cuda_stream(d), x, w, rstd,
             dy, dx, n, g);
  });
}

template <typename T> struct RmsTerm {
  const T *x, *dy;
  const float *rstd;
  __device__ void operator()(int64_t r, int64_t c, int64_t width, float *to) const {
    to[0] += load(dy[r * width + c]) * load(x[r * width + c]) * rstd[r];
  }
};

void cuda_rmsnorm_dw(Device *d, const KernelArgs *a) {
  int64_t g = cuda_last(&a->out[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    sum_columns<1>(d, a, cuda_count(&a->in[0]) / g, g,
                   RmsTerm<T>{data<const T>(&a->in[0]), data<const T>(&a->in[2]),
                              data<const float>(&a->in[1])});
  });
}
