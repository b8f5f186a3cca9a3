/* safetensors.c - opens safetensors files, alone or as the shards of an index. Neither
 * headers (st_header.c) nor indices are trusted: after st_open every tensor lies within
 * its file, and in the one that the index says. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "safetensors_int.h"
#include "st_type.h"
#include "vm/base/absent.h"

enum { INDEX_MAX = 64 << 20 };

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
  return st_add_file(s, path, e);
}

/* Each name of the map must be in the file that it says. Files may have more tensors:
 * Transformers reads whole files, too, and weights_fit.c says which the model has not. */
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
  qsort(shard, (size_t)n, sizeof *shard, order_texts);
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
  if (stat(whole, &st) == 0) return st_add_file(s, whole, e);
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
  return str_ends(path, ".json") ? add_index(s, path, e) : st_add_file(s, path, e);
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
  TRY(st_add_file(s, arena_str(s->arena, path), e));
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
  st_free_header(s);
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
