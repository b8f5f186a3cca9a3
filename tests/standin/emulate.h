/* emulate.h - CUDA as far as the kernels use it, on the CPU, for tests.
 *
 * The blocks of a launch run one after the other. The threads of a block are fibers that
 * run until they come to a barrier or a shuffle and go on when all others have come
 * there; in between they run in an order that changes every time, so that a result that
 * depends on the order, as where a barrier is missing, does not stay the same. Shared
 * memory is static and begins as the block before has left it, as on a GPU. What kernels
 * may not do ends the process with a message: a shuffle that some lanes of a warp do not
 * reach, a barrier that some threads never come to. Copies that run beside the threads
 * arrive when their thread waits for them, no earlier. Not seen: races between blocks;
 * what a product of a warpgroup reads that was stored without put_shared. */
#ifndef WEFT_TESTS_EMULATE_H
#define WEFT_TESTS_EMULATE_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "cuda_runtime_api.h"

struct Dim3 {
  unsigned x, y, z;
  constexpr Dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

/* ---- element types ---- */

struct __nv_bfloat16 {
  uint16_t bits;
};
/* Rounded each, where a compiler may fuse them. */
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }

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
/* `room`: bytes of shared memory besides that of the kernel's own variables. */
void run(Dim3 grid, Dim3 threads, size_t room, const std::function<void()> &body);
/* Enqueues it (tests/standin/runtime.cpp); at once without a stream. */
void enqueue(cudaStream_t s, std::function<void()> run);
/* As CUDA does it: loads the kernel if this is its first launch, and looks whether the
 * launch fits on the GPU (kernel_figures.cpp). */
cudaError_t launch_begins(cudaStream_t s, const void *kernel, Dim3 grid, Dim3 threads,
                          size_t room);
[[noreturn]] void refuse(const char *why);
void barrier();
/* When all lanes of the warp have come here with the same f, f runs once, with what each
 * brings. */
typedef void Together(void *const *lane);
void together(Together *f, void *mine);
/* The same of four warps, threads 128 n to 128 n + 127. */
void together_four(Together *f, void *mine);
/* What the lane brings whose number differs by `mask`, or that has number `from`. */
uint64_t exchange(uint64_t x, int mask);
uint64_t broadcast(uint64_t x, int from);
/* The shared memory that the launch asked for; whether it has these bytes. */
unsigned char *room();
bool in_room(const void *p, size_t bytes);
/* Its addresses in the window of shared memory, behind what the GPU and the kernel's own
 * variables take: they begin at no multiple of 1024. */
unsigned address_of(const void *p);
const void *at_address(unsigned address);
/* The number of this thread in its block. */
unsigned thread_number();
/* Whether a copy or put_shared to this place, if there was one, is seen by other proxies:
 * its thread has come to a fence (fence_proxy) and then to a barrier. */
bool is_visible(const void *p);

/* Whether it computes nothing: Standin.idle. */
bool idle(const void *kernel);

template <typename T> struct exact { typedef T type; };

/* f is one of the two above. */
template <typename T> T word_of(uint64_t (*f)(uint64_t, int), T x, int arg) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "one word at a time");
  uint64_t in = 0;
  memcpy(&in, &x, sizeof x);
  uint64_t out = f(in, arg);
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
#define UNROLL
#define UNROLL_BY_4
#define UNROLL_NOT
#define PIN(word)                         (void)(word)
#define threadIdx                         emulate::thread
#define blockIdx                          emulate::block
#define blockDim                          emulate::threads
#define gridDim                           emulate::blocks
#define __syncthreads()                   emulate::barrier()
#define __shfl_xor_sync(members, x, mask) emulate::word_of(emulate::exchange, x, mask)
#define __shfl_sync(members, x, lane)     emulate::word_of(emulate::broadcast, x, lane)
#define SHARED_ROOM(name)                 unsigned char *name = emulate::room()

/* The arguments are those of now, whenever it runs. */
template <typename... P>
cudaError_t start_kernel(void (*kernel)(P...), Dim3 grid, Dim3 threads, size_t room,
                         cudaStream_t s, typename emulate::exact<P>::type... p) {
  cudaError_t r = emulate::launch_begins(s, (const void *)kernel, grid, threads, room);
  if (r != cudaSuccess) return r;
  emulate::enqueue(s, [=] {
    if (emulate::idle((const void *)kernel)) return;
    emulate::run(grid, threads, room, [=] { kernel(p...); });
  });
  return cudaSuccess;
}

#endif
