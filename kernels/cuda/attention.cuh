/* attention.cuh - what the forward and backward kernels of attention share. A block of 128
 * threads works on a tile of ROWS queries (or keys) of one head; eight threads share a row,
 * each with every eighth element of the head and every eighth column of the scores. Scores
 * exist for one tile of queries and one of keys at a time. */
#ifndef WEFT_CUDA_ATTENTION_H
#define WEFT_CUDA_ATTENTION_H

#include "kernel.cuh"
#include "vm/graph/sequence.h"

enum { ROWS = 16, SHARE = 8, THREADS = ROWS * SHARE };

struct Heads {
  int64_t b, t, keys, h, k; /* batch, queries, keys, heads, kv heads */
  int d, dv;                /* sizes of a head: of q and k; of v and o */
  float scale;
  const int32_t
      *starts; /* (B, t): the first token of a document; or NULL; with slots (B, T) */
  int64_t T;   /* tokens of the sequence */
  int slots;   /* in whose order rows are, see sequence.h; 0: of positions */
  SeqPiece query, key;   /* of the sequence, that are here */
};

/* Whether the sums of earlier steps are among the operands. */
static inline bool goes_on(const KernelArgs *a) { return a->attr->step > 0; }

/* All keys, or those that were shifted here so often. */
static inline SeqPiece keys_here(const KernelArgs *a, int64_t T, int n) {
  if (a->in[1].dim[1] == T) return seq_whole(T);
  assert(a->in[1].dim[1] * n == T);
  return seq_piece(T, n, (a->index - a->attr->step + n) % n, a->attr->mirror != 0);
}

static inline Heads heads_of(const KernelArgs *a, int starts_at) {
  const KTensor *q = &a->in[0], *k = &a->in[1];
  int d = a->attr->head_dim;
  int n = a->attr->n > 1 ? a->attr->n : 1;
  int64_t T = q->dim[1] * n;
  return Heads{q->dim[0],
               q->dim[1],
               k->dim[1],
               q->dim[2] / d,
               k->dim[2] / d,
               d,
               attr_value_dim(a->attr),
               a->attr->scale,
               a->nin > starts_at ? data<const int32_t>(&a->in[starts_at]) : NULL,
               T,
               a->attr->parts,
               seq_piece(T, n, a->index, a->attr->mirror != 0),
               keys_here(a, T, n)};
}

/* The place of row `t` of a piece in the sequence as it is cut. */
static __device__ __forceinline__ int64_t place(const SeqPiece &p, int64_t t) {
  return p.first[t / p.run] + t % p.run;
}
/* The position of row `t` of a piece. */
static __device__ __forceinline__ int64_t position(const Heads &s, const SeqPiece &p,
                                                   int64_t b, int64_t t) {
  int64_t y = place(p, t);
  return s.slots ? seq_token(s.starts + b * s.T, s.T, s.slots, y).at : y;
}
/* The first key that row `t` of the queries sees. */
static __device__ __forceinline__ int64_t start_of(const Heads &s, int64_t b, int64_t t) {
  if (!s.starts) return 0;
  return s.slots ? s.starts[b * s.T + place(s.query, t)] : s.starts[b * s.t + t];
}
/* The last of ROWS rows. */
static __device__ __forceinline__ int64_t last_row(int64_t first, int64_t rows) {
  return first + ROWS < rows ? first + ROWS - 1 : rows - 1;
}
/* Whether positions ascend from row `first` to the last of the tile: in one slot they do.
 */
static __device__ __forceinline__ bool ascends(const Heads &s, const SeqPiece &p,
                                               int64_t first, int64_t rows) {
  if (!s.slots) return true;
  int64_t slot = s.T / s.slots;
  return place(p, first) / slot == place(p, last_row(first, rows)) / slot;
}
/* Whether some of the queries from row q0 on may see some of the keys from row k0 on. */
static __device__ __forceinline__ bool sees_some(const Heads &s, int64_t b, int64_t q0,
                                                 int64_t k0) {
  if (q0 >= s.t) return false;
  if (!ascends(s, s.query, q0, s.t) || !ascends(s, s.key, k0, s.keys)) return true;
  if (position(s, s.key, b, k0) > position(s, s.query, b, last_row(q0, s.t)))
    return false;
  return position(s, s.key, b, last_row(k0, s.keys)) >= start_of(s, b, q0);
}

/* ROWS rows of a head; padding of one keeps rows in different banks. */
template <int D> struct Tile {
  float v[ROWS][D + 1];
};

/* Rows [first, first + ROWS) of head h of n heads of x(B,rows,n*d); zero past the end. */
template <int D, typename T>
__device__ void load_tile(Tile<D> &to, const T *x, int d, int64_t rows, int64_t b,
                          int64_t h, int64_t n, int64_t first) {
  for (int i = threadIdx.x; i < ROWS * d; i += THREADS) {
    int r = i / d, c = i % d;
    int64_t t = first + r;
    to.v[r][c] = t < rows ? load(x[((b * rows + t) * n + h) * d + c]) : 0;
  }
}

/* One row of it to the registers of the eight threads that share the row, and back. */
template <int D>
__device__ void load_row(float *v, const float *x, int d, int64_t rows, int64_t b,
                         int64_t h, int64_t n, int64_t t, int lane) {
  for (int i = 0; i < D / SHARE; i++) {
    int c = i * SHARE + lane;
    v[i] = x && t < rows && c < d ? x[((b * rows + t) * n + h) * d + c] : 0;
  }
}

template <int D, typename T>
__device__ void store_row(T *y, const float *v, int d, int64_t rows, int64_t b, int64_t h,
                          int64_t n, int64_t t, int lane) {
  if (t >= rows) return;
  for (int i = 0; i < D / SHARE; i++) {
    int c = i * SHARE + lane;
    if (c < d) y[((b * rows + t) * n + h) * d + c] = rounded<T>(v[i]);
  }
}

/* Sums that are not complete are f32. */
template <int D, typename T>
__device__ void store_sums(void *y, bool wide, const float *v, int d, int64_t rows, int64_t b,
                           int64_t h, int64_t n, int64_t t, int lane) {
  if (wide)
    store_row<D>((float *)y, v, d, rows, b, h, n, t, lane);
  else
    store_row<D>((T *)y, v, d, rows, b, h, n, t, lane);
}

/* Whether row `query` of the queries sees row `row` of the keys. */
static __device__ __forceinline__ bool sees(const Heads &s, int64_t b, int64_t query,
                                            int64_t row) {
  if (query >= s.t || row >= s.keys) return false;
  int64_t key = position(s, s.key, b, row);
  return key <= position(s, s.query, b, query) && key >= start_of(s, b, query);
}

template <int D> __device__ float dot(const float *x, const float *y, int d) {
  float sum = 0;
  for (int i = 0; i < d; i++) sum += x[i] * y[i];
  return sum;
}

/* Calls f with the larger size of a head, rounded up to what there are kernels for. */
enum { CUDA_HEAD_MAX = 256 };
template <int D> struct HeadSize {
  static constexpr int size = D;
};
template <typename F> static void by_head(const Heads &s, F f) {
  int d = s.d > s.dv ? s.d : s.dv;
  assert(d <= CUDA_HEAD_MAX);
  if (d <= 64)
    f(HeadSize<64>{});
  else if (d <= 128)
    f(HeadSize<128>{});
  else
    f(HeadSize<256>{});
}

#endif
