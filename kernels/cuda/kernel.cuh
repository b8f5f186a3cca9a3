/* kernel.cuh - what the CUDA kernels share: element types, sums over threads, and the
 * loop over elements.
 *
 * Every op is `extern "C" void cuda_<op>(Device *, const KernelArgs *)`: it only
 * launches, on the compute stream of the device. No result depends on which thread or
 * block comes first: there are no atomic additions, and every sum has one order, so a
 * launch gives the same bits each time. */
#ifndef WEFT_CUDA_KERNEL_H
#define WEFT_CUDA_KERNEL_H

#include <assert.h>
#include <math.h>
#include <stdint.h>

#include "cuda.h"
#include "port.h"

typedef __nv_bfloat16 bfloat;

constexpr int WARP = 32, BLOCK = 256, BLOCKS_MAX = 1 << 16;

/* ---- element types ---- sums and products are in f32, results are rounded once */

__device__ __forceinline__ float load(float x) { return x; }
__device__ __forceinline__ float load(bfloat x) { return __bfloat162float(x); }
template <typename T> __device__ __forceinline__ T rounded(float x);
template <> __device__ __forceinline__ float rounded<float>(float x) { return x; }
template <> __device__ __forceinline__ bfloat rounded<bfloat>(float x) {
  return __float2bfloat16_rn(x);
}

/* Calls f with a null pointer to the element type. */
template <typename F> static void by_type(DType t, F f) {
  assert(t == DT_F32 || t == DT_BF16);
  if (t == DT_F32)
    f((float *)0);
  else
    f((bfloat *)0);
}
/* The type, inside of such a call. */
#define TYPE_OF(p) typename type_of<decltype(p)>::type
template <typename P> struct type_of;
template <typename T> struct type_of<T *> { typedef T type; };

template <typename T> static T *data(const KTensor *t) { return (T *)t->p; }

/* ---- sums over threads ---- */

template <typename T> __device__ __forceinline__ T add_to(T a, T b, bool most) {
  return most ? (a > b ? a : b) : a + b;
}

/* Over `width` neighbouring lanes, a power of two; all lanes get the sum. */
template <typename T>
__device__ __forceinline__ T lanes_sum(T x, int width = WARP, bool most = false) {
  for (int o = width / 2; o > 0; o /= 2)
    x = add_to(x, __shfl_xor_sync(0xffffffffu, x, o), most);
  return x;
}

/* Over a block of THREADS threads; all threads get it. `most`: the maximum. */
template <int THREADS, typename T> __device__ T block_sum(T x, bool most = false) {
  __shared__ T part[THREADS / WARP];
  x = lanes_sum(x, WARP, most);
  if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
  __syncthreads();
  T all = part[0];
  for (int i = 1; i < THREADS / WARP; i++) all = add_to(all, part[i], most);
  __syncthreads();
  return all;
}

/* ---- elements ---- */

static __device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

static inline unsigned blocks_for(int64_t n, int each = BLOCK) {
  int64_t blocks = (n + each - 1) / each;
  return (unsigned)(blocks < 1 ? 1 : blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
}

/* A loop over those of n elements that are the thread's. */
#define EACH_ELEMENT(i, n)                                                               \
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x,                       \
               step_ = (int64_t)gridDim.x * blockDim.x;                                  \
       i < (n); i += step_)

/* Elements that are loaded and stored as one vector. */
template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T v[N]; };

template <typename T, int N> struct Pointers { T *p[N]; };

/* out[..][i] = f of in[..][i]: f(const float *in, float *out). Vectors of sixteen bytes
 * if all operands are aligned (`wide`), the rest, if there may be one (TAIL), one by
 * one. */
template <bool TAIL, typename TI, typename TO, int IN, int OUT, typename F>
__global__ void __launch_bounds__(BLOCK)
    map_elements(Pointers<const TI, IN> in, Pointers<TO, OUT> out, int64_t n, bool wide,
                 F f) {
  constexpr int N = 16 / (sizeof(TI) > sizeof(TO) ? sizeof(TI) : sizeof(TO));
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  int64_t packs = TAIL && !wide ? 0 : n / N;
  float x[IN], y[OUT];
  for (int64_t i = first; i < packs; i += step) {
    Pack<TI, N> a[IN];
    Pack<TO, N> b[OUT];
    for (int k = 0; k < IN; k++) a[k] = ((const Pack<TI, N> *)in.p[k])[i];
    for (int j = 0; j < N; j++) {
      for (int k = 0; k < IN; k++) x[k] = load(a[k].v[j]);
      f(x, y);
      for (int k = 0; k < OUT; k++) b[k].v[j] = rounded<TO>(y[k]);
    }
    for (int k = 0; k < OUT; k++) ((Pack<TO, N> *)out.p[k])[i] = b[k];
  }
  for (int64_t i = packs * N + first; TAIL && i < n; i += step) {
    for (int k = 0; k < IN; k++) x[k] = load(in.p[k][i]);
    f(x, y);
    for (int k = 0; k < OUT; k++) out.p[k][i] = rounded<TO>(y[k]);
  }
}

static inline bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* Over the first IN operands and OUT results of a, all of the size of out[0]. */
template <typename TI, typename TO, int IN, int OUT, typename F>
static void map_on(Device *d, const KernelArgs *a, F f) {
  Pointers<const TI, IN> in;
  Pointers<TO, OUT> out;
  bool wide = true;
  for (int k = 0; k < IN; k++)
    in.p[k] = data<const TI>(&a->in[k]), wide = wide && aligned(in.p[k]);
  for (int k = 0; k < OUT; k++)
    out.p[k] = data<TO>(&a->out[k]), wide = wide && aligned(out.p[k]);
  int64_t n = cuda_count(&a->out[0]);
  constexpr int N = 16 / (sizeof(TI) > sizeof(TO) ? sizeof(TI) : sizeof(TO));
  if (wide && n % N == 0)
    LAUNCH((map_elements<false, TI, TO, IN, OUT, F>), blocks_for(n, BLOCK * N), BLOCK,
           cuda_stream(d), in, out, n, wide, f);
  else
    LAUNCH((map_elements<true, TI, TO, IN, OUT, F>), blocks_for(n, BLOCK * 4), BLOCK,
           cuda_stream(d), in, out, n, wide, f);
}

/* The same where operands and results have one type. */
template <int IN, int OUT, typename F>
static void map(Device *d, const KernelArgs *a, F f) {
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    map_on<T, T, IN, OUT>(d, a, f);
  });
}

/* The kernel of an op whose result is `value` of in[0 .. IN-1], and of k, a number of its
 * attributes. */
#define ELEMENTS(op, IN, number, value)                                                  \
  struct op##_element {                                                                  \
    float k;                                                                             \
    __device__ void operator()(const float *in, float *out) const { out[0] = value; }    \
  };                                                                                     \
  void cuda_##op(Device *d, const KernelArgs *a) {                                       \
    map<IN, 1>(d, a, op##_element{(float)(number)});                                     \
  }

#endif
