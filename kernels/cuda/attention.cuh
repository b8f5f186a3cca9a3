/* attention.cuh - what the forward and backward kernels of attention share. A block of 128
 * threads works on a tile of ROWS queries (or keys) of one head; eight threads share a row,
 * each with every eighth element of the head and every eighth column of the scores. Scores
 * exist for one tile of queries and one of keys at a time. */
#ifndef WEFT_CUDA_ATTENTION_H
#define WEFT_CUDA_ATTENTION_H

#include "kernel.cuh"

enum { ROWS = 16, SHARE = 8, THREADS = ROWS * SHARE };

struct Heads {
  int64_t b, t, h, k; /* batch, length, heads, kv heads */
  int d;
  float scale;
  const int32_t *starts; /* (B, T): the first token of a document; or NULL */
};

static inline Heads heads_of(const KernelArgs *a, int starts_at) {
  const KTensor *q = &a->in[0], *k = &a->in[1];
  int d = a->attr->head_dim;
  return Heads{q->dim[0], q->dim[1], q->dim[2] / d, k->dim[2] / d, d, a->attr->scale,
               a->nin > starts_at ? data<const int32_t>(&a->in[starts_at]) : NULL};
}

/* ROWS rows of a head; padding of one keeps rows in different banks. */
template <int D> struct Tile {
  float v[ROWS][D + 1];
};

/* Rows [first, first + ROWS) of head h of n heads; zero past the end. */
template <int D, typename T>
__device__ void load_tile(Tile<D> &to, const T *x, const Heads &s, int64_t b, int64_t h,
                          int64_t n, int64_t first) {
  for (int i = threadIdx.x; i < ROWS * s.d; i += THREADS) {
    int r = i / s.d, c = i % s.d;
    int64_t t = first + r;
    to.v[r][c] = t < s.t ? load(x[((b * s.t + t) * n + h) * s.d + c]) : 0;
  }
}

/* One row of it, from the registers of the eight threads that share the row. */
template <int D, typename T>
__device__ void store_row(T *y, const float *v, const Heads &s, int64_t b, int64_t h,
                          int64_t n, int64_t t, int lane) {
  if (t >= s.t) return;
  for (int i = 0; i < D / SHARE; i++) {
    int c = i * SHARE + lane;
    if (c < s.d) y[((b * s.t + t) * n + h) * s.d + c] = rounded<T>(v[i]);
  }
}

/* Whether a query sees a key, both inside of the sequence. */
static __device__ __forceinline__ bool sees(const Heads &s, int64_t b, int64_t query,
                                            int64_t key) {
  if (query >= s.t || key > query) return false;
  return !s.starts || key >= s.starts[b * s.t + query];
}

template <int D> __device__ float dot(const float *x, const float *y, int d) {
  float sum = 0;
  for (int i = 0; i < d; i++) sum += x[i] * y[i];
  return sum;
}

/* Calls f with the head size, rounded up to what there are kernels for. */
enum { CUDA_HEAD_MAX = 256 };
template <int D> struct HeadSize {
  static constexpr int size = D;
};
template <typename F> static void by_head(int d, F f) {
  assert(d <= CUDA_HEAD_MAX);
  if (d <= 64)
    f(HeadSize<64>{});
  else if (d <= 128)
    f(HeadSize<128>{});
  else
    f(HeadSize<256>{});
}

#endif
