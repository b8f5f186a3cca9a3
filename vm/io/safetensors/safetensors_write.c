/* safetensors_write.c - lays out a safetensors file, whose tensors are then written in
 * any order. The bytes of a file depend on its content only, and equal those of the
 * safetensors library. */
#include <stdlib.h>

#include "vm/base/json.h"
#include "vm/io/io.h"
#include "st_type.h"

struct StOut {
  weft_alloc alloc;
  FileOut file;
  char *name;
  int n;
  uint64_t size;
  struct Extent {
    uint64_t at, bytes;
  } * tensor;
};

static uint64_t bytes_of(const StWrite *t) {
  uint64_t n = (uint64_t)st_type(st_type_name(t->dtype))->size;
  assert(t->ndim >= 0 && t->ndim <= LEN(t->dim));
  for (int i = 0; i < t->ndim; i++) n *= (uint64_t)t->dim[i];
  return n;
}

/* ---- layout ---- */

/* Wide types first, so that every tensor is aligned to its elements. */
static int rank_of(DType t) {
  static const DType order[] = {DT_F64, DT_F32, DT_I32, DT_BF16, DT_F16, DT_U8};
  for (int i = 0; i < LEN(order); i++)
    if (order[i] == t) return i;
  return LEN(order);
}

static int by_layout(const void *x, const void *y) {
  const StWrite *a = *(const StWrite *const *)x, *b = *(const StWrite *const *)y;
  int ra = rank_of(a->dtype), rb = rank_of(b->dtype);
  return ra != rb ? ra - rb : strcmp(a->name, b->name);
}

static void write_entry(Json *j, const StWrite *t, uint64_t at) {
  json_open(j, t->name, '{');
  json_str(j, "dtype", st_type_name(t->dtype));
  json_ints(j, "shape", t->dim, t->ndim);
  json_ints(j, "data_offsets", (int64_t[]){(int64_t)at, (int64_t)(at + bytes_of(t))}, 2);
  json_close(j, '}');
}

/* Writes the header, padded with spaces so that data starts at a multiple of 8, and
 * assigns every tensor its offset in the data. `sorted` has room for all tensors. Returns
 * the bytes of data. */
static uint64_t write_header(Text *out, const StContent *c, const StWrite **sorted,
                             struct Extent *tensor) {
  Json j = {.out = out};
  uint64_t at = 0;
  json_open(&j, NULL, '{');
  if (c->nmeta) json_open(&j, "__metadata__", '{');
  for (int i = 0; i < c->nmeta; i++) json_str(&j, c->meta[i].key, c->meta[i].value);
  if (c->nmeta) json_close(&j, '}');
  for (int i = 0; i < c->n; i++) sorted[i] = &c->tensor[i];
  if (c->n) qsort(sorted, (size_t)c->n, sizeof *sorted, by_layout);
  for (int i = 0; i < c->n; i++) {
    const StWrite *t = sorted[i];
    tensor[t - c->tensor] = (struct Extent){at, bytes_of(t)};
    write_entry(&j, t, at);
    at += bytes_of(t);
  }
  json_close(&j, '}');
  while (out->n % 8 && !out->oom) text_add(out, " ");
  return at;
}

/* ---- the file ---- */

static void out_free(StOut *o) {
  weft_alloc alloc = o->alloc;
  if (o->name) mem_free(&alloc, o->name, strlen(o->name) + 1);
  mem_free(&alloc, o->tensor, sizeof *o->tensor * (size_t)o->n);
  mem_free(&alloc, o, sizeof *o);
}

static StOut *out_new(const weft_alloc *a, const char *name, int n) {
  StOut *o = mem_new(a, sizeof *o);
  if (!o) return NULL;
  size_t length = strlen(name) + 1;
  *o = (StOut){.n = n, .file = {.fd = -1, .own = DIR_CLOSED}};
  if (a) o->alloc = *a;
  o->name = mem_new(a, length);
  if (o->name) memcpy(o->name, name, length);
  o->tensor = n ? mem_new(a, sizeof *o->tensor * (size_t)n) : NULL;
  if (!o->name || (n && !o->tensor)) {
    out_free(o);
    o = NULL;
  }
  return o;
}

/* Creates the file, or joins the one with this temporary name. */
static weft_status begin(StOut *o, const Dir *in, const char *temporary,
                         const Text *header, weft_error *e) {
  uint64_t n = header->n;
  if (temporary) return file_join(in, o->name, temporary, &o->file, e);
  TRY(file_create(in, o->name, o->size, &o->file, e));
  TRY(file_put(&o->file, 0, &n, sizeof n, e));
  return file_put(&o->file, sizeof n, header->s, header->n, e);
}

static weft_status open_out(const weft_alloc *a, const Dir *in, const char *name,
                            const char *temporary, const StContent *c, StOut **out,
                            weft_error *e) {
  Text header = {.alloc = a};
  size_t room = sizeof(const StWrite *) * (size_t)MAX(c->n, 1);
  const StWrite **sorted = mem_new(a, room);
  StOut *o = *out = out_new(a, name, c->n);
  weft_status status = WEFT_ENOMEM;
  if (o && sorted) {
    uint64_t data = write_header(&header, c, sorted, o->tensor);
    o->size = sizeof(uint64_t) + header.n + data;
    for (int i = 0; i < c->n; i++) o->tensor[i].at += o->size - data;
  }
  if (o && sorted && !header.oom)
    status = begin(o, in, temporary, &header, e);
  else
    err_file(e, status, name, 0, "out of memory");
  text_free(&header);
  mem_free(a, sorted, room);
  if (status == WEFT_OK) return status;
  st_drop(o);
  *out = NULL;
  return status;
}

weft_status st_create(const weft_alloc *a, const Dir *in, const char *name,
                      const StContent *c, StOut **out, weft_error *e) {
  return open_out(a, in, name, NULL, c, out, e);
}

weft_status st_join(const weft_alloc *a, const Dir *in, const char *name,
                    const char *temporary, const StContent *c, StOut **out,
                    weft_error *e) {
  return open_out(a, in, name, temporary, c, out, e);
}

const char *st_name(const StOut *o) { return o->file.temporary.s; }

uint64_t st_size(const StOut *o) { return o->size; }

weft_status st_put(const StOut *o, int tensor, uint64_t at, const void *data, size_t n,
                   weft_error *e) {
  assert(tensor >= 0 && tensor < o->n);
  const struct Extent *t = &o->tensor[tensor];
  assert(n <= t->bytes && at <= t->bytes - n);
  return file_put(&o->file, t->at + at, data, n, e);
}

static void transpose(const char *from, int64_t rows, int64_t columns, size_t size,
                      char *to) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < columns; k++, to += size)
      memcpy(to, from + (size_t)(k * rows + i) * size, size);
}

weft_status st_turn(const StOut *o, int tensor, int64_t columns, size_t size,
                    weft_error *e) {
  const struct Extent *t = &o->tensor[tensor];
  int64_t rows = (int64_t)(t->bytes / size) / columns;
  char *was = mem_new(&o->alloc, t->bytes), *is = mem_new(&o->alloc, t->bytes);
  weft_status st = was && is ? file_again(&o->file, t->at, was, t->bytes, e)
                             : err_file(e, WEFT_ENOMEM, o->name, 0, "out of memory");
  if (st == WEFT_OK) {
    transpose(was, rows, columns, size, is);
    st = file_put(&o->file, t->at, is, t->bytes, e);
  }
  mem_free(&o->alloc, was, t->bytes);
  mem_free(&o->alloc, is, t->bytes);
  return st;
}

weft_status st_finish(StOut *o, weft_error *e) {
  weft_status status = file_finish(&o->file, e);
  out_free(o);
  return status;
}

void st_drop(StOut *o) {
  if (!o) return;
  file_drop(&o->file);
  out_free(o);
}

weft_status st_write(const weft_alloc *a, const char *path, const StWrite *t, int n,
                     weft_error *e) {
  StOut *o;
  TRY(st_create(a, NULL, path, &(StContent){.tensor = t, .n = n}, &o, e));
  for (int i = 0; i < n; i++) {
    weft_status status = st_put(o, i, 0, t[i].data, (size_t)bytes_of(&t[i]), e);
    if (status != WEFT_OK) {
      st_drop(o);
      return status;
    }
  }
  return st_finish(o, e);
}
