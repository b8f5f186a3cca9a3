/* wgmma.cuh - products of a warpgroup, four warps, by the tensor cores of compute
 * capability 9.0: PTX for nvcc, the same for 128 fibers otherwise
 * (tests/standin/emulate_wgmma.h). They are there for sm_90a alone.
 *
 * All threads of a warpgroup come to a product together. It reads its matrices from
 * shared memory while they go on, and nobody may touch what it adds to, nor registers
 * that it reads, before a wait. What a lane holds is in the PTX ISA, "Asynchronous
 * Warpgroup Level Matrix Multiply-Accumulate Instructions"; in short, of rows 16 * warp
 * and the 15 after it what it holds of mma.m16n8k16 (mma.cuh).
 *
 * Shared memory is seen through another proxy: who writes an operand calls
 * products_see_writes() between its writes and the barrier. */
#ifndef WEFT_CUDA_WGMMA_H
#define WEFT_CUDA_WGMMA_H

#include "mma.cuh"

/* Columns of bf16 in a row of a tile as products read it: 128 bytes, whose 16-byte chunks
 * lie in an order of their own in each of eight rows (the 128-byte swizzle). Eight rows
 * are 1024 bytes and begin at a multiple of that. */
constexpr int SWIZZLED = 64, SWIZZLE_BYTES = 1024;

/* A matrix descriptor: the address and two distances in units of 16 bytes, and the
 * swizzle of 128 bytes. `rows`: bytes from eight rows to the next eight; `halves`: from
 * 64 columns to the next 64 where columns are those of the result. */
static __device__ __forceinline__ uint64_t matrix_at(unsigned address, int rows,
                                                     int halves) {
  return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(halves >> 4) << 16 |
         (uint64_t)(rows >> 4) << 32 | (uint64_t)1 << 62;
}

#ifdef __CUDACC__

/* Registers as the products before and after see them: the compiler moves nothing that
 * uses them across this. */
template <int N> static __device__ __forceinline__ void hold(float (&c)[N][4]) {
  UNROLL
  for (int n = 0; n < N; n++) UNROLL
  for (int j = 0; j < 4; j++) asm volatile("" : "+f"(c[n][j])::"memory");
}
template <int N> static __device__ __forceinline__ void hold(uint32_t (&a)[N][4]) {
  UNROLL
  for (int n = 0; n < N; n++) UNROLL
  for (int j = 0; j < 4; j++) asm volatile("" : "+r"(a[n][j])::"memory");
}

static __device__ __forceinline__ void products_see_writes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Before a product, and again where registers were touched since. */
static __device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Products since the last commit are a group. */
static __device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits for all groups but the last LAST. */
template <int LAST> static __device__ __forceinline__ void products_wait_but() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LAST) : "memory");
}

#define SUMS_4(c, n)  "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define SUMS_16(c, n) SUMS_4(c, n), SUMS_4(c, n + 1), SUMS_4(c, n + 2), SUMS_4(c, n + 3)
#define SUMS_32(c, n) SUMS_16(c, n), SUMS_16(c, n + 4)
#define NAMES_32                                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "     \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                         \
  NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "    \
           "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
           "%61, %62, %63"

/* c(64, 64) = a(64, 16) b(64, 16)^T, or with ADD c += it: both in shared memory, rows of
 * k. */
template <bool ADD>
static __device__ __forceinline__ void product_of_rows(float (&c)[8][4], uint64_t a,
                                                       uint64_t b) {
  asm volatile("{.reg .pred add; setp.ne.b32 add, %34, 0;"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_32
               "}, %32, %33, add, 1, 1, 0, 0;}"
               : SUMS_32(c, 0)
               : "l"(a), "l"(b), "n"(ADD)
               : "memory");
}

/* c(64, 64 or 128) += a(64, 16) b(16, 64 or 128): a in registers, b in shared memory,
 * rows of columns of the result. */
static __device__ __forceinline__ void add_columns(float (&c)[8][4],
                                                   const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred add; setp.ne.b32 add, 1, 0;"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_32
               "}, {%32, %33, %34, %35}, %36, add, 1, 1, 1;}"
               : SUMS_32(c, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
               : "memory");
}
static __device__ __forceinline__ void add_columns(float (&c)[16][4],
                                                   const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred add; setp.ne.b32 add, 1, 0;"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64
               "}, {%64, %65, %66, %67}, %68, add, 1, 1, 1;}"
               : SUMS_32(c, 0), SUMS_32(c, 8)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
               : "memory");
}

#undef SUMS_4
#undef SUMS_16
#undef SUMS_32
#undef NAMES_32
#undef NAMES_64

#else
#include "tests/standin/emulate_wgmma.h"
#endif

#endif
