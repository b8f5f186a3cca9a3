/* rows.cuh - rows as vectors of sixteen bytes: of one thread each, in the registers of a
 * group of threads, and as a grid of them. WIDE: operands begin at multiples of sixteen
 * bytes and rows are whole vectors; else the same elements are moved one by one. */
#ifndef WEFT_CUDA_ROWS_H
#define WEFT_CUDA_ROWS_H

#include <string.h>

#include "kernel.cuh"

template <typename T> constexpr int EACH_OF = 16 / (int)sizeof(T);

/* Elements [c, c + N) of a row of n; those past its end are 0. */
template <bool WIDE, typename T, int N>
__device__ __forceinline__ void get(Pack<T, N> &v, const T *row, int64_t c, int64_t n) {
  if constexpr (WIDE) {
    v = *(const Pack<T, N> *)(row + c);
  } else {
    UNROLL
    for (int j = 0; j < N; j++) v.v[j] = c + j < n ? row[c + j] : T{};
  }
}
template <bool WIDE, typename T, int N>
__device__ __forceinline__ void put(T *row, int64_t c, int64_t n, const Pack<T, N> &v) {
  if constexpr (WIDE) {
    *(Pack<T, N> *)(row + c) = v;
  } else {
    UNROLL
    for (int j = 0; j < N; j++)
      if (c + j < n) row[c + j] = v.v[j];
  }
}

/* ---- rows of a group of threads ---- */

/* THREADS threads have a row, PACKS vectors each in registers; 0: any number, which is
 * read again each time. */
template <bool IS_WIDE, int N, int P> struct Group {
  static constexpr bool WIDE = IS_WIDE;
  static constexpr int THREADS = N, PACKS = P, SIDE = BLOCK / N;
  /* The group's row, if it is one of n, and the thread's place. */
  static __device__ __forceinline__ int64_t row() {
    return (int64_t)blockIdx.x * SIDE + threadIdx.x / THREADS;
  }
  static __device__ __forceinline__ int place() { return threadIdx.x % THREADS; }
  static __device__ __forceinline__ float sum(float x) {
    if constexpr (THREADS <= WARP)
      return lanes_sum(x, THREADS);
    else
      return block_sum<THREADS>(x);
  }
};

/* Words, not elements: a compiler would keep each of sixteen bits in a register of its
 * own. */
template <typename T, typename G> struct RowOf {
  static constexpr int N = EACH_OF<T>;
  const T *p;
  int n;
  Pack<uint32_t, 4> v[G::PACKS ? G::PACKS : 1];

  /* Vectors past the end are the first one once more: a load that depends on a condition
   * would wait for the one before it. */
  __device__ __forceinline__ RowOf(const T *p, int n) : p(p), n(n) {
    UNROLL
    for (int k = 0; k < G::PACKS; k++) {
      int c = (k * G::THREADS + G::place()) * N;
      v[k] = *(const Pack<uint32_t, 4> *)(p + (c < n ? c : 0));
    }
  }
  /* f(k, c, elements of the row there) for each vector k of the thread, at column c. */
  template <typename F> __device__ __forceinline__ void each(F f) const {
    if constexpr (G::PACKS > 0) {
      UNROLL
      for (int k = 0; k < G::PACKS; k++) {
        int c = (k * G::THREADS + G::place()) * N;
        if (c < n) f(k, c, N);
      }
    } else {
      for (int c = G::place() * N; c < n; c += G::THREADS * N)
        f(0, c, G::WIDE || n - c > N ? N : n - c);
    }
  }
  __device__ __forceinline__ Pack<T, N> at(int k, int c) const {
    Pack<T, N> x;
    if constexpr (G::PACKS > 0)
      memcpy(&x, &v[k], sizeof x);
    else
      get<G::WIDE>(x, p, c, n);
    return x;
  }
  __device__ __forceinline__ void set(int k, const Pack<T, N> &x) {
    memcpy(&v[k], &x, sizeof x);
  }
  /* From here on elements are taken from the words again: what was made of them, as f32,
   * would need twice the registers. */
  __device__ __forceinline__ void keep_words() {
    UNROLL
    for (int k = 0; k < G::PACKS; k++) UNROLL
    for (int i = 0; i < 4; i++) PIN(v[k].v[i]);
  }
};

/* Calls f with a Group for rows of n elements and the number of blocks for so many. */
template <typename T, typename F>
static void by_group(int64_t n, int64_t rows, bool wide, F f) {
  int64_t packs = (n + EACH_OF<T> - 1) / EACH_OF<T>;
  auto with = [&](auto g) {
    constexpr int SIDE = decltype(g)::SIDE;
    f(g, (unsigned)((rows + SIDE - 1) / SIDE));
  };
  assert(n <= INT32_MAX && rows <= INT32_MAX);
  if (!wide && packs <= 4 * WARP)
    with(Group<false, WARP, 0>{});
  else if (!wide)
    with(Group<false, BLOCK, 0>{});
  else if (packs <= WARP / 2)
    with(Group<true, WARP / 2, 1>{});
  else if (packs <= 4 * WARP)
    with(Group<true, WARP, 4>{});
  else if (packs <= 8 * WARP)
    with(Group<true, WARP, 8>{});
  else if (packs <= 4 * BLOCK)
    with(Group<true, BLOCK, 4>{});
  else if (packs <= 8 * BLOCK)
    with(Group<true, BLOCK, 8>{});
  else
    with(Group<true, BLOCK, 0>{});
}

/* Whether rows of n elements of all these operands are whole vectors; NULL counts. */
template <typename T> static bool wide_rows(int64_t n) { return n % EACH_OF<T> == 0; }
template <typename T, typename... P>
static bool wide_rows(int64_t n, const void *p, P... more) {
  return aligned(p) && wide_rows<T>(n, more...);
}

/* Calls f with a value whose `is` is known when it is compiled. */
template <bool IS> struct Known { static constexpr bool is = IS; };
template <typename F> static void by_bool(bool is, F f) {
  if (is)
    f(Known<true>{});
  else
    f(Known<false>{});
}

/* ---- losses ---- sums over rows in f64, first of blocks */

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    add_block_losses(const double *part, int parts, float *loss) {
  double sum = 0;
  for (int i = threadIdx.x; i < parts; i += THREADS) sum += part[i];
  sum = block_sum<THREADS>(sum);
  if (threadIdx.x == 0) *loss = (float)sum;
}
static inline void add_losses(Device *d, const double *part, int parts, float *loss) {
  LAUNCH((add_block_losses<BLOCK>), 1, BLOCK, cuda_stream(d), part, parts, loss);
}

/* ---- division ---- by a number that the launch knows, of numbers below 2^31 */

struct Divider {
  uint32_t by, times, shift;
};
static inline Divider divider(int64_t by) {
  uint32_t shift = 0;
  assert(by > 0 && by <= INT32_MAX);
  while (((int64_t)1 << shift) < by) shift++;
  uint64_t more = ((uint64_t)1 << shift) - (uint64_t)by;
  return Divider{(uint32_t)by, (uint32_t)((more << 32) / (uint64_t)by + 1), shift};
}
static __device__ __forceinline__ uint32_t divided(uint32_t n, const Divider &d) {
  return ((uint32_t)((uint64_t)n * d.times >> 32) + n) >> d.shift;
}

/* ---- a grid of vectors ---- */

/* Threads along a row of so many vectors, and rows: blocks of 256 threads, of as many
 * rows as are short enough. */
struct RowGrid {
  Dim3 blocks, threads;
};
static inline RowGrid row_grid(int64_t packs, int64_t rows) {
  const int64_t most = 65535; /* of a dimension of the grid */
  unsigned x = BLOCK;
  while (x > 1 && x / 2 >= packs) x /= 2;
  unsigned y = BLOCK / x;
  int64_t across = (packs + x - 1) / x, down = (rows + y - 1) / y;
  return RowGrid{
      Dim3((unsigned)(across > 1 ? across : 1), (unsigned)(down < 1      ? 1
                                                           : down < most ? down
                                                                         : most)),
      Dim3(x, y)};
}
/* Vectors of N elements of a row. */
static inline int64_t packs_of(int64_t n, int each) { return (n + each - 1) / each; }

/* Calls f(r) for the rows of the thread, of [first, rows). */
template <typename F>
__device__ __forceinline__ void for_rows(int64_t first, int64_t rows, F f) {
  int64_t by = (int64_t)gridDim.y * blockDim.y;
  for (int64_t r = first + (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows;
       r += by)
    f(r);
}
/* The first column of the thread's vector. */
static __device__ __forceinline__ int64_t column_of(int each) {
  return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * each;
}

/* Rows from *end on become 0. Grid: vectors of columns, rows. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    clear_rows(const int32_t *end, T *y, int64_t rows, int64_t width) {
  constexpr int N = EACH_OF<T>;
  int64_t c = column_of(N);
  if (c >= width) return;
  for_rows(*end, rows,
           [&](int64_t r) { put<WIDE>(y + r * width, c, width, Pack<T, N>{}); });
}

#endif
