/* unpack_nf4.cu - weights of codes of 4 bits and the scales of their blocks, with the
 * bits of kernels/cpu/unpack_nf4.c. */
#include "rows.cuh"

#include "vm/base/nf4.h"

static __device__ const float levels[] = {
#define LEVEL(x) x,
#include "vm/base/nf4.def"
};
static __device__ const float scale_values[] = {
#define SCALE(x) x,
#include "vm/base/nf4.def"
};

static __device__ __forceinline__ float scale_of(uint8_t code, float group,
                                                 float offset) {
  float x = code == 127  ? 0
            : code < 127 ? -scale_values[126 - code]
                         : scale_values[code - 128];
  return __fadd_rn(__fmul_rn(x, group), offset);
}

/* Which blocks of the whole weight these are. */
struct Blocks {
  int64_t row, rows, pieces, at, all, first; /* blocks of a row here; rows of a part */
};

/* The weights of a byte, by the scale of their block. */
template <typename T>
static __device__ __forceinline__ void unpack(uint32_t byte, float by, T *y) {
  y[0] = rounded<T>(levels[byte >> 4 & 15] * by);
  y[1] = rounded<T>(levels[byte & 15] * by);
}

/* A warp has a row, of which each thread takes four bytes at a time, eight weights; or,
 * not WIDE, one. Where the row is in the whole weight is found once for all of it. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    unpack_nf4(const uint8_t *codes, const uint8_t *scales, const float *groups, T *y,
               int64_t n, float const *offset, Blocks k) {
  constexpr int BYTES = WIDE ? 4 : 1, UNITS = NF4_BYTES / BYTES, N = EACH_OF<T>;
  int64_t step = (int64_t)gridDim.x * (BLOCK / WARP);
  int lane = threadIdx.x % WARP;
  float mean = *offset;
  for (int64_t r = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP; r < n;
       r += step) {
    int64_t row = (r / k.rows * k.pieces + k.at) * k.rows + r % k.rows;
    int64_t block = row * k.all + k.first;
    for (int64_t u = lane; u < k.row * UNITS; u += WARP) {
      int64_t b = u / UNITS, here = r * k.row + b, at = r * k.row * UNITS + u;
      float by = scale_of(scales[here], groups[(block + b) / NF4_GROUP], mean);
      if (!WIDE) {
        unpack(codes[at], by, y + 2 * at);
        continue;
      }
      uint32_t four = ((const uint32_t *)codes)[at];
      Pack<T, N> v[8 / N];
      UNROLL
      for (int e = 0; e < BYTES; e++)
        unpack(four >> 8 * e & 255, by, &v[2 * e / N].v[2 * e % N]);
      UNROLL
      for (int e = 0; e < 8 / N; e++) ((Pack<T, N> *)y)[at * (8 / N) + e] = v[e];
    }
  }
}

void cuda_nf4(Device *d, const KernelArgs *a) {
  const OpAttr *attr = a->attr;
  bool rows = attr->cut && attr->dim == 0, columns = attr->cut && attr->dim == 1;
  int64_t row = a->in[1].dim[1], parts = rows && attr->parts > 1 ? attr->parts : 1;
  Blocks k = {row,
              a->out[0].dim[0] / parts,
              rows ? attr->n : 1,
              rows ? a->index : 0,
              columns ? row * attr->n : row,
              columns ? a->index * row : 0};
  int64_t n = a->out[0].dim[0];
  const float *groups = data<const float>(&a->in[2]);
  bool wide = aligned(a->out[0].p) && (uintptr_t)a->in[0].p % 4 == 0;
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_bool(wide, [&](auto known) {
      LAUNCH((unpack_nf4<decltype(known)::is, T>), blocks_for(n, BLOCK / WARP), BLOCK,
             cuda_stream(d), data<const uint8_t>(&a->in[0]),
             data<const uint8_t>(&a->in[1]), groups, data<T>(&a->out[0]), n,
             groups + a->in[2].dim[0] - 1, k);
    });
  });
}
