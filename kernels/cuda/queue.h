/* queue.h - launches on the compute stream. Each is fingerprinted by its arguments, so
 * that a replayed graph is known to equal what another step would have launched. */
#ifndef WEFT_CUDA_QUEUE_H
#define WEFT_CUDA_QUEUE_H

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "port.h"

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

struct CudaQueue {
  cudaStream_t stream;
  uint64_t *print; /* fingerprint of all launches so far; NULL: not wanted */
  bool dry;        /* fingerprint only, no launch */

  CudaQueue(cudaStream_t s, uint64_t *print = NULL, bool dry = false)
      : stream(s), print(print), dry(dry) {}

  /* Adds a launch to the fingerprint; true if it is to be made. */
  template <typename K, typename... A>
  bool takes(K kernel, Dim3 grid, Dim3 block, const A &...a) const {
    if (!print) return true;
    const unsigned sizes[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
    uint64_t h = print_of(*print, kernel);
    h = cuda_hash(h, sizes, sizeof sizes);
    const uint64_t all[] = {(h = print_of(h, a))...};
    *print = all[sizeof...(A) - 1];
    return !dry;
  }
};

#endif
