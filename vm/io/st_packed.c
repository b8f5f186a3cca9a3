/* st_packed.c - see st_packed.h. */
#include "st_packed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "file.h"
#include "st_type.h"
#include "vm/base/f16.h"

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
  int n = snprintf(buf, 128, "[");
  for (int i = 0; i < t->ndim && n < 100; i++)
    n += snprintf(buf + n, (size_t)(128 - n), "%s%lld", i ? ", " : "",
                  (long long)t->dim[i]);
  snprintf(buf + n, (size_t)(128 - n), "]");
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

/* Four bits of exponent and three of fraction; there are no infinities. */
static float f8_value(unsigned char code) {
  int exponent = code >> 3 & 15, fraction = code & 7;
  float x = exponent ? ldexpf((float)(8 + fraction), exponent - 10)
                     : ldexpf((float)fraction, -9);
  if ((code & 127) == 127) x = NAN;
  return code & 128 ? -x : x;
}

void st_f8_to_f32(const unsigned char *from, size_t n, float *to) {
  float value[256];
  for (int i = 0; i < LEN(value); i++) value[i] = f8_value((unsigned char)i);
  for (size_t i = 0; i < n; i++) to[i] = value[from[i]];
}

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

weft_status st_packed_read(const SafeTensor *t, int64_t first, int64_t n, uint16_t *to,
                           weft_error *e) {
  return (t->packed->fp4 ? read_fp4 : read_f8)(t->packed, first, n, to, e);
}
