/* ssm_scan.cu - the scan of Mamba-2 and its gradient by chunks; formulas are in
 * kernels/cpu/ssm/ssm_scan.c. A block has a chunk of a head: what each chunk adds to the
 * state, then states from chunk to chunk, then what comes of them. The gradient does the
 * same from the end, after the states again; dB and dC are sums over the heads of a
 * group, in their order. */
#include "ssm_scan.cuh"

#include "kernels/cuda/rows.cuh"

/* to(P,N) of a head: the sums over the tokens of a chunk of left(e, j) * right(j, f). */
template <typename T, typename L, typename R>
__device__ __forceinline__ void sum_chunk(const Scan<T> &s, int tokens, float *to, L left,
                                          R right) {
  __shared__ TileRoom room;
  for (int e0 = 0; e0 < s.P; e0 += SIDE)
    for (int f0 = 0; f0 < s.N; f0 += SIDE) {
      Square sum = {};
      multiply_tile(
          room, sum, tokens, [&](int e, int j) { return left(e0 + e, j); },
          [&](int j, int f) { return right(j, f0 + f); });
      each_of(sum, [&](int e, int f, float x) {
        if (e0 + e < s.P && f0 + f < s.N) to[(e0 + e) * s.N + f0 + f] = x;
      });
    }
}

/* What a chunk adds to the state behind it. Grid: chunks, heads, sequences. */
template <typename T> __global__ void __launch_bounds__(BLOCK) chunk_states(Scan<T> s) {
  __shared__ ScanChunk k;
  ScanPlace p = scan_place(s, (int)blockIdx.x, (int)blockIdx.y, (int)blockIdx.z);
  read_chunk(k, s, p);
  sum_chunk(
      s, p.n, state_at(s, s.state, p),
      [&](int e, int j) {
        return left_of(k, p.n - 1, j) * k.d[j] * of_head(s.x, s, p, j, e);
      },
      [&](int j, int f) { return of_group(s.B, s, p, j, f); });
}

/* What a chunk adds to the gradient of the state before it. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) chunk_state_gradients(Scan<T> s) {
  __shared__ ScanChunk k;
  ScanPlace p = scan_place(s, (int)blockIdx.x, (int)blockIdx.y, (int)blockIdx.z);
  read_chunk(k, s, p);
  sum_chunk(
      s, p.n, state_at(s, s.grad, p),
      [&](int e, int i) { return left_before(k, i) * of_head(s.dy, s, p, i, e); },
      [&](int i, int f) { return of_group(s.C, s, p, i, f); });
}

/* How much a chunk leaves of the state before it: left(B,H,chunks), in front of scratch.
 */
template <typename T>
__global__ void __launch_bounds__(BLOCK) chunk_left(Scan<T> s, float *left, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  int chunk = (int)(i % s.chunks), h = (int)(i / s.chunks % s.heads);
  ScanPlace p = scan_place(s, chunk, h, (int)(i / s.chunks / s.heads));
  double sum = 0;
  for (int j = 0; j < p.n; j++) sum += (double)s.a[(p.row + j) * s.heads + h];
  bool before = !s.starts || s.starts[p.row + p.n - 1] < chunk * SIDE;
  left[i] = before && chunk > 0 ? expf((float)sum) : 0.0f;
}

/* From what chunks add to states before them, or from the end to the gradients of states
 * after them. A thread has one element of the state of a head. */
__global__ void __launch_bounds__(BLOCK)
    pass_states(float *state, const float *left, int64_t heads, int chunks, int size,
                bool back) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= heads * size) return;
  state += i / size * chunks * size + i % size;
  left += i / size * chunks;
  float now = 0;
  for (int k = 0; k < chunks; k++) {
    int at = back ? chunks - 1 - k : k;
    float more = state[(int64_t)at * size];
    state[(int64_t)at * size] = now;
    now = left[at] * now + more;
  }
}

/* The scores of a chunk times what is left: score[i][j] for j <= i. */
template <typename T>
static __device__ void chunk_scores(TileRoom &room, float (*score)[SIDE + 1],
                                    const ScanChunk &k, const Scan<T> &s,
                                    const ScanPlace &p) {
  Square sum = {};
  multiply_tile(
      room, sum, s.N, [&](int i, int f) { return of_group(s.C, s, p, i, f); },
      [&](int f, int j) { return of_group(s.B, s, p, j, f); });
  each_of(sum, [&](int i, int j, float x) {
    score[i][j] = i < p.n && j < p.n ? x * left_of(k, i, j) : 0.0f;
  });
  __syncthreads();
}

template <typename T> __global__ void __launch_bounds__(BLOCK) chunk_outputs(Scan<T> s) {
  __shared__ ScanChunk k;
  __shared__ TileRoom room;
  __shared__ float score[SIDE][SIDE + 1];
  ScanPlace p = scan_place(s, (int)blockIdx.x, (int)blockIdx.y, (int)blockIdx.z);
  const float *state = state_at(s, s.state, p);
  float D = load(s.D[p.h]);
  read_chunk(k, s, p);
  chunk_scores(room, score, k, s, p);
  for (int e0 = 0; e0 < s.P; e0 += SIDE) {
    Square sum = {};
    multiply_tile(
        room, sum, p.n, [&](int i, int j) { return score[i][j]; },
        [&](int j, int e) { return k.d[j] * of_head(s.x, s, p, j, e0 + e); });
    if (k.before[0])
      multiply_tile(
          room, sum, s.N,
          [&](int i, int f) {
            return i < p.n ? left_before(k, i) * of_group(s.C, s, p, i, f) : 0.0f;
          },
          [&](int f, int e) { return of_state(state, s, e0 + e, f); });
    each_of(sum, [&](int i, int e, float y) {
      if (i < p.n && e0 + e < s.P)
        s.y[((p.row + i) * s.heads + p.h) * s.P + e0 + e] =
            rounded<T>(y + D * of_head(s.x, s, p, i, e0 + e));
    });
  }
}

/* by(i, j) (dy[i] u[j]) of a chunk. */
template <typename T, typename F>
static __device__ void chunk_weights(TileRoom &room, float (*w)[SIDE + 1],
                                     const ScanChunk &k, const Scan<T> &s,
                                     const ScanPlace &p, F by) {
  Square sum = {};
  multiply_tile(
      room, sum, s.P, [&](int i, int e) { return of_head(s.dy, s, p, i, e); },
      [&](int e, int j) { return j < p.n ? k.d[j] * of_head(s.x, s, p, j, e) : 0.0f; });
  each_of(sum, [&](int i, int j, float x) {
    w[i][j] = i < p.n && j < p.n ? x * by(i, j) : 0.0f;
  });
  __syncthreads();
}

/* Adds up f(i, e) over the columns that threads of a row of the tile have, into row[i],
 * which one thread of them writes. */
template <typename F> static __device__ void add_rows(float *row, Square &sum, F f) {
  UNROLL
  for (int i = 0; i < EDGE; i++) {
    float x = 0;
    UNROLL
    for (int j = 0; j < EDGE; j++)
      x += f(tile_row() + i, tile_column() + TERMS * j, sum[i][j]);
    x = lanes_sum(x, TERMS);
    if (tile_column() == 0) row[tile_row() + i] += x;
  }
  __syncthreads();
}

/* dx, dd and da of a chunk of a head. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) chunk_gradients(Scan<T> s) {
  __shared__ ScanChunk k;
  __shared__ TileRoom room;
  __shared__ float score[SIDE][SIDE + 1], product[SIDE][SIDE + 1];
  __shared__ float dd[SIDE], to_before[SIDE], to_after[SIDE];
  __shared__ double dc[SIDE];
  ScanPlace p = scan_place(s, (int)blockIdx.x, (int)blockIdx.y, (int)blockIdx.z);
  const float *state = state_at(s, s.state, p), *after = state_at(s, s.grad, p);
  int at = (int)threadIdx.x, end = p.n - 1;
  float D = load(s.D[p.h]), all = 0;
  if (at < SIDE) dd[at] = to_before[at] = to_after[at] = 0;
  read_chunk(k, s, p);
  chunk_scores(room, score, k, s, p);
  for (int e0 = 0; e0 < s.P; e0 += SIDE) {
    Square du = {}, outer = {}, inner = {};
    auto times_x = [&](int j, int e, float x) {
      return x * of_head(s.x, s, p, j, e0 + e);
    };
    multiply_tile(
        room, outer, s.N,
        [&](int j, int f) {
          return j < p.n ? left_of(k, end, j) * of_group(s.B, s, p, j, f) : 0.0f;
        },
        [&](int f, int e) { return of_state(after, s, e0 + e, f); });
    add_rows(to_after, outer, times_x);
    multiply_tile(
        room, inner, s.N,
        [&](int i, int f) {
          return i < p.n ? left_before(k, i) * of_group(s.C, s, p, i, f) : 0.0f;
        },
        [&](int f, int e) { return of_state(state, s, e0 + e, f); });
    add_rows(to_before, inner,
             [&](int i, int e, float x) { return x * of_head(s.dy, s, p, i, e0 + e); });
    multiply_tile(
        room, du, p.n, [&](int j, int i) { return score[i][j]; },
        [&](int i, int e) { return of_head(s.dy, s, p, i, e0 + e); });
    UNROLL
    for (int i = 0; i < EDGE; i++) UNROLL
    for (int j = 0; j < EDGE; j++) du[i][j] += outer[i][j];
    add_rows(dd, du, times_x);
    each_of(du, [&](int j, int e, float x) {
      if (j < p.n && e0 + e < s.P)
        s.dx[((p.row + j) * s.heads + p.h) * s.P + e0 + e] =
            rounded<T>(k.d[j] * x + D * of_head(s.dy, s, p, j, e0 + e));
    });
  }
  /* product[i][j] is what c[i] gets, and c[j] loses */
  chunk_weights(room, product, k, s, p, [&](int i, int j) { return score[i][j]; });
  for (int i = at; i < s.P * s.N && k.before[end]; i += BLOCK) all += after[i] * state[i];
  all = block_sum<BLOCK>(all);
  if (at < p.n) {
    double sum = (double)to_before[at];
    for (int j = 0; j < at; j++) sum += (double)product[at][j];
    for (int i = at + 1; i < p.n; i++) sum -= (double)product[i][at];
    if (at < end) sum -= (double)(k.d[at] * to_after[at]);
    for (int j = 0; j < end && at == end; j++) sum += (double)(k.d[j] * to_after[j]);
    if (at == end) sum += (double)(all * left_before(k, end));
    dc[at] = sum;
    s.dd[(p.row + at) * s.heads + p.h] = dd[at];
  }
  __syncthreads();
  if (at != 0) return;
  double sum = 0;
  for (int i = end; i >= 0; i--) {
    sum += dc[i];
    bool begins = !k.before[i] && k.from[i] == i;
    s.da[(p.row + i) * s.heads + p.h] = begins ? 0.0f : (float)sum;
    if (begins) sum = 0;
  }
}

/* dB and dC of a chunk and a group, 64 columns of them: blockIdx.y is the group and which
 * columns these are. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) chunk_group_gradients(Scan<T> s, int tiles) {
  __shared__ ScanChunk k;
  __shared__ TileRoom room;
  __shared__ float product[SIDE][SIDE + 1];
  int g = (int)blockIdx.y / tiles, f0 = (int)blockIdx.y % tiles * SIDE;
  int each = s.heads / s.groups;
  Square dB = {}, dC = {};
  ScanPlace p;
  for (int h = g * each; h < (g + 1) * each; h++) {
    p = scan_place(s, (int)blockIdx.x, h, (int)blockIdx.z);
    const float *state = state_at(s, s.state, p), *after = state_at(s, s.grad, p);
    read_chunk(k, s, p);
    chunk_weights(room, product, k, s, p, [&](int i, int j) { return left_of(k, i, j); });
    multiply_tile(
        room, dB, p.n, [&](int j, int i) { return product[i][j]; },
        [&](int i, int f) { return of_group(s.C, s, p, i, f0 + f); });
    multiply_tile(
        room, dC, p.n, [&](int i, int j) { return product[i][j]; },
        [&](int j, int f) { return of_group(s.B, s, p, j, f0 + f); });
    multiply_tile(
        room, dB, s.P,
        [&](int j, int e) {
          return j < p.n ? left_of(k, p.n - 1, j) * k.d[j] * of_head(s.x, s, p, j, e)
                         : 0.0f;
        },
        [&](int e, int f) { return of_state(after, s, e, f0 + f); });
    multiply_tile(
        room, dC, s.P,
        [&](int i, int e) {
          return i < p.n ? left_before(k, i) * of_head(s.dy, s, p, i, e) : 0.0f;
        },
        [&](int e, int f) { return of_state(state, s, e, f0 + f); });
  }
  auto write = [&](T *to, Square &sum) {
    each_of(sum, [&](int i, int f, float x) {
      if (i < p.n && f0 + f < s.N)
        to[((p.row + i) * s.groups + g) * s.N + f0 + f] = rounded<T>(x);
    });
  };
  write(s.dB, dB);
  write(s.dC, dC);
}

/* ---- launches ---- scratch: what chunks leave, states and their gradients */

template <typename T> static Scan<T> scan_of(const KernelArgs *a, int starts) {
  Scan<T> s = {};
  s.x = data<const T>(&a->in[0]), s.d = data<const float>(&a->in[1]);
  s.a = data<const float>(&a->in[2]);
  s.B = data<const T>(&a->in[3]), s.C = data<const T>(&a->in[4]);
  s.D = data<const T>(&a->in[5]);
  s.starts = a->nin > starts ? data<const int32_t>(&a->in[starts]) : nullptr;
  s.len = (int)a->in[0].dim[1], s.heads = (int)a->in[1].dim[2];
  s.P = (int)(a->in[0].dim[2] / s.heads), s.N = a->attr->head_dim;
  s.groups = (int)(a->in[3].dim[2] / s.N);
  s.chunks = (s.len + SIDE - 1) / SIDE;
  int64_t n = a->in[0].dim[0] * s.heads * s.chunks;
  s.state = (float *)a->work + n;
  s.grad = s.state + n * s.P * s.N;
  return s;
}

/* The states before all chunks, or the gradients of those after them. */
template <typename T>
static void states(Device *d, const KernelArgs *a, const Scan<T> &s, bool back) {
  int64_t heads = a->in[0].dim[0] * s.heads, size = (int64_t)s.P * s.N;
  Dim3 grid((unsigned)s.chunks, (unsigned)s.heads, (unsigned)a->in[0].dim[0]);
  if (back)
    LAUNCH((chunk_state_gradients<T>), grid, BLOCK, cuda_stream(d), s);
  else
    LAUNCH((chunk_states<T>), grid, BLOCK, cuda_stream(d), s);
  if (!back)
    LAUNCH((chunk_left<T>), (unsigned)packs_of(heads * s.chunks, BLOCK), BLOCK,
           cuda_stream(d), s, (float *)a->work, heads * s.chunks);
  LAUNCH((pass_states), (unsigned)packs_of(heads * size, BLOCK), BLOCK, cuda_stream(d),
         back ? s.grad : s.state, (const float *)a->work, heads, s.chunks, (int)size,
         back);
}

void cuda_ssm_scan(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    Scan<T> s = scan_of<T>(a, 6);
    s.y = data<T>(&a->out[0]);
    states(d, a, s, false);
    Dim3 grid((unsigned)s.chunks, (unsigned)s.heads, (unsigned)a->in[0].dim[0]);
    LAUNCH((chunk_outputs<T>), grid, BLOCK, cuda_stream(d), s);
  });
}

void cuda_ssm_scan_dx(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    Scan<T> s = scan_of<T>(a, 7);
    s.dy = data<const T>(&a->in[6]);
    s.dx = data<T>(&a->out[0]), s.dd = data<float>(&a->out[1]);
    s.da = data<float>(&a->out[2]);
    s.dB = data<T>(&a->out[3]), s.dC = data<T>(&a->out[4]);
    states(d, a, s, false);
    states(d, a, s, true);
    unsigned chunks = (unsigned)s.chunks, sequences = (unsigned)a->in[0].dim[0];
    int tiles = (s.N + SIDE - 1) / SIDE;
    LAUNCH((chunk_gradients<T>), Dim3(chunks, (unsigned)s.heads, sequences), BLOCK,
           cuda_stream(d), s);
    LAUNCH((chunk_group_gradients<T>),
           Dim3(chunks, (unsigned)(s.groups * tiles), sequences), BLOCK, cuda_stream(d),
           s, tiles);
  });
}

/* A block for each head. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    head_products(const T *x, const T *dy, G *to, int64_t rows, int P, bool add) {
  int64_t heads = gridDim.x, h = blockIdx.x;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < rows * P; i += BLOCK) {
    int64_t at = (i / P * heads + h) * P + i % P;
    sum += load(x[at]) * load(dy[at]);
  }
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) to[h] = rounded<G>(sum + (add ? load(to[h]) : 0.0f));
}

void cuda_ssm_scan_dw(Device *d, const KernelArgs *a) {
  int64_t heads = cuda_last(&a->out[0]), P = cuda_last(&a->in[0]) / heads;
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_type(a->out[0].dtype, [&](auto *q) {
      typedef TYPE_OF(q) G;
      LAUNCH((head_products<T, G>), (unsigned)heads, BLOCK, cuda_stream(d),
             data<const T>(&a->in[0]), data<const T>(&a->in[1]), data<G>(&a->out[0]),
             cuda_rows(&a->in[0]), (int)P, a->accumulate);
    });
  });
}
