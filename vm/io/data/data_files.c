/* data_files.c - which files the names and patterns of data lead to, and where these are
 * looked for. Files are in byte order of their paths; each counts once, however it is
 * named. */
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "vm/base/absent.h"
#include "vm/io/source.h"

typedef VEC(const char *) Paths;

/* ---- patterns ---- */

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

/* Whether the current folder has what is not in the plan's. */
static bool is_here(Arena *a, const char *pattern) {
  weft_error why = NO_ERROR;
  Paths here = {0};
  return pattern[0] != '/' && add_matches(a, pattern, &here, &why) == WEFT_OK && here.n;
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
  if (is_here(a, pattern))
    FAIL(first,
         "no file matches%s; there is one in the current folder, which --data . "
         "adds",
         more ? ", nor in the folders of --data" : " beside the plan");
  const char *near = absent_nearest(a, first);
  FAIL(first, "no file matches%s%s%s%s", more ? ", nor in the folders of --data" : "",
       near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

/* ---- each once ---- */

/* In byte order, not the locale's, without duplicates: equal everywhere. */
static void sort_paths(Paths *p) {
  int n = 0;
  qsort(p->at, (size_t)p->n, sizeof *p->at, order_texts);
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
    if (!mask || !bsearch(&bin, p->at, all, sizeof bin, order_texts))
      kept[n++] = p->at[i];
  }
  p->at = kept;
  p->n = n;
}

/* What a path leads to: a file, of tokens also the index and the mask beside it, which
 * make other data of the same ids. */
typedef struct Identity {
  uint64_t of[3][2]; /* device and inode of each; 0: there is none */
  int at;            /* in the list of paths */
} Identity;

static void identify(const char *path, uint64_t of[2]) {
  struct stat st;
  if (!path || stat(path, &st) != 0) return;
  of[0] = (uint64_t)st.st_dev;
  of[1] = (uint64_t)st.st_ino;
}

static int by_identity(const void *x, const void *y) {
  const Identity *a = x, *b = y;
  int same = memcmp(a->of, b->of, sizeof a->of);
  return same ? same : a->at - b->at;
}

/* Leaves out paths that lead to the file of an earlier one: "./x" is "x", and so may a
 * link be. */
static void leave_out_same(Arena *a, const DataSpec *spec, Paths *p) {
  int n = 0;
  Identity *id = NEW_N(a, Identity, p->n);
  for (int i = 0; i < p->n; i++) {
    id[i] = (Identity){.at = i};
    identify(p->at[i], id[i].of[0]);
    if (spec->kind != DATA_TOKENS) continue;
    identify(megatron_index_of(a, p->at[i]), id[i].of[1]);
    identify(token_mask_of(a, p->at[i]), id[i].of[2]);
  }
  qsort(id, (size_t)p->n, sizeof *id, by_identity);
  for (int i = 1; i < p->n; i++)
    if (id[i].of[0][1] && memcmp(id[i].of, id[i - 1].of, sizeof id->of) == 0)
      p->at[id[i].at] = NULL;
  for (int i = 0; i < p->n; i++)
    if (p->at[i]) p->at[n++] = p->at[i];
  p->n = n;
}

/* ---- all files ---- */

weft_status data_find(Arena *a, const DataSpec *spec, const char *pattern,
                      const char *const **paths, int *n, weft_error *e) {
  Folders in = {spec->dir, spec->folders, spec->nfolders};
  Paths found = {0};
  TRY(find(a, spec, pattern, &found, e));
  sort_paths(&found);
  leave_out_same(a, spec, &found);
  for (int i = 0; i < found.n; i++) TRY(folders_hold(&in, found.at[i], e));
  *paths = found.at;
  *n = found.n;
  return WEFT_OK;
}

weft_status stream_files(Arena *a, const DataSpec *spec, const char *const **paths,
                         int *n, weft_error *e) {
  Paths found = {0};
  for (int i = 0; i < spec->nfiles; i++) TRY(find(a, spec, spec->files[i], &found, e));
  if (has_index(spec)) follow_indices(a, &found);
  sort_paths(&found);
  if (spec->kind == DATA_TOKENS) leave_out_masks(a, &found);
  leave_out_same(a, spec, &found);
  *paths = found.at;
  *n = found.n;
  return WEFT_OK;
}
