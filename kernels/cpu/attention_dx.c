/* attention_dx.c - gradients of causal attention. Probabilities are computed again from
 * lse, with delta = sum(do * o) of a query and dS = P * (dP - delta) * scale:
 *   dq = dS k, dk = dS^T q, dv = P^T do
 * in two passes, over query tiles for dq and over key tiles for dk and dv, so that every
 * result has one owner and is summed in one order. */
#include "attention.h"

enum { Q, K, V, O, LSE, DO, STARTS }; /* operands */

/* What a tile of queries of one head brings along. */
typedef struct QueryTile {
  Queries q;
  TileHead x, d;            /* q and do */
  float lse[TILE], delta[TILE];
} QueryTile;

/* Loads what belongs to w->q. */
INLINE void load_queries(QueryTile *w, const KernelArgs *a, const Heads *s, int64_t h,
                         DType t) {
  TileHead o;
  int64_t b = w->q.b;
  int64_t first = w->q.first;
  load_head(w->x, &a->in[Q], t, s, b, h, first, w->q.n);
  load_head(w->d, &a->in[DO], t, s, b, h, first, w->q.n);
  load_head(o, &a->in[O], t, s, b, h, first, w->q.n);
  const float *lse = a->in[LSE].p;
  for (int i = 0; i < TILE; i++) {
    w->lse[i] = w->delta[i] = 0;
    if (i >= w->q.n) continue;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < s->d; j++) sum += w->d[i * s->ld + j] * o[i * s->ld + j];
    w->delta[i] = sum;
    w->lse[i] = lse[(b * s->t + first + i) * s->h + h];
  }
}

/* ---- dq: scores are (keys, queries) ---- */

INLINE void dq_scores(float *p, float *ds, int n, int64_t k0, const Heads *s,
                      const QueryTile *w) {
  bool all = sees_all(&w->q, k0, n);
  for (int j = 0; j < n; j++) {
    float *pr = p + j * TILE, *dr = ds + j * TILE;
    int32_t key = (int32_t)k0 + j;
#pragma omp simd
    for (int i = 0; i < TILE; i++) {
      bool sees = all | ((key <= w->q.at[i]) & (key >= w->q.start[i]));
      float x = vexp(sees ? pr[i] * s->scale - w->lse[i] : -INFINITY);
      dr[i] = x * (dr[i] - w->delta[i]) * s->scale;
    }
  }
}

INLINE void dq_item(const KernelArgs *a, const Heads *s, int64_t b, int64_t h, int64_t tile,
                    DType t) {
  QueryTile w;
  TileTurned qt, dt;
  TileHead k, v, dq;
  TileScores p, ds;
  int64_t kv = h * s->k / s->h;
  queries_of(s, b, tile, &w.q);
  load_queries(&w, a, s, h, t);
  turn_head(qt, w.x, s, w.q.n);
  turn_head(dt, w.d, s, w.q.n);
  memset(dq, 0, (size_t)(w.q.n * s->ld) * sizeof *dq);
  for (int64_t k0 = w.q.start_min / TILE * TILE; k0 < w.q.first + w.q.n; k0 += TILE) {
    int n = (int)MIN(TILE, s->t - k0);
    if (!sees_some(&w.q, k0, n)) continue;
    load_head(k, &a->in[K], t, s, b, kv, k0, n);
    load_head(v, &a->in[V], t, s, b, kv, k0, n);
    tile_mul(n, TILE, s->d, (Strided){k, s->ld, 1}, qt, TILE, p, TILE, false);
    tile_mul(n, TILE, s->d, (Strided){v, s->ld, 1}, dt, TILE, ds, TILE, false);
    dq_scores(p, ds, n, k0, s, &w);
    tile_mul(w.q.n, s->d, n, (Strided){ds, 1, TILE}, k, s->ld, dq, s->ld, true);
  }
  store_head(&a->out[0], t, dq, s, b, h, w.q.first, w.q.n);
}

/* ---- dk, dv: scores are (queries, keys) ---- */

INLINE void dk_scores(float *p, float *ds, int n, int64_t k0, const Heads *s,
                      const QueryTile *w) {
  bool all = sees_all(&w->q, k0, n);
  for (int i = 0; i < w->q.n; i++) {
    float *pr = p + i * TILE, *dr = ds + i * TILE;
    float lse = w->lse[i], delta = w->delta[i];
    int32_t first = (int32_t)(w->q.start[i] - k0), last = (int32_t)(w->q.at[i] - k0);
#pragma omp simd
    for (int j = 0; j < TILE; j++) {
      bool sees = all | ((j <= last) & (j >= first));
      float x = vexp(sees ? pr[j] * s->scale - lse : -INFINITY);
      dr[j] = x * (dr[j] - delta) * s->scale;
      pr[j] = x;
    }
  }
}

INLINE void dk_item(const KernelArgs *a, const Heads *s, int64_t b, int64_t kv,
                    int64_t tile, DType t) {
  QueryTile w;
  TileHead x, dk, dv;
  TileTurned kt, vt;
  TileScores p, ds;
  int64_t k0 = tile * TILE, group = s->h / s->k;
  int n = (int)MIN(TILE, s->t - k0);
  load_head(x, &a->in[K], t, s, b, kv, k0, n);
  turn_head(kt, x, s, n);
  load_head(x, &a->in[V], t, s, b, kv, k0, n);
  turn_head(vt, x, s, n);
  memset(dk, 0, (size_t)(n * s->ld) * sizeof *dk);
  memset(dv, 0, (size_t)(n * s->ld) * sizeof *dv);
  for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
    for (int64_t qt = tile; qt < s->tiles; qt++) {
      queries_of(s, b, qt, &w.q);
      if (!sees_some(&w.q, k0, n)) continue;
      load_queries(&w, a, s, h, t);
      tile_mul(w.q.n, TILE, s->d, (Strided){w.x, s->ld, 1}, kt, TILE, p, TILE, false);
      tile_mul(w.q.n, TILE, s->d, (Strided){w.d, s->ld, 1}, vt, TILE, ds, TILE, false);
      dk_scores(p, ds, n, k0, s, &w);
      tile_mul(n, s->d, w.q.n, (Strided){ds, 1, TILE}, w.x, s->ld, dk, s->ld, true);
      tile_mul(n, s->d, w.q.n, (Strided){p, 1, TILE}, w.d, s->ld, dv, s->ld, true);
    }
  }
  store_head(&a->out[1], t, dk, s, b, kv, k0, n);
  store_head(&a->out[2], t, dv, s, b, kv, k0, n);
}

INLINE void dq(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  Heads s = heads_of(a, STARTS);
  for (int64_t i = lo; i < hi; i++)
    dq_item(a, &s, i / (s.h * s.tiles), i / s.tiles % s.h, i % s.tiles, t);
}
BY_TYPE(dq, in[0])

INLINE void dk(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  Heads s = heads_of(a, STARTS);
  for (int64_t i = lo; i < hi; i++)
    dk_item(a, &s, i / (s.k * s.tiles), i / s.tiles % s.k, i % s.tiles, t);
}
BY_TYPE(dk, in[0])

void cpu_attention_dx(const KernelArgs *a) {
  Heads s = heads_of(a, STARTS);
  each_part(a, s.b * s.h * s.tiles, 1, dq_part);
  each_part(a, s.b * s.k * s.tiles, 1, dk_part);
}
