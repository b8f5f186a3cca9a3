/* store_find.c - lists the checkpoints of a folder, and finds the latest and the one to
 * resume from; see ckpt_store.h. Writes nothing. */
#include "ckpt_store.h"
#include "vm/base/plural.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

/* "step-00000100" or "step-00000100.old"; with .tmp if it is temporary. */
bool store_is_step(const char *name, bool temporary) {
  const char *s = name + 5;
  if (strncmp(name, "step-", 5) != 0) return false;
  size_t digits = strspn(s, "0123456789"), old = strlen(STORE_OLD);
  s += digits;
  if (strncmp(s, STORE_OLD, old) == 0) s += old;
  return digits >= 8 && digits < 19 && str_eq(s, temporary ? STORE_TMP : "");
}

static int by_time(const void *x, const void *y) {
  const StoreEntry *a = x, *b = y;
  if (a->saved_at != b->saved_at) return a->saved_at > b->saved_at ? -1 : 1;
  return a->step > b->step ? -1 : a->step < b->step;
}

/* For a checkpoint without a readable manifest: its step and time by the folder. */
static bool guess(Arena *a, const char *dir, const char *name, StoreEntry *out) {
  struct stat st;
  if (stat(arena_printf(a, "%s/%s", dir, name), &st) != 0) return false;
  int64_t ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
  *out = (StoreEntry){arena_str(a, name), strtoll(name + 5, NULL, 10), ns};
  return true;
}

/* Reads a manifest in a temporary arena: the list keeps two numbers of it. */
static bool look(Arena *a, const char *dir, const char *name, StoreEntry *out) {
  weft_error ignored = NO_ERROR;
  Manifest m;
  Arena *scratch = arena_new(arena_allocator(a));
  Text path = {0};
  text_printf(&path, "%s/%s/" MANIFEST_NAME, dir, name);
  bool ok =
      scratch && !path.oom && manifest_read(scratch, path.s, &m, &ignored) == WEFT_OK;
  arena_free(scratch);
  text_free(&path);
  if (ok) *out = (StoreEntry){arena_str(a, name), m.step, m.saved_at};
  return ok;
}

/* `broken`: also lists those with an unreadable manifest. */
static weft_status list_steps(Arena *a, const char *dir, bool broken, StoreList *out,
                              weft_error *e) {
  VEC(StoreEntry) list = {0};
  StoreEntry x;
  *out = (StoreList){0};
  DIR *d = opendir(dir);
  if (!d && errno == ENOENT) return WEFT_OK;
  if (!d) return err_file(e, WEFT_EFILE, dir, 0, "cannot be read: %s", strerror(errno));
  for (struct dirent *f; (f = readdir(d));)
    if (store_is_step(f->d_name, false) &&
        (look(a, dir, f->d_name, &x) || (broken && guess(a, dir, f->d_name, &x))))
      *VEC_PUSH(a, list) = x;
  closedir(d);
  if (list.n) qsort(list.at, (size_t)list.n, sizeof *list.at, by_time);
  *out = (StoreList){list.at, list.n};
  return WEFT_OK;
}

weft_status store_list(Arena *a, const char *dir, StoreList *out, weft_error *e) {
  return list_steps(a, dir, false, out, e);
}

weft_status store_list_all(Arena *a, const char *dir, StoreList *out, weft_error *e) {
  return list_steps(a, dir, true, out, e);
}

/* ---- times ---- */

typedef struct Last {
  const char *dir;
  int64_t saved_at;
} Last;

static weft_status find_last(Arena *a, void *ud, weft_error *e) {
  Last *l = ud;
  StoreList list;
  TRY(store_list(a, l->dir, &list, e));
  if (list.n) l->saved_at = list.at[0].saved_at;
  return WEFT_OK;
}

weft_status store_last(const Dir *in, int64_t *out, weft_error *e) {
  Last l = {.dir = in->path};
  weft_status st = arena_scoped(NULL, find_last, &l, e);
  *out = l.saved_at;
  return st;
}

int64_t store_time(int64_t last) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  return ns > last || last == INT64_MAX ? MAX(ns, last) : last + 1;
}

/* ---- finding one ---- */

static bool has_manifest(Arena *a, const char *path) {
  struct stat st;
  return stat(arena_printf(a, "%s/" MANIFEST_NAME, path), &st) == 0;
}

/* The checkpoint named in the file `latest`, if that has a valid name. */
static const char *latest_name(Arena *a, const char *dir) {
  char *s;
  size_t n;
  weft_error ignored = NO_ERROR;
  const char *path = arena_printf(a, "%s/" LATEST_NAME, dir);
  if (file_read(NULL, path, 256, &s, &n, &ignored) != WEFT_OK) return NULL;
  const char *name = arena_strn(a, s, strcspn(s, "\n"));
  mem_free(NULL, s, n + 1);
  return store_is_step(name, false) ? name : NULL;
}

const char *store_latest(Arena *a, const char *dir) {
  const char *name = latest_name(a, dir);
  return name && has_manifest(a, arena_printf(a, "%s/%s", dir, name)) ? name : NULL;
}

/* A checkpoint that `latest` names and that is gone was the last one: it comes first, to
 * be told of. */
static void add_gone(Arena *a, const char *dir, StoreList *list) {
  const char *name = latest_name(a, dir);
  if (!name) return;
  for (int i = 0; i < list->n; i++)
    if (str_eq(list->at[i].name, name)) return;
  StoreEntry *at = NEW_N(a, StoreEntry, list->n + 1);
  at[0] = (StoreEntry){.name = name, .step = strtoll(name + 5, NULL, 10)};
  for (int i = 0; i < list->n; i++) at[i + 1] = list->at[i];
  *list = (StoreList){at, list->n + 1};
}

weft_status store_newest(Arena *a, const char *dir, StoreSkip skip, void *ud, Ckpt **out,
                         weft_error *e) {
  StoreList list;
  weft_error first = NO_ERROR;
  *out = NULL;
  TRY(list_steps(a, dir, true, &list, e));
  add_gone(a, dir, &list);
  for (int i = 0; i < list.n; i++) {
    weft_error why = NO_ERROR;
    const char *path = arena_printf(a, "%s/%s", dir, list.at[i].name);
    weft_status st = ckpt_open(path, out, &why);
    if (st != WEFT_OK && first.code == WEFT_OK) first = why;
    if (st == WEFT_EFILE && i + 1 < list.n) skip(ud, list.at[i].name, &why);
    if (st == WEFT_OK) return st;
    if (st != WEFT_EFILE) return err_file(e, st, why.file, 0, "%s", why.text);
  }
  if (!list.n) return WEFT_OK;
  return err_file(e, WEFT_EFILE, dir, 0,
                  "none of its %d checkpoint%s is complete; the last one: %s: %s", list.n,
                  plural(list.n, "s"), first.file, first.text);
}

weft_status store_find(Arena *a, const char *path, const char **out, bool *none,
                       weft_error *e) {
  StoreList list;
  *none = false;
  *out = path;
  if (has_manifest(a, path)) return WEFT_OK;
  TRY(store_list(a, path, &list, e));
  if (list.n) {
    *out = arena_printf(a, "%s/%s", path, list.at[0].name);
    return WEFT_OK;
  }
  *none = true;
  return err_file(e, WEFT_EFILE, path, 0,
                  "there is no checkpoint (a folder with a " MANIFEST_NAME
                  ", or one with such folders)");
}
