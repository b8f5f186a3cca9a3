/* stream.c - many files as one stream of ids: which files match, where they may be, and
 * reading. Files are in byte order of their paths; each counts once. */
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

#include "source.h"
#include "vm/base/absent.h"

#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)

typedef VEC(const char *) Paths;

/* ---- which files ---- */

/* The pattern below `dir`; *, ? and [ in the name of `dir` itself are escaped. */
static const char *full_pattern(Arena *a, const char *dir, const char *pattern) {
  if (pattern[0] == '/' || !dir || !*dir) return pattern;
  char *s = arena_alloc(a, 2 * strlen(dir) + 1), *p = s;
  for (; *dir; dir++) {
    if (strchr("*?[]\\", *dir)) *p++ = '\\';
    *p++ = *dir;
  }
  return arena_printf(a, "%s%s%s", s, p[-1] == '/' ? "" : "/", pattern);
}

/* The results of glob to copy. A full arena jumps past `g`, so the copy runs guarded. */
typedef struct Copy {
  Arena *arena;
  const glob_t *g;
  Paths *out;
} Copy;

static void copy_paths(void *ud) {
  Copy *c = ud;
  for (size_t i = 0; i < c->g->gl_pathc; i++)
    *VEC_PUSH(c->arena, *c->out) = arena_str(c->arena, c->g->gl_pathv[i]);
}

/* Adds matching files; no match is not an error here. */
static weft_status add_matches(Arena *a, const char *full, Paths *out, weft_error *e) {
  glob_t g = {0};
  int found = glob(full, GLOB_ERR | GLOB_NOSORT, NULL, &g), why = errno;
  bool copied = found != 0 || arena_try(a, copy_paths, &(Copy){a, &g, out});
  globfree(&g);
  if (found == GLOB_NOSPACE || !copied) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (found == GLOB_ABORTED && why != ENOENT)
    FAIL(full, "cannot be searched: %s", strerror(why));
  return WEFT_OK;
}

static bool has_index(const DataSpec *spec) {
  return spec->kind == DATA_TOKENS &&
         (spec->format == TOKENS_AUTO || spec->format == TOKENS_MEGATRON);
}

/* Adds files, or a Megatron prefix: x for x.bin and x.idx. */
static weft_status add_named(Arena *a, const DataSpec *spec, const char *full, Paths *out,
                             weft_error *e) {
  int before = out->n;
  TRY(add_matches(a, full, out, e));
  if (out->n > before || !has_index(spec)) return WEFT_OK;
  return add_matches(a, arena_printf(a, "%s.idx", full), out, e);
}

/* Replaces an index (.idx) by its .bin. */
static void follow_indices(Arena *a, Paths *p) {
  for (int i = 0; i < p->n; i++) {
    size_t n = strlen(p->at[i]);
    if (n > 4 && strcmp(p->at[i] + n - 4, ".idx") == 0)
      p->at[i] = arena_printf(a, "%.*s.bin", (int)(n - 4), p->at[i]);
  }
}

/* Tries a relative pattern in the plan's folder, then in those of --data until one
 * matches. */
static weft_status find(Arena *a, const DataSpec *spec, const char *pattern, Paths *out,
                        weft_error *e) {
  int before = out->n, more = pattern[0] == '/' ? 0 : spec->nfolders;
  const char *first = full_pattern(a, spec->dir, pattern);
  TRY(add_named(a, spec, first, out, e));
  for (int i = 0; i < more && out->n == before; i++)
    TRY(add_named(a, spec, full_pattern(a, spec->folders[i], pattern), out, e));
  if (out->n > before) return WEFT_OK;
  const char *near = absent_nearest(a, first);
  FAIL(first, "no file matches%s%s%s%s", more ? ", nor in the folders of --data" : "",
       near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

static int by_text(const void *x, const void *y) {
  return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* In byte order, not the locale's, without duplicates: equal everywhere. */
static void sort_paths(Paths *p) {
  int n = 0;
  qsort(p->at, (size_t)p->n, sizeof *p->at, by_text);
  for (int i = 0; i < p->n; i++)
    if (i == 0 || strcmp(p->at[i], p->at[n - 1])) p->at[n++] = p->at[i];
  p->n = n;
}

/* Leaves out the masks (.mask) of files that are there, as a pattern for both finds them.
 * The paths are sorted. */
static void leave_out_masks(Arena *a, Paths *p) {
  int n = 0;
  size_t all = (size_t)p->n;
  const char **kept = NEW_N(a, const char *, p->n);
  for (int i = 0; i < p->n; i++) {
    size_t len = strlen(p->at[i]);
    bool mask = len > 5 && strcmp(p->at[i] + len - 5, ".mask") == 0;
    const char *bin = mask ? arena_printf(a, "%.*s.bin", (int)(len - 5), p->at[i]) : NULL;
    if (!mask || !bsearch(&bin, p->at, all, sizeof bin, by_text)) kept[n++] = p->at[i];
  }
  p->at = kept;
  p->n = n;
}

weft_status data_find(Arena *a, const DataSpec *spec, const char *pattern,
                      const char *const **paths, int *n, weft_error *e) {
  Folders in = {spec->dir, spec->folders, spec->nfolders};
  Paths found = {0};
  TRY(find(a, spec, pattern, &found, e));
  sort_paths(&found);
  for (int i = 0; i < found.n; i++) TRY(folders_hold(&in, found.at[i], e));
  *paths = found.at;
  *n = found.n;
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
  Paths paths = {0};
  if (spec->nfiles == 0) return err_set(e, WEFT_EPLAN, "data names no files");
  for (int i = 0; i < spec->nfiles; i++)
    TRY(find(d->arena, spec, spec->files[i], &paths, e));
  if (has_index(spec)) follow_indices(d->arena, &paths);
  sort_paths(&paths);
  if (spec->kind == DATA_TOKENS) leave_out_masks(d->arena, &paths);
  d->part = NEW_N(d->arena, Part, paths.n);
  for (int i = 0; i < paths.n; i++) {
    Part *p = &d->part[i];
    TRY(folders_hold(&in, paths.at[i], e));
    TRY(file_open(paths.at[i], &p->file, e));
    d->nparts++;
    p->first = d->total;
    TRY(form(d, spec, p, e));
    d->total += p->n;
    TRY(open_mask(d, spec, &in, p, e));
    if (d->packed.size && !d->packed.separated && !p->index.path)
      FAIL(paths.at[i], "does not say where documents end, as packed.size needs: give "
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

weft_status stream_ids(const Data *d, int64_t at, int64_t n, int32_t *out,
                       weft_error *e) {
  const Part *p = stream_part(d, at);
  for (int64_t i = at - p->first; n > 0; p++, i = 0) {
    int64_t k = MIN(n, p->n - i);
    TRY(read_part(d, p, i, k, out, e));
    out += k;
    n -= k;
  }
  return WEFT_OK;
}

/* The same for the ids [i, i + n) of one part. */
static weft_status mask_part(const Part *p, int64_t i, int64_t n, int32_t *labels,
                             weft_error *e) {
  uint8_t learnt[4096];
  for (int64_t k; n > 0; i += k, labels += k, n -= k) {
    k = MIN(n, (int64_t)sizeof learnt);
    TRY(token_mask_read(&p->mask, i, k, learnt, e));
    for (int64_t j = 0; j < k; j++)
      if (!learnt[j]) labels[j] = LABEL_IGNORED;
  }
  return WEFT_OK;
}

weft_status stream_mask(const Data *d, int64_t at, int64_t n, int32_t *labels,
                        weft_error *e) {
  const Part *p = stream_part(d, at);
  for (int64_t i = at - p->first; n > 0; p++, i = 0) {
    int64_t k = MIN(n, p->n - i);
    TRY(mask_part(p, i, k, labels, e));
    labels += k;
    n -= k;
  }
  return WEFT_OK;
}
