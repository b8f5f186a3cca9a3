/* mma.cuh - the instructions of a warp that products and attention are made of: PTX
 * for nvcc, the same for 32 fibers otherwise (tests/standin/emulate_warp.h). All lanes of
 * a warp come to them together. They are there since sm_80.
 *
 * Lane l is member l % 4 of group l / 4. What a lane holds of the matrices is in the PTX
 * ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"; in short, of pairs
 * of neighbouring columns (of b: rows) that begin at 2 * member, and of rows (columns)
 * group: a: rows group, group + 8, and both once more 8 columns further b: 8 rows, and
 * the 8 after them c: row group, row group + 8 */
#ifndef WEFT_CUDA_MMA_H
#define WEFT_CUDA_MMA_H

#include "kernel.cuh"

#ifdef __CUDACC__

static __device__ __forceinline__ unsigned shared_address(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}

/* c(16, 8) += a(16, 16) b(16, 8): products of bf16, sums in f32. */
static __device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4],
                                                uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ldmatrix: four 8 x 8 matrices of 16-bit elements. Lane l gives the address of row l % 8
 * of matrix l / 8 in shared memory and gets of each the pair at row group, column 2 *
 * member. */
static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/* The same, transposed: the pair at rows 2 * member and 2 * member + 1, column group. */
static __device__ __forceinline__ void load_turned(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/* cp.async: copies BYTES (4 or 16, aligned) from global to shared memory, or zeros.
 * Complete for this thread after its copies_wait(), for others after the next barrier. */
template <int BYTES>
static __device__ __forceinline__ void copy_begin(void *to, const void *from, bool is) {
  static_assert(BYTES == 4 || BYTES == 16, "what the caches are asked for");
  if constexpr (BYTES == 16)
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
        "l"(from), "r"(is ? 16 : 0)
        : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(is ? 4 : 0)
                 : "memory");
}
static __device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/* A store to shared memory that another proxy may read, see wgmma.cuh. */
template <typename T> static __device__ __forceinline__ void put_shared(T *to, T x) {
  *to = x;
}

/* Copies begun since the last commit are a group; waits for all groups but the last LAST.
 */
static __device__ __forceinline__ void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LAST> static __device__ __forceinline__ void copies_wait_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LAST) : "memory");
}

/* 2^x with relative error below 2^-22; 0 for -inf. */
static __device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* Packs two numbers into a word, the first in the lower half. */
static __device__ __forceinline__ uint32_t pair_of(float first, float second) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(second), "f"(first));
  return r;
}

#else
#include "tests/standin/emulate_warp.h"
#endif

#endif
