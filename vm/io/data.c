/* data.c - token data: the stream of a source, cut into samples. Sample i of epoch k is a
 * window of the stream that depends on (seed, k, i) alone. */
#include <stdio.h>

#include "source.h"
#include "vm/base/rng.h"

static const Source *const sources[DATA_N] = {
#define SOURCE(ID, name) [DATA_##ID] = &source_##name,
#include "vm/plan/sources.def"
};

weft_status data_open(const weft_alloc *a, const DataSpec *spec, int64_t seq,
                      int64_t vocab, uint64_t seed, Data **out, weft_error *e) {
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
  d->shuffle = spec->shuffle;
  if (setjmp(*arena_guard(d->arena))) {
    data_close(d);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  weft_status status = d->source->open(d, spec, e);
  if (status != WEFT_OK)
    data_close(d);
  else
    *out = d;
  return status;
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
  return d->total;
}

/* The label of the last token of a window is the first token of the next. */
int64_t data_windows(const Data *d) {
  return d->total ? (d->total - 1) / d->seq : 0;
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
  return (int64_t)k * d->seq;
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
  *print = 0;
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
