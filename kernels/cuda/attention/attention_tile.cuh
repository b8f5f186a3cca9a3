/* attention_tile.cuh - the tiles that attention forward and backward are computed in.
 *
 * A block has a tile of rows, of queries or of keys, and walks over tiles of the others.
 * A warp has one or two groups of 16 of the block's rows, which share what it reads of
 * the others; of a product of a group with a tile of N others each of its lanes has, for
 * every 8 columns, what mma.cuh says of c: two neighbouring columns of rows group and
 * group + 8. Softmax, masks and sums only see that. There are two
 * products, each for bf16 by tensor cores, factors that were computed rounded to bf16,
 * and for f32 by plain multiplications: tensor cores round each sum towards zero, so even
 * three products of TF32 for one of f32 would not give what f32 gives.
 *
 * Shared memory holds the block's rows and two stages of the others: one is multiplied
 * while the other is on its way. */
#ifndef WEFT_CUDA_ATTENTION_TILE_H
#define WEFT_CUDA_ATTENTION_TILE_H

#include "attention_shape.cuh"
#include "kernels/cuda/mma.cuh"

constexpr float LOG2E = 1.44269504f, LN2 = 0.693147181f;

/* Rows of a block, and of the tiles that it walks over, so that what it has in shared
 * memory fits the 99 KiB of the smallest GPUs since Ampere (8.6, 8.9):
 *   bytes of a row  forward             backward            for
 *   128             128 x 64, 48 KiB    64 x 64,  48 KiB    64 in bf16
 *   256 in bf16     128 x 32, 64 KiB    64 x 32,  64 KiB    128
 *   256 in f32      64 x 64,  80 KiB    64 x 32,  64 KiB    64
 *   512             64 x 32,  96 KiB    64 x 16,  96 KiB    256 in bf16, 128 in f32
 *   1024            32 x 16,  96 KiB    32 x 8,   96 KiB    256 in f32
 * A warp's two groups forward halve what blocks read of keys and values, of shared memory
 * and of all others; the sums of two do not fit the registers of gradients, nor those of
 * larger heads. */
template <typename T, int D, bool DROPS = false> struct Shape {
  static constexpr int bytes = D * (int)sizeof(T);
  static constexpr int rows = bytes > 512 ? 32 : 64, threads = rows / 16 * WARP;
  static constexpr int groups = sizeof(T) == 2 && bytes <= 256 && !DROPS ? 2 : 1;
  static constexpr int rows_forward = groups * rows;
  static constexpr int forward = bytes > 256                  ? (16 << 10) / bytes
                                 : groups == 2 && bytes > 128 ? 32
                                                              : 64;
  static constexpr int backward = bytes > 128 ? (8 << 10) / bytes : 64;
  /* Columns of dk and dv per block: more do not fit its registers. */
  static constexpr int columns = bytes > 512 ? 64 : D < 128 ? D : 128;
  static constexpr int room_forward = (rows_forward + 4 * forward) * bytes;
  static constexpr int room_backward = (2 * rows + 4 * backward) * bytes;
};

/* A lane's position in a tile, of warps with GROUPS groups of rows. */
struct Lane {
  int warp_row, group, member;
};
template <int GROUPS = 1> static __device__ __forceinline__ Lane lane_here() {
  int lane = threadIdx.x % WARP;
  return Lane{(int)threadIdx.x / WARP * 16 * GROUPS, lane / 4, lane % 4};
}

/* A tile's rows in shared memory. The 16-byte chunks at one column of eight neighbouring
 * rows, which a warp reads together, are in different banks (swizzled). WHOLE: a fetch
 * also fills the columns past the head's, with zeros. */
template <typename T, int D> struct Tile {
  T *p;
  static constexpr int EACH = 16 / (int)sizeof(T), COLUMNS = D;
  static constexpr bool WHOLE = false;
  __device__ __forceinline__ T *at(int row, int col) const {
    return p + row * D + ((col / EACH) ^ (row & 7)) * EACH + col % EACH;
  }
};

/* ---- global memory ---- */

/* Columns that a head is zero-padded to, since products sum 16 at a time. */
static __device__ __forceinline__ int filled(int d) { return (d + 15) / 16 * 16; }

/* Head h of n of x(B,rows,n*d). */
template <typename T> struct Slice {
  T *p;
  int64_t stride;
  int rows, d;
};
template <typename T>
static __device__ __forceinline__ Slice<T> slice(T *x, int64_t b, int64_t rows, int64_t h,
                                                 int64_t n, int d) {
  return Slice<T>{x ? x + (b * rows * n + h) * d : x, n * d, (int)rows, d};
}

/* Starts copying rows [first, first + ROWS) of a head to a tile. A thread has the same
 * columns of rows STEP apart; where that is a multiple of 8, in the same order. */
template <int ROWS, int THREADS, typename T, typename TILE>
__device__ __forceinline__ void fetch(const TILE &to, const Slice<const T> &x,
                                      int first) {
  constexpr int EACH = TILE::EACH, PARTS = TILE::COLUMNS / EACH, STEP = THREADS / PARTS;
  static_assert(THREADS % PARTS == 0 && ROWS % STEP == 0, "all threads have all rows");
  int row = (int)(threadIdx.x / PARTS), c = (int)(threadIdx.x % PARTS) * EACH;
  if (c >= (TILE::WHOLE ? TILE::COLUMNS : filled(x.d))) return;
  int left = x.rows - first - row;
  const T *from = x.p + (left > 0 ? (int64_t)(first + row) * x.stride + c : 0);
  if (x.d % EACH == 0 && (uintptr_t)x.p % 16 == 0) {
    UNROLL_BY_4
    for (int r = 0; r < ROWS; r += STEP) {
      bool is = r < left && c < x.d;
      copy_begin<16>(to.at(row + r, c), is ? from + r * x.stride : x.p, is);
    }
    return;
  }
  UNROLL_NOT
  for (int r = 0; r < ROWS; r += STEP)
    for (int j = 0; j < EACH; j++)
      put_shared(to.at(row + r, c) + j,
                 r < left && c + j < x.d ? from[r * x.stride + j] : rounded<T>(0));
}

/* Calls f(sum, i) for a lane's sums, CT tiles of 8 columns from `col` on, of row t[i]. */
template <int CT, typename T, typename F>
__device__ __forceinline__ void each_pair(const Slice<T> &x, const int (&t)[2], int col,
                                          F f) {
  int member = lane_here().member;
  UNROLL
  for (int n = 0; n < CT; n++) UNROLL
  for (int i = 0; i < 2; i++) {
    int c = col + n * 8 + 2 * member;
    if (t[i] < x.rows && c < x.d) f(n, i, x.p + t[i] * x.stride + c, c + 1 < x.d);
  }
}
template <int CT, typename T>
__device__ __forceinline__ void store_sums(const Slice<T> &y, const int (&t)[2], int col,
                                           const float (&v)[CT][4]) {
  bool pairs = y.d % 2 == 0 && (uintptr_t)y.p % (2 * sizeof(T)) == 0;
  each_pair<CT>(y, t, col, [&](int n, int i, T *to, bool both) {
    T first = rounded<T>(v[n][2 * i]), second = rounded<T>(v[n][2 * i + 1]);
    if (pairs) {
      *(Pack<T, 2> *)to = Pack<T, 2>{{first, second}};
      return;
    }
    to[0] = first;
    if (both) to[1] = second;
  });
}
/* Like store; intermediate ring sums stay f32. */
template <int CT, typename T>
__device__ __forceinline__ void store_sums(void *y, bool wide, int64_t b, int64_t rows,
                                           int64_t h, int64_t n, int d, const int (&t)[2],
                                           int col, const float (&v)[CT][4]) {
  if (wide)
    store_sums<CT>(slice((float *)y, b, rows, h, n, d), t, col, v);
  else
    store_sums<CT>(slice((T *)y, b, rows, h, n, d), t, col, v);
}
/* v += sums of earlier ring steps, if any. */
template <int CT>
__device__ __forceinline__ void add_sums(float (&v)[CT][4], const Slice<const float> &x,
                                         const int (&t)[2], int col) {
  if (!x.p) return;
  each_pair<CT>(x, t, col, [&](int n, int i, const float *from, bool both) {
    v[n][2 * i] += from[0];
    if (both) v[n][2 * i + 1] += from[1];
  });
}

/* ---- products ---- */

/* c = the warp's rows of a, groups of 16, times all rows of b (transposed), summed over d
 * columns. */
template <int G, int NT, int D>
__device__ __forceinline__ void times_rows(float (&c)[G][NT][4], const Tile<bfloat, D> &a,
                                           const Tile<bfloat, D> &b, int d) {
  int lane = threadIdx.x % WARP, row = lane_here<G>().warp_row + lane % 16;
  UNROLL
  for (int g = 0; g < G; g++) UNROLL
  for (int n = 0; n < NT; n++) c[g][n][0] = c[g][n][1] = c[g][n][2] = c[g][n][3] = 0;
  UNROLL_BY_4
  for (int k = 0; k < d; k += 16) {
    uint32_t x[G][4], y[4];
    UNROLL
    for (int g = 0; g < G; g++)
      load_matrices(x[g], a.at(row + 16 * g, k + lane / 16 * 8));
    UNROLL
    for (int n = 0; n < NT; n += 2) {
      load_matrices(y, b.at(n * 8 + lane % 8 + lane / 16 * 8, k + lane / 8 % 2 * 8));
      UNROLL
      for (int g = 0; g < G; g++) {
        mma_bf16(c[g][n], x[g], y[0], y[1]);
        mma_bf16(c[g][n + 1], x[g], y[2], y[3]);
      }
    }
  }
}

static __device__ __forceinline__ float dot(const Pack<float, 4> &x,
                                            const Pack<float, 4> &y, float sum) {
  for (int i = 0; i < 4; i++) sum += x.v[i] * y.v[i];
  return sum;
}

template <int NT, int D>
__device__ __forceinline__ void times_rows(float (&of)[1][NT][4], const Tile<float, D> &a,
                                           const Tile<float, D> &b, int d) {
  typedef Pack<float, 4> P;
  float(&c)[NT][4] = of[0];
  Lane l = lane_here();
  int row = l.warp_row + l.group;
  UNROLL
  for (int n = 0; n < NT; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
  for (int k = 0; k < d; k += 4) {
    P x0 = *(const P *)a.at(row, k), x1 = *(const P *)a.at(row + 8, k);
    UNROLL
    for (int n = 0; n < NT; n++) {
      P y0 = *(const P *)b.at(n * 8 + 2 * l.member, k);
      P y1 = *(const P *)b.at(n * 8 + 2 * l.member + 1, k);
      c[n][0] = dot(x0, y0, c[n][0]);
      c[n][1] = dot(x0, y1, c[n][1]);
      c[n][2] = dot(x1, y0, c[n][2]);
      c[n][3] = dot(x1, y1, c[n][3]);
    }
  }
}

/* out += p times columns [col, col + 8 * CT) of b, whose first `rows` rows are p's
 * columns; rows from `end` on are skipped. mma.sync has one layout for a and c: no
 * shuffle. */
template <int G, int CT, int NT, int D>
__device__ __forceinline__ void
add_product(float (&out)[G][CT][4], const float (&p)[G][NT][4], const Tile<bfloat, D> &b,
            int rows, int col, int end) {
  int lane = threadIdx.x % WARP;
  UNROLL
  for (int k = 0; k < NT; k += 2) {
    if (k * 8 >= rows) break;
    uint32_t x[G][4];
    UNROLL
    for (int g = 0; g < G; g++) {
      const float(&q)[NT][4] = p[g];
      x[g][0] = pair_of(q[k][0], q[k][1]), x[g][1] = pair_of(q[k][2], q[k][3]);
      x[g][2] = pair_of(q[k + 1][0], q[k + 1][1]);
      x[g][3] = pair_of(q[k + 1][2], q[k + 1][3]);
    }
    UNROLL
    for (int n = 0; n < CT; n += 2) {
      uint32_t y[4];
      if (col + n * 8 >= end) break;
      load_turned(y, b.at(k * 8 + lane % 16, col + n * 8 + lane / 16 * 8));
      UNROLL
      for (int g = 0; g < G; g++) {
        mma_bf16(out[g][n], x[g], y[0], y[1]);
        mma_bf16(out[g][n + 1], x[g], y[2], y[3]);
      }
    }
  }
}

template <int CT, int NT, int D>
__device__ __forceinline__ void
add_product(float (&sums)[1][CT][4], const float (&factors)[1][NT][4],
            const Tile<float, D> &b, int rows, int col, int end) {
  float(&out)[CT][4] = sums[0];
  const float(&p)[NT][4] = factors[0];
  Lane l = lane_here();
  float x[NT][4];
  for (int n = 0; n < NT; n++)
    for (int j = 0; j < 4; j++) x[n][j] = p[n][j];
  UNROLL_NOT
  for (int k0 = 0; k0 < rows; k0 += 8) {
    UNROLL
    for (int k = 0; k < 8; k++) {
      int from = l.group * 4 + k / 2; /* the lane that has column k */
      float x0 = __shfl_sync(0xffffffffu, x[0][k % 2], from);
      float x1 = __shfl_sync(0xffffffffu, x[0][2 + k % 2], from);
      UNROLL
      for (int n = 0; n < CT; n++) {
        if (col + n * 8 >= end) break;
        Pack<float, 2> y =
            *(const Pack<float, 2> *)b.at(k0 + k, col + n * 8 + 2 * l.member);
        out[n][0] += x0 * y.v[0];
        out[n][1] += x0 * y.v[1];
        out[n][2] += x1 * y.v[0];
        out[n][3] += x1 * y.v[1];
      }
    }
    UNROLL
    for (int n = 0; n + 1 < NT; n++) /* registers have no index: shift the next to 0 */
      for (int j = 0; j < 4; j++) x[n][j] = x[n + 1][j];
  }
}

/* Calls f(n, j) for each sum that a lane has of a group's product. */
template <int NT, typename F> __device__ __forceinline__ void each_sum(F f) {
  UNROLL
  for (int n = 0; n < NT; n++) UNROLL
  for (int j = 0; j < 4; j++) f(n, j);
}

/* Products become scores, capped. */
template <int NT>
__device__ __forceinline__ void cap_scores(float (&x)[NT][4], float scale, float cap) {
  each_sum<NT>([&](int n, int j) { x[n][j] = capped(x[n][j] * scale, cap); });
}

/* ---- loop over tiles ---- */

/* How many of n rows from `first` on exist. */
static __device__ __forceinline__ int rows_there(int64_t rows, int first, int n) {
  return first + n < rows ? n : (int)rows - first;
}

/* Calls body(stage, i, all visible) for each of n tiles with visible rows, in order.
 * sight(i) is its visibility; fetch(i, stage) starts its copy during the tile before:
 * after the barrier no thread reads that stage any more. Copies that the block started
 * before are complete, too, when a body runs. arrive() waits for the thread's copies. */
template <typename Sight, typename Fetch, typename Body, typename Arrive>
__device__ __forceinline__ void walk(int n, Sight sight, Fetch fetch, Body body,
                                     Arrive arrive) {
  Seen now = NONE, then = NONE;
  auto next = [&](int i, Seen &how) {
    while (i < n && (how = sight(i)) == NONE) i++;
    return i;
  };
  int stage = 0, i = next(0, now);
  if (i < n) fetch(i, stage);
  while (i < n) {
    arrive();
    __syncthreads();
    int following = next(i + 1, then);
    if (following < n) fetch(following, stage ^ 1);
    body(stage, i, now == ALL);
    i = following, now = then, stage ^= 1;
  }
  arrive();
}
template <typename Sight, typename Fetch, typename Body>
__device__ __forceinline__ void walk(int n, Sight sight, Fetch fetch, Body body) {
  walk(n, sight, fetch, body, copies_wait);
}

/* The same over the keys that some queries `here` see. Keys and values are copied to
 * others(stage, 0 and 1), key positions to key_at; body(stage, first key, all
 * visible). */
template <int THREADS, int N, typename T, typename Others, typename Body, typename Arrive>
__device__ __forceinline__ void walk_keys(const Heads &s, int64_t b, const Range &here,
                                          const Slice<const T> &keys,
                                          const Slice<const T> &values, Others others,
                                          int (&key_at)[2][N], Body body, Arrive arrive) {
  Tiles tiles = key_tiles<N>(s, here);
  walk(
      tiles.end - tiles.first,
      [&](int i) {
        Range r = key_range(s, b, (tiles.first + i) * N, N);
        return seen(here, r, r);
      },
      [&](int i, int stage) {
        int k0 = (tiles.first + i) * N;
        fetch<N, THREADS>(others(stage, 0), keys, k0);
        fetch<N, THREADS>(others(stage, 1), values, k0);
        for (int r = threadIdx.x; r < N; r += THREADS)
          key_at[stage][r] = key_row(s, b, k0 + r).at;
      },
      [&](int stage, int i, bool all) { body(stage, (tiles.first + i) * N, all); },
      arrive);
}
template <int THREADS, int N, typename T, typename Others, typename Body>
__device__ __forceinline__ void
walk_keys(const Heads &s, int64_t b, const Range &here, const Slice<const T> &keys,
          const Slice<const T> &values, Others others, int (&key_at)[2][N], Body body) {
  walk_keys<THREADS>(s, b, here, keys, values, others, key_at, body, copies_wait);
}

#endif
