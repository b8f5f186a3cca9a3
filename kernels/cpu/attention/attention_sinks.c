/* attention_sinks.c - the gradient of the sinks of attention: a sink takes its
 * probability, exp(sink - lse), from the other keys, and has no value of its own. */
#include "attention.h"

enum { SINKS, O, LSE, DO }; /* operands */

/* Threads own heads; rows are summed in blocks, so that errors grow slowly. */
INLINE void attention_sinks_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { BLOCK = 64 };
  int64_t here = last_dim(&a->in[LSE]), rows = rows_of(&a->in[LSE]);
  int64_t first = a->heads_index * here, e = last_dim(&a->in[O]) / here;
  const float *lse = a->in[LSE].p;
  for (int64_t all = lo; all < hi; all++) {
    int64_t h = all - first;
    float sink = get(a->in[SINKS].p, t, all), total = 0;
    for (int64_t r0 = 0; r0 < rows && h >= 0 && h < here; r0 += BLOCK) {
      float sum = 0;
      for (int64_t r = r0; r < MIN(rows, r0 + BLOCK); r++) {
        const void *o = at(a->in[O].p, t, (r * here + h) * e);
        const void *dy = at(a->in[DO].p, t, (r * here + h) * e);
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < e; i++) dot += get(o, t, i) * get(dy, t, i);
        sum -= expf(sink - lse[r * here + h]) * dot;
      }
      total += sum;
    }
    put_gradient(&a->out[0], all, total, a->accumulate);
  }
}
BY_TYPE(attention_sinks_dw, in[0])

void cpu_attention_sinks_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, last_dim(&a->in[SINKS]), 1, attention_sinks_dw_part);
}
