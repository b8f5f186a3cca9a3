/* ssm_scan.cuh - what the kernels of a scan share: a chunk of tokens of one head, and
 * products of 64 x 64 results, of which a thread has 4 x 4. Operands are given as
 * functions of their places; those are read as they are needed for 16 terms at a time. */
#ifndef WEFT_CUDA_SSM_SCAN_H
#define WEFT_CUDA_SSM_SCAN_H

#include "kernels/cuda/kernel.cuh"

enum { SIDE = SSM_CHUNK, EDGE = 4, TERMS = 16 };
static_assert(SIDE * SIDE == BLOCK * EDGE * EDGE, "a thread has a square of results");

/* The operands of a scan; sizes as in ops.def. `state` (B,H,chunks,P,N) and `grad`, of
 * the same size, are scratch: states before chunks, and gradients of those after them. */
template <typename T> struct Scan {
  const T *x, *B, *C, *D, *dy;
  const float *d, *a;
  const int32_t *starts;
  T *y, *dx, *dB, *dC;
  float *dd, *da, *state, *grad;
  int len, heads, P, groups, N, chunks;
};

/* A chunk of a head: its sums of a in f64, since exponents are differences of two; the
 * first token of it that is of a token's document, and whether that begins before it. */
struct ScanChunk {
  double c[SIDE];
  float d[SIDE];
  int from[SIDE];
  bool before[SIDE];
};

/* Of the block: its chunk, head, sequence and group, and the first row. */
struct ScanPlace {
  int chunk, h, b, g, n;
  int64_t row;
};
template <typename T>
static __device__ __forceinline__ ScanPlace scan_place(const Scan<T> &s, int chunk, int h,
                                                       int b) {
  int first = chunk * SIDE, n = s.len - first < SIDE ? s.len - first : SIDE;
  return ScanPlace{chunk, h, b, h / (s.heads / s.groups), n, (int64_t)b * s.len + first};
}
template <typename T>
static __device__ __forceinline__ float *state_at(const Scan<T> &s, float *of,
                                                  const ScanPlace &p) {
  return of + (((int64_t)p.b * s.heads + p.h) * s.chunks + p.chunk) * s.P * s.N;
}

/* Reads a chunk into shared memory; all threads call it. */
template <typename T>
static __device__ void read_chunk(ScanChunk &k, const Scan<T> &s, const ScanPlace &p) {
  int i = (int)threadIdx.x;
  __syncthreads();
  if (i < p.n) {
    int64_t r = p.row + i;
    int start = s.starts ? s.starts[r] : 0, first = p.chunk * SIDE;
    k.d[i] = s.d[r * s.heads + p.h];
    k.c[i] = (double)s.a[r * s.heads + p.h];
    k.before[i] = start < first;
    k.from[i] = start < first ? 0 : start - first;
  }
  __syncthreads();
  if (i == 0)
    for (int j = 1; j < p.n; j++) k.c[j] += k.c[j - 1];
  __syncthreads();
}

/* What is left at token i of token j, or of the state before the chunk. */
static __device__ __forceinline__ float left_of(const ScanChunk &k, int i, int j) {
  return j <= i && j >= k.from[i] ? expf((float)(k.c[i] - k.c[j])) : 0.0f;
}
static __device__ __forceinline__ float left_before(const ScanChunk &k, int i) {
  return k.before[i] ? expf((float)k.c[i]) : 0.0f;
}

/* Element e of the head's row of x or dy, and of its group's of B or C, at token i. */
template <typename T>
static __device__ __forceinline__ float of_head(const T *v, const Scan<T> &s,
                                                const ScanPlace &p, int i, int e) {
  if (i >= p.n || e >= s.P) return 0.0f;
  return load(v[((p.row + i) * s.heads + p.h) * s.P + e]);
}
template <typename T>
static __device__ __forceinline__ float of_group(const T *v, const Scan<T> &s,
                                                 const ScanPlace &p, int i, int e) {
  if (i >= p.n || e >= s.N) return 0.0f;
  return load(v[((p.row + i) * s.groups + p.g) * s.N + e]);
}
/* Element (e, f) of a state. */
template <typename T>
static __device__ __forceinline__ float of_state(const float *v, const Scan<T> &s, int e,
                                                 int f) {
  return e < s.P && f < s.N ? v[e * s.N + f] : 0.0f;
}

typedef float Square[EDGE][EDGE];

/* The thread's results: rows from tile_row() on, columns tile_column() + 16 j. */
static __device__ __forceinline__ int tile_row() {
  return (int)threadIdx.x / TERMS * EDGE;
}
static __device__ __forceinline__ int tile_column() { return (int)threadIdx.x % TERMS; }

/* Operands of 16 terms. A kernel has one for all of its products: shared memory of a
 * function is there once for each pair of operands that it is called with. */
struct TileRoom {
  float left[TERMS][SIDE + 1], right[TERMS][SIDE + 1];
};

/* sum[i][j] += sum over k below `terms` of a(row, k) * b(k, column). */
template <typename A, typename F>
static __device__ void multiply_tile(TileRoom &room, Square &sum, int terms, A a, F b) {
  for (int k0 = 0; k0 < terms; k0 += TERMS) {
    __syncthreads();
    for (int e = (int)threadIdx.x; e < SIDE * TERMS; e += BLOCK) {
      int k = e % TERMS, i = e / TERMS;
      room.left[k][i] = k0 + k < terms ? a(i, k0 + k) : 0.0f;
      room.right[e / SIDE][e % SIDE] =
          k0 + e / SIDE < terms ? b(k0 + e / SIDE, e % SIDE) : 0.0f;
    }
    __syncthreads();
    UNROLL
    for (int k = 0; k < TERMS; k++) UNROLL
    for (int i = 0; i < EDGE; i++) UNROLL
    for (int j = 0; j < EDGE; j++)
      sum[i][j] +=
          room.left[k][tile_row() + i] * room.right[k][tile_column() + TERMS * j];
  }
}

/* Calls f(i, j, sum) for the thread's results. */
template <typename F> static __device__ __forceinline__ void each_of(Square &sum, F f) {
  UNROLL
  for (int i = 0; i < EDGE; i++) UNROLL
  for (int j = 0; j < EDGE; j++) f(tile_row() + i, tile_column() + TERMS * j, sum[i][j]);
}

#endif
