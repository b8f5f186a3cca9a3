/* st_type.h - safetensors' element types that weft reads and writes. */
#ifndef WEFT_IO_ST_TYPE_H
#define WEFT_IO_ST_TYPE_H

#include "io.h"

#define ST_TYPES                                                                         \
  "F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, F8_E4M3"

typedef struct StType {
  const char *name;
  int size; /* bytes of an element */
  DType dtype;
  void (*to_f32)(const unsigned char *from, size_t n, float *to);
} StType;
const StType *st_type(const char *name); /* NULL if it is none of ST_TYPES */
/* The other way; false if it is not built for the type. */
bool st_from_f32(DType t, const float *from, size_t n, unsigned char *to);
const char *st_type_name(DType t); /* NULL if there is none */
/* Codes of 8 bits, four of exponent and three of fraction: st_packed.c. */
void st_f8_to_f32(const unsigned char *from, size_t n, float *to);

#endif
