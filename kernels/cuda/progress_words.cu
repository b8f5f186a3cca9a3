/* progress_words.cu - a queue tells the host where it is: a counter in memory of the
 * device goes on, and its value with a name goes to memory of the host, as one word. The
 * count is the device's own, so that it also goes on when a step is replayed. */
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
