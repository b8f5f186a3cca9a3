/* store.c - see store.h. A checkpoint appears by the rename of its folder and disappears
 * by one, so that under its own name it is always whole. */
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vm/exec/weights_out.h"

#define TEMPORARY ".tmp"

/* ---- names ---- */

static const char *step_name(char out[STORE_NAME], int64_t step, bool temporary) {
  snprintf(out, STORE_NAME, "step-%08lld%s", (long long)step, temporary ? TEMPORARY : "");
  return out;
}

const char *store_weights(char out[STORE_NAME], int64_t step) {
  snprintf(out, STORE_NAME, WEIGHTS_NAME "%08lld", (long long)step);
  return out;
}

const char *store_path(Arena *a, const char *dir, int64_t step, bool temporary) {
  char name[STORE_NAME];
  return arena_printf(a, "%s/%s", dir, step_name(name, step, temporary));
}

/* "step-00000100", with .tmp behind it or not. */
static bool is_step(const char *name, bool temporary) {
  const char *s = name + 5;
  if (strncmp(name, "step-", 5) != 0) return false;
  size_t digits = strspn(s, "0123456789");
  return digits >= 8 && digits < 19 && str_eq(s + digits, temporary ? TEMPORARY : "");
}

/* What is left of a folder of weights whose writing or removing was interrupted:
 * "weights-00000100.1234-0.tmp". */
static bool is_weights_part(const char *name) {
  size_t n = strlen(WEIGHTS_NAME), stem = dir_temporary_of(name);
  if (strncmp(name, WEIGHTS_NAME, n) != 0 || stem < n + 8) return false;
  return strspn(name + n, "0123456789") == stem - n;
}

/* What file_write leaves behind if it is killed: "latest.1234-0.tmp". */
static bool is_latest_part(const char *name) {
  size_t n = strlen(LATEST_NAME);
  return strncmp(name, LATEST_NAME, n) == 0 && dir_temporary_of(name) == n;
}

/* A checkpoint has no folders, and no other files. */
static bool is_own(const char *name) {
  return str_eq(name, MANIFEST_NAME) || shard_owns(name);
}

/* ---- the folder ---- */

static weft_status open_below(const Checkpointing *c, Dir *out, weft_error *e) {
  const char *rest = *c->within ? c->dir + strlen(c->within) : c->dir;
  Dir plan;
  TRY(dir_open(*c->within ? c->within : ".", 0, &plan, e));
  weft_status st = dir_below(&plan, rest + strspn(rest, "/"), 0777, out, e);
  dir_close(&plan);
  return st;
}

weft_status store_open(const Checkpointing *c, Dir *out, weft_error *e) {
  weft_error why;
  err_clear(&why);
  if (!c->within) return dir_open(c->dir, 0777, out, e);
  weft_status st = open_below(c, out, &why);
  if (st == WEFT_EUSAGE)
    return err_file(e, st, why.file, 0,
                    "%.400s; --set checkpoint.dir=DIR names a folder that may be reached "
                    "by links",
                    why.text);
  if (st != WEFT_OK) err_file(e, st, why.file, 0, "%s", why.text);
  return st;
}

bool store_lock(const Dir *in) {
  return flock(in->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool store_holds(const Dir *in, const char *ckpt) {
  struct stat a, b;
  Text above = {0};
  text_printf(&above, "%s/..", ckpt);
  bool both = !above.oom && fstat(in->fd, &a) == 0 && stat(above.s, &b) == 0;
  text_free(&above);
  return both && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* ---- removing ---- what is not ours stays, so nothing is said of it */

void store_drop(const Dir *in, int64_t step) {
  char name[STORE_NAME];
  (void)dir_remove(in, step_name(name, step, true), is_own, NULL);
}

/* Moves a folder away and then removes it, if it has nothing that is not ours. */
static weft_status remove_whole(const Dir *in, const char *name, const char *away,
                                DirOwns *owns, weft_error *e) {
  Dir d;
  if (dir_entry(in, name) == ENTRY_NONE) return WEFT_OK;
  TRY(dir_below(in, name, 0, &d, e));
  weft_status st = dir_check_own(&d, owns, e);
  dir_close(&d);
  TRY(st);
  if (!dir_rename(in, name, away))
    return dir_fails(in, name, "cannot be removed", errno, e);
  return dir_remove(in, away, owns, e);
}

void store_drop_weights(const Dir *in, int64_t step) {
  char name[STORE_NAME];
  Text away = {0};
  dir_temporary(&away, store_weights(name, step), 0);
  if (!away.oom) (void)remove_whole(in, name, away.s, weights_out_owns, NULL);
  text_free(&away);
}

static bool clean_one(void *ud, const char *name) {
  const Dir *in = ud;
  if (is_step(name, true)) (void)dir_remove(in, name, is_own, NULL);
  if (is_weights_part(name)) (void)dir_remove(in, name, weights_out_owns, NULL);
  if (is_latest_part(name)) (void)dir_remove_file(in, name);
  return true;
}

void store_clean(const Dir *in) {
  (void)dir_each(in, clean_one, (void *)in, NULL);
}

/* ---- making ---- */

weft_status store_make(Disk *d, const Dir *in, int64_t step, Dir *out, weft_error *e) {
  char name[STORE_NAME];
  *out = DIR_CLOSED;
  TRY(disk_step(d, in->path, e));
  TRY(dir_below(in, step_name(name, step, true), 0777, out, e));
  weft_status st = dir_check_own(out, is_own, e);
  if (st != WEFT_OK) dir_close(out);
  return st;
}

/* ---- looking ---- */

static int by_time(const void *x, const void *y) {
  const StoreEntry *a = x, *b = y;
  if (a->saved_at != b->saved_at) return a->saved_at > b->saved_at ? -1 : 1;
  return a->step > b->step ? -1 : a->step < b->step;
}

/* A manifest may be large, and a list keeps two numbers of it. */
static bool look(Arena *a, const char *dir, const char *name, StoreEntry *out) {
  weft_error ignored;
  Manifest m;
  err_clear(&ignored);
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

weft_status store_list(Arena *a, const char *dir, StoreList *out, weft_error *e) {
  VEC(StoreEntry) list = {0};
  StoreEntry x;
  *out = (StoreList){0};
  DIR *d = opendir(dir);
  if (!d && errno == ENOENT) return WEFT_OK;
  if (!d) return err_file(e, WEFT_EFILE, dir, 0, "cannot be read: %s", strerror(errno));
  for (struct dirent *f; (f = readdir(d));)
    if (is_step(f->d_name, false) && look(a, dir, f->d_name, &x)) *VEC_PUSH(a, list) = x;
  closedir(d);
  if (list.n) qsort(list.at, (size_t)list.n, sizeof *list.at, by_time);
  *out = (StoreList){list.at, list.n};
  return WEFT_OK;
}

static bool has_manifest(Arena *a, const char *path) {
  struct stat st;
  return stat(arena_printf(a, "%s/" MANIFEST_NAME, path), &st) == 0;
}

/* The checkpoint that the file `latest` names. */
static const char *pointed(Arena *a, const char *dir) {
  char *s;
  size_t n;
  weft_error ignored;
  err_clear(&ignored);
  const char *path = arena_printf(a, "%s/" LATEST_NAME, dir);
  if (file_read(NULL, path, 256, &s, &n, &ignored) != WEFT_OK) return NULL;
  const char *name = arena_strn(a, s, strcspn(s, "\n"));
  mem_free(NULL, s, n + 1);
  if (!is_step(name, false)) return NULL;
  path = arena_printf(a, "%s/%s", dir, name);
  return has_manifest(a, path) ? path : NULL;
}

weft_status store_find(Arena *a, const char *path, const char **out, bool *none,
                       weft_error *e) {
  StoreList list;
  *none = false;
  *out = path;
  if (has_manifest(a, path)) return WEFT_OK;
  if ((*out = pointed(a, path))) return WEFT_OK;
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

/* ---- the end of a save ---- */

/* The folder takes its name. One that has it already is of steps that were taken again:
 * they change places, so that there is always one, and the old one goes. */
static weft_status take_name(const Dir *in, const char *from, const char *to,
                             weft_error *e) {
  Dir old;
  if (dir_rename(in, from, to)) return WEFT_OK;
  if (errno != ENOTEMPTY && errno != EEXIST)
    return dir_fails(in, to, "cannot be made", errno, e);
  TRY(dir_below(in, to, 0, &old, e));
  weft_status st = dir_check_own(&old, is_own, e);
  dir_close(&old);
  TRY(st);
  if (!dir_exchange(in, from, to)) return dir_fails(in, to, "cannot be made", errno, e);
  (void)dir_remove(in, from, is_own, NULL);
  return WEFT_OK;
}

static weft_status put_text(Disk *d, const Dir *in, const char *name, const Text *t,
                            weft_error *e) {
  const FilePart part = {t->s, t->n};
  if (t->oom) return err_file(e, WEFT_ENOMEM, in->path, 0, "out of memory");
  TRY(disk_step(d, in->path, e));
  return file_write(in, name, &part, 1, e);
}

/* Files that other processes wrote must be seen here. */
static weft_status check_files(const Dir *from, const Manifest *m, weft_error *e) {
  struct stat st;
  for (int i = 0; i < m->nfile; i++) {
    const CkptFile *f = &m->file[i];
    if (!f->bytes) continue;
    bool there = fstatat(from->fd, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->bytes)
      return dir_fails(from, f->name,
                       "is not there as its rank wrote it: checkpoint.dir must be a "
                       "folder that all ranks share",
                       0, e);
  }
  return WEFT_OK;
}

weft_status store_commit(Disk *d, const Dir *in, const Dir *from, const Manifest *m,
                         weft_error *e) {
  char temporary[STORE_NAME], name[STORE_NAME];
  step_name(temporary, m->step, true);
  step_name(name, m->step, false);
  Text text = {0};
  TRY(check_files(from, m, e));
  manifest_write(m, &text);
  weft_status st = put_text(d, from, MANIFEST_NAME, &text, e);
  text_free(&text);
  TRY(st);
  dir_sync(from);
  TRY(disk_step(d, in->path, e));
  if (!dir_has(in, temporary, from))
    return dir_fails(in, temporary, "is not the folder that was written", 0, e);
  TRY(take_name(in, temporary, name, e));
  dir_sync(in);
  if (!dir_has(in, name, from))
    return dir_fails(in, name, "is not the folder that was written", 0, e);
  text_printf(&text, "%s\n", name);
  st = put_text(d, in, LATEST_NAME, &text, e);
  text_free(&text);
  return st;
}

/* ---- retention ---- */

typedef struct Prune {
  Arena *arena;
  const Dir *in;
  int64_t keep;
  weft_error *e;
  weft_status st;
} Prune;

/* The first thing that is in the way is told; the others go all the same. */
static weft_status prune(Prune *p) {
  StoreList list;
  weft_status st = WEFT_OK;
  int64_t kept = 0;
  const char *latest = pointed(p->arena, p->in->path);
  TRY(store_list(p->arena, p->in->path, &list, p->e));
  for (int i = 0; i < list.n; i++) {
    const char *name = list.at[i].name;
    char away[STORE_NAME];
    /* What a link names is somebody else's. */
    if (dir_entry(p->in, name) != ENTRY_FOLDER || kept++ < p->keep) continue;
    if (latest && str_eq(name, strrchr(latest, '/') + 1)) continue;
    snprintf(away, sizeof away, "%s" TEMPORARY, name);
    weft_status one = remove_whole(p->in, name, away, is_own, p->e);
    if (one == WEFT_OK) store_drop_weights(p->in, list.at[i].step);
    if (st == WEFT_OK) st = one;
  }
  return st;
}

static void prune_job(void *ud) {
  Prune *p = ud;
  p->st = prune(p);
}

weft_status store_prune(const Dir *in, int64_t keep, weft_error *e) {
  if (!keep) return WEFT_OK;
  Prune p = {.arena = arena_new(NULL), .in = in, .keep = keep, .e = e};
  bool memory = p.arena && arena_try(p.arena, prune_job, &p);
  arena_free(p.arena);
  return memory ? p.st : err_set(e, WEFT_ENOMEM, "out of memory");
}
