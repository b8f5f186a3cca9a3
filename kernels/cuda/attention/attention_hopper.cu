/* attention_hopper.cu - causal attention forward in bf16 by the products of a warpgroup
 * that GPUs of compute capability 9.0 have (wgmma), for heads of up to 128 elements
 * without dropout; masks and softmax are those of attention.cu.
 *
 * A block is a warpgroup with two groups of 64 queries, of which each warp has 16. The
 * softmax of one group runs beside the products of the other. */
#include "attention_forward.cuh"
#include "attention_hopper.h"
#include "kernels/cuda/wgmma.cuh"

enum { D_MOST = 128 };

/* Two blocks on a multiprocessor: 48 KiB each for heads of 64, 96 for 128. */
template <int D> struct Warpgroup {
  static constexpr int threads = 4 * WARP, groups = 2, group = 64;
  static constexpr int rows = groups * group, others = 64;
  /* Tiles begin at a multiple of SWIZZLE_BYTES, dynamic memory wherever it does. */
  static constexpr int room =
      (rows + 4 * others) * D * (int)sizeof(bfloat) + SWIZZLE_BYTES;
};

/* A tile of ROWS rows in shared memory as products of a warpgroup read it: SWIZZLED
 * columns of all rows, then the next ones. */
template <int ROWS, int D> struct SwizzledTile {
  bfloat *p;
  static constexpr int EACH = 16 / (int)sizeof(bfloat), COLUMNS = D, SIZE = ROWS * D;
  static constexpr bool WHOLE = true; /* products sum all columns */
  __device__ __forceinline__ bfloat *at(int row, int col) const {
    int chunk = col % SWIZZLED / EACH;
    return p + (col / SWIZZLED * ROWS + row) * SWIZZLED + (chunk ^ (row & 7)) * EACH +
           col % EACH;
  }
  /* Of 16 columns of rows from `row`, a multiple of 8, which are summed over. */
  __device__ __forceinline__ uint64_t summed_columns(int row, int col) const {
    const bfloat *from = p + (col / SWIZZLED * ROWS + row) * SWIZZLED + col % SWIZZLED;
    return matrix_at(shared_address(from), SWIZZLE_BYTES, 16);
  }
  /* Of all columns of 16 rows, which are summed over. */
  __device__ __forceinline__ uint64_t summed_rows(int row) const {
    constexpr int halves = ROWS * SWIZZLED * (int)sizeof(bfloat);
    return matrix_at(shared_address(p + row * SWIZZLED), SWIZZLE_BYTES, halves);
  }
};

/* Starts x = 64 rows of a times all rows of b (transposed). */
template <int ROWS, int N, int D>
__device__ __forceinline__ void begin_scores(float (&x)[N / 8][4],
                                             const SwizzledTile<ROWS, D> &a, int row,
                                             const SwizzledTile<N, D> &b) {
  product_of_rows<false>(x, a.summed_columns(row, 0), b.summed_columns(0, 0));
  UNROLL
  for (int k = 16; k < D; k += 16)
    product_of_rows<true>(x, a.summed_columns(row, k), b.summed_columns(0, k));
  products_commit();
}

/* Starts out += x b, whose factors are rounded to p. */
template <int N, int D>
__device__ __forceinline__ void
begin_sums(float (&out)[D / 8][4], uint32_t (&p)[N / 16][4], const float (&x)[N / 8][4],
           const SwizzledTile<N, D> &b) {
  UNROLL
  for (int k = 0; k < N / 16; k++) UNROLL
  for (int i = 0; i < 4; i++) {
    const float(&c)[4] = x[2 * k + i / 2];
    p[k][i] = pair_of(c[i % 2 * 2], c[i % 2 * 2 + 1]);
  }
  hold(out), hold(p);
  products_begin();
  UNROLL
  for (int k = 0; k < N / 16; k++) add_columns(out, p[k], b.summed_rows(k * 16));
  products_commit();
}

/* Grid and operands are those of attend. All warps come to all products, also those with
 * no row of the sequence. */
template <int D>
__global__ void __launch_bounds__(Warpgroup<D>::threads, 2)
    attend_warpgroup(Heads s, const bfloat *q, const bfloat *k, const bfloat *v,
                     const float *o0, const float *lse0, const bfloat *sinks, void *o,
                     bool wide, float *lse) {
  typedef Warpgroup<D> S;
  constexpr int N = S::others, NT = N / 8, CT = D / 8, PAIRS = N / 16;
  SHARED_ROOM(room);
  __shared__ int key_at[2][N];
  unsigned before = shared_address(room) % SWIZZLE_BYTES;
  SwizzledTile<S::rows, D> mine = {
      (bfloat *)(room + (before ? SWIZZLE_BYTES - before : 0))};
  typedef SwizzledTile<N, D> Other;
  auto others = [&](int stage, int which) {
    return Other{mine.p + mine.SIZE + (2 * stage + which) * Other::SIZE};
  };
  int first = (int)(gridDim.x - 1 - blockIdx.x) * S::rows;
  int64_t h = blockIdx.y, b = blockIdx.z, kv = h * s.k / s.h;
  Slice<const bfloat> keys = slice(k, b, s.keys, kv, s.k, s.d);
  Slice<const bfloat> values = slice(v, b, s.keys, kv, s.k, s.dv);
  Lane l = lane_here();
  Queries y[2];
  float out[2][CT][4] = {};
  UNROLL
  for (int g = 0; g < 2; g++)
    begin_queries(y[g], out[g], s, b, h, first + S::group * g + l.warp_row + l.group, o0,
                  lse0, sinks);
  fetch<S::rows, S::threads>(mine, slice(q, b, s.t, h, s.h, s.d), first);

  Scale scale = scale_of(s);
  walk_keys<S::threads>(
      s, b, query_range(s, b, first, S::rows), keys, values, others, key_at,
      [&](int stage, int k0, bool all) {
        Other key = others(stage, 0), value = others(stage, 1);
        float x[2][NT][4];
        uint32_t p[2][PAIRS][4];
        products_begin();
        begin_scores(x[0], mine, 0, key);
        begin_scores(x[1], mine, S::group, key);
        products_wait_but<1>();
        hold(x[0]);
        take_scores(x[0], out[0], y[0], s, scale, key_at[stage], all);
        begin_sums(out[0], p[0], x[0], value);
        products_wait_but<1>();
        hold(x[1]);
        take_scores(x[1], out[1], y[1], s, scale, key_at[stage], all);
        begin_sums(out[1], p[1], x[1], value);
        products_wait_but<0>();
        hold(out[0]), hold(out[1]);
      },
      [] {
        copies_wait();
        products_see_writes();
      });

  UNROLL
  for (int g = 0; g < 2; g++) end_queries<bfloat>(y[g], out[g], s, b, h, o, wide, lse);
}

bool cuda_attention_hopper_has(const KernelArgs *a) {
  const OpAttr *t = a->attr;
  return a->in[0].dtype == DT_BF16 && t->rate == 0 && t->head_dim <= D_MOST &&
         attr_value_dim(t) <= D_MOST;
}

bool cuda_attention_hopper(Device *d, const KernelArgs *a) {
  if (!cuda_attention_hopper_has(a)) return false;
  bool on = goes_on(a);
  Heads s = heads_of(a, on ? STARTS : STARTS_FIRST);
  const KTensor *sinks = on ? NULL : kernel_sinks(a, STARTS_FIRST);
  auto launch = [&](auto size) {
    constexpr int D = decltype(size)::size;
    typedef Warpgroup<D> S;
    Dim3 grid((unsigned)((s.t + S::rows - 1) / S::rows), (unsigned)s.h, (unsigned)s.b);
    LAUNCH_ROOM((attend_warpgroup<D>), grid, S::threads, S::room, cuda_stream(d), s,
                data<const bfloat>(&a->in[0]), data<const bfloat>(&a->in[1]),
                data<const bfloat>(&a->in[2]), on ? data<const float>(&a->in[O]) : NULL,
                on ? data<const float>(&a->in[LSE]) : NULL,
                sinks ? data<const bfloat>(sinks) : NULL, a->out[0].p,
                a->out[0].dtype == DT_F32, data<float>(&a->out[1]));
  };
  if (s.d <= 64 && s.dv <= 64)
    launch(HeadSize<64, false>{});
  else
    launch(HeadSize<128, false>{});
  return true;
}
