/* attention_step.c - attention of one query over the KV cache of all positions up to its
 * own, after appending its own key and value. A work item is (batch, kv head) with all
 * query heads that share it, so no two threads touch the same rows. */
#include "attention.h"

enum { SINKS = 4 }; /* operand */

typedef struct Step {
  int64_t b, h, k, rows; /* batch, heads, kv heads, rows of the cache */
  int d[2];              /* sizes of a head: of q and k; of v and o */
  float scale, cap;
  int64_t window; /* 0: all rows up to the position */
} Step;

INLINE Step step_of(const KernelArgs *a) {
  int d = a->attr->head_dim, dv = attr_value_dim(a->attr);
  assert(a->in[0].dim[1] == 1 && MAX(d, dv) <= HEAD_MAX);
  return (Step){.b = a->in[0].dim[0],
                .h = a->in[0].dim[2] / d,
                .k = a->in[1].dim[2] / d,
                .rows = a->out[1].dim[1],
                .d = {d, dv},
                .scale = a->attr->scale,
                .cap = a->attr->soft_cap,
                .window = a->attr->window};
}

/* Head h of row r of sequence b of the cache: keys (0) or values (1). */
INLINE const void *row_of(const Step *s, const KernelArgs *a, int what, DType t,
                          int64_t b, int64_t r, int64_t h) {
  return at(a->out[1 + what].p, t, ((b * s->rows + r) * s->k + h) * s->d[what]);
}

/* One query head over rows 0..pos, or a window of them, with a running softmax. */
INLINE void one_head(const KernelArgs *a, const Step *s, int64_t b, int64_t h,
                     int64_t pos, DType t) {
  const KTensor *sinks = kernel_sinks(a, SINKS);
  int64_t kv = h * s->k / s->h, head = b * s->h + h, of_all = a->heads_index * s->h + h;
  float q[HEAD_MAX], o[HEAD_MAX] = {0}, sum = sinks ? 1 : 0;
  float most = sinks ? get(sinks->p, t, of_all) : -INFINITY;
  for (int j = 0; j < s->d[0]; j++)
    q[j] = get(a->in[0].p, t, head * s->d[0] + j) * s->scale;
  for (int64_t r = s->window ? MAX(0, pos + 1 - s->window) : 0; r <= pos; r++) {
    const void *k = row_of(s, a, 0, t, b, r, kv);
    const void *v = row_of(s, a, 1, t, b, r, kv);
    float x = 0;
#pragma omp simd reduction(+ : x)
    for (int j = 0; j < s->d[0]; j++) x += q[j] * get(k, t, j);
    if (s->cap > 0) x = capped(x, s->cap);
    float top = x > most ? x : most, fade = expf(most - top), p = expf(x - top);
#pragma omp simd
    for (int j = 0; j < s->d[1]; j++) o[j] = o[j] * fade + p * get(v, t, j);
    sum = sum * fade + p;
    most = top;
  }
  for (int j = 0; j < s->d[1]; j++) put(a->out[0].p, t, head * s->d[1] + j, o[j] / sum);
}

INLINE void attention_step(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  Step s = step_of(a);
  const int32_t *positions = a->in[3].p;
  size_t element = t == DT_F32 ? 4 : 2;
  for (int64_t i = lo; i < hi; i++) {
    int64_t b = i / s.k, kv = i % s.k, pos = positions[b];
    for (int x = 0; x < 2; x++)
      memcpy((void *)row_of(&s, a, x, t, b, pos, kv),
             at(a->in[1 + x].p, t, (b * s.k + kv) * s.d[x]), (size_t)s.d[x] * element);
    for (int64_t h = kv * s.h / s.k; h < (kv + 1) * s.h / s.k; h++)
      one_head(a, &s, b, h, pos, t);
  }
}
BY_TYPE(attention_step, in[0])

void cpu_attention_step(Device *dev, const KernelArgs *a) {
  Step s = step_of(a);
  each_part(dev, a, s.b * s.k, 1, attention_step_part);
}
