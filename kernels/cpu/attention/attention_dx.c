/* attention_dx.c - gradients of causal attention. Probabilities are recomputed from lse,
 * with delta = sum(do * o) of a query and dS = P * (dP - delta) * scale: dq = dS k, dk =
 * dS^T q, dv = P^T do. dq accumulates over key tiles in the scratch, dk and dv over query
 * tiles on the stack. A thread takes whole kv heads if there are enough of them;
 * otherwise there are two passes, over query tiles for dq and over key tiles for dk and
 * dv. Every sum has one order, so both ways give the same bits.
 *
 * Where probabilities were dropped, M of them (0 or 1/(1 - rate)): o = (P M) v, so dv =
 * (P M)^T do and dS = P * (M dP - delta) * scale.
 *
 * In ring attention this is one step: dq continues from the step before. */
#include "attention.h"

enum { Q, K, V, O, LSE, DO, DQ, STARTS, STARTS_FIRST = DQ }; /* operands */

/* Scratch of one (batch, head): whole tiles for all queries. */
typedef struct Room {
  float *dq;    /* (tiles * TILE, qk.ld) */
  float *delta; /* (tiles * TILE) */
} Room;

static int64_t rows_padded(const Heads *s) { return s->tiles * TILE; }

INLINE Room room_of(const KernelArgs *a, const Heads *s, int64_t b, int64_t h) {
  int64_t rows = rows_padded(s), i = b * s->h + h;
  float *dq = a->work, *delta = dq + s->b * s->h * rows * s->qk.ld;
  return (Room){dq + i * rows * s->qk.ld, delta + i * rows};
}

/* The part of a (batch, kv head) that a thread works on. */
typedef struct Task {
  int64_t b, h0, h1, kv;  /* heads [h0, h1) */
  int64_t q0, q1, k0, k1; /* query tiles, key tiles */
  bool dq, dkv;
} Task;

/* Computes delta for a tile of queries, and loads dq so far. */
INLINE void begin_queries(const KernelArgs *a, const Heads *s, int64_t b, int64_t h,
                          int64_t tile) {
  TileHead o, d;
  Room m = room_of(a, s, b, h);
  int64_t r0 = tile * TILE;
  Span y = span_of(&s->query, tile);
  load_head(d, &a->in[DO], s->v, b, h, y.row, y.n);
  load_head(o, &a->in[O], s->v, b, h, y.row, y.n);
  for (int i = 0; i < y.n; i++) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < s->v.d; j++) sum += d[i * s->v.ld + j] * o[i * s->v.ld + j];
    m.delta[r0 + i] = sum;
  }
  memset(m.dq + r0 * s->qk.ld, 0, (size_t)(TILE * s->qk.ld) * sizeof *m.dq);
  if (goes_on(a)) load_head(m.dq + r0 * s->qk.ld, &a->in[DQ], s->qk, b, h, y.row, y.n);
}

/* From scores and dP, both (queries, keys), to P and dS; `deltas` are of the queries. */
INLINE void probabilities(float *p, float *ds, const KeyRows *k, const KernelArgs *a,
                          const Heads *s, int64_t h, const Queries *q,
                          const float *deltas) {
  const float *all = (const float *)a->in[LSE].p + (q->b * s->t + q->row) * s->h + h;
  float scale = s->cap > 0 ? 1 : s->scale, shrinks[TILE];
  for (int j = 0; j < TILE; j++) shrinks[j] = 1;
  for (int i = 0; i < q->n; i++) {
    float *pr = p + i * TILE, *dr = ds + i * TILE;
    float lse = all[i * s->h], delta = deltas[i];
    int32_t first = q->start[i], last = q->at[i];
    for (int j = 0; j < TILE && s->cap > 0; j++) {
      pr[j] = capped(pr[j] * s->scale, s->cap);
      shrinks[j] = capped_by(pr[j], s->cap);
    }
#pragma omp simd
    for (int j = 0; j < TILE; j++) {
      bool hidden = (k->at[j] > last) | (k->at[j] < first);
      float x = replace_if(hidden, 0, vexp(pr[j] * scale - lse));
      dr[j] = x * (dr[j] - delta) * s->scale * shrinks[j];
      pr[j] = x;
    }
  }
}

/* Multiplies x(queries, keys) by factors (keys, queries). */
INLINE void times_factors(float *x, const float *factor, int queries, int keys) {
  for (int i = 0; i < queries; i++)
    for (int j = 0; j < keys; j++) x[i * TILE + j] *= factor[j * TILE + i];
}

/* A tile of keys with its values and gradients. */
typedef struct Keys {
  KeyRows rows;
  Span at;
  TileHead k, v, dk, dv;
  TileTurned kt, vt;
} Keys;

/* One key tile against one query tile of one head. */
INLINE void tiles(const Task *w, const KernelArgs *a, const Heads *s, Keys *y, int64_t h,
                  int64_t tile) {
  TileHead x, g;
  TileScores p, ds;
  Queries q;
  int d = s->qk.d, ld = s->qk.ld, dv = s->v.d, lv = s->v.ld, n = y->at.n;
  queries_of(s, w->b, tile, &q);
  if (!sees_some(&q, &y->rows)) return;
  Room room = room_of(a, s, w->b, h);
  load_head(x, &a->in[Q], s->qk, w->b, h, q.row, q.n);
  load_head(g, &a->in[DO], s->v, w->b, h, q.row, q.n);
  tile_mul(q.n, TILE, d, (Strided){x, ld, 1}, y->kt, TILE, p, TILE, false);
  tile_mul(q.n, TILE, dv, (Strided){g, lv, 1}, y->vt, TILE, ds, TILE, false);
  TileScores factor;
  if (s->numbers) {
    drop_tile(s, &q, &y->rows, h, factor);
    times_factors(ds, factor, q.n, n);
  }
  probabilities(p, ds, &y->rows, a, s, h, &q, room.delta + tile * TILE);
  if (s->numbers) times_factors(p, factor, q.n, n);
  bool diagonal = on_diagonal(s, &q, &y->rows);
  if (w->dq)
    mul_seen(diagonal, false, q.n, d, n, (Strided){ds, TILE, 1}, y->k, ld,
             room.dq + tile * TILE * ld, ld);
  if (w->dkv) {
    mul_seen(diagonal, true, n, d, q.n, (Strided){ds, 1, TILE}, x, ld, y->dk, ld);
    mul_seen(diagonal, true, n, dv, q.n, (Strided){p, 1, TILE}, g, lv, y->dv, lv);
  }
}

/* One key tile against the query tiles of the heads that read it. */
INLINE void key_tile(const Task *w, const KernelArgs *a, const Heads *s, int64_t tile) {
  Keys y;
  y.at = span_of(&s->key, tile);
  if (!w->dkv && !reaches(s, w->q0, tile)) return; /* w has one query tile */
  keys_of(s, w->b, tile, &y.rows);
  load_head(y.k, &a->in[K], s->qk, w->b, w->kv, y.at.row, y.at.n);
  load_head(y.v, &a->in[V], s->v, w->b, w->kv, y.at.row, y.at.n);
  turn_head(y.kt, y.k, s->qk, y.at.n);
  turn_head(y.vt, y.v, s->v, y.at.n);
  memset(y.dk, 0, (size_t)(TILE * s->qk.ld) * sizeof *y.dk);
  memset(y.dv, 0, (size_t)(TILE * s->v.ld) * sizeof *y.dv);
  for (int64_t h = w->h0; h < w->h1; h++)
    for (int64_t i = w->q0; i < w->q1; i++)
      if (reaches(s, i, tile)) tiles(w, a, s, &y, h, i);
  if (!w->dkv) return;
  store_head(&a->out[1], y.dk, s->qk, w->b, w->kv, y.at.row, y.at.n);
  store_head(&a->out[2], y.dv, s->v, w->b, w->kv, y.at.row, y.at.n);
}

INLINE void work(const Task *w, const KernelArgs *a, const Heads *s) {
  for (int64_t h = w->h0; h < w->h1 && w->dq; h++)
    for (int64_t i = w->q0; i < w->q1; i++) begin_queries(a, s, w->b, h, i);
  for (int64_t i = w->k0; i < w->k1; i++) key_tile(w, a, s, i);
  for (int64_t h = w->h0; h < w->h1 && w->dq; h++)
    for (int64_t i = w->q0; i < w->q1; i++) {
      Span q = span_of(&s->query, i);
      store_head(&a->out[0], room_of(a, s, w->b, h).dq + i * TILE * s->qk.ld, s->qk, w->b,
                 h, q.row, q.n);
    }
}

/* Ways to split the work: whole kv heads, query tiles, key tiles. */
typedef enum { WHOLE, QUERY_TILES, KEY_TILES } Share;

static int64_t items_of(const Heads *s, Share share) {
  return share == WHOLE         ? s->b * s->k
         : share == QUERY_TILES ? s->b * s->h * s->tiles
                                : s->b * s->k * s->key_tiles;
}

static Task task_of(const Heads *s, Share share, int64_t i) {
  int64_t n = share == QUERY_TILES ? s->tiles : share == KEY_TILES ? s->key_tiles : 1;
  int64_t group = s->h / s->k, tile = i % n;
  i /= n;
  if (share == QUERY_TILES)
    return (Task){.b = i / s->h,
                  .h0 = i % s->h,
                  .h1 = i % s->h + 1,
                  .kv = i % s->h / group,
                  .q0 = tile,
                  .q1 = tile + 1,
                  .k0 = 0,
                  .k1 = s->key_tiles,
                  .dq = true};
  return (Task){.b = i / s->k,
                .h0 = i % s->k * group,
                .h1 = (i % s->k + 1) * group,
                .kv = i % s->k,
                .q0 = 0,
                .q1 = s->tiles,
                .k0 = tile,
                .k1 = share == WHOLE ? s->key_tiles : tile + 1,
                .dq = share == WHOLE,
                .dkv = true};
}

/* Part `t` of `team` of the work items. */
static void share_out(const KernelArgs *a, const Heads *s, Share share, int t, int team) {
  int64_t n = items_of(s, share);
  for (int64_t i = n * t / team; i < n * (t + 1) / team; i++) {
    Task w = task_of(s, share, i);
    work(&w, a, s);
  }
}

static void all_threads(const Device *dev, const KernelArgs *a, const Heads *s,
                        Share share) {
  int parts = (int)MIN(dev->threads, items_of(s, share));
  if (parts <= 1) {
    share_out(a, s, share, 0, 1);
    return;
  }
#pragma omp parallel num_threads(parts)
  share_out(a, s, share, omp_get_thread_num(), omp_get_num_threads());
}

void cpu_attention_dx(Device *dev, const KernelArgs *a) {
  Heads s = heads_of(a, goes_on(a) ? STARTS : STARTS_FIRST);
  assert(MAX(s.qk.d, s.v.d) <= HEAD_MAX);
  if (items_of(&s, WHOLE) >= dev->threads) {
    all_threads(dev, a, &s, WHOLE);
  } else {
    all_threads(dev, a, &s, QUERY_TILES);
    all_threads(dev, a, &s, KEY_TILES);
  }
}

void cpu_attention_part_dx(Device *dev, const KernelArgs *a) { cpu_attention_dx(dev, a); }
