/* attention_shape.cuh - shared by the attention kernels: shapes and the causal mask. */
#ifndef WEFT_CUDA_ATTENTION_SHAPE_H
#define WEFT_CUDA_ATTENTION_SHAPE_H

#include "kernels/cuda/kernel.cuh"
#include "vm/graph/dropout.h"
#include "vm/graph/sequence.h"

struct Heads {
  int64_t b, t, keys, h, k; /* batch, queries, keys, heads, kv heads */
  int d, dv;                /* sizes of a head: of q and k; of v and o */
  float scale, cap;         /* cap: of scores, 0: none */
  int window;               /* the last tokens that a query sees; 0: all up to it */
  const int32_t
      *starts; /* (B, t): the first token of a document; or NULL; with slots (B, T) */
  int64_t T;   /* tokens of the sequence */
  int slots;   /* rows are in the order of so many slots, see sequence.h; 0: positions */
  SeqPiece query, key;    /* the rows of the sequence on this rank */
  const int32_t *numbers; /* (B, t), of the queries' tokens; NULL: nothing is dropped */
  Dropout drops;
  uint32_t first_head; /* of all ranks */
};

/* True in later ring steps: the running sums are among the operands. */
static inline bool goes_on(const KernelArgs *a) { return a->attr->step > 0; }

/* The keys of this ring step: all, or those shifted `n` times. */
static inline SeqPiece keys_here(const KernelArgs *a, int64_t T, int n) {
  if (a->in[1].dim[1] == T) return seq_whole(T);
  assert(a->in[1].dim[1] * n == T);
  return seq_piece(T, n, (a->index - a->attr->step + n) % n, a->attr->mirror != 0);
}

static inline Heads heads_of(const KernelArgs *a, int starts_at) {
  const KTensor *q = &a->in[0], *k = &a->in[1];
  int d = a->attr->head_dim;
  int n = a->attr->n > 1 ? a->attr->n : 1;
  int64_t T = q->dim[1] * n, h = q->dim[2] / d;
  bool drops = a->attr->rate > 0;
  bool starts = a->nin - drops > starts_at && a->in[starts_at].dtype == DT_I32;
  return Heads{q->dim[0],
               q->dim[1],
               k->dim[1],
               h,
               k->dim[2] / d,
               d,
               attr_value_dim(a->attr),
               a->attr->scale,
               a->attr->soft_cap,
               a->attr->window,
               starts ? data<const int32_t>(&a->in[starts_at]) : NULL,
               T,
               a->attr->parts,
               seq_piece(T, n, a->index, a->attr->mirror != 0),
               keys_here(a, T, n),
               drops ? data<const int32_t>(&a->in[a->nin - 1]) : NULL,
               dropout_of_heads(a->attr, a->unit),
               (uint32_t)(a->heads_index * h)};
}

/* ---- visibility ---- positions fit an int, as document starts do */

/* The index of row `t` of a piece in the sharded sequence. */
static __device__ __forceinline__ int place(const SeqPiece &p, int t) {
  return (int)(t < p.run ? p.first[0] + t : p.first[1] + (t - p.run));
}
/* The number of rows of a piece, in ascending positions, before position `at`. */
static __device__ __forceinline__ int rows_before(const SeqPiece &p, int at) {
  int64_t n = 0;
  for (int i = 0; i < p.runs; i++) {
    int64_t m = at - p.first[i];
    n += m < 0 ? 0 : m < p.run ? m : p.run;
  }
  return (int)n;
}
/* The position of row `t` of a piece. */
static __device__ __forceinline__ int position(const Heads &s, const SeqPiece &p,
                                               int64_t b, int t) {
  int y = place(p, t);
  return s.slots ? (int)seq_token(s.starts + b * s.T, s.T, s.slots, y).at : y;
}

/* A row as a query or a key: its position and, for a query, the first position it sees.
 * Past the end queries see nothing and keys are seen by none. */
struct Row {
  int at, start;
};
static __device__ __forceinline__ Row query_row(const Heads &s, int64_t b, int t) {
  if (t >= s.t) return Row{-1, 0};
  int start = !s.starts ? 0
              : s.slots ? s.starts[b * s.T + place(s.query, t)]
                        : s.starts[b * s.t + t];
  int at = position(s, s.query, b, t);
  if (s.window && start <= at - s.window) start = at - s.window + 1;
  return Row{at, start};
}
static __device__ __forceinline__ Row key_row(const Heads &s, int64_t b, int t) {
  return Row{t < s.keys ? position(s, s.key, b, t) : INT32_MAX, 0};
}
static __device__ __forceinline__ bool sees(const Row &query, int key) {
  return key <= query.at && key >= query.start;
}

/* Bounds of the positions and starts of `n` rows from `first` on. They ascend in a piece,
 * or in a slot of it; across slots nothing is known. `whole`: none is past the end. */
struct Range {
  Row lo, hi;
  bool whole;
};
template <typename F>
static __device__ __forceinline__ Range range_of(const Heads &s, const SeqPiece &p,
                                                 int64_t rows, int first, int n, F row) {
  int last = first + n < rows ? first + n - 1 : (int)rows - 1;
  int slot = s.slots ? (int)(s.T / s.slots) : 0;
  if (slot && place(p, first) / slot != place(p, last) / slot)
    return Range{{0, 0}, {INT32_MAX, INT32_MAX}, false};
  return Range{row(first), row(last), first + n <= rows};
}
static __device__ __forceinline__ Range query_range(const Heads &s, int64_t b, int first,
                                                    int n) {
  return range_of(s, s.query, s.t, first, n, [&](int t) { return query_row(s, b, t); });
}
static __device__ __forceinline__ Range key_range(const Heads &s, int64_t b, int first,
                                                  int n) {
  return range_of(s, s.key, s.keys, first, n, [&](int t) { return key_row(s, b, t); });
}

/* Whether the queries of a range see keys of another: none, maybe some, or all of them.
 * ALL needs every row of the range that a sum runs over, `walked`, to exist. */
enum Seen { NONE, SOME, ALL };
static __device__ __forceinline__ Seen seen(const Range &q, const Range &k,
                                            const Range &walked) {
  if (k.lo.at > q.hi.at || k.hi.at < q.lo.start) return NONE;
  bool all = k.hi.at <= q.lo.at && k.lo.at >= q.hi.start;
  return all && walked.whole ? ALL : SOME;
}

/* The range of tiles of N keys that a range of queries may see. */
struct Tiles {
  int first, end;
};
template <int N>
static __device__ __forceinline__ Tiles key_tiles(const Heads &s, const Range &q) {
  if (s.slots) return Tiles{0, (int)((s.keys + N - 1) / N)};
  return Tiles{rows_before(s.key, q.lo.start) / N,
               (rows_before(s.key, q.hi.at + 1) + N - 1) / N};
}
/* The range of tiles of N queries that may see a range of keys: up to the first tile
 * whose documents, or windows, all begin later. */
template <int N>
static __device__ __forceinline__ Tiles query_tiles(const Heads &s, int64_t b,
                                                    const Range &k) {
  int end = (int)((s.t + N - 1) / N);
  if (s.slots) return Tiles{0, end};
  int first = rows_before(s.query, k.lo.at) / N, lo = first;
  while ((s.starts || s.window) && lo < end) {
    int mid = lo + (end - lo) / 2;
    if (query_row(s, b, mid * N).start > k.hi.at)
      end = mid;
    else
      lo = mid + 1;
  }
  return Tiles{first, end};
}

/* ---- caps of scores ---- */

static __device__ __forceinline__ float capped(float x, float cap) {
  return cap * tanhf(x / cap);
}
/* What gradients of scores shrink by. */
static __device__ __forceinline__ float capped_by(float score, float cap) {
  float share = score / cap;
  return 1 - share * share;
}

/* ---- dropout ---- what probabilities are multiplied by; kernels have it by a template
 * argument, since registers are scarce */

static __device__ __forceinline__ uint32_t query_number(const Heads &s, int64_t b,
                                                        int t) {
  return t < s.t ? (uint32_t)s.numbers[b * s.t + t] : 0;
}
/* Of the four words that a counter gives, that of a key, without an index that is not
 * known: arrays are registers. */
static __device__ __forceinline__ float key_factor(const Heads &s, int key,
                                                   const uint32_t (&word)[4]) {
  uint32_t low = key & 1 ? word[1] : word[0], high = key & 1 ? word[3] : word[2];
  return dropout_factor(&s.drops, key & 2 ? high : low);
}
static __device__ __forceinline__ float factor_of(const Heads &s, int64_t h,
                                                  uint32_t query, int key) {
  uint32_t word[DROPOUT_WORDS];
  dropout_words(&s.drops, query, (uint32_t)key / 4, s.first_head + (uint32_t)h, word);
  return key_factor(s, key, word);
}
/* Of one query and two keys, which one counter mostly serves. */
static __device__ __forceinline__ void
factors_of(const Heads &s, int64_t h, uint32_t query, int key, int next, float (&f)[2]) {
  uint32_t word[DROPOUT_WORDS], head = s.first_head + (uint32_t)h;
  dropout_words(&s.drops, query, (uint32_t)key / 4, head, word);
  f[0] = key_factor(s, key, word);
  if (next / 4 != key / 4) dropout_words(&s.drops, query, (uint32_t)next / 4, head, word);
  f[1] = key_factor(s, next, word);
}

/* Calls f with the larger head size, rounded up to one with kernels, and whether
 * something is dropped. */
enum { CUDA_HEAD_MAX = 256 };
template <int D, bool DROPS> struct HeadSize {
  static constexpr int size = D;
  static constexpr bool drops = DROPS;
};
template <bool DROPS, typename F> static void by_size(const Heads &s, F f) {
  int d = s.d > s.dv ? s.d : s.dv;
  assert(d <= CUDA_HEAD_MAX);
  if (d <= 64)
    f(HeadSize<64, DROPS>{});
  else if (d <= 128)
    f(HeadSize<128, DROPS>{});
  else
    f(HeadSize<256, DROPS>{});
}
template <typename F> static void by_head(const Heads &s, F f) {
  if (s.numbers)
    by_size<true>(s, f);
  else
    by_size<false>(s, f);
}

#endif
