/* block_rows.cu - what cuDNN computed of some rows, to the rows of a result that has more
 * of them, and to what other keys gave: sums of gradients, and results of two softmaxes
 * as one. All of it is bound by memory, 16 bytes of the block a thread. */
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/rows.cuh"

static unsigned sequences(int64_t batch) {
  const int64_t most = 65535; /* of a dimension of the grid */
  return (unsigned)(batch < most ? batch : most);
}

/* ---- sums ---- */

struct BlockPlace {
  int64_t batch, tokens, width; /* of the result */
  int64_t first, rows;          /* of the block */
};

/* Grid: vectors of columns, tokens, sequences. */
template <bool WIDE, typename TX, typename TY>
__global__ void __launch_bounds__(BLOCK)
    put_block_rows(BlockPlace s, const TX *x, const float *wide_base, const TY *base,
                   TY *y) {
  constexpr int N = EACH_OF<TX>;
  int64_t c = column_of(N);
  if (c >= s.width) return;
  for (int64_t b = blockIdx.z; b < s.batch; b += gridDim.z)
    for_rows(0, s.tokens, [&](int64_t t) {
      int64_t at = (b * s.tokens + t) * s.width, r = t - s.first;
      float sum[N] = {};
      Pack<TY, N> to;
      if (wide_base) {
        Pack<float, N> v;
        get<WIDE>(v, wide_base + at, c, s.width);
        UNROLL
        for (int j = 0; j < N; j++) sum[j] = v.v[j];
      } else if (base) {
        get<WIDE>(to, base + at, c, s.width);
        UNROLL
        for (int j = 0; j < N; j++) sum[j] = load(to.v[j]);
      }
      if (x && r >= 0 && r < s.rows) {
        Pack<TX, N> v;
        get<WIDE>(v, x + (b * s.rows + r) * s.width, c, s.width);
        UNROLL
        for (int j = 0; j < N; j++) sum[j] += load(v.v[j]);
      }
      UNROLL
      for (int j = 0; j < N; j++) to.v[j] = rounded<TY>(sum[j]);
      put<WIDE>(y + at, c, s.width, to);
    });
}

template <typename TX, typename TY>
static void put_rows(Device *d, const KTensor *out, const KTensor *base,
                     const BlockRows &block) {
  int64_t width = cuda_last(out);
  BlockPlace s = {out->dim[0], out->dim[1], width, block.first, block.rows};
  RowGrid g = row_grid(packs_of(width, EACH_OF<TX>), s.tokens);
  const float *wide_base = base && base->dtype == DT_F32 ? data<const float>(base) : NULL;
  const TY *own = base && !wide_base ? data<const TY>(base) : NULL;
  g.blocks.z = sequences(s.batch);
  by_bool(wide_rows<TX>(width, block.p, out->p, base ? base->p : NULL), [&](auto wide) {
    LAUNCH((put_block_rows<decltype(wide)::is, TX, TY>), g.blocks, g.threads,
           cuda_stream(d), s, (const TX *)block.p, wide_base, own, data<TY>(out));
  });
}

void cuda_put_rows(Device *d, const KTensor *out, const KTensor *base, BlockRows block) {
  assert(!base || base->dtype == DT_F32 || base->dtype == out->dtype);
  if (block.p && block.type == DT_F32) {
    put_rows<float, float>(d, out, base, block);
    return;
  }
  by_type(out->dtype,
          [&](auto *p) { put_rows<bfloat, TYPE_OF(p)>(d, out, base, block); });
}

/* ---- two softmaxes as one ---- */

enum { LANES = 16 }; /* of a head: 8 elements each */

struct Merge {
  int64_t batch, tokens, heads, head_dim;
  int64_t first, rows;
};

/* lse of both, and the shares of the first and of the second. */
static __device__ __forceinline__ float merged(float a, float b, float &of_a,
                                               float &of_b) {
  float most = fmaxf(a, b), x = expf(a - most), y = expf(b - most), sum = x + y;
  of_a = x / sum, of_b = y / sum;
  return most + logf(sum);
}

/* Grid: heads by lanes, tokens, sequences. */
template <typename TY>
__global__ void __launch_bounds__(BLOCK)
    merge_softmaxes(Merge s, const float *o0, const float *lse0, const bfloat *o1,
                    const float *lse1, TY *o) {
  constexpr int N = EACH_OF<bfloat>;
  int64_t place = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, h = place / LANES;
  int64_t c = place % LANES * N;
  if (h >= s.heads || c >= s.head_dim) return;
  for (int64_t b = blockIdx.z; b < s.batch; b += gridDim.z)
    for_rows(0, s.tokens, [&](int64_t t) {
      int64_t at = (b * s.tokens + t) * s.heads + h, r = t - s.first;
      Pack<float, N> v = *(const Pack<float, N> *)(o0 + at * s.head_dim + c);
      Pack<TY, N> to;
      if (r >= 0 && r < s.rows) {
        int64_t from = (b * s.rows + r) * s.heads + h;
        float first, second;
        (void)merged(lse0[at], lse1[from], first, second);
        Pack<bfloat, N> w = *(const Pack<bfloat, N> *)(o1 + from * s.head_dim + c);
        UNROLL
        for (int j = 0; j < N; j++) v.v[j] = first * v.v[j] + second * load(w.v[j]);
      }
      UNROLL
      for (int j = 0; j < N; j++) to.v[j] = rounded<TY>(v.v[j]);
      *(Pack<TY, N> *)(o + at * s.head_dim + c) = to;
    });
}

/* After the results, whose threads all read lse0: it may be where lse is. Grid: heads,
 * tokens, sequences. */
__global__ void __launch_bounds__(BLOCK)
    merge_lse(Merge s, const float *lse0, const float *lse1, float *lse) {
  int64_t h = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (h >= s.heads) return;
  for (int64_t b = blockIdx.z; b < s.batch; b += gridDim.z)
    for_rows(0, s.tokens, [&](int64_t t) {
      int64_t at = (b * s.tokens + t) * s.heads + h, r = t - s.first;
      int64_t from = (b * s.rows + r) * s.heads + h;
      float shares[2], all = lse0[at];
      if (r >= 0 && r < s.rows) all = merged(all, lse1[from], shares[0], shares[1]);
      lse[at] = all;
    });
}

void cuda_merge_rows(Device *d, const KTensor *o, const KTensor *lse, const KTensor *o0,
                     const KTensor *lse0, BlockRows block, const float *block_lse,
                     int head_dim) {
  int64_t heads = cuda_last(lse);
  Merge s = {o->dim[0], o->dim[1], heads, head_dim, block.first, block.rows};
  RowGrid g = row_grid(heads * LANES, s.tokens), each = row_grid(heads, s.tokens);
  g.blocks.z = each.blocks.z = sequences(s.batch);
  assert(head_dim % EACH_OF<bfloat> == 0 && head_dim <= LANES * EACH_OF<bfloat>);
  by_type(o->dtype, [&](auto *p) {
    typedef TYPE_OF(p) TY;
    LAUNCH((merge_softmaxes<TY>), g.blocks, g.threads, cuda_stream(d), s,
           data<const float>(o0), data<const float>(lse0), (const bfloat *)block.p,
           block_lse, data<TY>(o));
  });
  LAUNCH((merge_lse), each.blocks, each.threads, cuda_stream(d), s,
         data<const float>(lse0), block_lse, data<float>(lse));
}
