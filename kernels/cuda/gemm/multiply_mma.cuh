/* multiply_mma.cuh - a GEMM tile on tensor cores: bf16 operands that lie along k or
 * across it, at any alignment, sums in f32 in one order, no atomics.
 *
 * A block of four warps has 128 x 128 results, a warp 64 x 64 of them. It walks over k
 * by 32 and has three stages of both operands in 48 KiB of shared memory: while one is
 * multiplied the next two are on their way. Chunks of 16 bytes are swizzled, so that the
 * eight rows that ldmatrix reads together are in different banks. What lies outside of an
 * operand is 0. */
#ifndef WEFT_CUDA_MULTIPLY_MMA_H
#define WEFT_CUDA_MULTIPLY_MMA_H

#include "kernels/cuda/mma.cuh"

enum {
  MMA_SIDE = 128,
  MMA_K = 32,
  MMA_STAGES = 3,
  MMA_THREADS = 128,
  MMA_WARP = 64, /* rows and columns of a warp */
  MMA_STAGE = 2 * MMA_SIDE * MMA_K,
  MMA_ROOM = MMA_STAGES * MMA_STAGE * (int)sizeof(bfloat)
};

/* Rows of contiguous elements, `stride` apart: along k a row of the result (of b: a
 * column) has its k elements; else each step of k has the elements of all of them.
 * A sum over several planes takes the next one, `plane` elements on, after k. */
struct Operand {
  const bfloat *p;
  int64_t stride, plane;
};

/* One operand of a stage: 128 x 32 elements. */
template <bool ALONG_K> struct Part {
  bfloat *p;
  static constexpr int CHUNKS = ALONG_K ? MMA_K / 8 : MMA_SIDE / 8;
  static constexpr int ROWS = ALONG_K ? MMA_SIDE : MMA_K;
  __device__ __forceinline__ bfloat *at(int row, int col) const {
    int key = ALONG_K ? row / 2 % 4 : row % 8;
    return p + (row * CHUNKS + ((col / 8) ^ key)) * 8 + col % 8;
  }
};

/* What a thread copies of an operand: each stage a chunk of every `step`-th row. */
template <bool ALONG_K, bool WIDE> struct Fetch {
  static constexpr int CHUNKS = Part<ALONG_K>::CHUNKS, STEP = MMA_THREADS / CHUNKS;
  static constexpr int TIMES = Part<ALONG_K>::ROWS / STEP;
  const bfloat *from, *start; /* of the next stage, of its plane */
  int64_t stride, plane;
  int row, col; /* in the tile */
  int side;     /* how many rows (or, across k, columns) of the tile there are */

  /* Of rows [first, first + 128) of `all`. */
  __device__ __forceinline__ Fetch(const Operand &x, int first, int all)
      : stride(x.stride), plane(x.plane), row(threadIdx.x / CHUNKS),
        col(threadIdx.x % CHUNKS * 8), side(all - first) {
    start = x.p + (ALONG_K ? (int64_t)(first + row) * stride + col
                           : row * stride + first + col);
    from = start;
  }

  /* Starts copying the elements of k that are `left` from here on. */
  __device__ __forceinline__ void begin(const Part<ALONG_K> &to, int left) const {
    UNROLL
    for (int i = 0; i < TIMES; i++) {
      int r = row + i * STEP;
      const bfloat *x = from + i * STEP * stride;
      bool is = ALONG_K ? r < side : r < left;
      int there = !is ? 0 : ALONG_K ? left - col : side - col;
      bfloat *y = to.at(r, col);
      if constexpr (WIDE) {
        copy_begin<16>(y, x, there > 0);
      } else {
        Pack<bfloat, 8> v;
        UNROLL
        for (int j = 0; j < 8; j++) v.v[j] = j < there ? x[j] : rounded<bfloat>(0);
        *(Pack<bfloat, 8> *)y = v;
      }
    }
  }
  __device__ __forceinline__ void next_stage() {
    from += ALONG_K ? (int64_t)MMA_K : MMA_K * stride;
  }
  __device__ __forceinline__ void next_plane() { from = start = start + plane; }
};

/* Rows [row, row + 16) and columns of k [k, k + 16) of a. */
template <bool ALONG_K>
__device__ __forceinline__ void load_rows(uint32_t (&x)[4], const Part<ALONG_K> &a,
                                          int row, int k) {
  int lane = threadIdx.x % WARP;
  if constexpr (ALONG_K)
    load_matrices(x, a.at(row + lane % 16, k + lane / 16 * 8));
  else
    load_turned(x, a.at(k + lane % 8 + lane / 16 * 8, row + lane / 8 % 2 * 8));
}

/* The same of columns [col, col + 16) of b: two operands of mma. */
template <bool ALONG_K>
__device__ __forceinline__ void load_columns(uint32_t (&y)[4], const Part<ALONG_K> &b,
                                             int col, int k) {
  int lane = threadIdx.x % WARP;
  if constexpr (ALONG_K)
    load_matrices(y, b.at(col + lane % 8 + lane / 16 * 8, k + lane / 8 % 2 * 8));
  else
    load_turned(y, b.at(k + lane % 16, col + lane / 16 * 8));
}

constexpr int MMA_ROWS = MMA_WARP / 16, MMA_COLUMNS = MMA_WARP / 8;
typedef float MmaSums[MMA_ROWS][MMA_COLUMNS][4];

template <bool A_K, bool B_K>
__device__ __forceinline__ void multiply_stage(MmaSums &sum, const Part<A_K> &a,
                                               const Part<B_K> &b, int row, int col) {
  UNROLL
  for (int k = 0; k < MMA_K; k += 16) {
    uint32_t x[MMA_ROWS][4];
    UNROLL
    for (int i = 0; i < MMA_ROWS; i++) load_rows(x[i], a, row + i * 16, k);
    UNROLL
    for (int j = 0; j < MMA_COLUMNS; j += 2) {
      uint32_t y[4];
      load_columns(y, b, col + j * 8, k);
      UNROLL
      for (int i = 0; i < MMA_ROWS; i++) {
        mma_bf16(sum[i][j], x[i], y[0], y[1]);
        mma_bf16(sum[i][j + 1], x[i], y[2], y[3]);
      }
    }
  }
}

/* c[..] (+)= a warp's sums, rows from `row` and columns from `col` on of m x n. WIDE: n
 * is even, and pairs are aligned. */
template <bool WIDE, typename TO>
__device__ __forceinline__ void store_tile(const MmaSums &sum, TO *c, int m, int n,
                                           int row, int col, bool add) {
  int lane = threadIdx.x % WARP, group = lane / 4, member = lane % 4;
  bool pairs = WIDE || (n % 2 == 0 && (uintptr_t)c % (2 * sizeof(TO)) == 0);
  UNROLL
  for (int i = 0; i < MMA_ROWS; i++) UNROLL
  for (int h = 0; h < 2; h++) {
    int y = row + i * 16 + h * 8 + group;
    if (y >= m) continue;
    UNROLL
    for (int j = 0; j < MMA_COLUMNS; j++) {
      int x = col + j * 8 + 2 * member;
      if (x >= n) continue;
      TO *to = c + (int64_t)y * n + x;
      float first = sum[i][j][2 * h], second = sum[i][j][2 * h + 1];
      if (pairs) {
        typedef Pack<TO, 2> P;
        P was = add ? *(const P *)to : P{};
        if (add) first += load(was.v[0]), second += load(was.v[1]);
        *(P *)to = P{{rounded<TO>(first), rounded<TO>(second)}};
        continue;
      }
      to[0] = rounded<TO>(first + (add ? load(to[0]) : 0));
      if (x + 1 < n) to[1] = rounded<TO>(second + (add ? load(to[1]) : 0));
    }
  }
}

/* A result of f32, or bf16 where it is narrow. Its type is known when the sums are there:
 * kernels for each of both would be compiled twice as long. */
struct AnyResult {
  void *p;
  bool narrow;
};
template <bool WIDE>
__device__ __forceinline__ void store_tile(const MmaSums &sum, AnyResult c, int m, int n,
                                           int row, int col, bool add) {
  if (c.narrow)
    store_tile<WIDE>(sum, (bfloat *)c.p, m, n, row, col, add);
  else
    store_tile<WIDE>(sum, (float *)c.p, m, n, row, col, add);
}

/* The tile of c(m,n) (+)= a(m,k) b(k,n), summed over `planes`, at (m0, n0). WIDE: both
 * operands and their rows begin at multiples of 16 bytes and end there; n is even, and c
 * begins at such a multiple. */
template <bool A_K, bool B_K, bool WIDE, typename C>
__device__ __forceinline__ void multiply_mma(const Operand &a, const Operand &b, C c,
                                             int m, int n, int k, int planes, int m0,
                                             int n0, bool add) {
  SHARED_ROOM(room);
  bfloat *stages = (bfloat *)room;
  auto part_a = [&](int s) { return Part<A_K>{stages + s * MMA_STAGE}; };
  auto part_b = [&](int s) {
    return Part<B_K>{stages + s * MMA_STAGE + MMA_SIDE * MMA_K};
  };
  Fetch<A_K, WIDE> get_a(a, m0, m);
  Fetch<B_K, WIDE> get_b(b, n0, n);
  int tiles = planes * ((k + MMA_K - 1) / MMA_K), left = k, started = 0, into = 0;
  auto fetch = [&] {
    if (started < tiles) {
      get_a.begin(part_a(into), left);
      get_b.begin(part_b(into), left);
      left -= MMA_K;
      if (left > 0) {
        get_a.next_stage(), get_b.next_stage();
      } else {
        get_a.next_plane(), get_b.next_plane();
        left = k;
      }
      started++;
      into = into + 1 < MMA_STAGES ? into + 1 : 0;
    }
    copies_commit();
  };
  int warp = threadIdx.x / WARP, row = warp % 2 * MMA_WARP, col = warp / 2 * MMA_WARP;
  bool has = m0 + row < m && n0 + col < n;
  MmaSums sum = {};
  UNROLL
  for (int s = 0; s < MMA_STAGES - 1; s++) fetch();
  for (int t = 0, s = 0; t < tiles; t++, s = s + 1 < MMA_STAGES ? s + 1 : 0) {
    copies_wait_but<MMA_STAGES - 2>();
    __syncthreads(); /* nobody reads any more what is overwritten now */
    fetch();
    if (has) multiply_stage(sum, part_a(s), part_b(s), row, col);
  }
  copies_wait_but<0>();
  if (has) store_tile<WIDE>(sum, c, m, n, m0 + row, n0 + col, add);
}

#endif
