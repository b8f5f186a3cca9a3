/* attention_dx.cu - gradients of causal attention. Probabilities are computed again from
 * lse, with delta = sum(do * o) of a query and dS = P * (dP - delta) * scale:
 *   dq = dS k, dk = dS^T q, dv = P^T do
 * One kernel per delta, dq, and dk with dv; each result is summed by one block, in order.
 * Of a ring this is one step: dq goes on from what the steps before gave. */
#include "attention.cuh"

enum { Q, K, V, O, LSE, DO, DQ, STARTS, STARTS_FIRST = DQ }; /* operands */

/* delta(B, T, H): a warp for each. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    deltas(const T *o, const T *d_o, float *delta, int64_t n, int d) {
  int64_t i = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
  if (i >= n) return;
  float sum = 0;
  for (int c = threadIdx.x % WARP; c < d; c += WARP)
    sum += load(o[i * d + c]) * load(d_o[i * d + c]);
  sum = lanes_sum(sum);
  if (threadIdx.x % WARP == 0) delta[i] = sum;
}

/* Grid: query tiles, heads, batch. `dq0`: of the steps before, or NULL. */
template <int D, typename T>
__global__ void __launch_bounds__(THREADS)
    query_gradients(Heads s, const T *q, const T *k, const T *v, const T *d_o,
                    const float *lse, const float *delta, const float *dq0, void *dq,
                    bool wide) {
  __shared__ Tile<D> keys, part;
  __shared__ float ds[ROWS][ROWS + 1];
  int64_t first = (int64_t)blockIdx.x * ROWS, h = blockIdx.y, b = blockIdx.z;
  int64_t kv = h * s.k / s.h;
  int row = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  int64_t at = first + row, stat = (b * s.t + (at < s.t ? at : 0)) * s.h + h;
  float out[D / SHARE], l = lse[stat], de = delta[stat];
  load_row<D>(out, dq0, s.d, s.t, b, h, s.h, at, lane);
  for (int64_t k0 = 0; k0 < s.keys; k0 += ROWS) {
    float x[ROWS / SHARE];
    if (!sees_some(s, b, first, k0)) continue;
    __syncthreads();
    load_tile(part, q, s.d, s.t, b, h, s.h, first);
    load_tile(keys, k, s.d, s.keys, b, kv, s.k, k0);
    __syncthreads();
    for (int j = 0; j < ROWS / SHARE; j++) {
      int c = j * SHARE + lane;
      x[j] = sees(s, b, at, k0 + c)
                 ? expf(dot<D>(part.v[row], keys.v[c], s.d) * s.scale - l)
                 : 0;
    }
    __syncthreads();
    load_tile(part, d_o, s.dv, s.t, b, h, s.h, first);
    load_tile(keys, v, s.dv, s.keys, b, kv, s.k, k0);
    __syncthreads();
    for (int j = 0; j < ROWS / SHARE; j++) {
      int c = j * SHARE + lane;
      float dp = dot<D>(part.v[row], keys.v[c], s.dv);
      ds[row][c] = x[j] * (dp - de) * s.scale;
    }
    __syncthreads();
    load_tile(keys, k, s.d, s.keys, b, kv, s.k, k0);
    __syncthreads();
    for (int i = 0; i < D / SHARE; i++) {
      int c = i * SHARE + lane;
      for (int j = 0; j < ROWS && c < s.d; j++) out[i] += ds[row][j] * keys.v[j][c];
    }
  }
  store_sums<D, T>(dq, wide, out, s.d, s.t, b, h, s.h, at, lane);
}

/* Grid: key tiles, kv heads, batch. A row is a key here. */
template <int D, typename T>
__global__ void __launch_bounds__(THREADS)
    key_gradients(Heads s, const T *q, const T *k, const T *v, const T *d_o,
                  const float *lse, const float *delta, void *dk, void *dv, bool wide) {
  __shared__ Tile<D> mine, part;
  __shared__ float p[ROWS][ROWS + 1], ds[ROWS][ROWS + 1];
  int64_t first = (int64_t)blockIdx.x * ROWS, kv = blockIdx.y, b = blockIdx.z;
  int64_t group = s.h / s.k;
  int row = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  int64_t key = first + row;
  float out_k[D / SHARE], out_v[D / SHARE];
  for (int i = 0; i < D / SHARE; i++) out_k[i] = out_v[i] = 0;
  for (int64_t h = kv * group; h < (kv + 1) * group; h++)
    for (int64_t q0 = 0; q0 < s.t; q0 += ROWS) {
      if (!sees_some(s, b, q0, first)) continue;
      __syncthreads();
      load_tile(mine, k, s.d, s.keys, b, kv, s.k, first);
      load_tile(part, q, s.d, s.t, b, h, s.h, q0);
      __syncthreads();
      for (int j = 0; j < ROWS / SHARE; j++) {
        int c = j * SHARE + lane;
        int64_t at = q0 + c;
        p[row][c] = sees(s, b, at, key)
                        ? expf(dot<D>(mine.v[row], part.v[c], s.d) * s.scale -
                               lse[(b * s.t + at) * s.h + h])
                        : 0;
      }
      __syncthreads();
      load_tile(mine, v, s.dv, s.keys, b, kv, s.k, first);
      load_tile(part, d_o, s.dv, s.t, b, h, s.h, q0);
      __syncthreads();
      for (int j = 0; j < ROWS / SHARE; j++) {
        int c = j * SHARE + lane;
        int64_t at = q0 + c < s.t ? q0 + c : 0;
        float dp = dot<D>(mine.v[row], part.v[c], s.dv);
        ds[row][c] = p[row][c] * (dp - delta[(b * s.t + at) * s.h + h]) * s.scale;
      }
      __syncthreads();
      for (int i = 0; i < D / SHARE; i++) {
        int c = i * SHARE + lane;
        for (int j = 0; j < ROWS && c < s.dv; j++) out_v[i] += p[row][j] * part.v[j][c];
      }
      __syncthreads();
      load_tile(part, q, s.d, s.t, b, h, s.h, q0);
      __syncthreads();
      for (int i = 0; i < D / SHARE; i++) {
        int c = i * SHARE + lane;
        for (int j = 0; j < ROWS && c < s.d; j++) out_k[i] += ds[row][j] * part.v[j][c];
      }
    }
  store_sums<D, T>(dk, wide, out_k, s.d, s.keys, b, kv, s.k, key, lane);
  store_sums<D, T>(dv, wide, out_v, s.dv, s.keys, b, kv, s.k, key, lane);
}

void cuda_attention_dx(Device *dev, const KernelArgs *a) {
  bool on = goes_on(a);
  Heads s = heads_of(a, on ? STARTS : STARTS_FIRST);
  int64_t n = s.b * s.t * s.h, tiles = (s.t + ROWS - 1) / ROWS;
  int64_t key_tiles = (s.keys + ROWS - 1) / ROWS;
  float *delta = (float *)a->work;
  const float *lse = data<const float>(&a->in[LSE]);
  by_type(a->in[Q].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    const T *q = data<const T>(&a->in[Q]), *k = data<const T>(&a->in[K]);
    const T *v = data<const T>(&a->in[V]), *d_o = data<const T>(&a->in[DO]);
    LAUNCH((deltas<T>), (unsigned)((n + BLOCK / WARP - 1) / (BLOCK / WARP)), BLOCK,
           cuda_stream(dev), data<const T>(&a->in[O]), d_o, delta, n, s.dv);
    by_head(s, [&](auto size) {
      constexpr int D = decltype(size)::size;
      LAUNCH((query_gradients<D, T>), Dim3((unsigned)tiles, (unsigned)s.h, (unsigned)s.b),
             THREADS, cuda_stream(dev), s, q, k, v, d_o, lse, delta,
             on ? data<const float>(&a->in[DQ]) : NULL, a->out[0].p,
             a->out[0].dtype == DT_F32);
      LAUNCH((key_gradients<D, T>), Dim3((unsigned)key_tiles, (unsigned)s.k, (unsigned)s.b),
             THREADS, cuda_stream(dev), s, q, k, v, d_o, lse, delta, a->out[1].p, a->out[2].p,
             a->out[1].dtype == DT_F32);
    });
  });
}

void cuda_attention_part_dx(Device *dev, const KernelArgs *a) { cuda_attention_dx(dev, a); }
