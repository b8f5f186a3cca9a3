/* attention.cu - causal attention with the softmax in one pass over the keys: each tile of
 * keys rescales what the earlier ones gave. Of a ring this is one step: it goes on from
 * what the steps before gave. */
#include "attention.cuh"

enum { O = 3, LSE, STARTS, STARTS_FIRST = O }; /* operands */

/* Grid: query tiles, heads, batch. `o0`, `lse0`: of the steps before, or NULL; `wide`: o is
 * f32. */
template <int D, typename T>
__global__ void __launch_bounds__(THREADS)
    attend(Heads s, const T *q, const T *k, const T *v, const float *o0, const float *lse0,
           void *o, bool wide, float *lse) {
  __shared__ Tile<D> mine, keys;
  __shared__ float p[ROWS][ROWS + 1];
  int64_t first = (int64_t)blockIdx.x * ROWS, h = blockIdx.y, b = blockIdx.z;
  int64_t kv = h * s.k / s.h;
  int row = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  int64_t at = first + row;
  float sum = lse0 ? 1 : 0, most = -INFINITY, out[D / SHARE];
  if (lse0 && at < s.t) most = lse0[(b * s.t + at) * s.h + h];
  load_row<D>(out, o0, s.dv, s.t, b, h, s.h, at, lane);
  load_tile(mine, q, s.d, s.t, b, h, s.h, first);
  for (int64_t k0 = 0; k0 < s.keys; k0 += ROWS) {
    if (!sees_some(s, b, first, k0)) continue;
    __syncthreads();
    load_tile(keys, k, s.d, s.keys, b, kv, s.k, k0);
    __syncthreads();
    float x[ROWS / SHARE], top = most;
    for (int j = 0; j < ROWS / SHARE; j++) {
      int c = j * SHARE + lane;
      x[j] = sees(s, b, at, k0 + c) ? dot<D>(mine.v[row], keys.v[c], s.d) * s.scale
                                    : -INFINITY;
      top = x[j] > top ? x[j] : top;
    }
    top = lanes_sum(top, SHARE, true);
    float base = top == -INFINITY ? 0 : top, fade = expf(most - base), more = 0;
    for (int j = 0; j < ROWS / SHARE; j++) {
      x[j] = expf(x[j] - base);
      more += x[j];
      p[row][j * SHARE + lane] = x[j];
    }
    sum = sum * fade + lanes_sum(more, SHARE);
    most = top;
    __syncthreads();
    load_tile(keys, v, s.dv, s.keys, b, kv, s.k, k0);
    __syncthreads();
    for (int i = 0; i < D / SHARE; i++) {
      int c = i * SHARE + lane;
      float add = 0;
      if (c < s.dv)
        for (int j = 0; j < ROWS; j++) add += p[row][j] * keys.v[j][c];
      out[i] = out[i] * fade + add;
    }
  }
  for (int i = 0; i < D / SHARE; i++) out[i] /= sum;
  store_sums<D, T>(o, wide, out, s.dv, s.t, b, h, s.h, at, lane);
  if (lane == 0 && at < s.t) lse[(b * s.t + at) * s.h + h] = most + logf(sum);
}

void cuda_attention(Device *d, const KernelArgs *a) {
  bool on = goes_on(a);
  Heads s = heads_of(a, on ? STARTS : STARTS_FIRST);
  Dim3 grid((unsigned)((s.t + ROWS - 1) / ROWS), (unsigned)s.h, (unsigned)s.b);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_head(s, [&](auto size) {
      constexpr int D = decltype(size)::size;
      LAUNCH((attend<D, T>), grid, THREADS, cuda_stream(d), s, data<const T>(&a->in[0]),
             data<const T>(&a->in[1]), data<const T>(&a->in[2]),
             on ? data<const float>(&a->in[O]) : NULL,
             on ? data<const float>(&a->in[LSE]) : NULL, a->out[0].p,
             a->out[0].dtype == DT_F32, data<float>(&a->out[1]));
    });
  });
}

void cuda_attention_part(Device *d, const KernelArgs *a) { cuda_attention(d, a); }
