/* emulate.h - CUDA as far as the kernels use it, on the CPU, for tests.
 *
 * The blocks of a launch run one after the other. The threads of a block are fibers that
 * run until they come to a barrier or a shuffle and go on when all others have come there;
 * in between they run in an order that changes every time, so that a result that depends
 * on the order, as where a barrier is missing, does not stay the same. Shared memory is
 * static and begins as the block before has left it, as on a GPU. What kernels may not do
 * ends the process with a message: a shuffle that some lanes of a warp do not reach, a
 * barrier that some threads never come to. Not seen: races between blocks. */
#ifndef WEFT_TESTS_EMULATE_H
#define WEFT_TESTS_EMULATE_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "tests/standin/cuda_runtime_api.h"

struct Dim3 {
  unsigned x, y, z;
  constexpr Dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

/* ---- element types ---- */

struct __nv_bfloat16 {
  uint16_t bits;
};
static inline float __bfloat162float(__nv_bfloat16 b) {
  uint32_t wide = (uint32_t)b.bits << 16;
  float f;
  memcpy(&f, &wide, sizeof f);
  return f;
}
/* To the nearest, ties to even; a NaN stays one. */
static inline __nv_bfloat16 __float2bfloat16_rn(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  if (std::isnan(f)) return __nv_bfloat16{(uint16_t)(u >> 16 | 0x40)};
  return __nv_bfloat16{(uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}

/* ---- a launch ---- */

namespace emulate {
extern __thread Dim3 thread, block, threads, blocks;
void run(Dim3 grid, Dim3 threads, const std::function<void()> &body);
/* Enqueues it (tests/standin/runtime.cpp); at once without a stream. */
void enqueue(cudaStream_t s, std::function<void()> run);
/* The arguments are those of now, whenever it runs. */
template <typename K, typename... A>
void launch_kernel(cudaStream_t s, Dim3 grid, Dim3 threads, K kernel, A... a) {
  enqueue(s, [=] { run(grid, threads, [=] { kernel(a...); }); });
}
void barrier();
/* What the lane whose number differs by `mask` brings. */
uint64_t exchange(uint64_t x, int mask);

template <typename T> T exchange_value(T x, int mask) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "one word at a time");
  uint64_t in = 0;
  memcpy(&in, &x, sizeof x);
  uint64_t out = exchange(in, mask);
  memcpy(&x, &out, sizeof x);
  return x;
}
} // namespace emulate

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define threadIdx emulate::thread
#define blockIdx emulate::block
#define blockDim emulate::threads
#define gridDim emulate::blocks
#define __syncthreads() emulate::barrier()
#define __shfl_xor_sync(members, x, mask) emulate::exchange_value(x, mask)
#define START(kernel, grid, block, stream, ...)                                          \
  emulate::launch_kernel(stream, grid, block, kernel, __VA_ARGS__)

#endif
