/* port.h - the one header of CUDA that the kernels include: CUDA's own for nvcc; for a C++
 * compiler one that runs blocks on the CPU (tests/lib/emulate.h), so that the same sources
 * are tested where there is no GPU. */
#ifndef WEFT_CUDA_PORT_H
#define WEFT_CUDA_PORT_H

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef dim3 Dim3;
/* kernel is in brackets: LAUNCH((name<T>), grid, block, stream, arguments). */
#define LAUNCH(kernel, grid, block, stream, ...)                                         \
  do {                                                                                   \
    auto launched_ = kernel;                                                             \
    launched_<<<grid, block, 0, stream>>>(__VA_ARGS__);                                  \
  } while (0)

#else
#include "tests/lib/emulate.h"
#endif

#endif
