/* fingerprint.c - what tells data apart, so that processes and resumed runs notice other
 * data: sizes and both ends of every file, and samples at equal distances. Ids count, not
 * bytes: the same ids in another format or folder are the same data. */
#include "vm/io/source.h"

/* ---- the ends of files ---- */

static weft_status look_at_blend(const Data *d, uint64_t *print, weft_error *e) {
  const Blend *b = d->blend;
  int64_t once = data_once(d, NULL);
  uint64_t own;
  *print = hash_bytes(0, b->share, (size_t)b->n * sizeof *b->share);
  /* Evaluations once went on behind these samples: their losses are not to be compared.
   */
  if (d->val && once < data_windows(d)) *print = hash_bytes(*print, &once, sizeof once);
  for (int i = 0; i < b->n; i++) {
    TRY(data_look(b->of[i], &own, e));
    *print = hash_bytes(*print, &own, sizeof own);
  }
  return WEFT_OK;
}

/* Reads the begin and the end of the losses of a reference. */
static weft_status look_at_reference(const File *f, uint64_t *print, weft_error *e) {
  char some[1024];
  size_t n = (size_t)MIN(f->size, (uint64_t)sizeof some);
  for (int k = 0; f->path && k < 2; k++) {
    TRY(file_at(f, k ? f->size - n : 0, some, n, e));
    *print = hash_bytes(*print, some, n);
  }
  return WEFT_OK;
}

/* Reads at the begin and the end of every part, or the begin of an endless stream. */
weft_status data_look(const Data *d, uint64_t *print, weft_error *e) {
  enum { LOOK = 1024 };
  int32_t id[LOOK];
  if (d->blend) return look_at_blend(d, print, e);
  *print = hash_bytes(hash_bytes(0, &d->begin, sizeof d->begin), &d->end, sizeof d->end);
  for (int i = 0; i < MAX(d->nparts, 1); i++) {
    const Part whole = {.n = LOOK}, *p = d->nparts ? &d->part[i] : &whole;
    int64_t n = MIN(p->n, (int64_t)LOOK), last = p->first + p->n - n;
    *print = hash_bytes(*print, &p->n, sizeof p->n);
    if (d->masked) *print = hash_bytes(*print, &p->mask.learnt, sizeof p->mask.learnt);
    for (int k = 0; n > 0 && k < 2; k++) {
      TRY(d->source->ids(d, k ? last : p->first, n, id, e));
      TRY(source_mask(d, k ? last : p->first, n, id, e));
      *print = hash_bytes(*print, id, (size_t)n * sizeof *id);
    }
  }
  return look_at_reference(&d->reference.file, print, e);
}

/* ---- samples ---- */

/* Of short data that is all of it, of any other some 256 K tokens in samples of any
 * length, but not fewer than SAMPLES_LEAST. */
enum { LOOK_TOKENS = 1 << 18, SAMPLES_LEAST = 16, SAMPLES_MOST = 1024 };

static int64_t samples_of(const Data *d, int64_t there) {
  int64_t n = LOOK_TOKENS / d->seq;
  return MIN(there, MIN(MAX(n, (int64_t)SAMPLES_LEAST), (int64_t)SAMPLES_MOST));
}

/* `ids` has room for the tokens and labels of a sample. */
static weft_status look_at_samples(const Data *d, int64_t n, int32_t *ids,
                                   DataPrint *print, weft_error *e) {
  int64_t there = data_windows(d);
  int32_t *labels = ids + d->seq;
  float loss;
  for (int64_t i = 0; i < n; i++) {
    int64_t k = n > 1 ? i * (there - 1) / (n - 1) : 0;
    if (d->rows) k -= k % d->rows->stride; /* others are found by walking there */
    TRY(data_window(d, k, ids, labels, e));
    print->hash = hash_bytes(print->hash, ids, 2 * (size_t)d->seq * sizeof *ids);
    if (!d->reference.file.path) continue;
    TRY(reference_read(&d->reference, d->val, k, ids, labels, &loss, e));
    print->hash = hash_bytes(print->hash, &loss, sizeof loss);
  }
  print->samples += n;
  return WEFT_OK;
}

static weft_status look_at_stream(const Data *d, DataPrint *print, weft_error *e) {
  weft_alloc alloc = d->alloc;
  size_t bytes = 2 * (size_t)d->seq * sizeof(int32_t);
  int64_t n = samples_of(d, data_windows(d));
  if (n == 0) return WEFT_OK;
  int32_t *ids = mem_new(&alloc, bytes);
  if (!ids) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = look_at_samples(d, n, ids, print, e);
  mem_free(&alloc, ids, bytes);
  return st;
}

weft_status data_look_inside(const Data *d, DataPrint *print, weft_error *e) {
  *print = (DataPrint){0};
  for (int i = 0; d->blend && i < d->blend->n; i++)
    TRY(look_at_stream(d->blend->of[i], print, e));
  return d->blend ? WEFT_OK : look_at_stream(d, print, e);
}
