/* op_nf4.c - the shape of weights that are stored in 4 bits. They are frozen, so there is
 * no gradient. */
#include "rules.h"

#include "vm/base/nf4.h"

weft_status infer_nf4(Graph *g, Op *op, weft_error *e) {
  const Tensor *codes = op_in(g, op, 0), *scales = op_in(g, op, 1),
               *groups = op_in(g, op, 2);
  if (codes->dtype != DT_U8 || scales->dtype != DT_U8 || groups->dtype != DT_F32)
    return shape_error(g, op, e, "codes and scales must be u8, groups f32");
  if (codes->ndim != 2 || scales->ndim != 2 || groups->ndim != 1)
    return shape_error(g, op, e, "codes and scales have 2 dimensions, groups 1");
  Dim w[] = {codes->dim[0], codes->dim[1]};
  w[1].size = w[1].local = 2 * codes->dim[1].size;
  w[1].unit = 2 * codes->dim[1].unit;
  int64_t blocks = w[0].size * w[1].size / NF4_BLOCK;
  if (w[1].size % NF4_BLOCK || scales->dim[0].size != w[0].size ||
      scales->dim[1].size != w[1].size / NF4_BLOCK ||
      groups->dim[0].size != (blocks + NF4_GROUP - 1) / NF4_GROUP + 1)
    return shape_error(g, op, e, "scales and groups are of another weight");
  return op_result(g, op, 0, DT_ACT, w, 2);
}
