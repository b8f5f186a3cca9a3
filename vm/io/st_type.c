/* st_type.c - conversion of safetensors elements to f32. */
#include "st_type.h"

#include "vm/base/bf16.h"
#include "st_packed.h"

#include "vm/base/f16.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors data is read as the machine's own numbers");

/* One loop per type: `x` is an element, `value` its value as a float. */
#define CONVERT(name, T, value)                                                          \
  static void name(const unsigned char *from, size_t n, float *to) {                     \
    for (size_t i = 0; i < n; i++) {                                                     \
      T x;                                                                               \
      memcpy(&x, from + i * sizeof x, sizeof x);                                         \
      to[i] = (value);                                                                   \
    }                                                                                    \
  }

CONVERT(f64, double, (float)x)
CONVERT(half, uint16_t, f16_to_f32(x))
CONVERT(brain, uint16_t, bf16_to_f32(x))
CONVERT(i64, int64_t, (float)x)
CONVERT(i32, int32_t, (float)x)
CONVERT(i16, int16_t, (float)x)
CONVERT(i8, int8_t, (float)x)
CONVERT(u64, uint64_t, (float)x)
CONVERT(u32, uint32_t, (float)x)
CONVERT(u16, uint16_t, (float)x)
CONVERT(u8, uint8_t, (float)x)
CONVERT(truth, uint8_t, x ? 1.0f : 0.0f)

static void f32(const unsigned char *from, size_t n, float *to) {
  if (n) memcpy(to, from, n * sizeof *to);
}

static const StType types[] = {
    {"F64", 8, DT_F64, f64},    {"F32", 4, DT_F32, f32},
    {"F16", 2, DT_F16, half},   {"BF16", 2, DT_BF16, brain},
    {"I64", 8, DT_F32, i64},    {"I32", 4, DT_I32, i32},
    {"I16", 2, DT_F32, i16},    {"I8", 1, DT_F32, i8},
    {"U64", 8, DT_F32, u64},    {"U32", 4, DT_F32, u32},
    {"U16", 2, DT_F32, u16},    {"U8", 1, DT_U8, u8},
    {"BOOL", 1, DT_F32, truth}, {"F8_E4M3", 1, DT_F32, st_f8_to_f32},
};

const StType *st_type(const char *name) {
  for (int i = 0; i < LEN(types); i++)
    if (str_eq(types[i].name, name)) return &types[i];
  return NULL;
}

const char *st_type_name(DType t) {
  switch (t) {
  case DT_F32: return "F32";
  case DT_BF16: return "BF16";
  case DT_F64: return "F64";
  case DT_I32: return "I32";
  case DT_F16: return "F16";
  case DT_U8: return "U8";
  case DT_Q8: /* are saved as f32 */
  case DT_UQ8:
  case DT_ACT:
  case DT_GRAD: break;
  }
  return NULL;
}

bool st_from_f32(DType t, const float *from, size_t n, unsigned char *to) {
  for (size_t i = 0; i < n; i++) {
    uint16_t x = t == DT_BF16 ? bf16_from_f32(from[i]) : f16_from_f32(from[i]);
    if (t != DT_F32) memcpy(to + i * sizeof x, &x, sizeof x);
  }
  if (t == DT_F32) memcpy(to, from, n * sizeof *from);
  return t == DT_F32 || t == DT_BF16 || t == DT_F16;
}

/* New rows are behind those of the file. */
weft_status st_read_raw(const SafeTensor *t, int64_t first, int64_t n, void *to,
                        weft_error *e) {
  size_t size = (size_t)st_type(t->type)->size;
  int64_t whole = (int64_t)((t->row ? t->in_file : t->bytes) / size);
  int64_t there = first < whole ? MIN(n, whole - first) : 0;
  if (there && t->packed) TRY(st_packed_read(t, first, there, to, e));
  if (there && !t->packed)
    TRY(file_at(t->in, t->at + (uint64_t)first * size, to, (size_t)there * size, e));
  if (there == n) return WEFT_OK;
  unsigned char *new = (unsigned char *)to + (size_t)there * size;
  size_t at = (size_t)(first + there - whole) * size;
  for (size_t i = 0; i < (size_t)(n - there) * size; i++)
    new[i] = t->row[(at + i) % t->row_bytes];
  return WEFT_OK;
}

weft_status st_read_part(const SafeTensor *t, int64_t first, int64_t n, float *out,
                         weft_error *e) {
  const StType *type = st_type(t->type);
  _Alignas(8) unsigned char chunk[16384];
  int64_t room = (int64_t)sizeof chunk / type->size;
  for (int64_t k; n > 0; first += k, n -= k, out += k) {
    k = MIN(n, room);
    TRY(st_read_raw(t, first, k, chunk, e));
    type->to_f32(chunk, (size_t)k, out);
  }
  return WEFT_OK;
}

weft_status st_read_f32(const SafeTensor *t, float *out, weft_error *e) {
  return st_read_part(t, 0, (int64_t)(t->bytes / (size_t)st_type(t->type)->size), out, e);
}
