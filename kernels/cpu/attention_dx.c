/* attention_dx.c - gradients of causal attention. Probabilities are computed again from
 * lse, with delta = sum(do * o) of a query and dS = P * (dP - delta) * scale:
 *   dq = dS k, dk = dS^T q, dv = P^T do
 * A thread takes whole kv heads if there are enough of them. Otherwise tiles are shared
 * out twice, query tiles for dq and then key tiles for dk and dv. Every sum runs in one
 * order, so both ways give the same bits. */
#include "attention.h"

enum { Q, K, V, O, LSE, DO, STARTS }; /* operands */

/* A thread's room for one head, as f32: (T, D) each, padded to whole tiles. */
typedef struct Room {
  float *q, *d, *dq, *dk, *dv, *lse, *delta;
} Room;

static size_t room_floats(const Heads *s) {
  return (size_t)(s->tiles * TILE) * (size_t)(5 * s->ld + 2);
}

static Room room_of(const Heads *s, float *at) {
  size_t rows = (size_t)(s->tiles * TILE), n = rows * (size_t)s->ld;
  return (Room){at, at + n, at + 2 * n, at + 3 * n, at + 4 * n, at + 5 * n,
                at + 5 * n + rows};
}

/* What part of the work of a (batch, kv head) is asked for. */
typedef struct Task {
  int64_t b, h0, h1, kv;     /* heads [h0, h1) */
  int64_t q0, q1, k0, k1;    /* query tiles, key tiles */
  bool dq, dkv;
} Task;

/* Queries, their gradients, lse and delta of a tile of head h. */
INLINE void load_queries(const Room *m, const KernelArgs *a, const Heads *s, int64_t b,
                         int64_t h, int64_t tile, DType t) {
  TileHead o;
  int64_t r0 = tile * TILE;
  int n = (int)MIN(TILE, s->t - r0);
  float *d = m->d + r0 * s->ld;
  const float *lse = a->in[LSE].p;
  load_head(m->q + r0 * s->ld, &a->in[Q], t, s, b, h, r0, n);
  load_head(d, &a->in[DO], t, s, b, h, r0, n);
  load_head(o, &a->in[O], t, s, b, h, r0, n);
  for (int i = 0; i < n; i++) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < s->d; j++) sum += d[i * s->ld + j] * o[i * s->ld + j];
    m->delta[r0 + i] = sum;
    m->lse[r0 + i] = lse[(b * s->t + r0 + i) * s->h + h];
  }
}

/* From scores and dP, both (queries, keys), to P and dS. */
INLINE void probabilities(float *p, float *ds, int64_t k0, const Heads *s,
                          const Queries *q, const Room *m) {
  for (int i = 0; i < q->n; i++) {
    float *pr = p + i * TILE, *dr = ds + i * TILE;
    float lse = m->lse[q->first + i], delta = m->delta[q->first + i];
    int32_t first = (int32_t)(q->start[i] - k0), last = (int32_t)(q->at[i] - k0);
#pragma omp simd
    for (int j = 0; j < TILE; j++) {
      bool hidden = (j > last) | (j < first);
      float x = replace_if(hidden, 0, vexp(pr[j] * s->scale - lse));
      dr[j] = x * (dr[j] - delta) * s->scale;
      pr[j] = x;
    }
  }
}

/* One key tile against the query tiles of one head. */
INLINE void key_tile(const Task *w, const KernelArgs *a, const Heads *s, const Room *m,
                     int64_t tile, DType t) {
  TileHead k, v;
  TileTurned kt, vt;
  TileScores p, ds;
  Queries q;
  int64_t k0 = tile * TILE;
  int n = (int)MIN(TILE, s->t - k0), d = s->d, ld = s->ld;
  load_head(k, &a->in[K], t, s, w->b, w->kv, k0, n);
  load_head(v, &a->in[V], t, s, w->b, w->kv, k0, n);
  turn_head(kt, k, s, n);
  turn_head(vt, v, s, n);
  for (int64_t i = MAX(tile, w->q0); i < w->q1; i++) {
    queries_of(s, w->b, i, &q);
    if (!sees_some(&q, k0, n)) continue;
    const float *x = m->q + q.first * ld, *g = m->d + q.first * ld;
    tile_mul(q.n, TILE, d, (Strided){x, ld, 1}, kt, TILE, p, TILE, false);
    tile_mul(q.n, TILE, d, (Strided){g, ld, 1}, vt, TILE, ds, TILE, false);
    probabilities(p, ds, k0, s, &q, m);
    bool diagonal = i == tile;
    if (w->dq)
      mul_seen(diagonal, false, q.n, d, n, (Strided){ds, TILE, 1}, k, ld,
               m->dq + q.first * ld, ld);
    if (w->dkv) {
      mul_seen(diagonal, true, n, d, q.n, (Strided){ds, 1, TILE}, x, ld, m->dk + k0 * ld, ld);
      mul_seen(diagonal, true, n, d, q.n, (Strided){p, 1, TILE}, g, ld, m->dv + k0 * ld, ld);
    }
  }
}

static void clear(float *x, const Heads *s, int64_t tile0, int64_t tile1) {
  memset(x + tile0 * TILE * s->ld, 0,
         (size_t)((tile1 - tile0) * TILE * s->ld) * sizeof *x);
}

INLINE void store(const KTensor *x, const float *from, const Heads *s, int64_t b,
                  int64_t h, int64_t tile0, int64_t tile1, DType t) {
  int64_t r0 = tile0 * TILE, r1 = MIN(tile1 * TILE, s->t);
  store_head(x, t, from + r0 * s->ld, s, b, h, r0, (int)(r1 - r0));
}

INLINE void work(const Task *w, const KernelArgs *a, const Heads *s, const Room *m,
                 DType t) {
  if (w->dkv) {
    clear(m->dk, s, w->k0, w->k1);
    clear(m->dv, s, w->k0, w->k1);
  }
  for (int64_t h = w->h0; h < w->h1; h++) {
    for (int64_t i = w->q0; i < w->q1; i++) load_queries(m, a, s, w->b, h, i, t);
    if (w->dq) clear(m->dq, s, w->q0, w->q1);
    for (int64_t i = w->k0; i < w->k1; i++) key_tile(w, a, s, m, i, t);
    if (w->dq) store(&a->out[0], m->dq, s, w->b, h, w->q0, w->q1, t);
  }
  if (w->dkv) {
    store(&a->out[1], m->dk, s, w->b, w->kv, w->k0, w->k1, t);
    store(&a->out[2], m->dv, s, w->b, w->kv, w->k0, w->k1, t);
  }
}

/* The three ways to share out: whole kv heads, query tiles, key tiles. */
typedef enum { WHOLE, QUERY_TILES, KEY_TILES } Share;

static int64_t items_of(const Heads *s, Share share) {
  return share == WHOLE         ? s->b * s->k
         : share == QUERY_TILES ? s->b * s->h * s->tiles
                                : s->b * s->k * s->tiles;
}

static Task task_of(const Heads *s, Share share, int64_t i) {
  int64_t group = s->h / s->k, tile = share == WHOLE ? 0 : i % s->tiles;
  if (share != WHOLE) i /= s->tiles;
  if (share == QUERY_TILES)
    return (Task){.b = i / s->h, .h0 = i % s->h, .h1 = i % s->h + 1,
                  .kv = i % s->h / group, .q0 = tile, .q1 = tile + 1, .k0 = 0,
                  .k1 = tile + 1, .dq = true};
  return (Task){.b = i / s->k, .h0 = i % s->k * group, .h1 = (i % s->k + 1) * group,
                .kv = i % s->k, .q0 = tile, .q1 = s->tiles, .k0 = tile,
                .k1 = share == WHOLE ? s->tiles : tile + 1, .dq = share == WHOLE,
                .dkv = true};
}

/* Part `t` of `team` of the items. */
static void share_out(const KernelArgs *a, const Heads *s, Share share, int t, int team) {
  int64_t n = items_of(s, share);
  Room m = room_of(s, (float *)a->state + (size_t)t * room_floats(s));
  for (int64_t i = n * t / team; i < n * (t + 1) / team; i++) {
    Task w = task_of(s, share, i);
    if (a->in[Q].dtype == DT_F32)
      work(&w, a, s, &m, DT_F32);
    else
      work(&w, a, s, &m, DT_BF16);
  }
}

static void all_threads(const KernelArgs *a, const Heads *s, Share share) {
  int parts = (int)MIN(a->threads, items_of(s, share));
  if (parts <= 1) {
    share_out(a, s, share, 0, 1);
    return;
  }
#pragma omp parallel num_threads(parts)
  share_out(a, s, share, omp_get_thread_num(), omp_get_num_threads());
}

void cpu_attention_dx(const KernelArgs *a) {
  Heads s = heads_of(a, STARTS);
  if (items_of(&s, WHOLE) >= a->threads) {
    all_threads(a, &s, WHOLE);
  } else {
    all_threads(a, &s, QUERY_TILES);
    all_threads(a, &s, KEY_TILES);
  }
}

weft_status prepare_attention_dx(KernelArgs *a, weft_error *e) {
  TRY(prepare_attention(a, e));
  Heads s = heads_of(a, STARTS);
  size_t bytes = (size_t)a->threads * room_floats(&s) * sizeof(float);
  a->state = mem_new(NULL, bytes);
  if (!a->state)
    return err_set(e, WEFT_ENOMEM, "no memory for %zu bytes of attention's gradients",
                   bytes);
  return WEFT_OK;
}

void release_attention_dx(KernelArgs *a) {
  Heads s = heads_of(a, STARTS);
  mem_free(NULL, a->state, (size_t)a->threads * room_floats(&s) * sizeof(float));
  a->state = NULL;
}
