/* io.h - files: token data and safetensors. */
#ifndef WEFT_IO_H
#define WEFT_IO_H

#include "file.h"
#include "vm/plan/plan.h"

/* A source of samples. Sample i is the same on every mesh: `seq` tokens and their labels,
 * shifted by one. Windows do not overlap within an epoch; shuffling is a permutation
 * keyed by (seed, epoch). */
typedef struct Data Data;
/* Selects the source by spec->kind; sources.def lists them. `vocab` is the model's: every
 * id must be below it (checked on read; errors name file and offset). Errors: no file
 * matches, outside the allowed folders, unreadable, another format, fewer than seq+1
 * tokens. */
weft_status data_open(const weft_alloc *a, const DataSpec *spec, int64_t seq,
                      int64_t vocab, uint64_t seed, Data **out, weft_error *e);
/* The validation data: spec->val, or the last val_fraction of the stream, which data_open
 * leaves out. Never shuffled. *out is NULL if the spec has neither. */
weft_status data_open_val(const weft_alloc *a, const DataSpec *spec, int64_t seq,
                          int64_t vocab, uint64_t seed, Data **out, weft_error *e);
/* The files that a name in `files` matches, in byte order, each once; each within the
 * allowed folders. */
weft_status data_find(Arena *a, const DataSpec *spec, const char *pattern,
                      const char *const **paths, int *n, weft_error *e);
bool data_has_val(const DataSpec *spec);
void data_close(Data *d);
/* Bytes that data_open allocates, for less than hundreds of files. */
size_t data_bytes(const DataSpec *spec);
/* tokens[seq], labels[seq] of sample i >= 0. Thread-safe. */
weft_status data_sample(const Data *d, int64_t i, int32_t *tokens, int32_t *labels,
                        weft_error *e);
/* The loss of the spec's reference for sample i, whose tokens and labels these are. */
weft_status data_reference(const Data *d, int64_t i, const int32_t *tokens,
                           const int32_t *labels, float *loss, weft_error *e);
/* What a sample has of less use: tokens that fill up its row, and those of documents that
 * were dropped or truncated where it was filled. Over an epoch each counts once. */
typedef struct DataCounts {
  int64_t padded, dropped;
  int64_t first, last; /* its first and last token in its stream */
} DataCounts;
weft_status data_counts(const Data *d, int64_t i, DataCounts *out, weft_error *e);
/* The streams of a blend, by the names that the plan gives them; 0: there is one. */
int data_sources(const Data *d);
const char *data_source_name(const Data *d, int k);
int data_source(const Data *d, int64_t i); /* of sample i, from 0 */
/* Whether samples may have labels or tokens that do not count: masks, or whole documents.
 */
bool data_is_partial(const Data *d);
/* Adds what sample i is made of: "documents 17 to 20 of chat.bin". */
weft_status data_name(const Data *d, int64_t i, TextBuf *t, weft_error *e);
int64_t data_tokens(const Data *d);  /* without the other split; 0 = endless */
int64_t data_windows(const Data *d); /* samples of an epoch; 0 = endless */
/* So many samples, from the first on, are each another; 0 = endless. Of a blend, up to
 * where the first of its streams begins anew, whose number is then *ends, unless that is
 * NULL: until there all streams have their shares. */
int64_t data_once(const Data *d, int *ends);
/* A file that is read as text and named as rows of JSON; NULL: there is none. */
const char *data_text_of_rows(const Data *d);
double data_padding(const Data *d);       /* this part of the tokens of all samples */
const char *data_describe(const Data *d); /* "3 files, 1.2 M bytes" */
/* Checks some ids of every file against the vocabulary. *print fingerprints sizes and
 * sampled ids, not names. */
weft_status data_look(const Data *d, uint64_t *print, weft_error *e);
/* Reads some samples at equal distances, with their labels: all of them, if they are few.
 * The hash is of these; endless data have none. */
typedef struct DataPrint {
  uint64_t hash;
  int64_t samples;
} DataPrint;
weft_status data_look_inside(const Data *d, DataPrint *print, weft_error *e);

/* safetensors (header JSON + raw little-endian data). Opens one file, an index (*.json),
 * or a folder with model.safetensors or model.safetensors.index.json; each file must be
 * within `in`, if that is not NULL. Tensors are sorted by name. An error unless a file's
 * header describes every byte of its data once. */
typedef struct SafeTensors SafeTensors;
typedef struct SafeTensor {
  const char *name, *file;
  const char *type; /* as in the file: "F32", "BF16", "F16", "I64", ... */
  DType dtype;      /* f32, bf16, f16, f64, i32 as stored; else f32 (st_read_f32) */
  int ndim;
  int64_t dim[8];
  const File *in;
  uint64_t at; /* byte offset of its data; little-endian */
  size_t bytes;
  const unsigned char
      *row; /* where st_grow added some: each of the new ones; else NULL, */
  size_t row_bytes, in_file;     /* and how many bytes it and those of the file have */
  const struct StPacked *packed; /* NULL: its elements are there; else st_type.h */
} SafeTensor;
weft_status st_open(const weft_alloc *a, const char *path, const Folders *in,
                    SafeTensors **out, weft_error *e);
/* The tensors of a further file: after an error nothing but st_close. */
weft_status st_also(SafeTensors *s, const char *path, weft_error *e);
/* Names of all tensors get a prefix. */
weft_status st_prefix(SafeTensors *s, const char *prefix, weft_error *e);
/* Adds the tensors of `from`, which it takes, also after an error. */
weft_status st_take(SafeTensors *s, SafeTensors *from, weft_error *e);
void st_close(SafeTensors *s);
int st_count(const SafeTensors *s);
const SafeTensor *st_at(const SafeTensors *s, int i);
const SafeTensor *st_find(const SafeTensors *s, const char *name); /* NULL if absent */
uint64_t st_bytes(const SafeTensors *s); /* total bytes of all tensors */
/* Gives tensor i more rows, each of them the mean of those that the file has. */
weft_status st_grow(SafeTensors *s, int i, int64_t rows, weft_error *e);
/* Goes on with a hash of names, shapes, types, and values at three places of each tensor;
 * of more than `most` tensors (0: any number) of some that their names choose, about so
 * many: other weights give another hash. */
weft_status st_look(const SafeTensors *s, int most, uint64_t *print, weft_error *e);
/* All elements as f32. */
weft_status st_read_f32(const SafeTensor *t, float *out, weft_error *e);
/* Elements [first, first + n), as `type` says. Thread-safe. */
weft_status st_read_raw(const SafeTensor *t, int64_t first, int64_t n, void *to,
                        weft_error *e);
/* The same as f32. */
weft_status st_read_part(const SafeTensor *t, int64_t first, int64_t n, float *out,
                         weft_error *e);
/* A string in "__metadata__" of a file's header; NULL if there is no such key. Files are
 * numbered in the order in which they were opened. */
int st_files(const SafeTensors *s);
const char *st_file_path(const SafeTensors *s, int file);
const char *st_metadata(const SafeTensors *s, int file, const char *key);

/* ---- writing: safetensors/safetensors_write.c ---- */
typedef struct StWrite {
  const char *name;
  DType dtype; /* any but DT_ACT */
  int ndim;
  int64_t dim[8];
  const void *data; /* for st_write */
} StWrite;
typedef struct StMeta {
  const char *key, *value;
} StMeta;
/* The content of a file: tensors, and strings for "__metadata__". The file orders tensors
 * like the safetensors library: wide types first, then by name. */
typedef struct StContent {
  const StWrite *tensor;
  int n;
  const StMeta *meta;
  int nmeta;
} StContent;
/* A file whose tensors are written in parts, in any order, by several threads and
 * processes. What is not written is zero. The target is unchanged until st_finish. It is
 * in the folder `in` (borrowed); if that is NULL the name is a path. */
typedef struct StOut StOut;
weft_status st_create(const weft_alloc *a, const Dir *in, const char *name,
                      const StContent *c, StOut **out, weft_error *e);
/* Joins a file of the same content that another process has created, by its st_name. */
weft_status st_join(const weft_alloc *a, const Dir *in, const char *name,
                    const char *temporary, const StContent *c, StOut **out,
                    weft_error *e);
const char *st_name(const StOut *o); /* name of the temporary file in its folder */
uint64_t st_size(const StOut *o);    /* bytes of the whole file */
/* Bytes [at, at + n) of tensor number `tensor` of the content. Thread-safe. */
weft_status st_put(const StOut *o, int tensor, uint64_t at, const void *data, size_t n,
                   weft_error *e);
/* Turns a tensor that was put as the transpose of a matrix of so many columns, of
 * elements of `size` bytes; in the process that created the file, after the others have
 * put all. */
weft_status st_turn(const StOut *o, int tensor, int64_t columns, size_t size,
                    weft_error *e);
/* Syncs; the process that created the file renames it over the target after those that
 * joined have finished. Frees `o`, also after an error, and then keeps the target. */
weft_status st_finish(StOut *o, weft_error *e);
/* Discards the file. May be NULL. */
void st_drop(StOut *o);
/* Writes a whole file. */
weft_status st_write(const weft_alloc *a, const char *path, const StWrite *t, int n,
                     weft_error *e);

#endif
