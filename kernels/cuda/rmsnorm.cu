/* rmsnorm.cu - RMSNorm over groups of G elements of a row, also of a sum (add_rmsnorm),
 * and its gradients. A group is handled by a warp, or by a block if it is long. */
#include "columns.cuh"

/* Sum over the THREADS threads of a group. */
template <int THREADS> __device__ __forceinline__ float group_sum(float x) {
  if constexpr (THREADS == WARP)
    return lanes_sum(x);
  else
    return block_sum<THREADS>(x);
}

/* THREADS threads per group, BLOCK / THREADS groups per block. Weights are w + plus. With
 * b, normalizes z = x + b; each thread reads only elements of z that it wrote. */
template <typename T, int THREADS>
__global__ void __launch_bounds__(BLOCK)
    rmsnorm_groups(const T *x, const T *b, T *z, const T *w, T *y, float *rstd, int64_t n,
                   int64_t g, float eps, float plus) {
  int64_t r = (int64_t)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
  int first = threadIdx.x % THREADS;
  if (r >= n) return;
  x += r * g, y += r * g;
  if (b) {
    b += r * g, z += r * g;
    for (int64_t i = first; i < g; i += THREADS)
      z[i] = rounded<T>(load(x[i]) + load(b[i]));
    x = z;
  }
  float sum = 0;
  for (int64_t i = first; i < g; i += THREADS) sum += load(x[i]) * load(x[i]);
  float s = 1.0f / sqrtf(group_sum<THREADS>(sum) / (float)g + eps);
  if (first == 0) rstd[r] = s;
  for (int64_t i = first; i < g; i += THREADS)
    y[i] = rounded<T>(load(x[i]) * s * (load(w[i]) + plus));
}

/* Operands of the gradients; d is added to dx if present. */
template <typename T> struct NormGrad {
  const T *x, *w;
  const float *rstd;
  const T *dy, *d;
  T *dx;
  int64_t n, g;
  float plus; /* weights are w + plus */
};

/* dx = rstd * (dy*w - xhat * mean(dy*w*xhat)), xhat = x * rstd, of group r. */
template <typename T, int THREADS>
__device__ __forceinline__ void group_dx(const NormGrad<T> &a, int64_t r) {
  int first = threadIdx.x % THREADS;
  const T *x = a.x + r * a.g, *dy = a.dy + r * a.g;
  const T *d = a.d ? a.d + r * a.g : nullptr;
  T *dx = a.dx + r * a.g;
  float s = a.rstd[r], dot = 0;
  for (int64_t i = first; i < a.g; i += THREADS)
    dot += load(dy[i]) * (load(a.w[i]) + a.plus) * load(x[i]);
  float k = group_sum<THREADS>(dot) * s * s * s / (float)a.g;
  for (int64_t i = first; i < a.g; i += THREADS) {
    float v = load(dy[i]) * (load(a.w[i]) + a.plus) * s - load(x[i]) * k;
    dx[i] = rounded<T>(d ? v + load(d[i]) : v);
  }
}

template <typename T, int THREADS>
__global__ void __launch_bounds__(BLOCK) rmsnorm_dx_groups(NormGrad<T> a) {
  int64_t r = (int64_t)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
  if (r < a.n) group_dx<T, THREADS>(a, r);
}

/* dx, and while x and dy are at hand, a partial dw of `each` groups. Threads with equal
 * columns add to rows of their own, which are summed in order at the end. */
template <typename T, int THREADS>
__global__ void __launch_bounds__(BLOCK)
    rmsnorm_back_groups(NormGrad<T> a, float *part, int64_t each) {
  constexpr int SIDE = BLOCK / THREADS;
  SHARED_ROOM(room);
  int first = threadIdx.x % THREADS, mine = threadIdx.x / THREADS;
  float *all = (float *)room, *dw = all + mine * a.g;
  for (int64_t i = first; i < a.g; i += THREADS) dw[i] = 0;
  int64_t r0 = blockIdx.x * each, r1 = r0 + each < a.n ? r0 + each : a.n;
  for (int64_t r = r0 + mine; r < r1; r += SIDE) {
    group_dx<T, THREADS>(a, r);
    const T *x = a.x + r * a.g, *dy = a.dy + r * a.g;
    float s = a.rstd[r];
    for (int64_t i = first; i < a.g; i += THREADS) dw[i] += load(dy[i]) * load(x[i]) * s;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < a.g; i += BLOCK) {
    float sum = 0;
    for (int k = 0; k < SIDE; k++) sum += all[k * a.g + i];
    part[blockIdx.x * a.g + i] = sum;
  }
}

/* Groups up to WARP_GROUP are handled by a warp; up to ROOM_GROUP a block has room for
 * dw. */
enum { WARP_GROUP = 1024, ROOM_GROUP = (48 << 10) / (int)sizeof(float) };
template <int N> struct Threads { static constexpr int n = N; };

/* Calls f with the threads per group and the number of blocks for n groups. */
template <typename F> static void by_group(int64_t g, int64_t n, F f) {
  constexpr int SIDE = BLOCK / WARP;
  if (g <= WARP_GROUP)
    f(Threads<WARP>{}, (unsigned)((n + SIDE - 1) / SIDE));
  else
    f(Threads<BLOCK>{}, (unsigned)n);
}

template <typename T>
static void norm(Device *d, const KernelArgs *a, const T *b, T *z, const KTensor *w,
                 const KTensor *y, const KTensor *rstd) {
  int64_t g = cuda_last(w), n = cuda_count(&a->in[0]) / g;
  by_group(g, n, [&](auto threads, unsigned blocks) {
    LAUNCH((rmsnorm_groups<T, decltype(threads)::n>), blocks, BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), b, z, data<const T>(w), data<T>(y),
           data<float>(rstd), n, g, a->attr->eps, attr_weight_plus(a->attr));
  });
}

void cuda_rmsnorm(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    norm<T>(d, a, nullptr, nullptr, &a->in[1], &a->out[0], &a->out[1]);
  });
}

void cuda_add_rmsnorm(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    norm<T>(d, a, data<const T>(&a->in[1]), data<T>(&a->out[0]), &a->in[2], &a->out[1],
            &a->out[2]);
  });
}

/* Operands are x, w, rstd, dy [, d]; dx is the last result. */
template <typename T> static NormGrad<T> grad_of(const KernelArgs *a) {
  int64_t g = cuda_last(&a->in[1]);
  return NormGrad<T>{data<const T>(&a->in[0]),
                     data<const T>(&a->in[1]),
                     data<const float>(&a->in[2]),
                     data<const T>(&a->in[3]),
                     a->nin > 4 ? data<const T>(&a->in[4]) : nullptr,
                     data<T>(&a->out[a->nout - 1]),
                     cuda_count(&a->in[0]) / g,
                     g,
                     attr_weight_plus(a->attr)};
}

template <typename T> static void launch_dx(Device *d, const NormGrad<T> &x) {
  by_group(x.g, x.n, [&](auto threads, unsigned blocks) {
    LAUNCH((rmsnorm_dx_groups<T, decltype(threads)::n>), blocks, BLOCK, cuda_stream(d),
           x);
  });
}

void cuda_rmsnorm_dx(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) { launch_dx(d, grad_of<TYPE_OF(p)>(a)); });
}

template <typename T> struct RmsTerm {
  const T *x, *dy;
  const float *rstd;
  __device__ void operator()(int64_t r, int64_t c, int64_t width, float *to) const {
    to[0] += load(dy[r * width + c]) * load(x[r * width + c]) * rstd[r];
  }
};

static void launch_dw(Device *d, const KernelArgs *a, const KTensor *x,
                      const KTensor *rstd, const KTensor *dy) {
  int64_t g = cuda_last(&a->out[0]);
  by_type(x->dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    sum_columns<1>(
        d, a, cuda_count(x) / g, g,
        RmsTerm<T>{data<const T>(x), data<const T>(dy), data<const float>(rstd)});
  });
}

void cuda_rmsnorm_dw(Device *d, const KernelArgs *a) {
  launch_dw(d, a, &a->in[0], &a->in[1], &a->in[2]);
}

template <typename T> static void launch_back(Device *d, const KernelArgs *a) {
  NormGrad<T> x = grad_of<T>(a);
  int64_t parts = cuda_parts(x.n), each = cuda_part_rows(x.n);
  float *part = (float *)a->work;
  by_group(x.g, 0, [&](auto threads, unsigned) {
    constexpr int N = decltype(threads)::n;
    LAUNCH_ROOM((rmsnorm_back_groups<T, N>), (unsigned)parts, BLOCK,
                (unsigned)(BLOCK / N * x.g * sizeof(float)), cuda_stream(d), x, part,
                each);
  });
  add_parts<1>(d, a, parts, x.g);
}

void cuda_rmsnorm_back(Device *d, const KernelArgs *a) {
  bool room = cuda_last(&a->in[1]) <= ROOM_GROUP;
  if (!room) launch_dw(d, a, &a->in[0], &a->in[2], &a->in[3]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    if (room)
      launch_back<T>(d, a);
    else
      launch_dx(d, grad_of<T>(a));
  });
}
