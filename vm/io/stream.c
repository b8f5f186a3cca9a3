/* stream.c - many files as one stream of ids: opening them, and reading. */
#include <unistd.h>

#include "source.h"

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

/* " (raw u16, Megatron)": each format once, in the order of files. */
static const char *forms_text(Data *d) {
  const char *s = "";
  for (int i = 0; i < d->nparts; i++) {
    const char *form = d->part[i].form;
    bool new = form != NULL;
    for (int k = 0; k < i && new; k++) new = !str_eq(form, d->part[k].form);
    if (new) s = arena_printf(d->arena, "%s%s%s", s, *s ? ", " : " (", form);
  }
  return *s ? arena_printf(d->arena, "%s)", s) : s;
}

/* ", 34.1 % of them learnt (masks)" */
static const char *masks_text(Data *d, const DataSpec *spec) {
  int64_t learnt = 0;
  bool there = false;
  for (int i = 0; i < d->nparts; i++) {
    learnt += d->part[i].mask.learnt;
    there |= d->part[i].mask.file.path != NULL;
  }
  if (!there) return "";
  if (spec->masks == MASKS_NONE) return ", all of them learnt: masks = \"none\"";
  return arena_printf(d->arena, ", %.1f %% of them learnt (masks)",
                      100 * (double)learnt / (double)MAX(d->total, 1));
}

static weft_status describe(Data *d, const DataSpec *spec, weft_error *e) {
  const char *unit = d->source->unit, *path = d->part[0].file.path;
  const char *files =
      d->nparts == 1 ? "1 file" : arena_printf(d->arena, "%d files", d->nparts);
  if (d->total == 0) FAIL(path, "no data: %s, all empty", files);
  if (d->total < d->seq + 1 && !d->packed.size)
    FAIL(path,
         "%s with %lld %s; one sample needs batch.seq + 1 = %lld, the last as a label",
         files, (long long)d->total, unit, (long long)d->seq + 1);
  d->described = arena_printf(d->arena, "%s%s, %s %s%s", files, forms_text(d),
                              count_text(d->arena, d->total), unit, masks_text(d, spec));
  return WEFT_OK;
}

/* Opens the mask beside a file, if there is one. */
static weft_status open_mask(Data *d, const DataSpec *spec, const Folders *in, Part *p,
                             weft_error *e) {
  const char *path = token_mask_of(d->arena, p->file.path);
  if (spec->kind != DATA_TOKENS) return WEFT_OK;
  if (!path || access(path, F_OK) != 0) {
    if (spec->masks != MASKS_REQUIRED) return WEFT_OK;
    FAIL(p->file.path, "has no mask, %s, as masks = \"required\" says",
         path ? path : "which only a file x.bin can have");
  }
  if (spec->masks == MASKS_NONE) {
    p->mask.file = (File){.path = path, .fd = -1};
    return WEFT_OK;
  }
  TRY(folders_hold(in, path, e));
  TRY(token_mask_open(path, &p->file, p->n, &p->mask, e));
  file_park(&p->mask.file);
  return WEFT_OK;
}

/* The files of a stream have masks or have none: in one without all tokens would be
 * learnt, which is rarely what is meant beside others. */
static weft_status check_masks(Data *d, const DataSpec *spec, weft_error *e) {
  const Part *with = NULL, *without = NULL;
  int64_t learnt = 0;
  for (int i = 0; i < d->nparts; i++) {
    const Part *p = &d->part[i];
    learnt += p->mask.learnt;
    if (p->mask.file.path) with = p;
    if (!p->mask.file.path && !without) without = p;
  }
  if (!with || spec->masks == MASKS_NONE) return WEFT_OK;
  if (without)
    FAIL(without->file.path,
         "has no mask and %s has one: make one, give these files to streams of their own "
         "(weights), or say masks = \"none\" to learn every token",
         with->file.path);
  if (learnt == 0)
    FAIL(with->mask.file.path, "says that no token is learnt%s",
         d->nparts > 1 ? ", and so do the other masks" : "");
  d->masked = true;
  return WEFT_OK;
}

weft_status stream_open(Data *d, const DataSpec *spec,
                        weft_status (*form)(const Data *d, const DataSpec *spec, Part *p,
                                            weft_error *e),
                        weft_error *e) {
  Folders in = {spec->dir, spec->folders, spec->nfolders};
  const char *const *path;
  int n;
  if (spec->nfiles == 0) return err_set(e, WEFT_EPLAN, "data names no files");
  TRY(stream_files(d->arena, spec, &path, &n, e));
  d->part = NEW_N(d->arena, Part, n);
  for (int i = 0; i < n; i++) {
    Part *p = &d->part[i];
    TRY(folders_hold(&in, path[i], e));
    TRY(file_open(path[i], &p->file, e));
    d->nparts++;
    p->first = d->total;
    TRY(form(d, spec, p, e));
    d->total += p->n;
    TRY(open_mask(d, spec, &in, p, e));
    if (d->packed.size && !d->packed.separated && !p->index.path)
      FAIL(path[i], "does not say where documents end, as packed.size needs: give "
                    "packed = { ..., eot = the token that ends each } or bos");
    file_keep_few(&p->file, i);
  }
  TRY(check_masks(d, spec, e));
  return describe(d, spec, e);
}

/* ---- reading ---- */

/* The last part that starts at or before `at`; empty parts, which start where the next
 * one does, are skipped. */
const Part *stream_part(const Data *d, int64_t at) {
  int lo = 0, hi = d->nparts - 1;
  while (lo < hi) {
    int mid = lo + (hi - lo + 1) / 2;
    if (d->part[mid].first <= at)
      lo = mid;
    else
      hi = mid - 1;
  }
  return &d->part[lo];
}

static int64_t id_of(const unsigned char *p, int width, bool is_signed) {
  uint16_t x16;
  uint32_t x32;
  int64_t x64;
  switch (width) {
  case 1: return is_signed ? (int8_t)*p : *p;
  case 2: memcpy(&x16, p, sizeof x16); return is_signed ? (int16_t)x16 : x16;
  case 4: memcpy(&x32, p, sizeof x32); return is_signed ? (int32_t)x32 : (int64_t)x32;
  default: memcpy(&x64, p, sizeof x64); return x64;
  }
}

/* Reads the ids [i, i + n) of one part. */
static weft_status read_part(const Data *d, const Part *p, int64_t i, int64_t n,
                             int32_t *out, weft_error *e) {
  unsigned char chunk[8192];
  int64_t w = p->width, room = (int64_t)sizeof chunk / w;
  for (int64_t k; n > 0; i += k, n -= k) {
    k = MIN(n, room);
    TRY(file_at(&p->file, p->begin + (uint64_t)(i * w), chunk, (size_t)(k * w), e));
    for (int64_t j = 0; j < k; j++) {
      int64_t id = id_of(chunk + j * w, p->width, p->is_signed);
      if ((uint64_t)id >= (uint64_t)d->vocab)
        FAIL(p->file.path,
             "%s %lld at offset %lld is not below the model's vocabulary of %lld",
             d->source->id, (long long)id, (long long)(i + j), (long long)d->vocab);
      *out++ = (int32_t)id;
    }
  }
  return WEFT_OK;
}

/* The same for the ids [i, i + n) of one part. */
static weft_status mask_part(const Data *d, const Part *p, int64_t i, int64_t n,
                             int32_t *labels, weft_error *e) {
  uint8_t learnt[4096];
  for (int64_t k; n > 0; i += k, labels += k, n -= k) {
    k = MIN(n, (int64_t)sizeof learnt);
    TRY(token_mask_read(&p->mask, i, k, learnt, e));
    for (int64_t j = 0; j < k; j++)
      if (!learnt[j]) labels[j] = LABEL_IGNORED;
  }
  return WEFT_OK;
}

/* Calls `read` for each part of the ids [at, at + n). */
typedef weft_status PartFn(const Data *d, const Part *p, int64_t i, int64_t n,
                           int32_t *out, weft_error *e);
static weft_status each_part(const Data *d, int64_t at, int64_t n, PartFn *read,
                             int32_t *out, weft_error *e) {
  const Part *p = stream_part(d, at);
  for (int64_t i = at - p->first; n > 0; p++, i = 0) {
    int64_t k = MIN(n, p->n - i);
    TRY(read(d, p, i, k, out, e));
    out += k;
    n -= k;
  }
  return WEFT_OK;
}

weft_status stream_ids(const Data *d, int64_t at, int64_t n, int32_t *out,
                       weft_error *e) {
  return each_part(d, at, n, read_part, out, e);
}

weft_status stream_mask(const Data *d, int64_t at, int64_t n, int32_t *labels,
                        weft_error *e) {
  return each_part(d, at, n, mask_part, labels, e);
}
