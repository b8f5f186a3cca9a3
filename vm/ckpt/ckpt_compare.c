/* ckpt_compare.c - compares two checkpoints tensor by tensor; see ckpt_compare.h. */
#include "ckpt_compare.h"

#include <math.h>

enum { STRETCH = 1 << 16 };

typedef struct Compare {
  CkptRead a, b;
  float *x, *y;
} Compare;

static bool same_shape(const Manifest *a, int p, const Manifest *b, int q, int kind) {
  CkptParam x = manifest_shape(a, kind, p), y = manifest_shape(b, kind, q);
  return x.ndim == y.ndim && memcmp(x.dim, y.dim, sizeof *x.dim * (size_t)x.ndim) == 0;
}

/* NaN and infinities count as infinitely different unless the bits are equal. */
static void add(CompareRow *row, float x, float y) {
  if (memcmp(&x, &y, sizeof x) == 0) return;
  double d = fabs((double)x - y), most = fmax(fabs(x), fabs(y));
  if (!isfinite(d)) d = most = INFINITY;
  row->differ++;
  row->most_abs = fmax(row->most_abs, d);
  row->most_rel = fmax(row->most_rel, isinf(d) ? INFINITY : most > 0 ? d / most : 0);
}

static weft_status compare_one(Compare *c, int kind, int p, int q, CompareRow *row,
                               weft_error *e) {
  CkptParam of = manifest_shape(&c->a.c->m, kind, p);
  row->elements = 1;
  for (int d = 0; d < of.ndim; d++) row->elements *= of.dim[d];
  for (int64_t at = 0, n; at < row->elements; at += n) {
    n = MIN(row->elements - at, (int64_t)STRETCH);
    TRY(ckpt_read_part(&c->a, kind, p, at, n, c->x, e));
    TRY(ckpt_read_part(&c->b, kind, q, at, n, c->y, e));
    for (int64_t i = 0; i < n; i++) add(row, c->x[i], c->y[i]);
  }
  row->is = row->differ ? TENSOR_DIFFERS : TENSOR_SAME;
  return WEFT_OK;
}

/* States of other optimizers have nothing to do with each other unless they are called
 * the same. */
static bool has_kind(const Manifest *m, int kind, const char *name) {
  return kind < ckpt_kinds(m->optimizer) &&
         str_eq(ckpt_kind_name(m->optimizer, kind), name);
}

static weft_status compare_all(Compare *c, void (*fn)(void *ud, const CompareRow *row),
                               void *ud, weft_error *e) {
  const Manifest *a = &c->a.c->m, *b = &c->b.c->m;
  int of_a = ckpt_kinds(a->optimizer), of_b = ckpt_kinds(b->optimizer);
  for (int i = 0; i < a->nparam * of_a; i++) {
    int p = i / of_a, k = i % of_a, q = ckpt_param(c->b.c, a->param[p].name);
    const char *kind = ckpt_kind_name(a->optimizer, k);
    CompareRow row = {.name = a->param[p].name, .kind = kind, .is = TENSOR_ONE};
    if (!has_kind(b, k, kind) || (q >= 0 && !manifest_has(b, k, q))) q = -1;
    if (!manifest_has(a, k, p)) {
      if (q < 0) continue;
      row.is = TENSOR_OTHER, q = -1;
    }
    if (q >= 0 && !same_shape(a, p, b, q, k))
      row.is = TENSOR_SHAPE;
    else if (q >= 0)
      TRY(compare_one(c, k, p, q, &row, e));
    fn(ud, &row);
  }
  for (int i = 0; i < b->nparam * of_b; i++) {
    int q = i / of_b, k = i % of_b;
    CompareRow row = {.name = b->param[q].name,
                      .kind = ckpt_kind_name(b->optimizer, k),
                      .is = TENSOR_OTHER};
    if (!manifest_has(b, k, q)) continue;
    if (ckpt_param(c->a.c, row.name) < 0 || !has_kind(a, k, row.kind)) fn(ud, &row);
  }
  return WEFT_OK;
}

weft_status ckpt_compare(const Ckpt *a, const Ckpt *b,
                         void (*fn)(void *ud, const CompareRow *row), void *ud,
                         const StopFlag *stop, weft_error *e) {
  size_t bytes = STRETCH * sizeof(float);
  Compare c = {.x = mem_new(NULL, bytes), .y = mem_new(NULL, bytes)};
  weft_status st = WEFT_OK;
  if (!c.x || !c.y) st = err_set(e, WEFT_ENOMEM, "out of memory");
  if (st == WEFT_OK) st = ckpt_read_begin(a, &c.a, e);
  if (st == WEFT_OK) st = ckpt_read_begin(b, &c.b, e);
  c.a.stop = c.b.stop = stop;
  if (st == WEFT_OK) st = compare_all(&c, fn, ud, e);
  ckpt_read_end(&c.a);
  ckpt_read_end(&c.b);
  mem_free(NULL, c.x, bytes);
  mem_free(NULL, c.y, bytes);
  return st;
}
