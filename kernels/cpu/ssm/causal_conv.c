/* causal_conv.c - the convolution of each feature over the tokens up to its own, K of
 * them, and its gradients. Tokens before the first one of the document are not seen. */
#include "kernels/cpu/kernel.h"

/* Where the document of token t begins, in its sequence; `starts` may be NULL. */
INLINE int64_t begins(const KTensor *starts, int64_t row) {
  return starts ? ((const int32_t *)starts->p)[row] : 0;
}
INLINE const KTensor *starts_at(const KernelArgs *a, int i) {
  return a->nin > i ? &a->in[i] : NULL;
}

INLINE void causal_conv(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t T = a->in[0].dim[1], C = last_dim(&a->in[0]), K = last_dim(&a->in[1]);
  const KTensor *starts = starts_at(a, 2);
  for (int64_t r = lo; r < hi; r++) {
    int64_t at = r % T, least = begins(starts, r);
    int64_t seen = MIN(K, at - least + 1);
    for (int64_t c = 0; c < C; c++) {
      float sum = 0;
      for (int64_t k = 0; k < seen; k++)
        sum +=
            get(a->in[1].p, t, c * K + K - 1 - k) * get(a->in[0].p, t, (r - k) * C + c);
      put(a->out[0].p, t, r * C + c, sum);
    }
  }
}
BY_TYPE(causal_conv, in[0])

void cpu_causal_conv(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->in[0], causal_conv_part);
}

/* A token has been seen by those up to K - 1 further on that are of its document. */
INLINE void causal_conv_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t T = a->in[1].dim[1], C = last_dim(&a->in[1]), K = last_dim(&a->in[0]);
  const KTensor *starts = starts_at(a, 2);
  for (int64_t r = lo; r < hi; r++) {
    int64_t at = r % T, seen = 1;
    while (seen < K && at + seen < T && begins(starts, r + seen) <= at) seen++;
    for (int64_t c = 0; c < C; c++) {
      float sum = 0;
      for (int64_t k = 0; k < seen; k++)
        sum +=
            get(a->in[0].p, t, c * K + K - 1 - k) * get(a->in[1].p, t, (r + k) * C + c);
      put(a->out[0].p, t, r * C + c, sum);
    }
  }
}
BY_TYPE(causal_conv_dx, in[1])

void cpu_causal_conv_dx(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->in[1], causal_conv_dx_part);
}

/* Threads own features; sums over blocks of tokens, of which then the sum. */
INLINE void causal_conv_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { BLOCK = 64, TILE = 64 };
  int64_t T = a->in[0].dim[1], C = last_dim(&a->in[0]), K = last_dim(&a->out[0]);
  int64_t n = rows_of(&a->in[0]);
  const KTensor *starts = starts_at(a, 2);
  for (int64_t c0 = lo; c0 < hi; c0 += TILE)
    for (int64_t k = 0; k < K; k++) {
      int w = (int)MIN(TILE, hi - c0);
      float total[TILE] = {0};
      for (int64_t r0 = 0; r0 < n; r0 += BLOCK) {
        float sum[TILE] = {0};
        for (int64_t r = r0; r < MIN(n, r0 + BLOCK); r++) {
          if (r % T - k < begins(starts, r)) continue;
          const void *x = at(a->in[0].p, t, (r - k) * C + c0);
          const void *dy = at(a->in[1].p, t, r * C + c0);
#pragma omp simd
          for (int i = 0; i < w; i++) sum[i] += get(x, t, i) * get(dy, t, i);
        }
        for (int i = 0; i < w; i++) total[i] += sum[i];
      }
      for (int i = 0; i < w; i++)
        put_gradient(&a->out[0], (c0 + i) * K + K - 1 - k, total[i], a->accumulate);
    }
}
BY_TYPE(causal_conv_dw, in[0])

void cpu_causal_conv_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, last_dim(&a->in[0]), COLUMN_GRAIN, causal_conv_dw_part);
}
