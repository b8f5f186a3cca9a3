/* linear_fp8.cuh - what casts to fp8 and the product of codes share. */
#ifndef WEFT_CUDA_LINEAR_FP8_CUH
#define WEFT_CUDA_LINEAR_FP8_CUH

#include <string.h>

#include "kernels/cuda/kernel.cuh"
#include "fp8_product.h"

enum { FP8_BLOCK = 32 };

__host__ __device__ __forceinline__ float fp8_most(bool e5m2) {
  return e5m2 ? 57344.0f : 448.0f;
}

__device__ __forceinline__ uint32_t fp8_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}
__device__ __forceinline__ float fp8_float(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

/* Where the exponent of a block of a row is, as cuBLASLt wants them: tiles of 128 rows by
 * 4 blocks, in each of which four rows that are 32 apart lie side by side. */
__device__ __forceinline__ int64_t fp8_place(int64_t row, int64_t block, int64_t pitch) {
  int64_t tile = row / 128 * (pitch / FP8_BLOCK / 4) + block / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

#endif
