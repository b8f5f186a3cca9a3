/* st_type.c - conversion of safetensors elements to f32, and tensors that are made of
 * codes and scales. */
#include "st_type.h"

#include <math.h>
#include <stdlib.h>

#include "vm/io/file.h"
#include "vm/base/bf16.h"
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

/* Four bits of exponent and three of fraction; there are no infinities. */
static float f8_value(unsigned char code) {
  int exponent = code >> 3 & 15, fraction = code & 7;
  float x = exponent ? ldexpf((float)(8 + fraction), exponent - 10)
                     : ldexpf((float)fraction, -9);
  if ((code & 127) == 127) x = NAN;
  return code & 128 ? -x : x;
}

static void f8(const unsigned char *from, size_t n, float *to) {
  float value[256];
  for (int i = 0; i < LEN(value); i++) value[i] = f8_value((unsigned char)i);
  for (size_t i = 0; i < n; i++) to[i] = value[from[i]];
}

static const StType types[] = {
    {"F64", 8, DT_F64, f64},     {"F32", 4, DT_F32, f32},    {"F16", 2, DT_F16, half},
    {"BF16", 2, DT_BF16, brain}, {"I64", 8, DT_F32, i64},    {"I32", 4, DT_I32, i32},
    {"I16", 2, DT_F32, i16},     {"I8", 1, DT_F32, i8},      {"U64", 8, DT_F32, u64},
    {"U32", 4, DT_F32, u32},     {"U16", 2, DT_F32, u16},    {"U8", 1, DT_U8, u8},
    {"BOOL", 1, DT_F32, truth},  {"F8_E4M3", 1, DT_F32, f8},
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

/* ---- codes and scales ---- */

#define FAIL(t, ...) return err_file(e, WEFT_EFILE, (t)->file, 0, __VA_ARGS__)

enum { F8_BLOCK = 128, FP4_BYTES = 16, FP4_GROUP = 2 * FP4_BYTES };

static const char blocks_end[] = "_blocks", scales_end[] = "_scales",
                  inverse_end[] = "_scale_inv";

/* ---- pairs ---- */

/* Whether it is `end` that a name ends with; *n: what is before. */
static bool ends(const char *name, const char *end, size_t *n) {
  size_t all = strlen(name), m = strlen(end);
  *n = all > m ? all - m : 0;
  return *n && str_eq(name + *n, end);
}

typedef struct Key {
  const char *s;
  size_t n;
  const char *end;
} Key;

static int by_key(const void *x, const void *y) {
  const Key *k = x;
  const char *name = ((const SafeTensor *)y)->name;
  int c = strncmp(k->s, name, k->n);
  if (c || strlen(name) < k->n) return c ? c : 1;
  return strcmp(k->end, name + k->n);
}

/* The tensor named by the first n characters of s and `end`. */
static SafeTensor *find(SafeTensor *t, int n, const char *s, size_t first,
                        const char *end) {
  Key k = {s, first, end};
  return n ? bsearch(&k, t, (size_t)n, sizeof *t, by_key) : NULL;
}

static const char *shape_of(const SafeTensor *t, char buf[128]) {
  TextBuf b = textbuf(buf, 128);
  for (int i = 0; i < t->ndim; i++)
    textbuf_printf(&b, "%s%lld", i ? ", " : "[", (long long)t->dim[i]);
  textbuf_printf(&b, t->ndim ? "]" : "[]");
  return buf;
}

static SafeTensor unpacked(Arena *a, bool fp4, const SafeTensor *codes,
                           const SafeTensor *scales, const char *name) {
  StPacked *p = NEW(a, StPacked);
  *p = (StPacked){.fp4 = fp4, .codes = *codes, .scales = *scales};
  SafeTensor t = *codes;
  t.name = name;
  t.packed = p;
  t.type = st_type_name(DT_BF16);
  t.dtype = DT_BF16;
  t.bytes = sizeof(uint16_t);
  if (fp4) {
    t.ndim = 3;
    t.dim[1] = FP4_GROUP * codes->dim[2];
    t.dim[2] = codes->dim[1];
  }
  for (int i = 0; i < t.ndim; i++) t.bytes *= (size_t)t.dim[i];
  return t;
}

static weft_status check_fp4(const SafeTensor *b, const SafeTensor *s, weft_error *e) {
  char have[128], want[128];
  if (!s)
    FAIL(b, "tensor \"%s\" has no scales: \"%.*s%s\" is missing", b->name,
         (int)(strlen(b->name) - strlen(blocks_end)), b->name, scales_end);
  if (b->ndim != 4 || b->dim[3] != FP4_BYTES)
    FAIL(b,
         "tensor \"%s\": shape %s, blocks of mxfp4 have (experts, rows, groups, %d): %d "
         "bytes are the codes of a scale",
         b->name, shape_of(b, have), FP4_BYTES, FP4_BYTES);
  bool same = s->ndim == 3 && str_eq(s->type, "U8");
  for (int i = 0; i < 3; i++) same = same && s->dim[i] == b->dim[i];
  if (!same)
    FAIL(s,
         "tensor \"%s\": %s%s does not go with the %s of \"%s\": a scale of U8 for each "
         "%d bytes",
         s->name, s->type, shape_of(s, have), shape_of(b, want), b->name, FP4_BYTES);
  return WEFT_OK;
}

static weft_status check_f8(const SafeTensor *t, const SafeTensor *s, weft_error *e) {
  char have[128], want[128];
  if (!s)
    FAIL(t, "tensor \"%s\" is of F8_E4M3 and has no scales: \"%s%s\" is missing", t->name,
         t->name, inverse_end);
  if (t->ndim != 2)
    FAIL(t, "tensor \"%s\": shape %s, a weight of F8_E4M3 has two dimensions", t->name,
         shape_of(t, have));
  bool same = s->ndim == 2 && (str_eq(s->type, "F32") || str_eq(s->type, "BF16"));
  for (int i = 0; i < 2; i++)
    same = same && s->dim[i] == (t->dim[i] + F8_BLOCK - 1) / F8_BLOCK;
  if (!same)
    FAIL(s,
         "tensor \"%s\": %s%s does not go with the %s of \"%s\": a number of F32 or BF16 "
         "for each %d x %d of them",
         s->name, s->type, shape_of(s, have), shape_of(t, want), t->name, F8_BLOCK,
         F8_BLOCK);
  return WEFT_OK;
}

/* Scales without codes. */
static weft_status check_alone(SafeTensor *t, int n, const SafeTensor *s, weft_error *e) {
  size_t m;
  if (ends(s->name, inverse_end, &m)) {
    const SafeTensor *of = find(t, n, s->name, m, "");
    if (!of || !str_eq(of->type, "F8_E4M3"))
      FAIL(s, "tensor \"%s\" has no codes: \"%.*s\" of F8_E4M3 is missing", s->name,
           (int)m, s->name);
  }
  if (ends(s->name, scales_end, &m) && str_eq(s->type, "U8") &&
      !find(t, n, s->name, m, blocks_end))
    FAIL(s, "tensor \"%s\" has no codes: \"%.*s%s\" is missing", s->name, (int)m, s->name,
         blocks_end);
  return WEFT_OK;
}

/* Tensors are looked up by name until all pairs are known; then the list is made again.
 */
weft_status st_packed_find(Arena *a, SafeTensor *t, int *n, weft_error *e) {
  int all = *n, pairs = 0;
  SafeTensor *made = NEW_N(a, SafeTensor, all + 1);
  bool *gone = NEW_N(a, bool, all + 1);
  for (int i = 0; i < all; i++) {
    size_t m;
    SafeTensor *s;
    TRY(check_alone(t, all, &t[i], e));
    if (str_eq(t[i].type, "F8_E4M3")) {
      s = find(t, all, t[i].name, strlen(t[i].name), inverse_end);
      TRY(check_f8(&t[i], s, e));
      made[pairs++] = unpacked(a, false, &t[i], s, t[i].name);
    } else if (str_eq(t[i].type, "U8") && ends(t[i].name, blocks_end, &m)) {
      s = find(t, all, t[i].name, m, scales_end);
      TRY(check_fp4(&t[i], s, e));
      made[pairs++] = unpacked(a, true, &t[i], s, arena_strn(a, t[i].name, m));
    } else {
      continue;
    }
    gone[i] = gone[s - t] = true;
  }
  int kept = 0;
  for (int i = 0; i < all; i++)
    if (!gone[i]) t[kept++] = t[i];
  for (int i = 0; i < pairs; i++) t[kept++] = made[i];
  *n = kept;
  return WEFT_OK;
}

/* ---- values ---- */

static weft_status read_f8(const StPacked *p, int64_t first, int64_t n, uint16_t *to,
                           weft_error *e) {
  enum { ROOM = 32 * F8_BLOCK };
  float x[ROOM], by[ROOM / F8_BLOCK + 1];
  int64_t cols = p->codes.dim[1], blocks = p->scales.dim[1];
  for (int64_t at = first, end = first + n, some; at < end; at += some, to += some) {
    int64_t row = at / cols, col = at % cols;
    some = MIN(MIN(end - at, cols - col), (int64_t)ROOM);
    int64_t block = col / F8_BLOCK, last = (col + some - 1) / F8_BLOCK;
    TRY(st_read_part(&p->codes, at, some, x, e));
    TRY(st_read_part(&p->scales, row / F8_BLOCK * blocks + block, last - block + 1, by,
                     e));
    for (int64_t i = 0; i < some; i++)
      to[i] = bf16_from_f32(x[i] * by[(col + i) / F8_BLOCK - block]);
  }
  return WEFT_OK;
}

static float fp4_value(int code) {
  static const float positive[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return code & 8 ? -positive[code & 7] : positive[code & 7];
}

/* Rows of codes that are read at once, and the part of a column of them that is asked
 * for: columns [col, col + n) of the stored matrix are rows of the tensor. */
typedef struct Slab {
  int64_t expert, row, rows, col, n;
} Slab;

/* to[c * pitch + r]: of column c and row r of the slab. */
static weft_status read_slab(const StPacked *p, const Slab *s, unsigned char *bytes,
                             unsigned char *scales, int64_t pitch, uint16_t *to,
                             weft_error *e) {
  int64_t groups = p->codes.dim[2], width = groups * FP4_BYTES;
  int64_t first = (s->expert * p->codes.dim[1] + s->row);
  TRY(file_at(p->codes.in, p->codes.at + (uint64_t)(first * width), bytes,
              (size_t)(s->rows * width), e));
  TRY(file_at(p->scales.in, p->scales.at + (uint64_t)(first * groups), scales,
              (size_t)(s->rows * groups), e));
  for (int64_t r = 0; r < s->rows; r++)
    for (int64_t c = 0; c < s->n; c++) {
      int64_t col = s->col + c;
      int code = bytes[r * width + col / 2] >> (col % 2 ? 4 : 0) & 15;
      int power = scales[r * groups + col / FP4_GROUP] - 127;
      to[c * pitch + r] = bf16_from_f32(ldexpf(fp4_value(code), power));
    }
  return WEFT_OK;
}

/* All of the tensor's rows [col, col + n) of an expert, from the stored rows one after
 * the other, as many at once as there is room for. */
static weft_status read_columns(const StPacked *p, int64_t expert, int64_t col, int64_t n,
                                int64_t from, int64_t end, uint16_t *to, weft_error *e) {
  enum { ROOM = 1 << 16 };
  unsigned char room[ROOM];
  int64_t groups = p->codes.dim[2], each = groups * (FP4_BYTES + 1), rows = ROOM / each;
  if (rows == 0)
    FAIL(&p->codes, "tensor \"%s\": rows of %lld groups are longer than weft reads",
         p->codes.name, (long long)groups);
  for (int64_t row = from; row < end; row += rows) {
    Slab s = {expert, row, MIN(rows, end - row), col, n};
    TRY(read_slab(p, &s, room, room + rows * groups * FP4_BYTES, end - from,
                  to + row - from, e));
  }
  return WEFT_OK;
}

static weft_status read_fp4(const StPacked *p, int64_t first, int64_t n, uint16_t *to,
                            weft_error *e) {
  int64_t rows = p->codes.dim[1], cols = FP4_GROUP * p->codes.dim[2];
  for (int64_t at = first, end = first + n, some; at < end; at += some, to += some) {
    int64_t col = at / rows % cols, expert = at / rows / cols, from = at % rows;
    int64_t whole = MIN((end - at) / rows, cols - col);
    if (from || !whole) { /* a part of one column */
      some = MIN(end - at, rows - from);
      TRY(read_columns(p, expert, col, 1, from, from + some, to, e));
    } else {
      some = whole * rows;
      TRY(read_columns(p, expert, col, whole, 0, rows, to, e));
    }
  }
  return WEFT_OK;
}

/* Elements [first, first + n) of a tensor of codes and scales, as bf16. */
static weft_status read_packed(const SafeTensor *t, int64_t first, int64_t n,
                               uint16_t *to, weft_error *e) {
  return (t->packed->fp4 ? read_fp4 : read_f8)(t->packed, first, n, to, e);
}

/* ---- reading ---- */

/* New rows are behind those of the file. */
weft_status st_read_raw(const SafeTensor *t, int64_t first, int64_t n, void *to,
                        weft_error *e) {
  size_t size = (size_t)st_type(t->type)->size;
  int64_t whole = (int64_t)((t->row ? t->in_file : t->bytes) / size);
  int64_t there = first < whole ? MIN(n, whole - first) : 0;
  if (there && t->packed) TRY(read_packed(t, first, there, to, e));
  if (there && !t->packed)
    TRY(file_at(t->in, t->at + (uint64_t)first * size, to, (size_t)there * size, e));
  if (there == n) return WEFT_OK;
  unsigned char *new = (unsigned char *)to + (size_t)there *size;
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
