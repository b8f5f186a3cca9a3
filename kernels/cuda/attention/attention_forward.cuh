/* attention_forward.cuh - what the kernels of attention forward share: a lane's rows, and
 * the online softmax (as in FlashAttention), where each tile of keys rescales the result
 * of the earlier ones. In ring attention a kernel is one step: it continues from the
 * result of the steps before. */
#ifndef WEFT_CUDA_ATTENTION_FORWARD_H
#define WEFT_CUDA_ATTENTION_FORWARD_H

#include "attention_tile.cuh"

enum { O = 3, LSE, STARTS, STARTS_FIRST = O }; /* operands */

/* The running softmax of a lane's two rows: maximum score, in powers of two, and the
 * lane's part of the sum. */
struct Running {
  float most[2], sum[2];
};

/* A lane's two rows of a group: `first`, and the eighth after it. */
struct Queries {
  int first;
  Row row[2];
  Running run;
};

/* What products are multiplied by, so that scores are powers of two; never negative: the
 * largest score is otherwise that of the smallest product, which `turned` says. */
struct Scale {
  float by;
  bool turned;
};
static __device__ __forceinline__ Scale scale_of(const Heads &s) {
  float by = s.cap > 0 ? LOG2E : s.scale * LOG2E;
  return by < 0 ? Scale{-by, true} : Scale{by, false};
}

/* Of head h. `o0`, `lse0`: from earlier ring steps,
 * or NULL; `sinks`: of the heads of all ranks, or NULL. */
template <int CT, typename T>
__device__ __forceinline__ void
begin_queries(Queries &y, float (&out)[CT][4], const Heads &s, int64_t b, int64_t h,
              int first, const float *o0, const float *lse0, const T *sinks) {
  const int t[2] = {first, first + 8};
  y.first = first;
  UNROLL
  for (int i = 0; i < 2; i++) {
    y.row[i] = query_row(s, b, t[i]);
    y.run.most[i] = -INFINITY, y.run.sum[i] = 0;
    if (lse0 || sinks) y.run.sum[i] = lane_here().member == 0; /* one of the four lanes */
    if (lse0 && t[i] < s.t) y.run.most[i] = lse0[(b * s.t + t[i]) * s.h + h] * LOG2E;
    if (sinks) y.run.most[i] = load(sinks[s.first_head + h]) * LOG2E;
  }
  add_sums(out, slice(o0, b, s.t, h, s.h, s.dv), t, 0);
}

/* Turns scores into probabilities relative to the new maximum; returns in `fade` the
 * factor of earlier ones. The maximum is -inf until a query has seen a key. */
template <int NT>
__device__ __forceinline__ void softmax(float (&x)[NT][4], float scale, Running &run,
                                        float (&fade)[2]) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    float top = -INFINITY, more = 0;
    UNROLL
    for (int n = 0; n < NT; n++) top = fmaxf(top, fmaxf(x[n][2 * i], x[n][2 * i + 1]));
    top = fmaxf(run.most[i], lanes_sum(top, 4, true) * scale);
    float base = top == -INFINITY ? 0 : top;
    fade[i] = exp2_of(run.most[i] - base);
    UNROLL
    for (int n = 0; n < NT; n++) UNROLL
    for (int j = 2 * i; j < 2 * i + 2; j++) {
      x[n][j] = exp2_of(fmaf(x[n][j], scale, -base));
      more += x[n][j];
    }
    run.sum[i] = run.sum[i] * fade[i] + more;
    run.most[i] = top;
  }
}

/* Mostly the maximum is one that was there before. */
template <int CT>
__device__ __forceinline__ void fade_sums(float (&out)[CT][4], const float (&fade)[2]) {
  if (fade[0] == 1 && fade[1] == 1) return;
  UNROLL
  for (int n = 0; n < CT; n++) UNROLL
  for (int j = 0; j < 4; j++) out[n][j] *= fade[j / 2];
}

/* A group's products with a tile of keys become probabilities, its result that of the
 * keys before relative to their maximum. `all`: these rows see all of these keys. */
template <int NT, int CT, int N>
__device__ __forceinline__ void take_scores(float (&x)[NT][4], float (&out)[CT][4],
                                            Queries &y, const Heads &s, const Scale &by,
                                            const int (&key_at)[N], bool all) {
  float fade[2];
  int member = lane_here().member;
  if (s.cap > 0) cap_scores(x, s.scale, s.cap);
  if (by.turned) each_sum<NT>([&](int n, int j) { x[n][j] *= -1; });
  if (!all)
    each_sum<NT>([&](int n, int j) {
      if (!sees(y.row[j / 2], key_at[n * 8 + 2 * member + j % 2])) x[n][j] = -INFINITY;
    });
  softmax(x, by.by, y.run, fade);
  fade_sums(out, fade);
}

/* `wide`: o is f32. */
template <typename T, int CT>
__device__ __forceinline__ void end_queries(const Queries &y, float (&out)[CT][4],
                                            const Heads &s, int64_t b, int64_t h, void *o,
                                            bool wide, float *lse) {
  const int t[2] = {y.first, y.first + 8};
  UNROLL
  for (int i = 0; i < 2; i++) {
    float sum = lanes_sum(y.run.sum[i], 4);
    UNROLL
    for (int n = 0; n < CT; n++) out[n][2 * i] /= sum, out[n][2 * i + 1] /= sum;
    if (lane_here().member == 0 && t[i] < s.t)
      lse[(b * s.t + t[i]) * s.h + h] = y.run.most[i] * LN2 + logf(sum);
  }
  store_sums<CT, T>(o, wide, b, s.t, h, s.h, s.dv, t, 0, out);
}

#endif
