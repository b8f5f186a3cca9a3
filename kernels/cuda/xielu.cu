/* xielu.cu - xIELU (vm/graph/op_xielu.c), its slope, and the gradients of its numbers. */
#include "rows.cuh"

static __device__ __forceinline__ float softplus(float x) {
  return fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
}

/* Its numbers are read on the device, where they lie. */
template <typename T> struct XieluNumbers {
  const T *p, *n;
  float beta, eps;
  __device__ float above() const { return softplus(load(p[0])); }
  __device__ float below() const { return beta + softplus(load(n[0])); }
};

/* What n is multiplied by: exp(min(x, eps)) - 1 - x of x <= 0. */
static __device__ __forceinline__ float below_0(float x, float eps) {
  return expm1f(x < eps ? x : eps) - x;
}

struct XieluOf {
  float p, n, beta, eps;
  __device__ __forceinline__ float operator()(float x, float) const {
    return (x > 0 ? p * x * x : n * below_0(x, eps)) + beta * x;
  }
};
struct XieluSlope {
  float p, n, beta, eps;
  __device__ __forceinline__ float operator()(float x, float dy) const {
    float s = x > 0 ? 2 * p * x : n * ((x > eps ? 0 : expf(x)) - 1.0f);
    return dy * (s + beta);
  }
};

/* F of each element, and of that of dy where it is given. */
template <bool WIDE, typename F, typename T>
__global__ void __launch_bounds__(BLOCK)
    xielu_rows(const T *x, const T *dy, T *y, int64_t rows, int64_t width,
               XieluNumbers<T> of) {
  constexpr int N = EACH_OF<T>;
  int64_t c = column_of(N);
  if (c >= width) return;
  F f = {of.above(), of.below(), of.beta, of.eps};
  for_rows(0, rows, [&](int64_t r) {
    Pack<T, N> v, d = {};
    get<WIDE>(v, x + r * width, c, width);
    if (dy) get<WIDE>(d, dy + r * width, c, width);
    UNROLL
    for (int j = 0; j < N; j++) v.v[j] = rounded<T>(f(load(v.v[j]), load(d.v[j])));
    put<WIDE>(y + r * width, c, width, v);
  });
}

template <typename T> static XieluNumbers<T> numbers_of(const KernelArgs *a) {
  return {data<const T>(&a->in[1]), data<const T>(&a->in[2]), (float)a->attr->beta,
          a->attr->eps};
}

template <typename F> static void each_element(Device *d, const KernelArgs *a) {
  int64_t width = cuda_last(&a->in[0]), rows = cuda_rows(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *dy = a->nin > 3 ? data<const T>(&a->in[3]) : NULL;
    RowGrid g = row_grid(packs_of(width, EACH_OF<T>), rows);
    by_bool(wide_rows<T>(width, a->in[0].p, dy, a->out[0].p), [&](auto wide) {
      LAUNCH((xielu_rows<decltype(wide)::is, F, T>), g.blocks, g.threads, cuda_stream(d),
             data<const T>(&a->in[0]), dy, data<T>(&a->out[0]), rows, width,
             numbers_of<T>(a));
    });
  });
}
void cuda_xielu(Device *d, const KernelArgs *a) { each_element<XieluOf>(d, a); }
void cuda_xielu_dx(Device *d, const KernelArgs *a) { each_element<XieluSlope>(d, a); }

/* ---- gradients of the numbers ---- sums of runs of elements, a block each, and then of
 * these, both in a fixed order */

template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK) xielu_sums(const T *x, const T *dy, double *part,
                                                    int64_t n, int64_t each, float eps) {
  constexpr int N = EACH_OF<T>;
  int64_t from = blockIdx.x * each, end = from + each < n ? from + each : n;
  float up = 0, down = 0;
  for (int64_t i = from + (int64_t)threadIdx.x * N; i < end; i += BLOCK * N) {
    Pack<T, N> v, d;
    get<WIDE>(v, x, i, n);
    get<WIDE>(d, dy, i, n);
    UNROLL
    for (int j = 0; j < N; j++) {
      float u = load(v.v[j]), w = load(d.v[j]);
      if (u > 0)
        up += w * u * u;
      else if (i + j < n)
        down += w * below_0(u, eps);
    }
  }
  double above = block_sum<BLOCK>((double)up), below = block_sum<BLOCK>((double)down);
  if (threadIdx.x > 0) return;
  part[2 * blockIdx.x] = above;
  part[2 * blockIdx.x + 1] = below;
}

/* A block for each of the two. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    xielu_gradients(const double *part, int parts, Pointers<const T, 2> numbers,
                    Pointers<G, 2> out, bool add) {
  int k = (int)blockIdx.x;
  double sum = 0;
  for (int i = threadIdx.x; i < parts; i += BLOCK) sum += part[2 * i + k];
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x > 0) return;
  float slope = sigmoid(load(k ? numbers.p[1][0] : numbers.p[0][0]));
  G *to = k ? out.p[1] : out.p[0];
  to[0] = rounded<G>((float)sum * slope + (add ? load(to[0]) : 0));
}

void cuda_xielu_dw(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  int64_t each = packs_of(packs_of(n, CUDA_NORM_BLOCKS), BLOCK * 8) * BLOCK * 8;
  int blocks = (int)packs_of(n, each);
  double *part = (double *)a->work;
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_bool(wide_rows<T>(n, a->in[0].p, a->in[3].p), [&](auto wide) {
      LAUNCH((xielu_sums<decltype(wide)::is, T>), blocks, BLOCK, cuda_stream(d),
             data<const T>(&a->in[0]), data<const T>(&a->in[3]), part, n, each,
             a->attr->eps);
    });
    Pointers<const T, 2> numbers;
    for (int k = 0; k < 2; k++) numbers.p[k] = data<const T>(&a->in[1 + k]);
    by_type(a->out[0].dtype, [&](auto *q) {
      typedef TYPE_OF(q) G;
      Pointers<G, 2> out;
      for (int k = 0; k < 2; k++) out.p[k] = data<G>(&a->out[k]);
      LAUNCH((xielu_gradients<T, G>), 2, BLOCK, cuda_stream(d), part, blocks, numbers,
             out, a->accumulate);
    });
  });
}
