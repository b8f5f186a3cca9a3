/* port.h - the one header of CUDA that the kernels include: CUDA's own for nvcc; for a
 * C++ compiler one that runs blocks on the CPU (tests/lib/emulate.h), so that the same
 * sources are tested where there is no GPU. */
#ifndef WEFT_CUDA_PORT_H
#define WEFT_CUDA_PORT_H

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef dim3 Dim3;
#define START(kernel, grid, block, stream, ...)                                          \
  kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)

#else
#include "tests/lib/emulate.h"
#endif

/* kernel is in brackets: LAUNCH((name<T>), grid, block, queue, arguments). All that it is
 * given the queue has looked at before (queue.h). */
#define LAUNCH(kernel, grid, block, queue, ...)                                          \
  do {                                                                                   \
    auto launched_ = kernel;                                                             \
    CudaQueue queue_ = queue;                                                            \
    if (queue_.takes(launched_, Dim3(grid), Dim3(block), __VA_ARGS__))                   \
      START(launched_, grid, block, queue_.stream, __VA_ARGS__);                         \
  } while (0)

#endif
