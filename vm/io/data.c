/* data.c - token data: files seen as one stream of ids, cut into samples. Sample i of
 * epoch k is a window of the stream that depends on (seed, k, i) alone. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "vm/base/rng.h"
#include "file.h"
#include "io.h"

/* A part of the stream: `n` ids of `width` bytes, the first of them at `first`. */
typedef struct Part {
  const char *path;
  FileMap map;
  const unsigned char *ids;
  int width;               /* 1, 2 or 4 */
  int64_t first, n;
} Part;

struct Data {
  weft_alloc alloc;
  Arena *arena;
  DataKind kind;
  int64_t seq, vocab;      /* synthetic: of the data; else of the model */
  int64_t total;           /* ids in all parts; 0 = endless */
  uint64_t seed;
  bool shuffle;
  glob_t matches;          /* of the last pattern; here so that no error leaks it */
  VEC(const char *) paths;
  Part *part;
  int nparts;
  const char *described;
};

#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)

/* ---- which files ---- */

/* The pattern below `dir`, in whose own name *, ? and [ mean themselves. */
static const char *full_pattern(Arena *a, const char *dir, const char *pattern) {
  if (pattern[0] == '/' || !dir || !*dir) return pattern;
  char *s = arena_alloc(a, 2 * strlen(dir) + strlen(pattern) + 2), *p = s;
  for (; *dir; dir++) {
    if (strchr("*?[]\\", *dir)) *p++ = '\\';
    *p++ = *dir;
  }
  if (p[-1] != '/') *p++ = '/';
  strcpy(p, pattern);
  return s;
}

static weft_status add_matches(Data *d, const char *dir, const char *pattern,
                               weft_error *e) {
  const char *full = full_pattern(d->arena, dir, pattern);
  glob_t *g = &d->matches;
  globfree(g);
  int found = glob(full, GLOB_ERR | GLOB_NOSORT, NULL, g);
  if (found == GLOB_NOSPACE) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (found == GLOB_ABORTED && errno != ENOENT)
    FAIL(full, "cannot be searched: %s", strerror(errno));
  if (found != 0 || g->gl_pathc == 0)
    FAIL(full, "no file matches");
  for (size_t i = 0; i < g->gl_pathc; i++)
    *VEC_PUSH(d->arena, d->paths) = arena_str(d->arena, g->gl_pathv[i]);
  return WEFT_OK;
}

static int by_text(const void *x, const void *y) {
  return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* In byte order, not the locale's, every file once: the stream is the same everywhere. */
static void sort_paths(Data *d) {
  int n = 0;
  qsort(d->paths.at, (size_t)d->paths.n, sizeof *d->paths.at, by_text);
  for (int i = 0; i < d->paths.n; i++)
    if (i == 0 || strcmp(d->paths.at[i], d->paths.at[n - 1]))
      d->paths.at[n++] = d->paths.at[i];
  d->paths.n = n;
}

/* ---- formats of token files ---- */

/* Headers of 256 int32 that some writers of tokens use: [0] a magic number, [1] a
 * version, [2] the number of ids, [3] their width where `width` is 0. */
enum { HEADER_INTS = 256, HEADER_BYTES = 4 * HEADER_INTS };
static const struct {
  int32_t magic, version;
  int width;
} formats[] = {
    {20240520, 1, 2},      /* llm.c, GPT-2 ids */
    {20240801, 7, 4},      /* llm.c, Llama 3 ids */
    {278895051, 1, 0},     /* NeMo AutoModel */
};

static weft_status read_header(Part *p, const int32_t *h, int format, weft_error *e) {
  if (h[1] != formats[format].version)
    FAIL(p->path, "token file of version %d; version %d of this format is supported",
         h[1], formats[format].version);
  p->width = formats[format].width ? formats[format].width : h[3];
  if (p->width != 2 && p->width != 4)
    FAIL(p->path, "the header says %d bytes per token; 2 or 4 are possible", p->width);
  p->n = h[2];
  p->ids = p->map.at + HEADER_BYTES;
  uint64_t bytes = p->map.size - HEADER_BYTES;
  if (p->n < 0 || (uint64_t)p->n * (uint64_t)p->width != bytes)
    FAIL(p->path, "the header says %d tokens of %d bytes, but %llu bytes follow", h[2],
         p->width, (unsigned long long)bytes);
  return WEFT_OK;
}

/* Headered where a known magic number is found, else raw 16-bit ids. */
static weft_status read_tokens(Part *p, weft_error *e) {
  if (p->map.size >= HEADER_BYTES) {
    int32_t h[4];
    memcpy(h, p->map.at, sizeof h);
    for (int f = 0; f < LEN(formats); f++)
      if (h[0] == formats[f].magic) return read_header(p, h, f, e);
  }
  if (p->map.size % 2)
    FAIL(p->path, "has %zu bytes, which is odd; raw token files hold 16-bit ids",
         p->map.size);
  p->width = 2;
  p->n = (int64_t)(p->map.size / 2);
  p->ids = p->map.at;
  return WEFT_OK;
}

static weft_status open_part(Data *d, Part *p, weft_error *e) {
  TRY(file_map(p->path, &p->map, e));
  p->first = d->total;
  if (d->kind == DATA_TOKENS) {
    TRY(read_tokens(p, e));
  } else {
    p->width = 1;
    p->n = (int64_t)p->map.size;
    p->ids = p->map.at;
  }
  d->total += p->n;
  return WEFT_OK;
}

/* ---- open ---- */

/* "1.2 M" */
static const char *count_text(Arena *a, int64_t n) {
  static const char unit[] = "kMGT";
  double x = (double)n;
  int u = -1;
  for (; x >= 999.95 && u + 1 < LEN(unit) - 1; u++) x /= 1000;
  if (u < 0) return arena_printf(a, "%lld", (long long)n);
  return arena_printf(a, "%.1f %c", x, unit[u]);
}

static weft_status open_files(Data *d, const DataSpec *spec, weft_error *e) {
  if (spec->nfiles == 0) return err_set(e, WEFT_EPLAN, "data names no files");
  for (int i = 0; i < spec->nfiles; i++)
    TRY(add_matches(d, spec->dir, spec->files[i], e));
  sort_paths(d);
  d->part = NEW_N(d->arena, Part, d->paths.n);
  for (; d->nparts < d->paths.n; d->nparts++) {
    Part *p = &d->part[d->nparts];
    p->path = d->paths.at[d->nparts];
    TRY(open_part(d, p, e));
  }
  const char *files = d->nparts == 1 ? "1 file"
                                     : arena_printf(d->arena, "%d files", d->nparts);
  const char *unit = d->kind == DATA_TEXT ? "bytes" : "tokens";
  if (d->total == 0) FAIL(d->part[0].path, "no data: %s, all empty", files);
  if (d->total < d->seq + 1)
    FAIL(d->part[0].path,
         "%s with %lld %s; one sample needs batch.seq + 1 = %lld, the last as a label",
         files, (long long)d->total, unit, (long long)d->seq + 1);
  d->described =
      arena_printf(d->arena, "%s, %s %s", files, count_text(d->arena, d->total), unit);
  return WEFT_OK;
}

static weft_status open_synthetic(Data *d, const DataSpec *spec, weft_error *e) {
  if (spec->vocab > d->vocab)
    return err_set(e, WEFT_EPLAN,
                   "data.vocab = %lld is larger than the model's vocabulary of %lld",
                   (long long)spec->vocab, (long long)d->vocab);
  if (spec->vocab > 0) d->vocab = spec->vocab;
  d->described = arena_printf(d->arena, "synthetic tokens, vocabulary %lld",
                              (long long)d->vocab);
  return WEFT_OK;
}

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
  d->kind = spec->kind;
  d->seq = seq;
  d->vocab = vocab;
  d->seed = seed;
  d->shuffle = spec->shuffle;
  if (setjmp(*arena_guard(d->arena))) {
    data_close(d);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  weft_status status = d->kind == DATA_SYNTHETIC ? open_synthetic(d, spec, e)
                                                 : open_files(d, spec, e);
  if (status != WEFT_OK) data_close(d);
  else *out = d;
  return status;
}

void data_close(Data *d) {
  if (!d) return;
  globfree(&d->matches);
  for (int i = 0; i < d->paths.n && d->part; i++) file_unmap(&d->part[i].map);
  arena_free(d->arena);
  weft_alloc alloc = d->alloc;
  mem_free(&alloc, d, sizeof *d);
}

int64_t data_tokens(const Data *d) { return d->total; }

const char *data_describe(const Data *d) { return d->described; }

/* ---- samples ---- */

/* The last part that starts at or before `at`; empty parts are passed over, since a part
 * that follows one starts at the same place. */
static const Part *part_at(const Data *d, int64_t at) {
  int lo = 0, hi = d->nparts - 1;
  while (lo < hi) {
    int mid = lo + (hi - lo + 1) / 2;
    if (d->part[mid].first <= at) lo = mid;
    else hi = mid - 1;
  }
  return &d->part[lo];
}

static uint32_t id_at(const Part *p, int64_t i) {
  uint16_t x16;
  uint32_t x32;
  switch (p->width) {
  case 1: return p->ids[i];
  case 2: return memcpy(&x16, p->ids + 2 * i, sizeof x16), x16;
  default: return memcpy(&x32, p->ids + 4 * i, sizeof x32), x32;
  }
}

static weft_status bad_id(const Data *d, const Part *p, int64_t i, weft_error *e) {
  bool text = d->kind == DATA_TEXT;
  FAIL(p->path, "%s %u at offset %lld is not below the model's vocabulary of %lld",
       text ? "byte" : "token", id_at(p, i), (long long)i, (long long)d->vocab);
}

/* The ids [at, at + n) of the stream, which lie within it. */
static weft_status read_ids(const Data *d, int64_t at, int64_t n, int32_t *out,
                            weft_error *e) {
  const Part *p = part_at(d, at);
  for (int64_t i = at - p->first; n > 0; i++, n--) {
    while (i >= p->n) i = 0, p++;
    uint32_t id = id_at(p, i);
    if (id >= (uint64_t)d->vocab) return bad_id(d, p, i, e);
    *out++ = (int32_t)id;
  }
  return WEFT_OK;
}

/* Where sample i starts. Windows do not overlap; the label of the last token of one is
 * the first token of the next. */
static int64_t window(const Data *d, int64_t i) {
  uint64_t windows = (uint64_t)((d->total - 1) / d->seq);
  uint64_t epoch = (uint64_t)i / windows, k = (uint64_t)i % windows;
  if (d->shuffle) {
    char name[48];
    snprintf(name, sizeof name, "data.epoch.%llu", (unsigned long long)epoch);
    Rng r = rng_make(d->seed, name);
    k = rng_permute(&r, k, windows);
  }
  return (int64_t)k * d->seq;
}

static void synthetic(const Data *d, int64_t i, int32_t *tokens, int32_t *labels) {
  Rng r = rng_make(d->seed, "data.synthetic");
  uint64_t at = (uint64_t)i * (uint64_t)d->seq;
  for (int64_t k = 0; k <= d->seq; k++, at++) {
    uint64_t id = (uint64_t)rng_u32(&r, at) * (uint64_t)d->vocab >> 32;
    if (k < d->seq) tokens[k] = (int32_t)id;
    if (k > 0) labels[k - 1] = (int32_t)id;
  }
}

weft_status data_sample(const Data *d, int64_t i, int32_t *tokens, int32_t *labels,
                        weft_error *e) {
  assert(i >= 0);
  if (d->kind == DATA_SYNTHETIC) {
    synthetic(d, i, tokens, labels);
    return WEFT_OK;
  }
  int64_t at = window(d, i);
  TRY(read_ids(d, at, d->seq, tokens, e));
  memcpy(labels, tokens + 1, (size_t)(d->seq - 1) * sizeof *labels);
  return read_ids(d, at + d->seq, 1, labels + d->seq - 1, e);
}
