/* attention.h - shared by attention's forward and backward kernels: which keys a query
 * sees, and tiles of heads as f32. Scores exist for one tile of queries and one of keys
 * at a time, never as a T x T matrix. */
#ifndef WEFT_ATTENTION_H
#define WEFT_ATTENTION_H

#include "kernels/cpu/tile.h"
#include "kernels/cpu/vecmath.h"
#include "vm/graph/dropout.h"
#include "vm/graph/sequence.h"

enum { TILE = 64, HEAD_MAX = 256 };
typedef float TileHead[TILE * HEAD_MAX];   /* (TILE, D) with rows of Heads.ld */
typedef float TileTurned[HEAD_MAX * TILE]; /* (D, TILE), transposed */
typedef float TileScores[TILE * TILE];

/* The size of a head; and rounded up to whole vectors. */
typedef struct Width {
  int d, ld;
} Width;

typedef struct Heads {
  int64_t b, t, h, k;    /* batch, queries, heads, kv heads */
  Width qk, v;           /* of q and k; of v and o */
  float scale, cap;      /* cap: of scores, 0: none */
  int64_t window;        /* the last tokens that a query sees; 0: all up to it */
  const int32_t *starts; /* (B, t) or NULL; with slots (B, T) */
  int64_t T;             /* tokens of the sequence */
  int slots; /* rows are in the order of so many slots, see sequence.h; 0: positions */
  SeqPiece query, key; /* the rows of the sequence on this rank */
  int64_t tiles, key_tiles;
  const int32_t *numbers; /* (B, t), of the queries' tokens; NULL: nothing is dropped */
  Dropout drops;
  uint32_t first_head; /* of all ranks */
} Heads;

/* Rows [row, row + n) of a tile, and the position of the first. A tile stays within a
 * run. */
typedef struct Span {
  int64_t row, pos;
  int n;
} Span;

INLINE int64_t tiles_of_run(const SeqPiece *p) { return (p->run + TILE - 1) / TILE; }

INLINE Span span_of(const SeqPiece *p, int64_t tile) {
  int64_t each = tiles_of_run(p), run = tile / each, at = tile % each * TILE;
  return (Span){run * p->run + at, p->first[run] + at, (int)MIN(TILE, p->run - at)};
}

/* True in later ring steps: the running sums are among the operands. */
INLINE bool goes_on(const KernelArgs *a) { return a->attr->step > 0; }

/* The keys of this ring step: all, or those shifted `ranks` times. */
INLINE SeqPiece keys_here(const KernelArgs *a, int64_t T, int ranks) {
  int64_t rows = a->in[1].dim[1];
  if (rows == T) return seq_whole(T);
  assert(rows * ranks == T);
  return seq_piece(T, ranks, (a->index - a->attr->step + ranks) % ranks, a->attr->mirror);
}

/* The heads of a kernel; of a plan that is only checked they may be larger than HEAD_MAX,
 * the most that a kernel computes. */
INLINE Heads heads_of(const KernelArgs *a, int starts_at) {
  const KTensor *q = &a->in[0], *k = &a->in[1];
  int d = a->attr->head_dim, dv = attr_value_dim(a->attr);
  int ranks = MAX(a->attr->n, 1);
  int64_t T = q->dim[1] * ranks;
  bool zigzag = a->attr->mirror, drops = a->attr->rate > 0;
  bool starts = a->nin - drops > starts_at && a->in[starts_at].dtype == DT_I32;
  assert(q->ndim == 3 && k->ndim == 3);
  Heads s = {.b = q->dim[0],
             .t = q->dim[1],
             .h = q->dim[2] / d,
             .k = k->dim[2] / d,
             .qk = {d, whole_lanes(d)},
             .v = {dv, whole_lanes(dv)},
             .scale = a->attr->scale,
             .cap = a->attr->soft_cap,
             .window = a->attr->window,
             .starts = starts ? a->in[starts_at].p : NULL,
             .T = T,
             .slots = a->attr->parts,
             .query = seq_piece(T, ranks, a->index, zigzag),
             .key = keys_here(a, T, ranks),
             .numbers = drops ? a->in[a->nin - 1].p : NULL,
             .drops = dropout_of_heads(a->attr, a->unit)};
  s.first_head = (uint32_t)(a->heads_index * s.h);
  s.tiles = s.query.runs * tiles_of_run(&s.query);
  s.key_tiles = s.key.runs * tiles_of_run(&s.key);
  return s;
}

/* The queries of a tile and the first key that each of them sees. Lanes past the end
 * repeat the last query; their results are not used. */
typedef struct Queries {
  int64_t b, row, pos;
  int n;
  int32_t at[TILE], start[TILE];
  int32_t at_min, at_max, start_min, start_max;
  uint32_t number[TILE]; /* of the token, where something is dropped */
} Queries;

/* The keys of a tile. Positions past the end are greater than all others. */
typedef struct KeyRows {
  Span in;
  int32_t at[TILE];
  int32_t at_min, at_max;
} KeyRows;

/* The token of row `y` of the sharded sequence. */
INLINE SeqToken token_of(const Heads *s, int64_t b, int64_t y) {
  return seq_token(s->starts + b * s->T, s->T, s->slots, y);
}

INLINE void keys_of(const Heads *s, int64_t b, int64_t tile, KeyRows *k) {
  Span in = k->in = span_of(&s->key, tile);
  k->at_min = INT32_MAX, k->at_max = 0;
  for (int i = 0; i < TILE; i++) {
    int64_t y = in.pos + i;
    k->at[i] = INT32_MAX;
    if (i >= in.n) continue;
    k->at[i] = (int32_t)(s->slots ? token_of(s, b, y).at : y);
    k->at_min = MIN(k->at_min, k->at[i]);
    k->at_max = MAX(k->at_max, k->at[i]);
  }
}

INLINE void queries_of(const Heads *s, int64_t b, int64_t tile, Queries *q) {
  Span span = span_of(&s->query, tile);
  q->b = b;
  q->row = span.row;
  q->pos = span.pos;
  q->n = span.n;
  q->start_min = q->at_min = INT32_MAX;
  q->start_max = q->at_max = 0;
  for (int i = 0; i < TILE; i++) {
    int64_t t = MIN(i, q->n - 1);
    SeqToken x = {q->pos + t, s->starts ? s->starts[b * s->t + q->row + t] : 0};
    if (s->slots) x = token_of(s, b, q->pos + t);
    q->number[i] = s->numbers ? (uint32_t)s->numbers[b * s->t + q->row + t] : 0;
    if (s->window) x.start = MAX(x.start, x.at - s->window + 1);
    q->at[i] = (int32_t)x.at;
    q->start[i] = (int32_t)x.start;
    q->at_min = MIN(q->at_min, q->at[i]);
    q->at_max = MAX(q->at_max, q->at[i]);
    q->start_min = MIN(q->start_min, q->start[i]);
    q->start_max = MAX(q->start_max, q->start[i]);
  }
}

/* Whether a query of one tile may see a key of another, by their places alone. */
INLINE bool reaches(const Heads *s, int64_t tile, int64_t key_tile) {
  Span q = span_of(&s->query, tile), k = span_of(&s->key, key_tile);
  if (s->slots) return true;
  return q.pos + q.n > k.pos && (s->window == 0 || q.pos < k.pos + k.n - 1 + s->window);
}

/* True if some, or all, pairs of these queries and keys are visible. */
INLINE bool sees_some(const Queries *q, const KeyRows *k) {
  return k->at_min <= q->at_max && k->at_max >= q->start_min;
}
INLINE bool sees_all(const Queries *q, const KeyRows *k) {
  return k->at_max <= q->at_min && k->at_min >= q->start_max;
}
/* True if query i and key i are the same token, in position order. */
INLINE bool on_diagonal(const Heads *s, const Queries *q, const KeyRows *k) {
  return !s->slots && k->in.pos == q->pos;
}

/* A score that is near the cap or beyond comes no nearer: gradients shrink by capped_by.
 */
INLINE float capped(float x, float cap) { return cap * vtanh(x / cap); }
INLINE float capped_by(float score, float cap) {
  float share = score / cap;
  return 1 - share * share;
}

/* What probabilities are multiplied by, (keys, TILE queries): 0 where a query of head h
 * drops a key. */
INLINE void drop_tile(const Heads *s, const Queries *q, const KeyRows *k, int64_t h,
                      float *factor) {
  uint32_t word[DROPOUT_WORDS][TILE], head = s->first_head + (uint32_t)h;
  int32_t drawn = -1;
  for (int j = 0; j < k->in.n; j++) {
    int32_t group = k->at[j] / DROPOUT_WORDS;
    if (group != drawn) {
#pragma omp simd
      for (int i = 0; i < TILE; i++) {
        uint32_t w[DROPOUT_WORDS];
        dropout_words(&s->drops, q->number[i], (uint32_t)group, head, w);
        for (int m = 0; m < DROPOUT_WORDS; m++) word[m][i] = w[m];
      }
      drawn = group;
    }
    const uint32_t *of_key = word[k->at[j] % DROPOUT_WORDS];
    float *row = factor + j * TILE;
#pragma omp simd
    for (int i = 0; i < TILE; i++) row[i] = dropout_factor(&s->drops, of_key[i]);
  }
}

/* c += p b for a tile of probabilities. On the diagonal, row i of p is zero after column
 * i, or before it if `turned` (transposed); zero blocks are skipped. */
INLINE void mul_seen(bool diagonal, bool turned, int m, int n, int k, Strided p,
                     const float *b, int64_t ldb, float *c, int64_t ldc) {
  enum { BLOCK = 16 };
  int step = diagonal ? BLOCK : m;
  for (int i = 0; i < m; i += step) {
    int rows = MIN(step, m - i);
    int from = diagonal && turned ? MIN(i, k) : 0;
    int to = diagonal && !turned ? MIN(i + rows, k) : k;
    Strided part = {p.p + i * p.row + from * p.col, p.row, p.col};
    tile_mul(rows, n, to - from, part, b + from * ldb, ldb, c + i * ldc, ldc, true);
  }
}

INLINE void load_rows(float *dst, const KTensor *x, Width w, int64_t b, int64_t h,
                      int64_t r0, int n, DType t) {
  int64_t width = last_dim(x);
  int d = w.d;
  for (int i = 0; i < n; i++) {
    const void *src = at(x->p, t, (b * x->dim[1] + r0 + i) * width + h * d);
    float *row = dst + i * w.ld;
#pragma omp simd
    for (int j = 0; j < d; j++) row[j] = get(src, t, j);
    for (int j = d; j < w.ld; j++) row[j] = 0;
  }
}

/* Loads rows [r0, r0+n) of head h of x(B,T,heads*D) to a tile, zero-padded to whole
 * vectors. Tiles are f32, so the element type ends here: what computes with them is
 * compiled once. */
static inline void load_head(float *dst, const KTensor *x, Width w, int64_t b, int64_t h,
                             int64_t r0, int n) {
  WITH_TYPE(x->dtype, load_rows, dst, x, w, b, h, r0, n);
}

/* Transposes the tile: (D, TILE), columns past n are zero. */
INLINE void turn_head(float *dst, const float *tile, Width w, int n) {
  for (int j = 0; j < w.d; j++) {
    for (int i = 0; i < n; i++) dst[j * TILE + i] = tile[i * w.ld + j];
    for (int i = n; i < TILE; i++) dst[j * TILE + i] = 0;
  }
}

INLINE void store_rows(const KTensor *x, const float *tile, Width w, int64_t b, int64_t h,
                       int64_t r0, int n, DType t) {
  int64_t width = last_dim(x);
  for (int i = 0; i < n; i++) {
    void *dst = at(x->p, t, (b * x->dim[1] + r0 + i) * width + h * w.d);
    const float *row = tile + i * w.ld;
#pragma omp simd
    for (int j = 0; j < w.d; j++) put(dst, t, j, row[j]);
  }
}

/* Stores a tile to rows [r0, r0+n) of head h of x; sums between the steps of a ring are
 * f32 whatever the operands are. */
static inline void store_head(const KTensor *x, const float *tile, Width w, int64_t b,
                              int64_t h, int64_t r0, int n) {
  WITH_TYPE(x->dtype, store_rows, x, tile, w, b, h, r0, n);
}

#endif
