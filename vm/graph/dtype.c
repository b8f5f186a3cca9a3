/* dtype.c - element types: their sizes and names. A file of its own, as the modules of
 * devices and engines have it, too: nothing else says how large an element is. */
#include "graph.h"
#include "vm/base/dynamic8.h"

int dtype_size(DType t) {
  static const int size[] = {[DT_F32] = 4,
                             [DT_BF16] = 2,
                             [DT_F64] = 8,
                             [DT_I32] = 4,
                             [DT_F16] = 2,
                             [DT_U8] = 1,
                             [DT_Q8] = sizeof(Dynamic8),
                             [DT_UQ8] = sizeof(Dynamic8)};
  assert(t < DT_ACT);
  return size[t];
}

int dtype_elements(DType t) { return t == DT_Q8 || t == DT_UQ8 ? DYNAMIC8_BLOCK : 1; }

static const char *const dtypes[] = {"f32", "bf16", "f64", "i32", "f16",
                                     "u8",  "q8",   "uq8", "act", "grad"};

const char *dtype_name(DType t) { return dtypes[t]; }

DType dtype_named(const char *name) {
  int t = 0;
  while (t < DT_ACT && strcmp(dtypes[t], name) != 0) t++;
  return (DType)t;
}
