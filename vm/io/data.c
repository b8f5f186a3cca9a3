/* data.c - token data: the stream of a source, cut into samples. Sample i of epoch k is a
 * window of the stream that depends on (seed, k, i) alone. */
#include <stdio.h>

#include "source.h"
#include "vm/base/rng.h"

static const Source *const sources[DATA_N] = {
#define SOURCE(ID, name) [DATA_##ID] = &source_##name,
#include "vm/plan/sources.def"
};

/* Cuts the stream in two where a part of it is for validation. */
static weft_status take_part(Data *d, const DataSpec *spec, weft_error *e) {
  int64_t val = (int64_t)(spec->val_fraction * (double)d->total), n;
  const char *unit = d->source->unit, *of;
  d->end = d->total;
  if (!(spec->val_fraction > 0)) return WEFT_OK;
  if (d->val)
    d->begin = d->total - val;
  else
    d->end = d->total - val;
  n = d->end - d->begin;
  of = d->val ? "validation" : "training";
  if (n < d->seq + 1)
    return err_set(e, WEFT_EPLAN,
                   "data.val_fraction = %g leaves %lld of %lld %s for %s; one sample "
                   "needs batch.seq + 1 = %lld",
                   spec->val_fraction, (long long)n, (long long)d->total, unit, of,
                   (long long)d->seq + 1);
  d->described = arena_printf(d->arena, "%s, the %s %lld for %s", d->described,
                              d->val ? "last" : "first", (long long)n, of);
  return WEFT_OK;
}

static weft_status open_part(const weft_alloc *a, const DataSpec *spec, int64_t seq,
                             int64_t vocab, uint64_t seed, bool val, Data **out,
                             weft_error *e) {
  assert(seq > 0 && vocab > 0 && vocab <= INT32_MAX);
  *out = NULL;
  Data *d = mem_new(a, sizeof *d);
  if (!d || !(d->arena = arena_new(a))) {
    mem_free(a, d, sizeof *d);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  if (a) d->alloc = *a;
  d->source = sources[spec->kind];
  d->seq = seq;
  d->vocab = vocab;
  d->seed = seed;
  d->shuffle = spec->shuffle && !val;
  d->val = val;
  if (setjmp(*arena_guard(d->arena))) {
    data_close(d);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  weft_status status = d->source->open(d, spec, e);
  if (status == WEFT_OK) status = take_part(d, spec, e);
  if (status != WEFT_OK)
    data_close(d);
  else
    *out = d;
  return status;
}

weft_status data_open(const weft_alloc *a, const DataSpec *spec, int64_t seq,
                      int64_t vocab, uint64_t seed, Data **out, weft_error *e) {
  return open_part(a, spec, seq, vocab, seed, false, out, e);
}

bool data_has_val(const DataSpec *spec) {
  return spec->val || spec->val_fraction > 0;
}

weft_status data_open_val(const weft_alloc *a, const DataSpec *spec, int64_t seq,
                          int64_t vocab, uint64_t seed, Data **out, weft_error *e) {
  *out = NULL;
  if (!data_has_val(spec)) return WEFT_OK;
  DataSpec val = spec->val ? *spec->val : *spec;
  val.dir = spec->dir;
  val.folders = spec->folders;
  val.nfolders = spec->nfolders;
  return open_part(a, &val, seq, vocab, seed, true, out, e);
}

size_t data_bytes(void) {
  return sizeof(Data) + arena_least();
}

void data_close(Data *d) {
  if (!d) return;
  for (int i = 0; i < d->nparts; i++)
    file_close(&d->part[i].file);
  arena_free(d->arena);
  weft_alloc alloc = d->alloc;
  mem_free(&alloc, d, sizeof *d);
}

int64_t data_tokens(const Data *d) {
  return d->end - d->begin;
}

/* The label of the last token of a window is the first token of the next. */
int64_t data_windows(const Data *d) {
  return d->total ? (data_tokens(d) - 1) / d->seq : 0;
}

const char *data_describe(const Data *d) {
  return d->described;
}

/* ---- samples ---- */

/* Where sample i starts. */
static int64_t window(const Data *d, int64_t i) {
  uint64_t windows = (uint64_t)data_windows(d);
  if (!windows) return i * d->seq;
  uint64_t epoch = (uint64_t)i / windows, k = (uint64_t)i % windows;
  if (d->shuffle) {
    char name[48];
    snprintf(name, sizeof name, "data.epoch.%llu", (unsigned long long)epoch);
    Rng r = rng_make(d->seed, name);
    k = rng_permute(&r, k, windows);
  }
  return d->begin + (int64_t)k * d->seq;
}

weft_status data_sample(const Data *d, int64_t i, int32_t *tokens, int32_t *labels,
                        weft_error *e) {
  assert(i >= 0);
  int64_t at = window(d, i);
  TRY(d->source->ids(d, at, d->seq, tokens, e));
  memcpy(labels, tokens + 1, (size_t)(d->seq - 1) * sizeof *labels);
  return d->source->ids(d, at + d->seq, 1, labels + d->seq - 1, e);
}

/* ---- a look at the whole ---- */

/* At the begin and the end of every part, or the begin of an endless stream. */
weft_status data_look(const Data *d, uint64_t *print, weft_error *e) {
  enum { LOOK = 1024 };
  int32_t id[LOOK];
  *print = hash_bytes(hash_bytes(0, &d->begin, sizeof d->begin), &d->end, sizeof d->end);
  for (int i = 0; i < MAX(d->nparts, 1); i++) {
    const Part whole = {.n = LOOK}, *p = d->nparts ? &d->part[i] : &whole;
    int64_t n = MIN(p->n, (int64_t)LOOK), last = p->first + p->n - n;
    *print = hash_bytes(*print, &p->n, sizeof p->n);
    for (int k = 0; n > 0 && k < 2; k++) {
      TRY(d->source->ids(d, k ? last : p->first, n, id, e));
      *print = hash_bytes(*print, id, (size_t)n * sizeof *id);
    }
  }
  return WEFT_OK;
}
