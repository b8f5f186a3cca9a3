/* st_header.c - reads the header of one safetensors file. It is not trusted: every tensor
 * lies within its file, has exactly the bytes of its shape and type, and all of them are
 * all of the file's data. */
#include <stdlib.h>

#include "safetensors_int.h"
#include "st_type.h"

enum { HEADER_MAX = 100 << 20, MAX_NDIM = LEN(((SafeTensor *)0)->dim) };

/* ---- one tensor ---- */

/* Fills the shape and its number of bytes. */
static weft_status read_shape(SafeTensor *t, const json_t *shape, size_t size,
                              weft_error *e) {
  if (!json_is_array(shape))
    FAIL(t->file, "tensor \"%s\" has no list \"shape\"", t->name);
  if (json_array_size(shape) > (size_t)MAX_NDIM)
    FAIL(t->file, "tensor \"%s\" has %zu dimensions, at most %d are supported", t->name,
         json_array_size(shape), MAX_NDIM);
  t->ndim = (int)json_array_size(shape);
  int64_t bytes = (int64_t)size;
  for (int i = 0; i < t->ndim; i++) {
    const json_t *d = json_array_get(shape, (size_t)i);
    t->dim[i] = json_is_integer(d) ? json_integer_value(d) : -1;
    if (t->dim[i] < 0)
      FAIL(t->file, "tensor \"%s\": dimension %d is not a size", t->name, i);
    if (__builtin_mul_overflow(bytes, t->dim[i], &bytes))
      FAIL(t->file, "tensor \"%s\": the shape is too large", t->name);
  }
  t->bytes = (size_t)bytes;
  return WEFT_OK;
}

/* The byte range of a file for tensor data. */
typedef struct Span {
  const File *in;
  uint64_t begin, size;
} Span;

static weft_status read_offsets(SafeTensor *t, const json_t *offsets, const Span *data,
                                weft_error *e) {
  const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(first) ||
      !json_is_integer(second))
    FAIL(t->file, "tensor \"%s\" has no \"data_offsets\" of two integers", t->name);
  int64_t begin = json_integer_value(first), end = json_integer_value(second);
  if (begin < 0 || end < begin || (uint64_t)end > data->size)
    FAIL(t->file,
         "tensor \"%s\": data_offsets [%lld, %lld] are not within the %llu bytes of data "
         "(is the file complete?)",
         t->name, (long long)begin, (long long)end, (unsigned long long)data->size);
  if ((uint64_t)(end - begin) != t->bytes)
    FAIL(t->file, "tensor \"%s\": data_offsets hold %lld bytes, its shape needs %zu",
         t->name, (long long)(end - begin), t->bytes);
  t->in = data->in;
  t->at = data->begin + (uint64_t)begin;
  return WEFT_OK;
}

static weft_status read_tensor(SafeTensors *s, const char *path, const char *name,
                               const json_t *row, const Span *data, weft_error *e) {
  SafeTensor t = {.name = arena_str(s->arena, name), .file = path};
  const char *type = json_string_value(json_object_get(row, "dtype"));
  if (!type) FAIL(path, "tensor \"%s\" has no string \"dtype\"", t.name);
  const StType *info = st_type(type);
  if (!info)
    FAIL(path, "tensor \"%s\": dtype \"%s\" is not supported (%s are)", t.name, type,
         ST_TYPES);
  t.type = info->name;
  t.dtype = info->dtype;
  TRY(read_shape(&t, json_object_get(row, "shape"), (size_t)info->size, e));
  TRY(read_offsets(&t, json_object_get(row, "data_offsets"), data, e));
  *VEC_PUSH(s->arena, s->t) = t;
  return WEFT_OK;
}

/* ---- one file ---- */

static int by_place(const void *x, const void *y) {
  const SafeTensor *a = x, *b = y;
  if (a->at != b->at) return a->at < b->at ? -1 : 1;
  return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* The n tensors of a file must be contiguous and fill its data. */
static weft_status check_places(SafeTensor *t, int n, const char *path, const Span *data,
                                weft_error *e) {
  uint64_t end = data->begin, last = data->begin + data->size;
  if (n) qsort(t, (size_t)n, sizeof *t, by_place);
  for (int i = 0; i < n; i++) {
    if (t[i].at < end)
      FAIL(path, "tensors \"%s\" and \"%s\" overlap", t[i - 1].name, t[i].name);
    if (t[i].at > end)
      FAIL(path, "%llu bytes of data before tensor \"%s\" belong to no tensor",
           (unsigned long long)(t[i].at - end), t[i].name);
    end = t[i].at + t[i].bytes;
  }
  if (end != last)
    FAIL(path, "the last %llu bytes belong to no tensor",
         (unsigned long long)(last - end));
  return WEFT_OK;
}

void st_free_header(SafeTensors *s) {
  json_decref(s->header);
  mem_free(&s->alloc, s->header_text, s->header_bytes);
  s->header = NULL;
  s->header_text = NULL;
}

/* Parses the header into s->header; `data` becomes the range behind it. */
static weft_status read_header(SafeTensors *s, const File *file, Span *data,
                               weft_error *e) {
  const char *path = file->path;
  uint64_t n;
  if (file->size < sizeof n)
    FAIL(path, "has %llu bytes; a safetensors file starts with an 8-byte header length",
         (unsigned long long)file->size);
  TRY(file_at(file, 0, &n, sizeof n, e));
  if (n > HEADER_MAX)
    FAIL(path,
         "is not a safetensors file: its header would have %llu bytes, the format allows "
         "%d",
         (unsigned long long)n, HEADER_MAX);
  if (n > file->size - sizeof n)
    FAIL(path, "the header should have %llu bytes, but the file ends after %llu",
         (unsigned long long)n, (unsigned long long)(file->size - sizeof n));
  s->header_bytes = (size_t)n + 1;
  s->header_text = mem_new(&s->alloc, s->header_bytes);
  if (!s->header_text) return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  TRY(file_at(file, sizeof n, s->header_text, (size_t)n, e));
  s->header = json_text(path, "the header ", s->header_text, (size_t)n, e);
  if (!s->header) return WEFT_EFILE;
  if (!json_is_object(s->header)) FAIL(path, "the header is not a JSON object");
  *data = (Span){file, sizeof n + n, file->size - sizeof n - n};
  return WEFT_OK;
}

static weft_status open_file(SafeTensors *s, const char *path, File **out,
                             weft_error *e) {
  if (s->within) TRY(folders_hold(s->within, path, e));
  File *file = *out = NEW(s->arena, File);
  *VEC_PUSH(s->arena, s->files) = file;
  return file_open(path, file, e);
}

static weft_status read_metadata(SafeTensors *s, const char *path, const json_t *texts,
                                 weft_error *e) {
  const char *key;
  json_t *value;
  if (!json_is_object(texts)) FAIL(path, "\"__metadata__\" is not an object");
  json_object_foreach((json_t *)texts, key, value) {
    if (!json_is_string(value))
      FAIL(path, "\"__metadata__\": the value of \"%s\" is not a string", key);
    *VEC_PUSH(s->arena, s->meta) =
        (struct FileMeta){s->files.n - 1, arena_str(s->arena, key),
                          arena_str(s->arena, json_string_value(value))};
  }
  return WEFT_OK;
}

weft_status st_add_file(SafeTensors *s, const char *path, weft_error *e) {
  File *file;
  Span data = {0};
  TRY(open_file(s, path, &file, e));
  TRY(read_header(s, file, &data, e));
  const char *name;
  json_t *row;
  int before = s->t.n;
  json_object_foreach(s->header, name, row) {
    if (str_eq(name, "__metadata__"))
      TRY(read_metadata(s, path, row, e));
    else
      TRY(read_tensor(s, path, name, row, &data, e));
  }
  st_free_header(s);
  file_keep_few(file, s->files.n);
  /* Without tensors s->t.at may be NULL. */
  SafeTensor *added = s->t.n > before ? s->t.at + before : NULL;
  return check_places(added, s->t.n - before, path, &data, e);
}
