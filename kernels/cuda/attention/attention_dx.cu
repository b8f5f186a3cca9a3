/* attention_dx.cu - gradients of causal attention. Probabilities are recomputed from lse,
 * with delta = sum(do * o) of a query and dS = P * (dP - delta) * scale: dq = dS k, dk =
 * dS^T q, dv = P^T do; where probabilities were dropped, M of them (0 or 1/(1 - rate)),
 * dv = (P M)^T do and dS = P * (M dP - delta) * scale. One kernel each for delta, dq, and
 * dk with dv; each result is summed by one block, in order. In ring attention this is one
 * step. */
#include "attention_delta.cuh"
#include "attention_tile.cuh"
#include "kernels/cuda/cudnn/cudnn_attention.h"

enum { Q, K, V, O, LSE, DO, DQ, STARTS, STARTS_FIRST = DQ }; /* operands */

/* From a lane's scores and dP to P and dS / scale. `scale` makes scores powers of two;
 * with `cap` they are capped ones. base(n, j) and less(n, j): lse, in powers of two, and
 * delta; hidden(n, j), asked if not `all` are seen. */
template <int NT, typename Base, typename Less, typename Hidden>
__device__ __forceinline__ void probabilities(float (&p)[NT][4], float (&ds)[NT][4],
                                              float scale, float cap, bool all, Base base,
                                              Less less, Hidden hidden) {
  auto each = [&](auto f) { each_sum<NT>(f); };
  each([&](int n, int j) { ds[n][j] -= less(n, j); });
  if (cap > 0) each([&](int n, int j) { ds[n][j] *= capped_by(p[n][j], cap); });
  each([&](int n, int j) { p[n][j] = exp2_of(fmaf(p[n][j], scale, -base(n, j))); });
  if (!all)
    each([&](int n, int j) {
      if (hidden(n, j)) p[n][j] = 0;
    });
  each([&](int n, int j) { ds[n][j] *= p[n][j]; });
}

/* Grid: query tiles, longest first; heads; batch. `dq0`: of earlier steps, or NULL. */
template <typename T, int D, bool DROPS>
__global__ void __launch_bounds__(Shape<T, D>::threads)
    query_gradients(Heads s, const T *q, const T *k, const T *v, const T *d_o,
                    const float *lse, const float *delta, const float *dq0, void *dq,
                    bool wide) {
  typedef Shape<T, D> S;
  constexpr int N = S::backward, NT = N / 8, CT = D / 8;
  SHARED_ROOM(room);
  __shared__ int key_at[2][N];
  int first = (int)(gridDim.x - 1 - blockIdx.x) * S::rows;
  int64_t h = blockIdx.y, b = blockIdx.z, kv = h * s.k / s.h;
  Slice<const T> keys = slice(k, b, s.keys, kv, s.k, s.d);
  Slice<const T> values = slice(v, b, s.keys, kv, s.k, s.dv);
  Tile<T, D> mine = {(T *)room}, my_do = {mine.p + S::rows * D};
  auto others = [&](int stage, int which) {
    return Tile<T, D>{mine.p + (2 * S::rows + (2 * stage + which) * N) * D};
  };
  Lane l = lane_here();
  int top = first + l.warp_row + l.group, t[2] = {top, top + 8};
  Row row[2] = {query_row(s, b, t[0]), query_row(s, b, t[1])};
  uint32_t number[2] = {0, 0};
  for (int i = 0; i < 2 && DROPS; i++) number[i] = query_number(s, b, t[i]);
  float base[2], less[2], out[1][CT][4] = {};
  for (int i = 0; i < 2; i++) {
    int64_t stat = (b * s.t + (t[i] < s.t ? t[i] : 0)) * s.h + h;
    base[i] = lse[stat] * LOG2E, less[i] = delta[stat];
  }
  fetch<S::rows, S::threads>(mine, slice(q, b, s.t, h, s.h, s.d), first);
  fetch<S::rows, S::threads>(my_do, slice(d_o, b, s.t, h, s.h, s.dv), first);

  int width = filled(s.d), width_v = filled(s.dv);
  float scale = s.cap > 0 ? LOG2E : s.scale * LOG2E;
  walk_keys<S::threads>(
      s, b, query_range(s, b, first, S::rows), keys, values, others, key_at,
      [&](int stage, int k0, bool all) {
        if (first + l.warp_row >= s.t) return; /* a warp past the end */
        float p[1][NT][4], ds[1][NT][4];
        times_rows(p, mine, others(stage, 0), width);
        if (s.cap > 0) cap_scores(p[0], s.scale, s.cap);
        times_rows(ds, my_do, others(stage, 1), width_v);
        UNROLL
        for (int n = 0; n < NT && DROPS; n++) UNROLL
        for (int i = 0; i < 2; i++) {
          float f[2];
          const int *key = &key_at[stage][n * 8 + 2 * l.member];
          factors_of(s, h, number[i], key[0], key[1], f);
          ds[0][n][2 * i] *= f[0], ds[0][n][2 * i + 1] *= f[1];
        }
        probabilities(
            p[0], ds[0], scale, s.cap, all, [&](int, int j) { return base[j / 2]; },
            [&](int, int j) { return less[j / 2]; },
            [&](int n, int j) {
              return !sees(row[j / 2], key_at[stage][n * 8 + 2 * l.member + j % 2]);
            });
        int there = rows_there(s.keys, k0, N);
        add_product(out, ds, others(stage, 0), there, 0, width);
      });

  UNROLL
  for (int n = 0; n < CT; n++)
    for (int j = 0; j < 4; j++) out[0][n][j] *= s.scale;
  add_sums(out[0], slice(dq0, b, s.t, h, s.h, s.d), t, 0);
  store_sums<CT, T>(dq, wide, b, s.t, h, s.h, s.d, t, 0, out[0]);
}

/* Grid: key tiles by parts of columns; kv heads; batch. Rows are keys, columns
 * queries. */
template <typename T, int D, bool DROPS>
__global__ void __launch_bounds__(Shape<T, D>::threads)
    key_gradients(Heads s, const T *q, const T *k, const T *v, const T *d_o,
                  const float *lse, const float *delta, void *dk, void *dv, bool wide) {
  typedef Shape<T, D> S;
  constexpr int N = S::backward, NT = N / 8, C = S::columns, CT = C / 8;
  SHARED_ROOM(room);
  __shared__ Row query[2][N];
  __shared__ float base[2][N], less[2][N];
  __shared__ uint32_t number[2][DROPS ? N : 1];
  int first = (int)blockIdx.x / (D / C) * S::rows, col = (int)blockIdx.x % (D / C) * C;
  int64_t kv = blockIdx.y, b = blockIdx.z;
  int64_t h0 = kv * (s.h / s.k);
  Tile<T, D> mine = {(T *)room}, my_v = {mine.p + S::rows * D};
  auto others = [&](int stage, int which) {
    return Tile<T, D>{mine.p + (2 * S::rows + (2 * stage + which) * N) * D};
  };
  Lane l = lane_here();
  int top = first + l.warp_row + l.group, t[2] = {top, top + 8};
  int key[2] = {key_row(s, b, t[0]).at, key_row(s, b, t[1]).at};
  float out_k[1][CT][4] = {}, out_v[1][CT][4] = {};
  fetch<S::rows, S::threads>(mine, slice(k, b, s.keys, kv, s.k, s.d), first);
  fetch<S::rows, S::threads>(my_v, slice(v, b, s.keys, kv, s.k, s.dv), first);

  Range here = key_range(s, b, first, S::rows);
  Tiles tiles = query_tiles<N>(s, b, here);
  int each = tiles.end - tiles.first; /* tiles per query head of these keys */
  int width = filled(s.d), width_v = filled(s.dv);
  float scale = s.cap > 0 ? LOG2E : s.scale * LOG2E;
  walk(
      each * (int)(s.h / s.k),
      [&](int i) {
        Range r = query_range(s, b, (tiles.first + i % each) * N, N);
        return seen(r, here, r);
      },
      [&](int i, int stage) {
        int q0 = (tiles.first + i % each) * N;
        int64_t h = h0 + i / each;
        fetch<N, S::threads>(others(stage, 0), slice(q, b, s.t, h, s.h, s.d), q0);
        fetch<N, S::threads>(others(stage, 1), slice(d_o, b, s.t, h, s.h, s.dv), q0);
        for (int r = threadIdx.x; r < N; r += S::threads) {
          bool is = q0 + r < s.t;
          int64_t stat = is ? (b * s.t + q0 + r) * s.h + h : 0;
          copy_begin<4>(&base[stage][r], lse + stat, is);
          copy_begin<4>(&less[stage][r], delta + stat, is);
          query[stage][r] = query_row(s, b, q0 + r);
          if (DROPS) number[stage][r] = query_number(s, b, q0 + r);
        }
      },
      [&](int stage, int i, bool all) {
        if (first + l.warp_row >= s.keys) return; /* a warp past the end */
        float p[1][NT][4], ds[1][NT][4], factor[DROPS ? NT : 1][4];
        times_rows(p, mine, others(stage, 0), width);
        if (s.cap > 0) cap_scores(p[0], s.scale, s.cap);
        times_rows(ds, my_v, others(stage, 1), width_v);
        auto at = [&](int n, int j) { return n * 8 + 2 * l.member + j % 2; };
        UNROLL
        for (int n = 0; n < NT && DROPS; n++) UNROLL
        for (int j = 0; j < 4; j++) {
          factor[n][j] = factor_of(s, h0 + i / each, number[stage][at(n, j)], key[j / 2]);
          ds[0][n][j] *= factor[n][j];
        }
        probabilities(
            p[0], ds[0], scale, s.cap, all,
            [&](int n, int j) { return base[stage][at(n, j)] * LOG2E; },
            [&](int n, int j) { return less[stage][at(n, j)]; },
            [&](int n, int j) { return !sees(query[stage][at(n, j)], key[j / 2]); });
        UNROLL
        for (int n = 0; n < NT && DROPS; n++) UNROLL
        for (int j = 0; j < 4; j++) p[0][n][j] *= factor[n][j];
        int there = rows_there(s.t, (tiles.first + i % each) * N, N);
        add_product(out_v, p, others(stage, 1), there, col, width_v);
        add_product(out_k, ds, others(stage, 0), there, col, width);
      });

  UNROLL
  for (int n = 0; n < CT; n++)
    for (int j = 0; j < 4; j++) out_k[0][n][j] *= s.scale;
  store_sums<CT, T>(dk, wide, b, s.keys, kv, s.k, s.d, t, col, out_k[0]);
  store_sums<CT, T>(dv, wide, b, s.keys, kv, s.k, s.dv, t, col, out_v[0]);
}

void cuda_attention_dx(Device *dev, const KernelArgs *a) {
  if (cudnn_run(dev, a)) return;
  bool on = goes_on(a);
  Heads s = heads_of(a, on ? STARTS : STARTS_FIRST);
  int64_t n = s.b * s.t * s.h;
  float *delta = (float *)a->work;
  const float *lse = data<const float>(&a->in[LSE]);
  by_type(a->in[Q].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *q = data<const T>(&a->in[Q]), *k = data<const T>(&a->in[K]);
    const T *v = data<const T>(&a->in[V]), *d_o = data<const T>(&a->in[DO]);
    attention_deltas(dev, &a->in[O], &a->in[DO], delta, n, s.dv);
    by_head(s, [&](auto size) {
      constexpr int D = decltype(size)::size;
      constexpr bool DROPS = decltype(size)::drops;
      typedef Shape<T, D> S;
      unsigned tiles = (unsigned)((s.t + S::rows - 1) / S::rows);
      unsigned key_tiles = (unsigned)((s.keys + S::rows - 1) / S::rows);
      LAUNCH_ROOM((query_gradients<T, D, DROPS>),
                  Dim3(tiles, (unsigned)s.h, (unsigned)s.b), S::threads, S::room_backward,
                  cuda_stream(dev), s, q, k, v, d_o, lse, delta,
                  on ? data<const float>(&a->in[DQ]) : NULL, a->out[0].p,
                  a->out[0].dtype == DT_F32);
      LAUNCH_ROOM((key_gradients<T, D, DROPS>),
                  Dim3(key_tiles * (D / S::columns), (unsigned)s.k, (unsigned)s.b),
                  S::threads, S::room_backward, cuda_stream(dev), s, q, k, v, d_o, lse,
                  delta, a->out[1].p, a->out[2].p, a->out[1].dtype == DT_F32);
    });
  });
}

void cuda_attention_part_dx(Device *dev, const KernelArgs *a) {
  cuda_attention_dx(dev, a);
}
