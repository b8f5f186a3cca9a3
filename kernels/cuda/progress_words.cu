/* progress_words.cu - a stream reports its progress: increments a counter in device
 * memory and writes it with a name to a word in host memory. The device counts, so that
 * replayed steps count, too. */
#include "kernel.cuh"

__global__ void tell_host(uint64_t *n, uint64_t *to, bool begins, uint32_t name) {
  uint64_t nth = *n + begins;
  *n = nth;
  *(volatile uint64_t *)to = nth << 32 | name;
}

extern "C" void cuda_tell(Device *d, void *stream, uint64_t *n, uint64_t *to, bool begins,
                          uint32_t name) {
  LAUNCH((tell_host), 1, 1, (cudaStream_t)stream, n, to, begins, name);
}

extern "C" void cuda_tell_load(void *ctx) {
  CudaQueue queue(0, (CudaContext *)ctx, true, true);
  LAUNCH((tell_host), 1, 1, queue, nullptr, nullptr, false, 0);
}
