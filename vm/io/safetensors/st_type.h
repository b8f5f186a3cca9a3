/* st_type.h - safetensors' element types that weft reads and writes. */
#ifndef WEFT_IO_ST_TYPE_H
#define WEFT_IO_ST_TYPE_H

#include "vm/io/io.h"

#define ST_TYPES                                                                         \
  "F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, F8_E4M3"

typedef struct StType {
  const char *name;
  int size; /* bytes of an element */
  DType dtype;
  void (*to_f32)(const unsigned char *from, size_t n, float *to);
} StType;
const StType *st_type(const char *name); /* NULL if it is none of ST_TYPES */
const char *st_type_name(DType t);       /* NULL if there is none */
/* The other way; false if it is not built for the type. */
bool st_from_f32(DType t, const float *from, size_t n, unsigned char *to);

/* Weights that files have as codes with scales, as tensors of bf16:
 *
 *   NAME_blocks (E, R, G, 16) and NAME_scales (E, R, G), of U8: mxfp4, as gpt-oss has
 *     experts. A byte has two codes of 4 bits, the first in its low half; a scale is 2 to
 *     the power of itself less 127, of 32 codes. The tensor is NAME, (E, 32 G, R): the
 *     last two dimensions the other way round.
 *   NAME (R, C) of F8_E4M3 and NAME_scale_inv of F32 or BF16, one number for each 128 x
 *     128 codes, as DeepSeek-V3 has linears: a code is multiplied by its number in f32.
 *
 * These are the values that Transformers reads. Codes without scales, and scales without
 * codes or of other shapes, are errors. */
typedef struct StPacked {
  bool fp4; /* mxfp4; else F8_E4M3 */
  SafeTensor codes, scales;
} StPacked;
/* Puts what codes and scales are in their place, among n tensors in the order of names;
 * the order is lost. */
weft_status st_packed_find(Arena *a, SafeTensor *t, int *n, weft_error *e);

#endif
