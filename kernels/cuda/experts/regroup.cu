/* regroup.cu - rows of experts between the ranks of ep: how many of them go to, or come
 * from, each rank p for each expert e (n[p][e]), and their order. */
#include "kernels/cuda/rows.cuh"

__global__ void __launch_bounds__(BLOCK)
    sizes_of(const int32_t *ends, int32_t *n, int64_t count) {
  for (int64_t i = threadIdx.x; i < count; i += BLOCK) n[i] = ends[i + 1] - ends[i];
}

void cuda_expert_sizes(Device *d, const KernelArgs *a) {
  LAUNCH(sizes_of, 1, BLOCK, cuda_stream(d), data<const int32_t>(&a->in[0]),
         data<int32_t>(&a->out[0]), cuda_count(&a->out[0]));
}

__global__ void __launch_bounds__(BLOCK)
    ends_of(const int32_t *n, int32_t *ends, int64_t ranks, int64_t experts) {
  for (int64_t e = threadIdx.x; e <= experts; e += BLOCK) {
    int32_t sum = 0;
    for (int64_t i = 0; i < ranks * experts; i++) sum += i % experts < e ? n[i] : 0;
    ends[e] = sum;
  }
}

void cuda_expert_ends(Device *d, const KernelArgs *a) {
  LAUNCH(ends_of, 1, BLOCK, cuda_stream(d), data<const int32_t>(&a->in[0]),
         data<int32_t>(&a->out[0]), a->in[0].dim[0], a->in[0].dim[1]);
}

/* The order of rows: see regroup in ops.def. */
struct Order {
  const int32_t *n;
  int64_t ranks, experts, place, row;
  bool by_expert, inverse;
};

template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK) clear_all(T *y, int64_t n) {
  constexpr int N = EACH_OF<T>;
  int64_t step = (int64_t)gridDim.x * BLOCK * N;
  for (int64_t i = column_of(N); i < n; i += step) put<WIDE>(y, i, n, Pack<T, N>{});
}

/* Grid: parts of the rows, experts, source ranks. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK) move_blocks(const T *x, T *y, Order o) {
  constexpr int N = EACH_OF<T>;
  int64_t p = blockIdx.z, e = blockIdx.y, place = p * o.place, row = 0;
  const int32_t *n = o.n;
  for (int64_t q = 0; q < o.ranks; q++)
    for (int64_t f = 0; f < o.experts; f++, n++) {
      bool before = o.by_expert ? f < e || (f == e && q < p) : q < p || (q == p && f < e);
      if (before) row += *n;
      if (q == p && f < e) place += *n;
    }
  int64_t from = o.inverse ? row : place, to = o.inverse ? place : row;
  int64_t all = o.n[p * o.experts + e] * o.row, step = (int64_t)gridDim.x * BLOCK * N;
  x += from * o.row, y += to * o.row;
  for (int64_t i = column_of(N); i < all; i += step) {
    Pack<T, N> v;
    get<WIDE>(v, x, i, all);
    put<WIDE>(y, i, all, v);
  }
}

void cuda_regroup(Device *d, const KernelArgs *a) {
  const KTensor *places = a->attr->inverse ? &a->out[0] : &a->in[0], *n = &a->in[1];
  Order o = {data<const int32_t>(n), n->dim[0],      n->dim[1],
             places->dim[1],         places->dim[2], a->attr->kind != 0,
             a->attr->inverse != 0};
  int64_t all = cuda_count(&a->out[0]);
  enum { EACH = 4 }; /* blocks for the rows of an expert */
  by_type(a->out[0].dtype, [&](auto *t) {
    typedef TYPE_OF(t) T;
    by_bool(wide_rows<T>(o.row, a->in[0].p, a->out[0].p), [&](auto wide) {
      constexpr bool WIDE = decltype(wide)::is;
      LAUNCH((clear_all<WIDE, T>), blocks_for(all, BLOCK * EACH_OF<T>), BLOCK,
             cuda_stream(d), data<T>(&a->out[0]), all);
      LAUNCH((move_blocks<WIDE, T>), Dim3(EACH, (unsigned)o.experts, (unsigned)o.ranks),
             BLOCK, cuda_stream(d), data<const T>(&a->in[0]), data<T>(&a->out[0]), o);
    });
  });
}
