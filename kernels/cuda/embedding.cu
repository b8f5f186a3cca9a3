/* embedding.cu - rows of a table by id, and the gradient of the table. With attr.cut this
 * rank holds the rows [index*V, index*V + V) of it. */
#include "rows.cuh"

/* Copies units of sixteen bytes, or elements, whatever their type. */
template <typename U>
__global__ void __launch_bounds__(BLOCK)
    gather_rows(const int32_t *ids, const U *table, U *y, int64_t tokens, int64_t width,
                int64_t first, int64_t v) {
  int64_t c = column_of(1);
  if (c >= width) return;
  for_rows(0, tokens, [&](int64_t i) {
    int64_t r = ids[i] - first;
    y[i * width + c] = r >= 0 && r < v ? table[r * width + c] : U{};
  });
}

void cuda_embedding(Device *d, const KernelArgs *a) {
  const KTensor *table = &a->in[1];
  int64_t v = table->dim[0], width = table->dim[1], tokens = cuda_count(&a->in[0]);
  int64_t first = a->attr->cut ? a->index * v : 0;
  assert(a->out[0].dtype == table->dtype);
  by_type(table->dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    auto gather = [&](auto unit, int64_t units) {
      typedef decltype(unit) U;
      RowGrid g = row_grid(units, tokens);
      LAUNCH((gather_rows<U>), g.blocks, g.threads, cuda_stream(d),
             data<const int32_t>(&a->in[0]), data<const U>(table), data<U>(&a->out[0]),
             tokens, units, first, v);
    };
    if (wide_rows<T>(width, table->p, a->out[0].p))
      gather(Pack<T, EACH_OF<T>>{}, width / EACH_OF<T>);
    else
      gather(T{}, width);
  });
}

/* ---- gradient ----
 * Tokens are sorted by id, and by place where ids are equal; SEGMENT places of that order
 * are summed by a block. An id whose tokens lie in one segment is complete then; of
 * others each segment keeps a partial sum, and these are added in order. So tokens of one
 * id, as of padding, are summed by many blocks. */
enum { SEGMENT = CUDA_EMBEDDING_SEGMENT };

template <typename G, bool WIDE>
__global__ void __launch_bounds__(BLOCK) zero_elements(G *y, int64_t n) {
  constexpr int N = EACH_OF<G>;
  int64_t step = (int64_t)gridDim.x * BLOCK * N;
  for (int64_t i = column_of(N); i < n; i += step) put<WIDE>(y, i, n, Pack<G, N>{});
}

/* A warp for each token counts those before it in the order. */
__global__ void __launch_bounds__(BLOCK)
    sort_tokens(const int32_t *ids, int32_t *order, int tokens) {
  int token = (int)blockIdx.x * (BLOCK / WARP) + (int)threadIdx.x / WARP, before = 0;
  if (token >= tokens) return;
  int32_t id = ids[token];
  UNROLL_BY_4
  for (int i = threadIdx.x % WARP; i < tokens; i += WARP)
    before += ids[i] < id || (ids[i] == id && i < token);
  before = lanes_sum(before);
  if (threadIdx.x % WARP == 0) order[before] = token;
}

/* Operands: dy(tokens, width); part(segments, 2, width): sums of ids that go on, of the
 * first and the last id of a segment. */
template <typename T, typename G> struct Segments {
  const int32_t *ids, *order;
  const T *dy;
  G *table;
  float *part;
  int64_t tokens, width, first, v;

  /* The id at a place of the order; of places outside one that no token has. */
  __device__ __forceinline__ int64_t id_at(int64_t place) const {
    return place >= 0 && place < tokens ? (int64_t)ids[order[place]] : INT64_MIN;
  }
  template <int N>
  __device__ __forceinline__ void add(int64_t id, int64_t c, const float (&sum)[N],
                                      bool wide) const {
    constexpr int HALF = N > EACH_OF<G> ? EACH_OF<G> : N;
    int64_t r = id - first;
    if (r < 0 || r >= v) return;
    G *to = table + r * width;
    UNROLL
    for (int h = 0; h < N; h += HALF) {
      Pack<G, HALF> was;
      if (wide)
        get<true>(was, to, c + h, width);
      else
        get<false>(was, to, c + h, width);
      UNROLL
      for (int j = 0; j < HALF; j++) was.v[j] = rounded<G>(load(was.v[j]) + sum[h + j]);
      if (wide)
        put<true>(to, c + h, width, was);
      else
        put<false>(to, c + h, width, was);
    }
  }
};

/* Grid: vectors of columns, segments. */
template <bool WIDE, typename T, typename G>
__global__ void __launch_bounds__(BLOCK) sum_segments(Segments<T, G> s) {
  constexpr int N = EACH_OF<T>, AHEAD = 4;
  __shared__ int32_t token[SEGMENT];
  __shared__ int64_t id[SEGMENT + 2]; /* from the place before on */
  int64_t p0 = (int64_t)blockIdx.y * SEGMENT, c = column_of(N);
  int n = s.tokens - p0 < SEGMENT ? (int)(s.tokens - p0) : SEGMENT;
  for (int i = threadIdx.x; i < n + 2; i += BLOCK) id[i] = s.id_at(p0 + i - 1);
  for (int i = threadIdx.x; i < n; i += BLOCK) token[i] = s.order[p0 + i];
  __syncthreads();
  if (c >= s.width) return;
  float sum[N] = {};
  bool begins = id[0] != id[1]; /* the id's tokens begin in this segment */
  int slot = 0;
  for (int q0 = 0; q0 < n; q0 += AHEAD) {
    Pack<T, N> row[AHEAD];
    UNROLL
    for (int a = 0; a < AHEAD; a++)
      if (q0 + a < n) get<WIDE>(row[a], s.dy + token[q0 + a] * s.width, c, s.width);
    UNROLL
    for (int a = 0; a < AHEAD; a++) {
      int q = q0 + a;
      if (q >= n) continue;
      UNROLL
      for (int j = 0; j < N; j++) sum[j] += load(row[a].v[j]);
      bool ends = id[q + 2] != id[q + 1];
      if (!ends && q + 1 < n) continue;
      if (begins && ends) {
        s.add(id[q + 1], c, sum, WIDE);
      } else {
        float *to = s.part + (2 * blockIdx.y + slot) * s.width;
        UNROLL
        for (int j = 0; j < N; j++)
          if (WIDE || c + j < s.width) to[c + j] = sum[j];
      }
      UNROLL
      for (int j = 0; j < N; j++) sum[j] = 0;
      begins = true, slot = 1;
    }
  }
}

/* Adds the parts of an id whose tokens begin in the segment and go on behind it. Grid:
 * columns, segments. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK) join_segments(Segments<T, G> s) {
  int64_t p0 = (int64_t)blockIdx.y * SEGMENT, p1 = p0 + SEGMENT, c = column_of(1);
  if (p1 >= s.tokens || c >= s.width) return;
  int64_t id = s.id_at(p1);
  if (s.id_at(p1 - 1) != id || s.id_at(p0 - 1) == id) return;
  bool whole = s.id_at(p0) == id; /* it is the first of its segment, too */
  const float *part = s.part + c;
  float sum[1] = {part[(2 * blockIdx.y + !whole) * s.width]};
  for (int64_t k = blockIdx.y + 1; k * SEGMENT < s.tokens; k++) {
    if (s.id_at(k * SEGMENT) != id) break;
    sum[0] += part[2 * k * s.width];
  }
  s.add(id, c, sum, false);
}

void cuda_embedding_dw(Device *d, const KernelArgs *a) {
  int64_t tokens = cuda_count(&a->in[0]), v = a->out[0].dim[0], width = a->out[0].dim[1];
  const int32_t *ids = data<const int32_t>(&a->in[0]);
  float *part = (float *)a->work;
  unsigned segments = (unsigned)packs_of(tokens, SEGMENT);
  int32_t *order = (int32_t *)(part + 2 * (int64_t)segments * width);
  assert(tokens <= INT32_MAX && segments <= 65535);
  LAUNCH((sort_tokens), (unsigned)packs_of(tokens, BLOCK / WARP), BLOCK, cuda_stream(d),
         ids, order, (int)tokens);
  by_type(a->out[0].dtype, [&](auto *g) {
    typedef TYPE_OF(g) G;
    G *table = data<G>(&a->out[0]);
    if (!a->accumulate)
      by_bool(wide_rows<G>(v * width, table), [&](auto wide) {
        LAUNCH((zero_elements<G, decltype(wide)::is>),
               blocks_for(v * width, BLOCK * EACH_OF<G>), BLOCK, cuda_stream(d), table,
               v * width);
      });
    by_type(a->in[1].dtype, [&](auto *p) {
      typedef TYPE_OF(p) T;
      constexpr int N = EACH_OF<T>;
      Segments<T, G> s = {ids,    order, data<const T>(&a->in[1]),        table, part,
                          tokens, width, a->attr->cut ? a->index * v : 0, v};
      by_bool(wide_rows<bfloat>(width, s.dy, table), [&](auto wide) {
        LAUNCH((sum_segments<decltype(wide)::is, T, G>),
               Dim3((unsigned)packs_of(width, BLOCK * N), segments), BLOCK,
               cuda_stream(d), s);
      });
      LAUNCH((join_segments<T, G>), Dim3((unsigned)packs_of(width, BLOCK), segments),
             BLOCK, cuda_stream(d), s);
    });
  });
}
