/* attention.cu - causal attention forward by the products of a warp: for all GPUs, head
 * sizes and types. */
#include "attention_forward.cuh"
#include "attention_hopper.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"

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
  Queries y[G];
  uint32_t number[G][2];
  float out[G][CT][4] = {};
  UNROLL
  for (int g = 0; g < G; g++) {
    begin_queries(y[g], out[g], s, b, h, first + l.warp_row + 16 * g + l.group, o0, lse0,
                  sinks);
    for (int i = 0; i < 2 && DROPS; i++)
      number[g][i] = query_number(s, b, y[g].first + 8 * i);
  }
  fetch<S::rows_forward, S::threads>(mine, slice(q, b, s.t, h, s.h, s.d), first);

  int width = filled(s.d), width_v = filled(s.dv);
  Scale scale = scale_of(s);
  walk_keys<S::threads>(s, b, query_range(s, b, first, S::rows_forward), keys, values,
                        others, key_at, [&](int stage, int k0, bool all) {
                          if (first + l.warp_row >= s.t) return; /* a warp past the end */
                          float x[G][NT][4];
                          times_rows(x, mine, others(stage, 0), width);
                          UNROLL
                          for (int g = 0; g < G; g++) {
                            take_scores(x[g], out[g], y[g], s, scale, key_at[stage], all);
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
  for (int g = 0; g < G; g++) end_queries<T>(y[g], out[g], s, b, h, o, wide, lse);
}

void cuda_attention(Device *d, const KernelArgs *a) {
  if (cudnn_run(d, a) || (hopper_takes(a) && cuda_attention_hopper(d, a))) return;
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
