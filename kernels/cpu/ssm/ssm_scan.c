/* ssm_scan.c - the scan of Mamba-2, and its gradient, a chunk of tokens at a time
 * (arXiv:2405.21060, section 6): in a chunk, products between its tokens as in attention,
 * with exp of the sum of a between them in the place of a softmax; between chunks the
 * state (P,N) of a head. The gradient first computes the states at the beginnings of
 * chunks again.
 *
 * With u = d x, c[i] the sum of a up to token i of a chunk, E[i,j] = exp(c[i] - c[j]) and
 * S the state before it: y[i] = sum over j <= i of E[i,j] (C[i] B[j]) u[j] + exp(c[i]) S
 * C[i] + D x[i] S'   = exp(c[last]) S + sum over j of E[last,j] u[j] B[j]^T Tokens of
 * other documents, and a state of one, are left out. Sums of a are in f64: the exponent
 * is a difference of two. */
#include "ssm.h"

typedef struct Chunk {
  int64_t row, first; /* of its first token: among all rows, in the sequence */
  int n;              /* tokens */
  double c[SSM_CHUNK];
  int from[SSM_CHUNK];    /* the first token of the chunk that is of the document */
  bool before[SSM_CHUNK]; /* whether the document began before the chunk */
  float d[SSM_CHUNK];
  float *u, *x, *dy, *du;      /* (n,P) */
  float *b, *cc, *to_b, *to_c; /* B, C and their gradients: (n,N) */
} Chunk;

/* Rooms of a chunk, behind `room`. */
static void chunk_rooms(Chunk *k, const Scan *s, float *room) {
  int64_t p = SSM_CHUNK * s->p, n = SSM_CHUNK * s->n;
  k->u = room, k->x = k->u + p, k->dy = k->x + p, k->du = k->dy + p;
  k->b = k->du + p, k->cc = k->b + n, k->to_b = k->cc + n, k->to_c = k->to_b + n;
}

/* Reads chunk number `i` of head h of sequence b. */
INLINE void chunk_read(Chunk *k, const KernelArgs *a, const Scan *s, int starts,
                       int64_t b, int64_t h, int64_t i, DType t) {
  const float *d = a->in[1].p, *left = a->in[2].p;
  const int32_t *begin = a->nin > starts ? a->in[starts].p : NULL;
  int64_t group = h / (s->h / s->g);
  double sum = 0;
  k->first = i * SSM_CHUNK;
  k->n = (int)MIN(SSM_CHUNK, s->t - k->first);
  k->row = b * s->t + k->first;
  for (int j = 0; j < k->n; j++) {
    int64_t r = k->row + j, start = begin ? begin[r] : 0;
    k->before[j] = start < k->first;
    k->from[j] = k->before[j] ? 0 : (int)(start - k->first);
    k->c[j] = sum += (double)left[r * s->h + h];
    k->d[j] = d[r * s->h + h];
    const void *x = at(a->in[0].p, t, (r * s->h + h) * s->p);
    for (int64_t e = 0; e < s->p; e++) {
      k->x[j * s->p + e] = get(x, t, e);
      k->u[j * s->p + e] = k->d[j] * get(x, t, e);
    }
    const void *B = at(a->in[3].p, t, (r * s->g + group) * s->n);
    const void *C = at(a->in[4].p, t, (r * s->g + group) * s->n);
    for (int64_t e = 0; e < s->n; e++)
      k->b[j * s->n + e] = get(B, t, e), k->cc[j * s->n + e] = get(C, t, e);
  }
}

INLINE float left_of(const Chunk *k, int i, int j) {
  return (float)exp(k->c[i] - k->c[j]);
}
/* How much of the state before the chunk is left at token i. */
INLINE float left_before(const Chunk *k, int i) {
  return k->before[i] ? (float)exp(k->c[i]) : 0;
}

INLINE float dot(const float *a, const float *b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}
INLINE void add_scaled(float *to, float by, const float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] += by * x[i];
}
INLINE void zero(float *x, int64_t n) { memset(x, 0, sizeof(float) * (size_t)n); }

/* The state after the chunk, in the place of that before it. */
static void next_state(const Chunk *k, const Scan *s, float *state) {
  int end = k->n - 1;
  float keep = left_before(k, end);
  for (int64_t i = 0; i < s->p * s->n; i++) state[i] *= keep;
  for (int j = k->from[end]; j < k->n; j++) {
    float e = left_of(k, end, j);
    for (int64_t p = 0; p < s->p; p++)
      add_scaled(state + p * s->n, e * k->u[j * s->p + p], k->b + j * s->n, s->n);
  }
}

/* ---- forward ---- */

INLINE void chunk_forward(const Chunk *k, const KernelArgs *a, const Scan *s, int64_t h,
                          const float *state, float *y, DType t) {
  float D = get(a->in[5].p, t, h);
  for (int i = 0; i < k->n; i++) {
    const float *c = k->cc + i * s->n;
    float before = left_before(k, i);
    for (int64_t p = 0; p < s->p; p++) y[p] = D * k->x[i * s->p + p];
    for (int64_t p = 0; p < s->p && k->before[i]; p++)
      y[p] += before * dot(state + p * s->n, c, s->n);
    for (int j = k->from[i]; j <= i; j++)
      add_scaled(y, left_of(k, i, j) * dot(c, k->b + j * s->n, s->n), k->u + j * s->p,
                 s->p);
    void *to = at(a->out[0].p, t, ((k->row + i) * s->h + h) * s->p);
    for (int64_t p = 0; p < s->p; p++) put(to, t, p, y[p]);
  }
}

/* Items are heads of sequences. */
INLINE void ssm_scan(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  Scan s = scan_of(a);
  for (int64_t item = lo; item < hi; item++) {
    float *state = (float *)a->work + item * scan_floats(&s, false);
    Chunk k;
    chunk_rooms(&k, &s, state + s.p * s.n);
    zero(state, s.p * s.n);
    for (int64_t i = 0; i < s.chunks; i++) {
      chunk_read(&k, a, &s, 6, item / s.h, item % s.h, i, t);
      chunk_forward(&k, a, &s, item % s.h, state, k.du, t);
      next_state(&k, &s, state);
    }
  }
}
BY_TYPE(ssm_scan, in[0])

void cpu_ssm_scan(Device *dev, const KernelArgs *a) {
  Scan s = scan_of(a);
  each_part(dev, a, s.b * s.h, 1, ssm_scan_part);
}

/* ---- backward ---- results are dx, dd, da, dB, dC; operand 6 is dy */

/* du, dB and dC of the chunk, and what each sum c[i] gets. `after` is the gradient of the
 * state after the chunk. */
static void chunk_backward(const Chunk *k, const Scan *s, const float *state,
                           const float *after, double *dc) {
  int end = k->n - 1;
  float *du = k->du;
  zero(du, k->n * s->p);
  zero(k->to_b, k->n * s->n);
  zero(k->to_c, k->n * s->n);
  for (int i = 0; i < k->n; i++) dc[i] = 0;
  for (int i = 0; i < k->n; i++) {
    const float *c = k->cc + i * s->n, *dy = k->dy + i * s->p;
    for (int j = k->from[i]; j <= i; j++) {
      const float *b = k->b + j * s->n;
      float e = left_of(k, i, j), score = dot(c, b, s->n);
      float w = e * dot(dy, k->u + j * s->p, s->p);
      add_scaled(du + j * s->p, e * score, dy, s->p);
      add_scaled(k->to_b + j * s->n, w, c, s->n);
      add_scaled(k->to_c + i * s->n, w, b, s->n);
      if (j < i) dc[i] += (double)(w * score), dc[j] -= (double)(w * score);
    }
    if (!k->before[i]) continue;
    float e = left_before(k, i), got = 0;
    for (int64_t p = 0; p < s->p; p++) {
      got += dy[p] * dot(state + p * s->n, c, s->n);
      add_scaled(k->to_c + i * s->n, e * dy[p], state + p * s->n, s->n);
    }
    dc[i] += (double)(e * got);
  }
  if (k->before[end])
    dc[end] += (double)(left_before(k, end) * dot(after, state, s->p * s->n));
  for (int j = k->from[end]; j < k->n; j++) {
    float e = left_of(k, end, j), got = 0;
    for (int64_t p = 0; p < s->p; p++) {
      float x = dot(after + p * s->n, k->b + j * s->n, s->n);
      got += k->u[j * s->p + p] * x;
      du[j * s->p + p] += e * x;
      add_scaled(k->to_b + j * s->n, e * k->u[j * s->p + p], after + p * s->n, s->n);
    }
    if (j < end) dc[end] += (double)(e * got), dc[j] -= (double)(e * got);
  }
}

/* The gradient of the state before the chunk, in the place of that after it. */
static void state_before(const Chunk *k, const Scan *s, float *after) {
  float keep = left_before(k, k->n - 1);
  for (int64_t i = 0; i < s->p * s->n; i++) after[i] *= keep;
  for (int i = 0; i < k->n && k->before[i]; i++) {
    float e = left_before(k, i);
    for (int64_t p = 0; p < s->p; p++)
      add_scaled(after + p * s->n, e * k->dy[i * s->p + p], k->cc + i * s->n, s->n);
  }
}

/* Writes dx, dd and da: a[i] is in the sums of its document from c[i] on. */
INLINE void chunk_write(const Chunk *k, const KernelArgs *a, const Scan *s, int64_t h,
                        const double *dc, DType t) {
  float D = get(a->in[5].p, t, h), *dd = a->out[1].p, *da = a->out[2].p;
  double sum = 0;
  for (int i = k->n - 1; i >= 0; i--) {
    int64_t r = (k->row + i) * s->h + h;
    void *dx = at(a->out[0].p, t, r * s->p);
    for (int64_t p = 0; p < s->p; p++)
      put(dx, t, p, k->d[i] * k->du[i * s->p + p] + D * k->dy[i * s->p + p]);
    dd[r] = dot(k->x + i * s->p, k->du + i * s->p, s->p);
    sum += dc[i];
    bool begins = !k->before[i] && k->from[i] == i;
    da[r] = begins ? 0 : (float)sum;
    if (begins) sum = 0;
  }
}

/* Chunk i of head h with dy; adds to dB and dC of all tokens of its group. */
INLINE void chunk_gradients(Chunk *k, const KernelArgs *a, const Scan *s, int64_t h,
                            const float *state, float *after, float *dB, float *dC,
                            DType t) {
  double dc[SSM_CHUNK];
  for (int j = 0; j < k->n; j++)
    for (int64_t p = 0; p < s->p; p++)
      k->dy[j * s->p + p] = get(a->in[6].p, t, ((k->row + j) * s->h + h) * s->p + p);
  chunk_backward(k, s, state, after, dc);
  add_scaled(dB + k->first * s->n, 1, k->to_b, k->n * s->n);
  add_scaled(dC + k->first * s->n, 1, k->to_c, k->n * s->n);
  chunk_write(k, a, s, h, dc, t);
  state_before(k, s, after);
}

/* All heads of group g of sequence b: first the states at the beginnings of chunks, then
 * chunks from the last one on. dB and dC of the group are added up in f32. */
INLINE void group_backward(const KernelArgs *a, const Scan *s, int64_t b, int64_t g,
                           float *room, DType t) {
  int64_t each = s->h / s->g, state = s->p * s->n, all = s->t * s->n;
  float *before = room, *after = before + s->chunks * state, *dB = after + state;
  float *dC = dB + all;
  Chunk k;
  chunk_rooms(&k, s, dC + all);
  zero(dB, 2 * all);
  for (int64_t h = g * each; h < (g + 1) * each; h++) {
    zero(before, state);
    for (int64_t i = 0; i + 1 < s->chunks; i++) {
      float *next = before + (i + 1) * state;
      chunk_read(&k, a, s, 7, b, h, i, t);
      memcpy(next, next - state, sizeof(float) * (size_t)state);
      next_state(&k, s, next);
    }
    zero(after, state);
    for (int64_t i = s->chunks - 1; i >= 0; i--) {
      chunk_read(&k, a, s, 7, b, h, i, t);
      chunk_gradients(&k, a, s, h, before + i * state, after, dB, dC, t);
    }
  }
  for (int64_t r = 0; r < s->t; r++)
    for (int64_t n = 0; n < s->n; n++) {
      int64_t to = ((b * s->t + r) * s->g + g) * s->n + n;
      put(a->out[3].p, t, to, dB[r * s->n + n]);
      put(a->out[4].p, t, to, dC[r * s->n + n]);
    }
}

/* Items are groups of sequences. */
INLINE void ssm_scan_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  Scan s = scan_of(a);
  for (int64_t i = lo; i < hi; i++)
    group_backward(a, &s, i / s.g, i % s.g, (float *)a->work + i * scan_floats(&s, true),
                   t);
}
BY_TYPE(ssm_scan_dx, in[0])

void cpu_ssm_scan_dx(Device *dev, const KernelArgs *a) {
  Scan s = scan_of(a);
  each_part(dev, a, s.b * s.g, 1, ssm_scan_dx_part);
}

/* Threads own heads; sums of rows, of which then the sum of blocks. */
INLINE void ssm_scan_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { BLOCK = 64 };
  int64_t heads = last_dim(&a->out[0]), p = last_dim(&a->in[0]) / heads;
  int64_t n = rows_of(&a->in[0]);
  for (int64_t h = lo; h < hi; h++) {
    float total = 0;
    for (int64_t r0 = 0; r0 < n; r0 += BLOCK) {
      float sum = 0;
      for (int64_t r = r0; r < MIN(n, r0 + BLOCK); r++) {
        const void *x = at(a->in[0].p, t, (r * heads + h) * p);
        const void *dy = at(a->in[1].p, t, (r * heads + h) * p);
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < p; i++) sum += get(x, t, i) * get(dy, t, i);
      }
      total += sum;
    }
    put_gradient(&a->out[0], h, total, a->accumulate);
  }
}
BY_TYPE(ssm_scan_dw, in[0])

void cpu_ssm_scan_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, last_dim(&a->out[0]), 1, ssm_scan_dw_part);
}
