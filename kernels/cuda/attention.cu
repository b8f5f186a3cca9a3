/* attention.cu - causal attention with the softmax in one pass over the keys: each tile of
 * keys rescales what the earlier ones gave. */
#include "attention.cuh"

/* Grid: query tiles, heads, batch. */
template <int D, typename T>
__global__ void __launch_bounds__(THREADS)
    attend(Heads s, const T *q, const T *k, const T *v, T *o, float *lse) {
  __shared__ Tile<D> mine, keys;
  __shared__ float p[ROWS][ROWS + 1];
  int64_t first = (int64_t)blockIdx.x * ROWS, h = blockIdx.y, b = blockIdx.z;
  int64_t kv = h * s.k / s.h;
  int row = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  int64_t at = first + row;
  float sum = 0, most = -INFINITY, out[D / SHARE];
  for (int i = 0; i < D / SHARE; i++) out[i] = 0;
  load_tile(mine, q, s.d, s.t, b, h, s.h, first);
  int64_t seen = s.starts && first < s.t ? s.starts[b * s.t + first] : 0;
  for (int64_t k0 = seen / ROWS * ROWS; k0 < seen_end(s, first); k0 += ROWS) {
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
  store_row<D>(o, out, s.dv, s.t, b, h, s.h, at, lane);
  if (lane == 0 && at < s.t) lse[(b * s.t + at) * s.h + h] = most + logf(sum);
}

void cuda_attention(Device *d, const KernelArgs *a) {
  Heads s = heads_of(a, 3);
  Dim3 grid((unsigned)((s.t + ROWS - 1) / ROWS), (unsigned)s.h, (unsigned)s.b);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_head(s, [&](auto size) {
      constexpr int D = decltype(size)::size;
      LAUNCH((attend<D, T>), grid, THREADS, cuda_stream(d), s, data<const T>(&a->in[0]),
             data<const T>(&a->in[1]), data<const T>(&a->in[2]), data<T>(&a->out[0]),
             data<float>(&a->out[1]));
    });
  });
}
