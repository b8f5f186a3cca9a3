/* ckpt_store.c - see ckpt_store.h. A checkpoint appears and disappears by a rename of its
 * folder, so under its own name it is always whole. */
#include "ckpt_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vm/weights/weights_folder.h"

/* ---- names ---- */

static const char *step_name(char out[STORE_NAME], int64_t step, bool temporary) {
  snprintf(out, STORE_NAME, "step-%08lld%s", (long long)step, temporary ? STORE_TMP : "");
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

/* A temporary folder of an interrupted export or removal of weights:
 * "weights-00000100.1234-0.tmp". */
static bool is_weights_part(const char *name) {
  size_t n = strlen(WEIGHTS_NAME), stem = dir_temporary_of(name);
  if (strncmp(name, WEIGHTS_NAME, n) != 0 || stem < n + 8) return false;
  return strspn(name + n, "0123456789") == stem - n;
}

/* A temporary file of file_write.c whose process was killed: "latest.1234-0.tmp". */
static bool is_latest_part(const char *name) {
  size_t n = strlen(LATEST_NAME);
  return strncmp(name, LATEST_NAME, n) == 0 && dir_temporary_of(name) == n;
}

/* The files of a checkpoint; it has no folders. */
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
  weft_error why = NO_ERROR;
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

/* ---- removing ---- files that weft did not write stay, without an error */

void store_drop(const Dir *in, int64_t step) {
  char name[STORE_NAME];
  (void)dir_remove(in, step_name(name, step, true), is_own, NULL);
}

/* Renames a folder and then removes it, if all its files are weft's. */
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
  if (store_is_step(name, true)) (void)dir_remove(in, name, is_own, NULL);
  if (is_weights_part(name)) (void)dir_remove(in, name, weights_out_owns, NULL);
  if (is_latest_part(name)) (void)dir_remove_file(in, name);
  return true;
}

void store_clean(const Dir *in) { (void)dir_each(in, clean_one, (void *)in, NULL); }

/* ---- creating ---- */

weft_status store_make(RankFile *d, const Dir *in, int64_t step, Dir *out,
                       weft_error *e) {
  char name[STORE_NAME];
  *out = DIR_CLOSED;
  TRY(disk_step(d, in->path, e));
  TRY(dir_below(in, step_name(name, step, true), 0777, out, e));
  weft_status st = dir_check_own(out, is_own, e);
  if (st != WEFT_OK) dir_close(out);
  return st;
}

/* ---- committing a save ---- */

/* A checkpoint whose name another one of its step has taken: "step-00000100.old". */
static const char *old_name(char out[STORE_NAME], const char *name) {
  snprintf(out, STORE_NAME, "%s" STORE_OLD, name);
  return out;
}

static weft_status drop_old(const Dir *in, const char *name, weft_error *e) {
  char old[STORE_NAME], away[STORE_NAME];
  snprintf(away, sizeof away, "%s" STORE_OLD STORE_TMP, name);
  return remove_whole(in, old_name(old, name), away, is_own, e);
}

/* For file systems that exchange no names: the checkpoint that is there is renamed first.
 * A run that is killed between the two renames leaves it under a name that is still
 * listed, so that it is resumed from. */
static weft_status take_in_turn(RankFile *d, const Dir *in, const char *from,
                                const char *to, weft_error *e) {
  char old[STORE_NAME];
  TRY(drop_old(in, to, e));
  TRY(disk_step(d, in->path, e));
  if (!dir_rename(in, to, old_name(old, to)))
    return dir_fails(in, old, "cannot be made", errno, e);
  weft_status st = disk_step(d, in->path, e);
  if (st == WEFT_OK && !dir_rename(in, from, to))
    st = dir_fails(in, to, "cannot be made", errno, e);
  if (st != WEFT_OK) (void)dir_rename(in, old, to);
  return st;
}

/* Gives the folder the name of a checkpoint that is there, which is removed. */
static weft_status replace(RankFile *d, const Dir *in, const char *from, const char *to,
                           weft_error *e) {
  Dir old;
  TRY(dir_below(in, to, 0, &old, e));
  weft_status st = dir_check_own(&old, is_own, e);
  dir_close(&old);
  TRY(st);
  if (!dir_exchange(in, from, to))
    return dir_cannot(errno) ? take_in_turn(d, in, from, to, e)
                             : dir_fails(in, to, "cannot be made", errno, e);
  (void)dir_remove(in, from, is_own, NULL);
  return WEFT_OK;
}

/* Renames the folder to its final name. If a checkpoint of a repeated step has that name
 * they are exchanged, so that there is always one, and the old one is removed. */
static weft_status take_name(RankFile *d, const Dir *in, const char *from, const char *to,
                             weft_error *e) {
  bool taken = !dir_rename(in, from, to);
  if (taken && errno != ENOTEMPTY && errno != EEXIST)
    return dir_fails(in, to, "cannot be made", errno, e);
  if (taken) TRY(replace(d, in, from, to, e));
  (void)drop_old(in, to, NULL);
  return WEFT_OK;
}

static weft_status put_text(RankFile *d, const Dir *in, const char *name, const Text *t,
                            weft_error *e) {
  const FilePart part = {t->s, t->n};
  if (t->oom) return err_file(e, WEFT_ENOMEM, in->path, 0, "out of memory");
  TRY(disk_step(d, in->path, e));
  return file_write(in, name, &part, 1, e);
}

static weft_status file_is_other(const Dir *from, const CkptFile *f, weft_error *e) {
  return dir_fails(from, f->name,
                   "is missing or not as its rank wrote it: checkpoint.dir must be a "
                   "folder that all ranks share",
                   0, e);
}

/* A file of another process has to be visible here, with its size and checksum. */
static weft_status check_file(const Dir *from, const CkptFile *f, weft_error *e) {
  weft_error ignored = NO_ERROR;
  File file;
  uint64_t header = 0;
  if (file_open_in(from, f->name, &file, &ignored) != WEFT_OK)
    return file_is_other(from, f, e);
  bool same = file.size == f->bytes &&
              shard_header(&file, &header, &ignored) == WEFT_OK && header == f->header;
  file_close(&file);
  return same ? WEFT_OK : file_is_other(from, f, e);
}

static weft_status check_files(const Dir *from, const Manifest *m, const Compiled *of,
                               weft_error *e) {
  assert(m->nfile == of->mesh.world);
  for (int i = 0; i < m->nfile; i++) {
    uint64_t share = m->file[i].bytes ? 0 : saved_share(of, i);
    if (m->file[i].bytes) TRY(check_file(from, &m->file[i], e));
    if (share)
      return err_set(e, WEFT_ERUN,
                     "rank %d has written no file, but holds %llu bytes of the state", i,
                     (unsigned long long)share);
  }
  return WEFT_OK;
}

weft_status store_commit(RankFile *d, const Dir *in, const Dir *from, const Manifest *m,
                         const Compiled *of, weft_error *e) {
  char temporary[STORE_NAME], name[STORE_NAME];
  step_name(temporary, m->step, true);
  step_name(name, m->step, false);
  Text text = {0};
  TRY(check_files(from, m, of, e));
  manifest_write(m, &text);
  weft_status st = put_text(d, from, MANIFEST_NAME, &text, e);
  text_free(&text);
  TRY(st);
  dir_sync(from);
  TRY(disk_step(d, in->path, e));
  if (!dir_has(in, temporary, from))
    return dir_fails(in, temporary, "was replaced by another folder while it was written",
                     0, e);
  TRY(take_name(d, in, temporary, name, e));
  dir_sync(in);
  if (dir_has(in, name, from)) return WEFT_OK;
  return dir_fails(in, name, "was replaced by another folder while it was written", 0, e);
}

void store_point(RankFile *d, const Dir *in, int64_t step, weft_error *why) {
  char name[STORE_NAME];
  Text text = {0};
  text_printf(&text, "%s\n", step_name(name, step, false));
  if (put_text(d, in, LATEST_NAME, &text, why) != WEFT_OK)
    (void)dir_remove_file(in, LATEST_NAME);
  text_free(&text);
}

/* ---- retention ---- */

typedef struct Prune {
  Arena *arena;
  const Dir *in;
  int64_t keep, best; /* the last ones, and that of this step; 0: none */
} Prune;

/* Weights are those of the checkpoint that has taken its name. */
static bool is_old(const char *name) { return strchr(name, '.') != NULL; }

/* True if its files exist with their sizes. */
static bool is_whole(Prune *p, const char *name) {
  weft_error ignored = NO_ERROR;
  Manifest m;
  struct stat st;
  const char *path = arena_printf(p->arena, "%s/%s", p->in->path, name);
  const char *manifest = arena_printf(p->arena, "%s/" MANIFEST_NAME, path);
  bool whole = manifest_read(p->arena, manifest, &m, &ignored) == WEFT_OK;
  for (int i = 0; whole && i < m.nfile; i++)
    whole = stat(arena_printf(p->arena, "%s/%s", path, m.file[i].name), &st) == 0 &&
            (uint64_t)st.st_size == m.file[i].bytes;
  return whole;
}

/* Reports the first failure but removes the others. A checkpoint that is not whole does
 * not count among those kept. */
static weft_status prune(Arena *a, void *ud, weft_error *e) {
  Prune *p = ud;
  p->arena = a;
  StoreList list;
  weft_status st = WEFT_OK;
  int64_t kept = 0;
  const char *latest = store_latest(a, p->in->path);
  TRY(store_list(a, p->in->path, &list, e));
  for (int i = 0; i < list.n; i++) {
    const char *name = list.at[i].name;
    char away[STORE_NAME];
    /* A link's target belongs to someone else. */
    if (dir_entry(p->in, name) != ENTRY_FOLDER) continue;
    if (kept < p->keep || str_eq(name, latest)) {
      kept += is_whole(p, name);
      continue;
    }
    if (list.at[i].step == p->best && is_whole(p, name)) continue;
    snprintf(away, sizeof away, "%s" STORE_TMP, name);
    weft_status one = remove_whole(p->in, name, away, is_own, e);
    if (one == WEFT_OK && !is_old(name)) store_drop_weights(p->in, list.at[i].step);
    if (st == WEFT_OK) st = one;
  }
  return st;
}

weft_status store_prune(const Dir *in, int64_t keep, int64_t best, weft_error *e) {
  if (!keep) return WEFT_OK;
  return arena_scoped(NULL, prune, &(Prune){.in = in, .keep = keep, .best = best}, e);
}
