/* fast_math.cuh - exponentials and reciprocals by one instruction each, within 2^-22 of
 * what they are: for what is rounded to 16 bits, or made of numbers that were. What is
 * f32 all through takes the library's. */
#ifndef WEFT_CUDA_FAST_MATH_H
#define WEFT_CUDA_FAST_MATH_H

#include "mma.cuh"

#ifdef __CUDACC__
static __device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
static inline float reciprocal(float x) { return 1.0f / x; }
#endif

/* Of numbers of type T. */
template <typename T> __device__ __forceinline__ float exp_of(float x) {
  return sizeof(T) == 2 ? exp2_of(x * 1.44269504f) : expf(x);
}
template <typename T> __device__ __forceinline__ float sigmoid_for(float x) {
  return sizeof(T) == 2 ? reciprocal(1.0f + exp_of<T>(-x)) : sigmoid(x);
}

#endif
