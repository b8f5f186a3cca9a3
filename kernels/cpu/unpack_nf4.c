/* unpack_nf4.c - weights of codes of 4 bits and the scales of their blocks; see
 * vm/base/nf4.h. Every level times its scale is an f32 that is rounded once, so all ranks
 * have the same bits of a weight. */
#include "kernel.h"

#include "vm/base/nf4.h"

/* The row of the whole weight that row r here is: of each part of it the rank has a
 * piece. */
static int64_t whole_row(const KernelArgs *a, int64_t r) {
  int64_t parts = a->attr->cut && a->attr->dim == 0 ? MAX(a->attr->parts, 1) : 1;
  int64_t pieces = a->attr->cut && a->attr->dim == 0 ? a->attr->n : 1;
  int64_t rows = a->out[0].dim[0] / parts, at = pieces > 1 ? a->index : 0;
  return (r / rows * pieces + at) * rows + r % rows;
}

INLINE void nf4(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const uint8_t *codes = a->in[0].p, *scales = a->in[1].p;
  const float *groups = a->in[2].p, offset = groups[a->in[2].dim[0] - 1];
  int64_t blocks = a->in[1].dim[1], all = blocks, first = 0;
  if (a->attr->cut && a->attr->dim == 1) all *= a->attr->n, first = a->index * blocks;
  for (int64_t r = lo; r < hi; r++)
    for (int64_t b = 0; b < blocks; b++) {
      int64_t block = whole_row(a, r) * all + first + b, here = r * blocks + b;
      float by = nf4_unpack_scale(scales[here], groups[block / NF4_GROUP], offset);
      const uint8_t *code = codes + here * NF4_BYTES;
      void *y = at(a->out[0].p, t, here * NF4_BLOCK);
      for (int i = 0; i < NF4_BYTES; i++) {
        put(y, t, 2 * i, nf4_level[code[i] >> 4] * by);
        put(y, t, 2 * i + 1, nf4_level[code[i] & 15] * by);
      }
    }
}
BY_TYPE(nf4, out[0])

void cpu_nf4(Device *dev, const KernelArgs *a) {
  each_part(dev, a, a->out[0].dim[0], row_grain(last_dim(&a->out[0])), nf4_part);
}
