/* unpack_nf4.cu - weights of codes of 4 bits and the scales of their blocks, with the
 * bits of kernels/cpu/unpack_nf4.c. */
#include "kernel.cuh"

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

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    unpack_nf4(const uint8_t *codes, const uint8_t *scales, const float *groups, T *y,
               int64_t n, float const *offset, Blocks k) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t here = i / NF4_BYTES, r = here / k.row;
    int64_t row = (r / k.rows * k.pieces + k.at) * k.rows + r % k.rows;
    int64_t block = row * k.all + k.first + here % k.row;
    float by = scale_of(scales[here], groups[block / NF4_GROUP], *offset);
    y[2 * i] = rounded<T>(levels[codes[i] >> 4] * by);
    y[2 * i + 1] = rounded<T>(levels[codes[i] & 15] * by);
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
  int64_t n = cuda_count(&a->in[0]);
  const float *groups = data<const float>(&a->in[2]);
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((unpack_nf4<T>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const uint8_t>(&a->in[0]), data<const uint8_t>(&a->in[1]), groups,
           data<T>(&a->out[0]), n, groups + a->in[2].dim[0] - 1, k);
  });
}
