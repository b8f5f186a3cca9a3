/* attention.cu - causal attention forward with an online softmax (as in FlashAttention):
 * each tile of keys rescales the result of the earlier ones. In ring attention this is
 * one step: it continues from the result of the steps before. */
#include "attention_tile.cuh"
#include "kernels/cuda/cudnn/cudnn_attention.h"

enum { O = 3, LSE, STARTS, STARTS_FIRST = O }; /* operands */

/* The running softmax of a lane's two rows: maximum score, in powers of two, and the
 * lane's part of the sum. */
struct Running {
  float most[2], sum[2];
};

/* Turns scores, which `scale` makes powers of two, into probabilities relative to the new
 * maximum; returns in `fade` the factor of earlier ones. The maximum is -inf until a
 * query has seen a key. */
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

/* Grid: query tiles, longest first; heads; batch. `o0`, `lse0`: from earlier ring steps,
 * or NULL; `wide`: o is f32. `sinks`: of the heads of all ranks, or NULL. */
template <typename T, int D, bool DROPS>
__global__ void __launch_bounds__(Shape<T, D, DROPS>::threads, 2)
    attend(Heads s, const T *q, const T *k, const T *v, const float *o0,
           const float *lse0, const T *sinks, void *o, bool wide, float *lse) {
  typedef Shape<T, D, DROPS> S;
  constexpr int N = S::forward, NT = N / 8, CT = D / 8, G = S::groups;
  SHARED_ROOM(room);
  __shared__ int key_at[2][N];
  int first = (int)(gridDim.x - 1 - blockIdx.x) * S::rows_forward;
  int64_t h = blockIdx.y, b = blockIdx.z, kv = h * s.k / s.h;
  Slice<const T> keys = slice(k, b, s.keys, kv, s.k, s.d);
  Slice<const T> values = slice(v, b, s.keys, kv, s.k, s.dv);
  Tile<T, D> mine = {(T *)room};
  auto others = [&](int stage, int which) {
    return Tile<T, D>{mine.p + (S::rows_forward + (2 * stage + which) * N) * D};
  };
  Lane l = lane_here<G>();
  int t[G][2];
  Row row[G][2];
  uint32_t number[G][2];
  Running run[G];
  float out[G][CT][4] = {};
  UNROLL
  for (int g = 0; g < G; g++) {
    t[g][0] = first + l.warp_row + 16 * g + l.group, t[g][1] = t[g][0] + 8;
    UNROLL
    for (int i = 0; i < 2; i++) {
      row[g][i] = query_row(s, b, t[g][i]);
      if (DROPS) number[g][i] = query_number(s, b, t[g][i]);
      run[g].most[i] = -INFINITY, run[g].sum[i] = 0;
      if (lse0 || sinks) run[g].sum[i] = l.member == 0; /* one of the four lanes */
      if (lse0 && t[g][i] < s.t)
        run[g].most[i] = lse0[(b * s.t + t[g][i]) * s.h + h] * LOG2E;
      if (sinks) run[g].most[i] = load(sinks[s.first_head + h]) * LOG2E;
    }
    add_sums(out[g], slice(o0, b, s.t, h, s.h, s.dv), t[g], 0);
  }
  fetch<S::rows_forward, S::threads>(mine, slice(q, b, s.t, h, s.h, s.d), first);

  int width = filled(s.d), width_v = filled(s.dv);
  float scale = s.cap > 0 ? LOG2E : s.scale * LOG2E;
  bool negative = scale < 0; /* the largest score is that of the smallest product */
  if (negative) scale = -scale;
  walk_keys<S::threads>(
      s, b, query_range(s, b, first, S::rows_forward), keys, values, others, key_at,
      [&](int stage, int k0, bool all) {
        if (first + l.warp_row >= s.t) return; /* a warp past the end */
        float x[G][NT][4];
        times_rows(x, mine, others(stage, 0), width);
        if (s.cap > 0) cap_scores(x, s.scale, s.cap);
        if (negative) each_sum<G, NT>([&](int g, int n, int j) { x[g][n][j] *= -1; });
        if (!all)
          each_sum<G, NT>([&](int g, int n, int j) {
            if (!sees(row[g][j / 2], key_at[stage][n * 8 + 2 * l.member + j % 2]))
              x[g][n][j] = -INFINITY;
          });
        UNROLL
        for (int g = 0; g < G; g++) {
          float fade[2];
          softmax(x[g], scale, run[g], fade);
          fade_sums(out[g], fade);
          UNROLL
          for (int n = 0; n < NT && DROPS; n++) UNROLL
          for (int i = 0; i < 2; i++) {
            float f[2];
            const int *key = &key_at[stage][n * 8 + 2 * l.member];
            factors_of(s, h, number[g][i], key[0], key[1], f);
            x[g][n][2 * i] *= f[0], x[g][n][2 * i + 1] *= f[1];
          }
        }
        int there = rows_there(s.keys, k0, N);
        add_product(out, x, others(stage, 1), there, 0, width_v);
      });

  UNROLL
  for (int g = 0; g < G; g++) {
    UNROLL
    for (int i = 0; i < 2; i++) {
      float sum = lanes_sum(run[g].sum[i], 4);
      UNROLL
      for (int n = 0; n < CT; n++) out[g][n][2 * i] /= sum, out[g][n][2 * i + 1] /= sum;
      if (l.member == 0 && t[g][i] < s.t)
        lse[(b * s.t + t[g][i]) * s.h + h] = run[g].most[i] * LN2 + logf(sum);
    }
    store_sums<CT, T>(o, wide, b, s.t, h, s.h, s.dv, t[g], 0, out[g]);
  }
}

void cuda_attention(Device *d, const KernelArgs *a) {
  if (cudnn_run(d, a)) return;
  bool on = goes_on(a);
  Heads s = heads_of(a, on ? STARTS : STARTS_FIRST);
  const KTensor *sinks = on ? NULL : kernel_sinks(a, STARTS_FIRST);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_head(s, [&](auto size) {
      constexpr int D = decltype(size)::size;
      constexpr bool DROPS = decltype(size)::drops;
      typedef Shape<T, D, DROPS> S;
      unsigned tiles = (unsigned)((s.t + S::rows_forward - 1) / S::rows_forward);
      Dim3 grid(tiles, (unsigned)s.h, (unsigned)s.b);
      LAUNCH_ROOM((attend<T, D, DROPS>), grid, S::threads, S::room_forward,
                  cuda_stream(d), s, data<const T>(&a->in[0]), data<const T>(&a->in[1]),
                  data<const T>(&a->in[2]), on ? data<const float>(&a->in[O]) : NULL,
                  on ? data<const float>(&a->in[LSE]) : NULL,
                  sinks ? data<const T>(sinks) : NULL, a->out[0].p,
                  a->out[0].dtype == DT_F32, data<float>(&a->out[1]));
    });
  });
}

void cuda_attention_part(Device *d, const KernelArgs *a) { cuda_attention(d, a); }
