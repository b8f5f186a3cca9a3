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

#define TEMPORARY ".tmp"

/* ---- names ---- */

const char *store_path(Arena *a, const char *dir, int64_t step, bool temporary) {
  return arena_printf(a, "%s/step-%08lld%s", dir, (long long)step,
                      temporary ? TEMPORARY : "");
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
  size_t n = strlen(name), m = strlen(WEIGHTS_NAME);
  if (strncmp(name, WEIGHTS_NAME, m) != 0 || n < m + 8) return false;
  size_t digits = strspn(name + m, "0123456789");
  return digits >= 8 && name[m + digits] == '.' && str_eq(name + n - 4, TEMPORARY);
}

/* What file_write leaves behind if it is killed: "latest.1234-0.tmp". */
static bool is_latest_part(const char *name) {
  size_t n = strlen(name), m = strlen(LATEST_NAME);
  return n > m + 5 && strncmp(name, LATEST_NAME ".", m + 1) == 0 &&
         str_eq(name + n - 4, TEMPORARY);
}

/* ---- removing ---- */

/* Files only: a checkpoint has no folders, and nothing else is ours. */
static void remove_folder(const char *path) {
  DIR *d = opendir(path);
  if (!d) return;
  for (struct dirent *x; (x = readdir(d));)
    if (!str_eq(x->d_name, ".") && !str_eq(x->d_name, ".."))
      unlinkat(dirfd(d), x->d_name, 0);
  closedir(d);
  rmdir(path);
}

void store_drop(const char *path) {
  remove_folder(path);
}

void store_drop_weights(const char *dir, int64_t step) {
  Text path = {0}, away = {0};
  text_printf(&path, "%s/" WEIGHTS_NAME "%08lld", dir, (long long)step);
  text_printf(&away, "%s.0-0" TEMPORARY, path.s ? path.s : "");
  if (!path.oom && !away.oom && rename(path.s, away.s) == 0) remove_folder(away.s);
  text_free(&path);
  text_free(&away);
}

void store_clean(const char *dir) {
  DIR *d = opendir(dir);
  Text path = {0};
  if (!d) return;
  for (struct dirent *x; (x = readdir(d));) {
    path.n = 0;
    text_printf(&path, "%s/%s", dir, x->d_name);
    if (path.oom) break;
    if (is_step(x->d_name, true) || is_weights_part(x->d_name)) remove_folder(path.s);
    if (is_latest_part(x->d_name)) unlink(path.s);
  }
  text_free(&path);
  closedir(d);
}

/* ---- making ---- */

static bool is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

weft_status store_make(Disk *d, const char *dir, weft_error *e) {
  Text part = {0};
  weft_status st = disk_step(d, dir, e);
  for (size_t i = 1, n = strlen(dir); i <= n && st == WEFT_OK; i++) {
    if (i < n && dir[i] != '/') continue;
    part.n = 0;
    text_addn(&part, dir, i);
    if (part.oom)
      st = err_set(e, WEFT_ENOMEM, "out of memory");
    else if (mkdir(part.s, 0777) != 0 && errno != EEXIST && !is_folder(part.s))
      st = err_file(e, WEFT_EFILE, part.s, 0, "cannot be made: %s", strerror(errno));
  }
  text_free(&part);
  if (st == WEFT_OK && !is_folder(dir))
    st = err_file(e, WEFT_EFILE, dir, 0, "is not a folder");
  return st;
}

bool store_holds(const char *dir, const char *ckpt) {
  struct stat a, b;
  Text above = {0};
  text_printf(&above, "%s/..", ckpt);
  bool both = !above.oom && stat(dir, &a) == 0 && stat(above.s, &b) == 0;
  text_free(&above);
  return both && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int store_lock(const char *dir, bool *taken) {
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  *taken = false;
  if (fd < 0) return -1;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  *taken = errno == EWOULDBLOCK;
  close(fd);
  return -1;
}

void store_unlock(int lock) {
  if (lock >= 0) close(lock);
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

static void sync_folder(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

/* The folder takes its name. One that has it already is of steps that were taken again:
 * they change places, so that there is always one, and the old one goes. */
static weft_status take_name(const char *from, const char *to, weft_error *e) {
  if (rename(from, to) == 0) return WEFT_OK;
  bool there = errno == ENOTEMPTY || errno == EEXIST;
  if (there && renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
    remove_folder(from);
    return WEFT_OK;
  }
  return err_file(e, WEFT_EFILE, to, 0, "cannot be made from %s: %s", from,
                  strerror(errno));
}

static weft_status put_text(Disk *d, const char *path, const Text *t, weft_error *e) {
  const FilePart part = {t->s, t->n};
  if (t->oom) return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  TRY(disk_step(d, path, e));
  return file_write(path, &part, 1, e);
}

typedef struct Commit {
  Disk *disk;
  Arena *arena;
  const char *dir;
  const Manifest *m;
  weft_error *e;
  weft_status st;
} Commit;

/* Files that other processes wrote must be seen here. */
static weft_status check_files(const Commit *c, const char *from) {
  struct stat st;
  for (int i = 0; i < c->m->nfile; i++) {
    const CkptFile *f = &c->m->file[i];
    if (!f->bytes) continue;
    const char *path = arena_printf(c->arena, "%s/%s", from, f->name);
    if (stat(path, &st) != 0 || (uint64_t)st.st_size != f->bytes)
      return err_file(
          c->e, WEFT_EFILE, path, 0,
          "is not there as its rank wrote it: checkpoint.dir must be a folder "
          "that all ranks share");
  }
  return WEFT_OK;
}

static weft_status commit(Commit *c) {
  const char *from = store_path(c->arena, c->dir, c->m->step, true);
  const char *to = store_path(c->arena, c->dir, c->m->step, false);
  Text text = {0}, name = {0};
  TRY(check_files(c, from));
  manifest_write(c->m, &text);
  weft_status st =
      put_text(c->disk, arena_printf(c->arena, "%s/" MANIFEST_NAME, from), &text, c->e);
  text_free(&text);
  TRY(st);
  sync_folder(from);
  TRY(disk_step(c->disk, to, c->e));
  TRY(take_name(from, to, c->e));
  sync_folder(c->dir);
  text_printf(&name, "%s\n", strrchr(to, '/') + 1);
  st = put_text(c->disk, arena_printf(c->arena, "%s/" LATEST_NAME, c->dir), &name, c->e);
  text_free(&name);
  return st;
}

static void commit_job(void *ud) {
  Commit *c = ud;
  c->st = commit(c);
}

weft_status store_commit(Disk *d, const char *dir, const Manifest *m, weft_error *e) {
  Commit c = {.disk = d, .arena = arena_new(NULL), .dir = dir, .m = m, .e = e};
  bool memory = c.arena && arena_try(c.arena, commit_job, &c);
  arena_free(c.arena);
  return memory ? c.st : err_set(e, WEFT_ENOMEM, "out of memory");
}

/* ---- retention ---- */

typedef struct Prune {
  Arena *arena;
  const char *dir;
  int64_t keep;
  weft_error *e;
  weft_status st;
} Prune;

static weft_status prune(Prune *p) {
  StoreList list;
  const char *latest = pointed(p->arena, p->dir);
  TRY(store_list(p->arena, p->dir, &list, p->e));
  for (int64_t i = p->keep; i < list.n; i++) {
    const char *path = arena_printf(p->arena, "%s/%s", p->dir, list.at[i].name);
    const char *away = arena_printf(p->arena, "%s" TEMPORARY, path);
    if (str_eq(path, latest)) continue;
    if (rename(path, away) != 0)
      return err_file(p->e, WEFT_EFILE, path, 0, "cannot be removed: %s",
                      strerror(errno));
    remove_folder(away);
    store_drop_weights(p->dir, list.at[i].step);
  }
  return WEFT_OK;
}

static void prune_job(void *ud) {
  Prune *p = ud;
  p->st = prune(p);
}

weft_status store_prune(const char *dir, int64_t keep, weft_error *e) {
  if (!keep) return WEFT_OK;
  Prune p = {.arena = arena_new(NULL), .dir = dir, .keep = keep, .e = e};
  bool memory = p.arena && arena_try(p.arena, prune_job, &p);
  arena_free(p.arena);
  return memory ? p.st : err_set(e, WEFT_ENOMEM, "out of memory");
}
