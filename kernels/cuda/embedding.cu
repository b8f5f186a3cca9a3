/* embedding.cu - rows of a table by id, and the gradient of the table. With attr.cut this
 * rank holds the rows [index*V, index*V + V) of it. */
#include "kernel.cuh"

/* Copies elements as bits, whatever their type. */
template <typename U>
__global__ void __launch_bounds__(BLOCK)
    gather_rows(const int32_t *ids, const U *table, U *y, int64_t n, int64_t width,
                int64_t first, int64_t v) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t r = ids[i / width] - first;
    y[i] = r >= 0 && r < v ? table[r * width + i % width] : (U)0;
  }
}

void cuda_embedding(Device *d, const KernelArgs *a) {
  const KTensor *table = &a->in[1];
  int64_t v = table->dim[0], width = table->dim[1], n = cuda_count(&a->out[0]);
  int64_t first = a->attr->cut ? a->index * v : 0;
  assert(a->out[0].dtype == table->dtype);
  if (table->dtype == DT_F32)
    LAUNCH((gather_rows<uint32_t>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const int32_t>(&a->in[0]), data<const uint32_t>(table),
           data<uint32_t>(&a->out[0]), n, width, first, v);
  else
    LAUNCH((gather_rows<uint16_t>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const int32_t>(&a->in[0]), data<const uint16_t>(table),
           data<uint16_t>(&a->out[0]), n, width, first, v);
}

/* ---- gradient ---- */

template <typename G>
__global__ void __launch_bounds__(BLOCK) zero_elements(G *y, int64_t n) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = rounded<G>(0);
}

/* True in all threads if `id` is among ids [from, to). */
static __device__ bool among(const int32_t *ids, int64_t from, int64_t to, int32_t id) {
  int found = 0;
  for (int64_t i = from + threadIdx.x; i < to; i += BLOCK) found |= ids[i] == id;
  return block_sum<BLOCK>(found) > 0;
}

/* The next token at or after `at` with this id, a block's width of ids at a time;
 * `tokens` if there is none. */
static __device__ int64_t next_token(const int32_t *ids, int64_t at, int64_t tokens,
                                     int32_t id) {
  __shared__ int next[BLOCK / WARP];
  int64_t found = tokens;
  for (; at < tokens && found == tokens; at += BLOCK) {
    int64_t mine = at + threadIdx.x;
    int here = mine < tokens && ids[mine] == id ? (int)threadIdx.x : BLOCK;
    for (int o = WARP / 2; o > 0; o /= 2) {
      int other = __shfl_xor_sync(0xffffffffu, here, o);
      here = other < here ? other : here;
    }
    if (threadIdx.x % WARP == 0) next[threadIdx.x / WARP] = here;
    __syncthreads();
    for (int w = 0; w < BLOCK / WARP && found == tokens; w++)
      if (next[w] < BLOCK) found = at + next[w];
    __syncthreads();
  }
  return found;
}

/* One block per token. The first token of an id sums the rows of all tokens with that id,
 * in order and in f32, COLUMNS elements of a row for each thread at a time; the other
 * blocks have nothing to do. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    add_rows(const int32_t *ids, const T *dy, G *dtable, int64_t tokens, int64_t width,
             int64_t first, int64_t v) {
  constexpr int COLUMNS = 16;
  int32_t id = ids[blockIdx.x];
  int64_t r = id - first;
  if (r < 0 || r >= v || among(ids, 0, blockIdx.x, id)) return;
  G *to = dtable + r * width;
  for (int64_t c0 = threadIdx.x; c0 - threadIdx.x < width; c0 += COLUMNS * BLOCK) {
    float sum[COLUMNS];
    for (int j = 0; j < COLUMNS; j++)
      sum[j] = c0 + j * BLOCK < width ? load(to[c0 + j * BLOCK]) : 0;
    int64_t k = blockIdx.x;
    while (k < tokens) {
      for (int j = 0; j < COLUMNS; j++)
        if (c0 + j * BLOCK < width) sum[j] += load(dy[k * width + c0 + j * BLOCK]);
      k = next_token(ids, k + 1, tokens, id);
    }
    for (int j = 0; j < COLUMNS; j++)
      if (c0 + j * BLOCK < width) to[c0 + j * BLOCK] = rounded<G>(sum[j]);
  }
}

void cuda_embedding_dw(Device *d, const KernelArgs *a) {
  int64_t tokens = cuda_count(&a->in[0]), v = a->out[0].dim[0], width = a->out[0].dim[1];
  by_type(a->out[0].dtype, [&](auto *g) {
    typedef TYPE_OF(g) G;
    G *dtable = data<G>(&a->out[0]);
    if (!a->accumulate)
      LAUNCH((zero_elements<G>), blocks_for(v * width), BLOCK, cuda_stream(d), dtable,
             v * width);
    by_type(a->in[1].dtype, [&](auto *p) {
      typedef TYPE_OF(p) T;
      LAUNCH((add_rows<T, G>), (unsigned)tokens, BLOCK, cuda_stream(d),
             data<const int32_t>(&a->in[0]), data<const T>(&a->in[1]), dtable, tokens,
             width, a->attr->cut ? a->index * v : 0, v);
    });
  });
}
