/* attention.c - causal attention forward, tile by tile with an online softmax (as in
 * FlashAttention, arXiv:2205.14135).
 *
 * Scores are transposed, (keys, queries): vector lanes are queries, so maxima and sums
 * over keys need no work across lanes. A work item is (batch, head, query tile).
 *
 * In ring attention this is one step: it continues from the steps before. */
#include "attention.h"

enum { Q, K, V, O, LSE, STARTS, STARTS_FIRST = O }; /* operands */

typedef struct Running {
  float max[TILE], sum[TILE];
} Running;

/* Continues from lse, taken as a maximum with a sum of 1; begins so with the sink of the
 * head, if there are sinks. */
INLINE void begin(const KernelArgs *a, const Heads *s, const Queries *q, int64_t h,
                  Running *run, float *o) {
  bool on = goes_on(a);
  const KTensor *sinks = on ? NULL : kernel_sinks(a, STARTS_FIRST);
  float most = sinks ? get(sinks->p, sinks->dtype, s->first_head + h) : -INFINITY;
  for (int i = 0; i < TILE; i++) run->max[i] = most, run->sum[i] = on || sinks;
  if (on)
    load_head(o, &a->in[O], s->v, q->b, h, q->row, q->n);
  else
    memset(o, 0, (size_t)(q->n * s->v.ld) * sizeof *o);
  for (int i = 0; i < q->n && on; i++)
    run->max[i] = ((const float *)a->in[LSE].p)[(q->b * s->t + q->row + i) * s->h + h];
}

/* Turns scores (n keys, TILE queries) into probabilities relative to the new maximum, and
 * returns in `fade` what the earlier ones are multiplied by. */
INLINE void softmax_step(float *s, const Heads *hd, const Queries *q, const KeyRows *k,
                         Running *run, float *fade) {
  float most[TILE], sum[TILE] = {0};
  bool all = sees_all(q, k);
  int n = k->in.n;
  float scale = hd->scale, cap = hd->cap;
  for (int i = 0; i < n * TILE && cap > 0; i++) s[i] = capped(s[i] * scale, cap);
  if (cap > 0) scale = 1;
  memcpy(most, run->max, sizeof most);
  for (int j = 0; j < n; j++) {
    float *row = s + j * TILE;
    int32_t key = k->at[j];
    if (all) {
#pragma omp simd
      for (int i = 0; i < TILE; i++) row[i] *= scale;
    } else {
#pragma omp simd
      for (int i = 0; i < TILE; i++) {
        float x = row[i] * scale;
        row[i] = replace_if((key > q->at[i]) | (key < q->start[i]), -INFINITY, x);
      }
    }
#pragma omp simd
    for (int i = 0; i < TILE; i++) most[i] = row[i] > most[i] ? row[i] : most[i];
  }
  float base[TILE]; /* the maximum is -inf for a query without a visible key so far */
#pragma omp simd
  for (int i = 0; i < TILE; i++) {
    base[i] = replace_if(most[i] == -INFINITY, 0, most[i]);
    fade[i] = vexp(run->max[i] - base[i]);
  }
  for (int j = 0; j < n; j++) {
    float *row = s + j * TILE;
#pragma omp simd
    for (int i = 0; i < TILE; i++) {
      row[i] = vexp(row[i] - base[i]);
      sum[i] += row[i];
    }
  }
  for (int i = 0; i < TILE; i++) run->sum[i] = run->sum[i] * fade[i] + sum[i];
  memcpy(run->max, most, sizeof most);
}

/* Drops probabilities (keys, queries); their sum stays that of all. */
INLINE void drop(float *p, const Heads *s, const Queries *q, const KeyRows *k,
                 int64_t h) {
  TileScores factor;
  drop_tile(s, q, k, h, factor);
#pragma omp simd
  for (int i = 0; i < k->in.n * TILE; i++) p[i] *= factor[i];
}

INLINE void item(const KernelArgs *a, const Heads *s, int64_t b, int64_t h,
                 int64_t tile) {
  TileHead x, o;
  TileTurned qt;
  TileScores p;
  Queries q;
  Running run;
  float fade[TILE];
  int64_t kv = h * s->k / s->h;
  queries_of(s, b, tile, &q);
  load_head(x, &a->in[Q], s->qk, b, h, q.row, q.n);
  turn_head(qt, x, s->qk, q.n);
  begin(a, s, &q, h, &run, o);
  for (int64_t y = 0; y < s->key_tiles; y++) {
    KeyRows keys;
    if (!reaches(s, tile, y)) continue;
    keys_of(s, b, y, &keys);
    if (!sees_some(&q, &keys)) continue;
    Span k = keys.in;
    load_head(x, &a->in[K], s->qk, b, kv, k.row, k.n);
    tile_mul(k.n, TILE, s->qk.d, (Strided){x, s->qk.ld, 1}, qt, TILE, p, TILE, false);
    softmax_step(p, s, &q, &keys, &run, fade);
    if (s->numbers) drop(p, s, &q, &keys, h);
    for (int i = 0; i < q.n; i++)
      for (int j = 0; j < s->v.ld; j++) o[i * s->v.ld + j] *= fade[i];
    load_head(x, &a->in[V], s->v, b, kv, k.row, k.n);
    mul_seen(on_diagonal(s, &q, &keys), false, q.n, s->v.d, k.n, (Strided){p, 1, TILE}, x,
             s->v.ld, o, s->v.ld);
  }
  float *lse = a->out[1].p;
  for (int i = 0; i < q.n; i++) {
    float scale = 1.0f / run.sum[i];
    for (int j = 0; j < s->v.ld; j++) o[i * s->v.ld + j] *= scale;
    lse[(b * s->t + q.row + i) * s->h + h] = run.max[i] + logf(run.sum[i]);
  }
  store_head(&a->out[0], o, s->v, b, h, q.row, q.n);
}

INLINE Heads heads(const KernelArgs *a) {
  Heads s = heads_of(a, goes_on(a) ? STARTS : STARTS_FIRST);
  assert(MAX(s.qk.d, s.v.d) <= HEAD_MAX);
  return s;
}

static void attention_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  Heads s = heads(a);
  for (int64_t i = lo; i < hi; i++)
    item(a, &s, i / (s.h * s.tiles), i / s.tiles % s.h, i % s.tiles);
}

void cpu_attention(Device *dev, const KernelArgs *a) {
  Heads s = heads(a);
  each_part(dev, a, s.b * s.h * s.tiles, 1, attention_part);
}

void cpu_attention_part(Device *dev, const KernelArgs *a) { cpu_attention(dev, a); }

/* The kernels have no state; this checks what they can do. */
weft_status prepare_attention(Device *dev, KernelArgs *a, weft_error *e) {
  int most = MAX(a->attr->head_dim, a->attr->value_dim);
  if (most > HEAD_MAX)
    return err_set(e, WEFT_EPLAN, "head_dim = %d: attention on the CPU takes at most %d",
                   most, HEAD_MAX);
  return WEFT_OK;
}
