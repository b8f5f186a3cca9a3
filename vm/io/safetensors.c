/* safetensors.c - opens safetensors files, alone or as the shards of an index. Headers
 * are not trusted: after st_open every tensor lies within its file and has exactly the
 * bytes of its shape and type. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "file.h"
#include "io.h"
#include "json_text.h"
#include "st_type.h"
#include "vm/base/absent.h"

enum {
  HEADER_MAX = 100 << 20,
  INDEX_MAX = 64 << 20,
  MAX_NDIM = LEN(((SafeTensor *)0)->dim)
};

/* A string in the "__metadata__" of file number `file`. */
struct FileMeta {
  int file;
  const char *key, *value;
};

struct SafeTensors {
  weft_alloc alloc;
  Arena *arena;
  const Folders *within; /* folders that files must be in; NULL: any */
  VEC(File *) files;
  VEC(struct FileMeta) meta;
  VEC(SafeTensor) t; /* sorted by name after st_open */
  char *header_text; /* while a header is read */
  size_t header_bytes;
  struct SafeTensors *joined; /* whose files some tensors are in, or NULL */
  json_t *index, *header;     /* while being read; st_close frees them after an error */
};

#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)

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

static void free_header(SafeTensors *s) {
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

/* Adds the tensors of one file; `path` is in the arena. */
static weft_status add_file(SafeTensors *s, const char *path, weft_error *e) {
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
  free_header(s);
  file_keep_few(file, s->files.n);
  /* Without tensors s->t.at may be NULL. */
  SafeTensor *added = s->t.n > before ? s->t.at + before : NULL;
  return check_places(added, s->t.n - before, path, &data, e);
}

/* ---- many files ---- */

static int by_name(const void *x, const void *y) {
  const SafeTensor *a = x, *b = y;
  int c = strcmp(a->name, b->name);
  return c ? c : strcmp(a->file, b->file);
}

static weft_status sort_by_name(SafeTensors *s, weft_error *e) {
  if (s->t.n) qsort(s->t.at, (size_t)s->t.n, sizeof *s->t.at, by_name);
  for (int i = 1; i < s->t.n; i++)
    if (str_eq(s->t.at[i - 1].name, s->t.at[i].name))
      FAIL(s->t.at[i].file, "tensor \"%s\" is also in %s", s->t.at[i].name,
           s->t.at[i - 1].file);
  return WEFT_OK;
}

/* "dir/" of a path, "" if it has none. */
static const char *folder_of(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? arena_strn(a, path, (size_t)(slash - path) + 1) : "";
}

/* A shard is a plain name: an index must not lead out of its folder. */
static weft_status add_shard(SafeTensors *s, const char *index, const char *folder,
                             const char *shard, weft_error *e) {
  if (!*shard || strchr(shard, '/') || str_eq(shard, "..") || str_eq(shard, "."))
    FAIL(index, "\"%s\" is not the name of a file next to the index", shard);
  const char *path = arena_printf(s->arena, "%s%s", folder, shard);
  struct stat st;
  if (stat(path, &st) != 0)
    FAIL(index, "names the shard %s, which cannot be opened: %s", path, strerror(errno));
  return add_file(s, path, e);
}

static int by_text(const void *x, const void *y) {
  return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* The map and the files must agree: each name is in the file that the map says, each
 * tensor in the map. */
static weft_status check_map(SafeTensors *s, const char *index, const char *folder,
                             json_t *map, weft_error *e) {
  const char *name;
  json_t *file;
  json_object_foreach(map, name, file) {
    const SafeTensor *t = st_find(s, name);
    const char *shard = json_string_value(file);
    if (!t || !str_eq(t->file + strlen(folder), shard))
      FAIL(index, "tensor \"%s\" is not in the shard %s%s", name, folder, shard);
  }
  for (int i = 0; i < s->t.n; i++)
    if (!json_object_get(map, s->t.at[i].name))
      FAIL(index, "its weight_map does not name tensor \"%s\" of the shard %s",
           s->t.at[i].name, s->t.at[i].file);
  return WEFT_OK;
}

static weft_status add_index(SafeTensors *s, const char *path, weft_error *e) {
  char *text;
  size_t bytes;
  if (s->within) TRY(folders_hold(s->within, path, e));
  TRY(file_read(&s->alloc, path, INDEX_MAX, &text, &bytes, e));
  if (bytes) s->index = json_text(path, "", text, bytes, e);
  mem_free(&s->alloc, text, bytes + 1);
  if (!bytes) FAIL(path, "is empty");
  if (!s->index) return WEFT_EFILE;
  json_t *map = json_object_get(s->index, "weight_map"), *value;
  if (!json_is_object(map)) FAIL(path, "has no object \"weight_map\"");
  int n = 0, total = (int)json_object_size(map);
  const char **shard = NEW_N(s->arena, const char *, total + 1), *name;
  const char *folder = folder_of(s->arena, path);
  json_object_foreach(map, name, value) {
    if (!json_is_string(value))
      FAIL(path, "the file of tensor \"%s\" is not a string", name);
    shard[n++] = json_string_value(value);
  }
  qsort(shard, (size_t)n, sizeof *shard, by_text);
  for (int i = 0; i < n; i++)
    if (i == 0 || !str_eq(shard[i], shard[i - 1]))
      TRY(add_shard(s, path, folder, shard[i], e));
  TRY(sort_by_name(s, e));
  return check_map(s, path, folder, map, e);
}

static weft_status add_folder(SafeTensors *s, const char *path, weft_error *e) {
  struct stat st;
  const char *whole = arena_printf(s->arena, "%s/model.safetensors", path);
  const char *index = arena_printf(s->arena, "%s/model.safetensors.index.json", path);
  if (stat(whole, &st) == 0) return add_file(s, whole, e);
  if (stat(index, &st) == 0) return add_index(s, index, e);
  const char *other = absent_pickle(s->arena, path);
  FAIL(path, "holds neither model.safetensors nor model.safetensors.index.json%s%s",
       other ? ": " : "", other ? other : "");
}

static weft_status add_path(SafeTensors *s, const char *path, weft_error *e) {
  struct stat st;
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return add_folder(s, path, e);
  path = arena_str(s->arena, path);
  const char *hub = absent_hub(s->arena, path);
  if (hub) FAIL(path, "is not there: %s", hub);
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *folder = slash ? arena_strn(s->arena, path, (size_t)(slash - path)) : ".";
  const char *pickle = absent_convert(s->arena, folder, name);
  if (pickle) FAIL(path, "is no safetensors file: %s", pickle);
  return str_ends(path, ".json") ? add_index(s, path, e) : add_file(s, path, e);
}

/* ---- the handle ---- */

weft_status st_open(const weft_alloc *a, const char *path, const Folders *in,
                    SafeTensors **out, weft_error *e) {
  *out = NULL;
  SafeTensors *s = mem_new(a, sizeof *s);
  if (!s || !(s->arena = arena_new(a))) {
    mem_free(a, s, sizeof *s);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  if (a) s->alloc = *a;
  s->within = in;
  if (setjmp(*arena_guard(s->arena))) {
    st_close(s);
    return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  }
  weft_status status = add_path(s, path, e);
  if (status == WEFT_OK) status = sort_by_name(s, e);
  if (status == WEFT_OK) status = st_packed_find(s->arena, s->t.at, &s->t.n, e);
  if (status == WEFT_OK) status = sort_by_name(s, e);
  if (status != WEFT_OK) {
    st_close(s);
    return status;
  }
  json_decref(s->index);
  s->index = NULL;
  s->within = NULL;
  *out = s;
  return WEFT_OK;
}

weft_status st_also(SafeTensors *s, const char *path, weft_error *e) {
  if (setjmp(*arena_guard(s->arena)))
    return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  TRY(add_file(s, arena_str(s->arena, path), e));
  return sort_by_name(s, e);
}

weft_status st_prefix(SafeTensors *s, const char *prefix, weft_error *e) {
  if (setjmp(*arena_guard(s->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (int i = 0; i < s->t.n; i++)
    s->t.at[i].name = arena_printf(s->arena, "%s%s", prefix, s->t.at[i].name);
  return sort_by_name(s, e);
}

weft_status st_take(SafeTensors *s, SafeTensors *from, weft_error *e) {
  assert(!s->joined);
  s->joined = from;
  if (setjmp(*arena_guard(s->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (int i = 0; i < from->t.n; i++) *VEC_PUSH(s->arena, s->t) = from->t.at[i];
  return sort_by_name(s, e);
}

/* The means of the columns, in the type of the tensor. */
static weft_status mean_row(SafeTensors *s, const SafeTensor *t, int64_t columns,
                            unsigned char *row, weft_error *e) {
  double *sum = NEW_N(s->arena, double, columns);
  float *one = NEW_N(s->arena, float, columns);
  for (int64_t r = 0; r < t->dim[0]; r++) {
    TRY(st_read_part(t, r * columns, columns, one, e));
    for (int64_t i = 0; i < columns; i++) sum[i] += one[i];
  }
  for (int64_t i = 0; i < columns; i++) one[i] = (float)(sum[i] / (double)t->dim[0]);
  if (!st_from_f32(t->dtype, one, (size_t)columns, row))
    FAIL(t->file, "tensor \"%s\" is of %s: rows are added to F32, BF16 and F16", t->name,
         t->type);
  return WEFT_OK;
}

weft_status st_grow(SafeTensors *s, int i, int64_t rows, weft_error *e) {
  SafeTensor *t = &s->t.at[i];
  assert(!t->row && t->ndim > 0 && t->dim[0] > 0 && rows > t->dim[0]);
  if (setjmp(*arena_guard(s->arena)))
    return err_file(e, WEFT_ENOMEM, t->file, 0, "out of memory");
  size_t row_bytes = t->bytes / (size_t)t->dim[0];
  unsigned char *row = arena_alloc(s->arena, row_bytes);
  TRY(mean_row(s, t, (int64_t)(row_bytes / (size_t)st_type(t->type)->size), row, e));
  t->in_file = t->bytes;
  t->bytes = row_bytes * (size_t)rows;
  t->dim[0] = rows;
  t->row = row;
  t->row_bytes = row_bytes;
  return WEFT_OK;
}

void st_close(SafeTensors *s) {
  if (!s) return;
  st_close(s->joined);
  json_decref(s->index);
  free_header(s);
  for (int i = 0; i < s->files.n; i++) file_close(s->files.at[i]);
  arena_free(s->arena);
  weft_alloc alloc = s->alloc;
  mem_free(&alloc, s, sizeof *s);
}

int st_count(const SafeTensors *s) { return s->t.n; }

int st_files(const SafeTensors *s) { return s->files.n; }

const char *st_file_path(const SafeTensors *s, int file) {
  return s->files.at[file]->path;
}

const char *st_metadata(const SafeTensors *s, int file, const char *key) {
  for (int i = 0; i < s->meta.n; i++)
    if (s->meta.at[i].file == file && str_eq(s->meta.at[i].key, key))
      return s->meta.at[i].value;
  return NULL;
}

uint64_t st_bytes(const SafeTensors *s) {
  uint64_t n = 0;
  for (int i = 0; i < s->t.n; i++) n += s->t.at[i].bytes;
  return n;
}

const SafeTensor *st_at(const SafeTensors *s, int i) {
  assert(i >= 0 && i < s->t.n);
  return &s->t.at[i];
}

static int is_named(const void *name, const void *t) {
  return strcmp(name, ((const SafeTensor *)t)->name);
}

const SafeTensor *st_find(const SafeTensors *s, const char *name) {
  if (!s->t.n) return NULL;
  return bsearch(name, s->t.at, (size_t)s->t.n, sizeof *s->t.at, is_named);
}
