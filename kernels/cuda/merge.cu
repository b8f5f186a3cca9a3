/* merge.cu - collectives between ranks of one process: the element-wise sum or maximum of
 * buffers, written to buffers. One input is a copy. Bits equal vm/comm/reduce.c. */
#include "kernel.cuh"

struct MergeList {
  const void *in[DEVICE_RANKS];
  void *out[DEVICE_RANKS];
  int nin, nout;
};

template <typename T> struct Wide { typedef T type; };
template <> struct Wide<bfloat> { typedef float type; };
static __device__ __forceinline__ double load(double x) { return x; }
static __device__ __forceinline__ int32_t load(int32_t x) { return x; }
static __device__ __forceinline__ uint8_t load(uint8_t x) { return x; }

/* Integer sums wrap; a NaN operand gives NaN. */
template <typename A> __device__ __forceinline__ A merged(A a, A x, bool most) {
  if (most) return x > a || x != x ? x : a;
  return a + x;
}
template <>
__device__ __forceinline__ int32_t merged<int32_t>(int32_t a, int32_t x, bool most) {
  if (most) return x > a ? x : a;
  return (int32_t)((uint32_t)a + (uint32_t)x);
}

template <typename T, typename A> __device__ __forceinline__ T narrow(A a) {
  if constexpr (sizeof(T) < sizeof(A))
    return rounded<T>(a);
  else
    return a;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    merge_elements(MergeList m, int64_t n, bool most) {
  typedef typename Wide<T>::type A;
  EACH_ELEMENT(i, n) {
    T first = ((const T *)m.in[0])[i];
    if (m.nin > 1) {
      A a = load(first);
      for (int k = 1; k < m.nin; k++)
        a = merged<A>(a, load(((const T *)m.in[k])[i]), most);
      first = narrow<T>(a);
    }
    for (int k = 0; k < m.nout; k++) ((T *)m.out[k])[i] = first;
  }
}

template <typename T> static void merge(void *stream, const DeviceMerge *m) {
  MergeList list;
  list.nin = m->nin, list.nout = m->nout;
  for (int k = 0; k < m->nin; k++) list.in[k] = m->in[k];
  for (int k = 0; k < m->nout; k++) list.out[k] = m->out[k];
  LAUNCH((merge_elements<T>), blocks_for((int64_t)m->count, BLOCK * 4), BLOCK,
         (cudaStream_t)stream, list, (int64_t)m->count, m->most);
}

extern "C" void cuda_merge(void *stream, const DeviceMerge *m) {
  assert(m->nin >= 1 && m->nin <= DEVICE_RANKS && m->nout <= DEVICE_RANKS);
  if (!m->count) return;
  switch (m->dtype) {
  case DT_F32: merge<float>(stream, m); break;
  case DT_BF16: merge<bfloat>(stream, m); break;
  case DT_F64: merge<double>(stream, m); break;
  case DT_I32: merge<int32_t>(stream, m); break;
  case DT_U8: merge<uint8_t>(stream, m); break;
  default: assert(!"a type of this device");
  }
}
