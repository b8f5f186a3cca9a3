/* heads.c - joins and splits heads that consist of two parts (as in latent attention):
 * interleaved per head, or each part of all heads in a tensor of its own. The second part
 * may be shared by all heads; its gradient is the sum over them, in order. */
#include "kernels/cpu/kernel.h"

/* Rows of `heads` heads: whole(rows,H*(p+q)), first(rows,H*p), second(rows,H*q) or, if it
 * is shared, (rows,q). */
typedef struct Parts {
  const KTensor *whole, *first, *second;
  int64_t heads, p, q;
  bool shared;
} Parts;

static Parts parts_of(const KernelArgs *a, const KTensor *whole, const KTensor *first,
                      const KTensor *second) {
  int64_t d = a->attr->head_dim, heads = last_dim(whole) / d, p = a->attr->head_part;
  assert(last_dim(first) == heads * p);
  return (Parts){.whole = whole,
                 .first = first,
                 .second = second,
                 .heads = heads,
                 .p = p,
                 .q = d - p,
                 .shared = last_dim(second) != heads * (d - p)};
}

static Parts split_of(const KernelArgs *a) {
  return parts_of(a, &a->in[0], &a->out[0], &a->out[1]);
}
static Parts join_of(const KernelArgs *a) {
  return parts_of(a, &a->out[0], &a->in[0], &a->in[1]);
}

/* Head h of row r: its parts in the joined and in the separate tensors. */
typedef struct At {
  char *whole[2], *alone[2];
} At;

static At head_at(const Parts *s, size_t es, int64_t r, int64_t h) {
  int64_t i = r * s->heads + h;
  char *whole = (char *)s->whole->p + (size_t)(i * (s->p + s->q)) * es;
  return (At){
      .whole = {whole, whole + (size_t)s->p * es},
      .alone = {(char *)s->first->p + (size_t)(i * s->p) * es,
                (char *)s->second->p + (size_t)((s->shared ? r : i) * s->q) * es}};
}

static void join_heads_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  Parts s = join_of(a);
  size_t es = (size_t)dtype_size(s.whole->dtype);
  for (int64_t r = lo; r < hi; r++)
    for (int64_t h = 0; h < s.heads; h++) {
      At x = head_at(&s, es, r, h);
      memcpy(x.whole[0], x.alone[0], (size_t)s.p * es);
      memcpy(x.whole[1], x.alone[1], (size_t)s.q * es);
    }
}

/* The second part of row r, summed over heads. */
INLINE void sum_heads(const Parts *s, int64_t r, DType t) {
  enum { TILE = 64 };
  size_t es = t == DT_F32 ? 4 : 2;
  for (int64_t i0 = 0; i0 < s->q; i0 += TILE) {
    int w = (int)MIN(TILE, s->q - i0);
    float sum[TILE] = {0};
    for (int64_t h = 0; h < s->heads; h++) {
      const void *x = at(head_at(s, es, r, h).whole[1], t, i0);
#pragma omp simd
      for (int i = 0; i < w; i++) sum[i] += get(x, t, i);
    }
    void *y = at(head_at(s, es, r, 0).alone[1], t, i0);
    for (int i = 0; i < w; i++) put(y, t, i, sum[i]);
  }
}

INLINE void split_heads(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  Parts s = split_of(a);
  size_t es = t == DT_F32 ? 4 : 2;
  for (int64_t r = lo; r < hi; r++) {
    for (int64_t h = 0; h < s.heads; h++) {
      At x = head_at(&s, es, r, h);
      memcpy(x.alone[0], x.whole[0], (size_t)s.p * es);
      if (!s.shared) memcpy(x.alone[1], x.whole[1], (size_t)s.q * es);
    }
    if (s.shared) sum_heads(&s, r, t);
  }
}
BY_TYPE(split_heads, in[0])

void cpu_split_heads(Device *dev, const KernelArgs *a) {
  const KTensor *x = &a->in[0];
  each_row(dev, a, x, split_heads_part);
}

void cpu_join_heads(Device *dev, const KernelArgs *a) {
  const KTensor *y = &a->out[0];
  each_row(dev, a, y, join_heads_part);
}
