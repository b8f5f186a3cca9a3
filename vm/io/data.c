/* data.c - token data: the stream of a source, cut into samples. Sample i of epoch k is a
 * window of the stream that depends on (seed, k, i) only. */

#include "source.h"
#include "vm/base/plural.h"
#include "vm/base/rng.h"

static const Source *const sources[DATA_N] = {
#define SOURCE(ID, name) [DATA_##ID] = &source_##name,
#include "vm/plan/sources.def"
};

/* The purpose for which a stream is opened. */
typedef struct Want {
  int64_t seq, vocab;
  uint64_t seed;
  bool val;
  int number; /* of the stream in a blend, from 1 */
} Want;

static weft_status open_part(const weft_alloc *a, const DataSpec *spec, const Want *w,
                             Data **out, weft_error *e);

/* ---- one stream ---- */

/* The label of a window's last token is the first token of the next window. */
static int64_t windows(const Data *d) {
  if (d->rows) return d->rows->n;
  return d->total ? (d->end - d->begin - 1) / d->seq : 0;
}

/* The first id for validation. Packed documents are not cut. */
static weft_status find_cut(Data *d, const DataSpec *spec, int64_t *cut, weft_error *e) {
  Documents w;
  int64_t n;
  *cut = d->total - (int64_t)(spec->val_fraction * (double)d->total);
  if (!d->packed.size || *cut == 0) return WEFT_OK;
  TRY(documents_begin(&w, d, *cut - 1, e));
  TRY(documents_next(&w, &n, e));
  *cut = w.at;
  return WEFT_OK;
}

/* Splits the stream if part of it is for validation. */
static weft_status take_part(Data *d, const DataSpec *spec, weft_error *e) {
  int64_t cut, n, least = d->packed.size ? 1 : d->seq + 1;
  const char *of = d->val ? "validation" : "training";
  d->end = d->total;
  if (!(spec->val_fraction > 0)) return WEFT_OK;
  TRY(find_cut(d, spec, &cut, e));
  if (d->val)
    d->begin = cut;
  else
    d->end = cut;
  n = d->end - d->begin;
  if (n < least)
    return err_set(e, WEFT_EPLAN,
                   "data.val_fraction = %g leaves %lld of %lld %s for %s; one sample "
                   "needs %s = %lld",
                   spec->val_fraction, (long long)n, (long long)d->total, d->source->unit,
                   of, d->packed.size ? "a document" : "batch.seq + 1", (long long)least);
  d->described = arena_printf(d->arena, "%s, the %s %lld for %s", d->described,
                              d->val ? "last" : "first", (long long)n, of);
  return WEFT_OK;
}

/* ", 3 documents HOW 1204 tokens" */
static const char *documents_text(Data *d, int64_t n, const char *how, int64_t ids) {
  if (n == 0) return "";
  return arena_printf(d->arena, ", %lld document%s %s %lld %s", (long long)n,
                      plural(n, "s"), how, (long long)ids, d->source->unit);
}

static const char *left_out(Data *d) {
  const Rows *r = d->rows;
  const char *bare = d->packed.pairs
                         ? "dropped, as nothing is learnt of one of the pair, with"
                         : "dropped, as nothing is learnt of them, with";
  return arena_printf(d->arena, "%s%s%s",
                      documents_text(d, r->ncut, "truncated by", r->cut),
                      documents_text(d, r->ndropped, "dropped with", r->dropped),
                      documents_text(d, r->nbare, bare, r->bare));
}

static weft_status open_stream(Data *d, const DataSpec *spec, weft_error *e) {
  d->source = sources[spec->kind];
  TRY(d->source->open(d, spec, e));
  TRY(take_part(d, spec, e));
  if (!d->packed.size || !d->total) return WEFT_OK;
  TRY(rows_open(d, e));
  if (d->packed.pairs && (d->rows->n + d->rows->nbare) % 2)
    return err_set(
        e, WEFT_EPLAN,
        "%s: %lld documents are no pairs, as the loss needs them: the first of "
        "two is better than the second",
        d->described, (long long)(d->rows->n + d->rows->nbare));
  double full = 100 * (double)d->rows->filled / ((double)d->rows->n * (double)d->seq);
  d->described = arena_printf(
      d->arena, "%s, whole documents in %lld row%s, %.1f %% of them filled%s",
      d->described, (long long)d->rows->n, plural(d->rows->n, "s"), full, left_out(d));
  return WEFT_OK;
}

/* ---- blends ---- */

static const char *blend_text(Data *d, const double *weight) {
  const char *s = "";
  double sum = 0;
  bool masked = false;
  for (int i = 0; i < d->blend->n; i++) {
    sum += weight[i];
    masked |= d->blend->of[i]->masked;
  }
  for (int i = 0; i < d->blend->n; i++) {
    const Data *of = d->blend->of[i];
    s = arena_printf(d->arena, "%s%s%.3g %% of %s%s", s, i ? "; " : "",
                     100 * weight[i] / sum, of->described,
                     masked && !of->masked ? ", all of them learnt (no masks)" : "");
  }
  return s;
}

static weft_status open_blend(Data *d, const DataSpec *spec, const Want *w,
                              weft_error *e) {
  Blend *b = d->blend = NEW(d->arena, Blend);
  Want own = *w;
  assert(spec->nweights == spec->nfiles);
  b->share = NEW_N(d->arena, int64_t, spec->nfiles);
  b->of = NEW_N(d->arena, Data *, spec->nfiles);
  b->name = NEW_N(d->arena, const char *, spec->nfiles);
  for (; b->n < spec->nfiles; b->n++) {
    DataSpec one = *spec;
    b->name[b->n] =
        arena_str(d->arena, spec->names ? spec->names[b->n] : spec->files[b->n]);
    one.files = &spec->files[b->n];
    one.nfiles = 1;
    one.nweights = 0;
    own.number = b->n + 1;
    TRY(open_part(&d->alloc, &one, &own, &b->of[b->n], e));
  }
  TRY(blend_fill(&d->alloc, spec->weights, b, e));
  d->described = blend_text(d, spec->weights);
  return WEFT_OK;
}

/* ---- open ---- */

/* Of synthetic data losses are made up, too. */
static weft_status open_reference(Data *d, const DataSpec *spec, weft_error *e) {
  if (!spec->reference) return WEFT_OK;
  d->made_up = spec->kind == DATA_SYNTHETIC;
  if (d->made_up) return WEFT_OK;
  const char *path = arena_str(d->arena, spec->reference);
  return reference_open(path, spec->reference_model, d->seq, d->val, windows(d),
                        &d->reference, e);
}

static weft_status open_any(Data *d, const DataSpec *spec, const Want *w, weft_error *e) {
  if (setjmp(*arena_guard(d->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (spec->nweights > 1) return open_blend(d, spec, w, e);
  TRY(open_stream(d, spec, e));
  return open_reference(d, spec, e);
}

static weft_status open_part(const weft_alloc *a, const DataSpec *spec, const Want *w,
                             Data **out, weft_error *e) {
  assert(w->seq > 0 && w->vocab > 0 && w->vocab <= INT32_MAX);
  *out = NULL;
  Data *d = mem_new(a, sizeof *d);
  if (!d || !(d->arena = arena_new(a))) {
    mem_free(a, d, sizeof *d);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  if (a) d->alloc = *a;
  d->seq = w->seq;
  d->vocab = w->vocab;
  d->seed = w->seed;
  d->val = w->val;
  d->number = w->number;
  d->packed = spec->packed;
  d->shuffle = spec->shuffle && !w->val;
  weft_status status = open_any(d, spec, w, e);
  if (status != WEFT_OK)
    data_close(d);
  else
    *out = d;
  return status;
}

weft_status data_open(const weft_alloc *a, const DataSpec *spec, int64_t seq,
                      int64_t vocab, uint64_t seed, Data **out, weft_error *e) {
  return open_part(a, spec, &(Want){seq, vocab, seed, false, 0}, out, e);
}

bool data_has_val(const DataSpec *spec) { return spec->val || spec->val_fraction > 0; }

weft_status data_open_val(const weft_alloc *a, const DataSpec *spec, int64_t seq,
                          int64_t vocab, uint64_t seed, Data **out, weft_error *e) {
  *out = NULL;
  if (!data_has_val(spec)) return WEFT_OK;
  DataSpec val = spec->val ? *spec->val : *spec;
  val.dir = spec->dir;
  val.folders = spec->folders;
  val.nfolders = spec->nfolders;
  val.packed = spec->packed;
  val.reference = spec->reference;
  val.reference_model = spec->reference_model;
  return open_part(a, &val, &(Want){seq, vocab, seed, true, 0}, out, e);
}

size_t data_bytes(const DataSpec *spec) {
  size_t one = sizeof(Data) + arena_least();
  if (spec->packed.size && spec->kind != DATA_SYNTHETIC) one += rows_bytes();
  if (spec->nweights < 2) return one;
  size_t cycle = (size_t)blend_cycle(spec->weights, spec->nweights, NULL);
  size_t blend = sizeof(Data) + arena_least() + 2 * cycle * sizeof(uint16_t);
  return (size_t)spec->nweights * one + blend;
}

void data_close(Data *d) {
  if (!d) return;
  for (int i = 0; i < d->nparts; i++) {
    file_close(&d->part[i].file);
    file_close(&d->part[i].index);
    file_close(&d->part[i].mask.file);
  }
  file_close(&d->reference.file);
  for (int i = 0; d->blend && i < d->blend->n; i++) data_close(d->blend->of[i]);
  weft_alloc alloc = d->alloc;
  if (d->blend) blend_free(&alloc, d->blend);
  if (d->rows) rows_close(&alloc, d->rows);
  arena_free(d->arena);
  mem_free(&alloc, d, sizeof *d);
}

int64_t data_tokens(const Data *d) {
  int64_t n = d->end - d->begin;
  for (int i = 0; d->blend && i < d->blend->n; i++) n += data_tokens(d->blend->of[i]);
  return n;
}

int64_t data_windows(const Data *d) {
  int64_t n = windows(d);
  for (int i = 0; d->blend && i < d->blend->n; i++) n += data_windows(d->blend->of[i]);
  return n;
}

int64_t data_once(const Data *d, int *ends) {
  const Blend *b = d->blend;
  int64_t once = 0;
  if (!b) return windows(d);
  for (int k = 0; k < b->n; k++) {
    int64_t n = windows(b->of[k]), at = n ? blend_sample(b, k, n) : 0;
    if (n == 0 || (once && at >= once)) continue;
    once = at;
    if (ends) *ends = k;
  }
  return once;
}

/* Of a blend, each stream counts by its share of the samples. */
double data_padding(const Data *d) {
  const Rows *r = d->rows;
  double sum = 0;
  if (r) return 1 - (double)r->filled / ((double)r->n * (double)d->seq);
  for (int i = 0; d->blend && i < d->blend->n; i++)
    sum += (double)d->blend->share[i] / (double)d->blend->cycle *
           data_padding(d->blend->of[i]);
  return sum;
}

const char *data_describe(const Data *d) { return d->described; }

/* ---- samples ---- */

/* The k-th of n in the epoch's order. */
static int64_t shuffled(const Data *d, uint64_t epoch, uint64_t k, uint64_t n) {
  char name[64];
  TextBuf t = textbuf(name, sizeof name);
  textbuf_printf(&t, "data.");
  if (d->number) textbuf_printf(&t, "%d.", d->number);
  textbuf_printf(&t, "epoch.%llu", (unsigned long long)epoch);
  Rng r = rng_make(d->seed, name);
  return (int64_t)rng_permute(&r, k, n);
}

/* The number of sample i in the order of the data; pairs stay together. */
static int64_t window(const Data *d, int64_t i) {
  int64_t n = windows(d), k = n ? i % n : i, each = d->packed.pairs ? 2 : 1;
  if (!n || !d->shuffle) return k;
  int64_t at = shuffled(d, (uint64_t)(i / n), (uint64_t)(k / each), (uint64_t)(n / each));
  return each * at + k % each;
}

/* The stream of sample i; *own is its number there. */
static const Data *stream_of(const Data *d, int64_t i, int64_t *own) {
  const Blend *b = d->blend;
  assert(i >= 0);
  *own = i;
  if (!b) return d;
  int64_t k = i % b->cycle;
  *own = i / b->cycle * b->share[b->turn[k]] + b->nth[k];
  return b->of[b->turn[k]];
}

int data_sources(const Data *d) { return d->blend ? d->blend->n : 0; }

const char *data_source_name(const Data *d, int k) { return d->blend->name[k]; }

int data_source(const Data *d, int64_t i) {
  return d->blend ? d->blend->turn[i % d->blend->cycle] : 0;
}

/* Of a sample of one stream. */
static weft_status count(const Data *d, int64_t i, DataCounts *out, weft_error *e) {
  if (d->rows) return rows_sample(d, window(d, i), NULL, NULL, out, e);
  int64_t at = d->begin + window(d, i) * d->seq;
  *out = (DataCounts){.first = at, .last = at + d->seq - 1};
  return WEFT_OK;
}

weft_status data_counts(const Data *d, int64_t i, DataCounts *out, weft_error *e) {
  d = stream_of(d, i, &i);
  return count(d, i, out, e);
}

bool data_is_partial(const Data *d) {
  bool some = d->masked || d->rows;
  for (int i = 0; d->blend && i < d->blend->n; i++)
    some |= data_is_partial(d->blend->of[i]);
  return some;
}

weft_status data_name(const Data *d, int64_t i, TextBuf *t, weft_error *e) {
  DataCounts c;
  d = stream_of(d, i, &i);
  if (d->nparts) {
    TRY(count(d, i, &c, e));
    return documents_name(d, c.first, c.last, t, e);
  }
  textbuf_printf(t, "sample %lld of %s", (long long)i, d->described);
  return WEFT_OK;
}

weft_status data_window(const Data *d, int64_t k, int32_t *tokens, int32_t *labels,
                        weft_error *e) {
  if (d->rows) return rows_sample(d, k, tokens, labels, NULL, e);
  int64_t at = d->begin + k * d->seq;
  TRY(d->source->ids(d, at, d->seq, tokens, e));
  memcpy(labels, tokens + 1, (size_t)(d->seq - 1) * sizeof *labels);
  labels[d->seq - 1] = LABEL_DOCUMENT_END; /* stays so in packed rows */
  if (d->packed.size) return source_mask(d, at + 1, d->seq - 1, labels, e);
  TRY(d->source->ids(d, at + d->seq, 1, labels + d->seq - 1, e));
  return source_mask(d, at + 1, d->seq, labels, e);
}

weft_status data_sample(const Data *d, int64_t i, int32_t *tokens, int32_t *labels,
                        weft_error *e) {
  d = stream_of(d, i, &i);
  return data_window(d, window(d, i), tokens, labels, e);
}

weft_status data_reference(const Data *d, int64_t i, const int32_t *tokens,
                           const int32_t *labels, float *loss, weft_error *e) {
  assert(!d->blend);
  if (d->made_up) {
    *loss = reference_made_up(labels, d->seq, d->vocab, d->seed, (uint64_t)i);
    return WEFT_OK;
  }
  return reference_read(&d->reference, d->val, window(d, i), tokens, labels, loss, e);
}
