/* queue.h - launches on a stream. Each is fingerprinted by its arguments, so that a
 * replayed graph is known to equal what another step would have launched; and what it
 * needs of the GPU is compared with what there is. */
#ifndef WEFT_CUDA_QUEUE_H
#define WEFT_CUDA_QUEUE_H

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "kernels/cuda/port.h"

#ifndef __has_builtin
#define __has_builtin(x) 0
#endif

/* Hashes x. Padding between members does not count; where a compiler cannot clear it,
 * types with padding are left out. */
template <typename T> static inline uint64_t print_of(uint64_t seed, const T &x) {
  if (std::is_empty<T>::value) return seed;
  alignas(T) char bytes[sizeof(T)];
  memcpy(bytes, &x, sizeof x);
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding((T *)bytes);
#else
  bool whole =
      std::has_unique_object_representations<T>::value || std::is_scalar<T>::value;
  if (!whole) return seed;
#endif
  return cuda_hash(seed, bytes, sizeof bytes);
}

/* The same type, from which nothing is deduced. */
template <typename T> struct ExactType { typedef T type; };

#ifdef __CUDACC__
template <typename... P>
static inline cudaError_t start_kernel(void (*kernel)(P...), Dim3 grid, Dim3 block,
                                       size_t room, cudaStream_t stream,
                                       typename ExactType<P>::type... p) {
  void *arg[] = {(void *)&p..., NULL};
  return cudaLaunchKernel((const void *)kernel, grid, block, arg, room, stream);
}
#endif

struct CudaQueue {
  cudaStream_t stream;
  CudaContext *c; /* NULL: launches are neither fingerprinted nor looked at */
  bool dry;       /* fingerprint only, no launch */
  bool loads;     /* load the kernel only, see Device.loads */

  CudaQueue(cudaStream_t s, CudaContext *c = NULL, bool dry = false, bool loads = false)
      : stream(s), c(c), dry(dry), loads(loads) {}

  /* The one way to launch a kernel. One that does not fit on the GPU is not launched, and
   * the context says why (cuda_launch.c). */
  template <typename... P, typename... A>
  void launch(void (*kernel)(P...), Dim3 grid, Dim3 block, size_t room,
              const A &...a) const {
    const CudaLaunch l = {(const void *)kernel,
                          {grid.x, grid.y, grid.z},
                          {block.x, block.y, block.z},
                          room};
    if (c) {
      const uint64_t all[] = {c->print = print_of(c->print, kernel),
                              c->print = cuda_hash(c->print, l.grid, sizeof l.grid),
                              c->print = cuda_hash(c->print, l.block, sizeof l.block),
                              (c->print = print_of(c->print, a))...};
      (void)all;
    }
    if ((!dry || loads) && !cuda_launch_fits(c, &l)) return;
    if (dry) return;
    cudaError_t r = start_kernel<P...>(kernel, grid, block, room, stream, a...);
    if (c && r != cudaSuccess) cuda_launch_failed(c, &l, (int)r);
  }
};

#endif
