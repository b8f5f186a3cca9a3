/* port.h - the only CUDA header of the kernels: CUDA's own for nvcc; for a C++ compiler
 * one that runs blocks on the CPU (tests/standin/emulate.h), so that the same sources are
 * tested without a GPU. */
#ifndef WEFT_CUDA_PORT_H
#define WEFT_CUDA_PORT_H

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef dim3 Dim3;
/* Unrolls the loop that follows, so that arrays can be registers. */
#define UNROLL      _Pragma("unroll")
#define UNROLL_BY_4 _Pragma("unroll 4")
#define UNROLL_NOT  _Pragma("unroll 1")
/* A word whose value the compiler knows nothing about from here on. */
#define PIN(word) asm volatile("" : "+r"(word))
/* Dynamic shared memory, whose size the launch gives. */
#define SHARED_ROOM(name) extern __shared__ __align__(128) unsigned char name[]

#else
#include "tests/standin/emulate.h"
#endif

/* kernel is in brackets: LAUNCH((name<T>), grid, block, queue, arguments). All launches
 * go through the queue (launch/queue.h). */
#define LAUNCH(kernel, grid, block, queue, ...)                                          \
  LAUNCH_ROOM(kernel, grid, block, 0, queue, __VA_ARGS__)
/* With `room` bytes of dynamic shared memory. */
#define LAUNCH_ROOM(kernel, grid, block, room, queue, ...)                               \
  CudaQueue(queue).launch(kernel, Dim3(grid), Dim3(block), room, __VA_ARGS__)

#endif
