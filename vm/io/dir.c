/* dir.c - see dir.h. */
#include "dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Flags to open a folder on the way to another; it is not read. */
enum { STEP = O_PATH | O_DIRECTORY | O_CLOEXEC };

/* ---- looking ---- */

static EntryKind kind_of(mode_t mode) {
  return S_ISREG(mode)   ? ENTRY_FILE
         : S_ISDIR(mode) ? ENTRY_FOLDER
         : S_ISLNK(mode) ? ENTRY_LINK
                         : ENTRY_OTHER;
}

static EntryKind entry_at(int fd, const char *name) {
  struct stat st;
  return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? kind_of(st.st_mode)
                                                          : ENTRY_NONE;
}

EntryKind dir_entry(const Dir *in, const char *name) { return entry_at(in->fd, name); }

weft_status dir_each(const Dir *d, bool (*fn)(void *ud, const char *name), void *ud,
                     weft_error *e) {
  int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = fd < 0 ? NULL : fdopendir(fd);
  if (!list) {
    int why = errno;
    if (fd >= 0) close(fd);
    return dir_fails(d, NULL, "cannot be read", why, e);
  }
  for (struct dirent *x; (x = readdir(list));)
    if (!str_eq(x->d_name, ".") && !str_eq(x->d_name, "..") && !fn(ud, x->d_name)) break;
  closedir(list);
  return WEFT_OK;
}

static bool same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool dir_has(const Dir *in, const char *name, const Dir *d) {
  struct stat a, b;
  return fstatat(in->fd, name, &a, AT_SYMLINK_NOFOLLOW) == 0 && fstat(d->fd, &b) == 0 &&
         same_file(&a, &b);
}

bool dir_writable(const Dir *d) { return faccessat(d->fd, ".", W_OK | X_OK, 0) == 0; }

bool dir_is_system(const Dir *d) {
  struct statfs fs;
  struct stat st, dev;
  return (fstatfs(d->fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC) ||
         (fstat(d->fd, &st) == 0 && stat("/dev", &dev) == 0 && same_file(&st, &dev));
}

/* ---- errors ---- */

/* Reasons that name what weft asked for, where strerror says less. */
static const char *reason(const Dir *in, int why) {
  struct stat st;
  if (why == ENOENT && in->fd >= 0 && fstat(in->fd, &st) == 0 && !st.st_nlink)
    return "its folder has been removed";
  if (why == ENXIO) return "it is a pipe that no process reads";
  return strerror(why);
}

static weft_status fails(const Dir *in, const char *name, const char *what,
                         const char *because, weft_status st, weft_error *e) {
  char path[PATH_MAX];
  const char *at = in->path ? in->path : "";
  bool here = str_eq(at, "."), root = str_eq(at, "/");
  if (!name)
    snprintf(path, sizeof path, "%s", at);
  else
    snprintf(path, sizeof path, "%s%s%s", here || root ? "" : at, here ? "" : "/", name);
  return err_file(e, st, path, 0, "%s%s%s", what, *because ? ": " : "", because);
}

static weft_status fails_plainly(const Dir *in, const char *name, const char *what,
                                 int why, weft_error *e) {
  return fails(in, name, what, why ? reason(in, why) : "",
               why == ENOMEM ? WEFT_ENOMEM : WEFT_EFILE, e);
}

weft_status dir_fails(const Dir *in, const char *name, const char *what, int why,
                      weft_error *e) {
  bool blocked = why == ELOOP || why == ENOTDIR || why == EEXIST || why == EISDIR;
  if (blocked && name && dir_entry(in, name) == ENTRY_LINK)
    return fails(
        in, name, what,
        "it is a link, and links are neither followed nor replaced: remove it, or "
        "name what it leads to",
        WEFT_EUSAGE, e);
  return fails_plainly(in, name, what, why, e);
}

/* ---- opening ---- */

void dir_close(Dir *d) {
  if (d->fd >= 0) close(d->fd);
  free(d->path);
  *d = DIR_CLOSED;
}

/* Opens the next folder of a path, or creates it. */
static int step_into(int from, const char *name, unsigned make, int follow) {
  int fd = openat(from, name, STEP | follow);
  if (fd >= 0 || errno != ENOENT || !make) return fd;
  if (mkdirat(from, name, make) != 0 && errno != EEXIST) return -1;
  return openat(from, name, STEP | follow);
}

/* The error of a step; the user's links are followed, and one may be dangling. */
static weft_status step_fails(const Dir *here, const char *name, const char *what,
                              int follow, int why, weft_error *e) {
  if (follow) return dir_fails(here, name, what, why, e);
  bool astray = why == ENOENT || why == ENOTDIR || why == ELOOP;
  if (astray && dir_entry(here, name) == ENTRY_LINK)
    return fails(here, name, what, "it is a link that leads to no folder", WEFT_EFILE, e);
  return fails_plainly(here, name, what, why, e);
}

/* Opens for reading and syncing; a folder with execute and write permission only keeps
 * the O_PATH descriptor. */
static int hold(int step) {
  int fd = openat(step, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && errno == EACCES) return step;
  int why = errno;
  close(step);
  errno = why;
  return fd;
}

/* Opens the folder `way` below folder `at`, which it closes. An error names the folder it
 * occurred in: `shown` is the path of the first. */
static weft_status walk(int at, const char *shown, const char *way, unsigned make,
                        int follow, Dir *out, weft_error *e) {
  Dir here = {at, strdup(shown)};
  weft_status st = here.path ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
  char name[NAME_MAX + 1];
  for (const char *s = way; st == WEFT_OK && *s;) {
    size_t n = strcspn(s, "/");
    snprintf(name, sizeof name, "%.*s", (int)MIN(n, sizeof name), s);
    const char *part = s;
    s += n + strspn(s + n, "/");
    if (!n || str_eq(name, ".")) continue;
    int next = n > NAME_MAX ? -1 : step_into(here.fd, name, make, follow);
    if (n > NAME_MAX) errno = ENAMETOOLONG;
    if (next < 0) {
      st = step_fails(&here, name, make ? "cannot be made" : "cannot be opened", follow,
                      errno, e);
      break;
    }
    Text path = {0};
    bool below = !str_eq(here.path, ".");
    text_printf(&path, "%s%s%.*s", below ? here.path : "",
                below && !str_eq(here.path, "/") ? "/" : "", (int)n, part);
    dir_close(&here);
    here = (Dir){next, path.s};
    if (path.oom) st = err_set(e, WEFT_ENOMEM, "out of memory");
  }
  if (st == WEFT_OK) {
    here.fd = hold(here.fd);
    if (here.fd < 0) st = dir_fails(&here, NULL, "cannot be opened", errno, e);
  }
  if (st == WEFT_OK)
    *out = here;
  else
    dir_close(&here);
  return st;
}

weft_status dir_open(const char *path, unsigned make, Dir *out, weft_error *e) {
  const char *first = *path == '/' ? "/" : ".";
  *out = DIR_CLOSED;
  int fd = open(first, STEP);
  if (fd < 0)
    return dir_fails(&(Dir){-1, (char *)first}, NULL, "cannot be opened", errno, e);
  return walk(fd, first, path + strspn(path, "/"), make, 0, out, e);
}

weft_status dir_above(const char *path, const char *what, Dir *out, const char **name,
                      weft_error *e) {
  const char *slash = strrchr(path, '/');
  *name = slash ? slash + 1 : path;
  *out = DIR_CLOSED;
  if (!**name || str_eq(*name, ".") || str_eq(*name, ".."))
    return err_file(e, WEFT_EFILE, path, 0, "%s: %s", what,
                    strerror(*path ? EISDIR : ENOENT));
  char *above = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  if (!above) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_error why = NO_ERROR;
  weft_status st = dir_open(above, 0, out, &why);
  free(above);
  /* The user named the file, so the error is about its path. */
  if (st == WEFT_EFILE || st == WEFT_EUSAGE) {
    const char *text = strstr(why.text, ": ");
    return err_file(e, st, path, 0, "%s: %s", what, text ? text + 2 : why.text);
  }
  return st == WEFT_OK ? st : err_set(e, st, "%s", why.text);
}

bool dir_climbs(const char *way) {
  for (const char *s = way; *s; s += strspn(s, "/")) {
    size_t n = strcspn(s, "/");
    if (n == 2 && s[0] == '.' && s[1] == '.') return true;
    s += n;
  }
  return false;
}

weft_status dir_below(const Dir *in, const char *way, unsigned make, Dir *out,
                      weft_error *e) {
  *out = DIR_CLOSED;
  if (*way == '/' || dir_climbs(way))
    return err_file(e, WEFT_EUSAGE, way, 0, "leads out of %s", in->path);
  int fd = openat(in->fd, ".", STEP);
  if (fd < 0) return dir_fails(in, NULL, "cannot be opened", errno, e);
  return walk(fd, in->path, way, make, O_NOFOLLOW, out, e);
}

bool dir_make(const Dir *in, const char *name, Dir *out) {
  *out = DIR_CLOSED;
  if (mkdirat(in->fd, name, 0777) != 0) return false;
  Text path = {0};
  text_add(&path, in->path);
  text_add(&path, "/");
  text_add(&path, name);
  *out = (Dir){openat(in->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
               path.s};
  if (out->fd >= 0 && !path.oom) return true;
  int why = path.oom ? ENOMEM : errno;
  dir_close(out);
  unlinkat(in->fd, name, AT_REMOVEDIR);
  errno = why;
  return false;
}

/* ---- temporary names ---- */

void dir_temporary(Text *out, const char *name, int i) {
  out->n = 0;
  text_printf(out, "%s.%ld-%d.tmp", name, (long)getpid(), i);
}

size_t dir_temporary_of(const char *name) {
  static const char digits[] = "0123456789";
  size_t n = strlen(name);
  if (n < 5 || !str_eq(name + n - 4, ".tmp")) return 0;
  for (size_t at = n - 4; at-- > 1;) {
    if (name[at] != '.') continue;
    const char *s = name + at + 1;
    size_t pid = strspn(s, digits), nth = s[pid] == '-' ? strspn(s + pid + 1, digits) : 0;
    return pid && nth && str_eq(s + pid + 1 + nth, ".tmp") ? at : 0;
  }
  return 0;
}

/* ---- renaming and removing ---- */

bool dir_rename(const Dir *in, const char *from, const char *to) {
  return renameat(in->fd, from, in->fd, to) == 0;
}

bool dir_cannot(int why) { return why == EINVAL || why == ENOSYS || why == EOPNOTSUPP; }

/* NFS has no such rename, but links; where there are none either, as in some of FUSE's
 * file systems, what takes the name at the same moment is replaced. */
bool dir_rename_new(const Dir *in, const char *from, const char *to) {
  if (renameat2(in->fd, from, in->fd, to, RENAME_NOREPLACE) == 0) return true;
  if (!dir_cannot(errno)) return false;
  if (linkat(in->fd, from, in->fd, to, 0) == 0) {
    unlinkat(in->fd, from, 0);
    return true;
  }
  if (errno != EPERM && errno != EMLINK && !dir_cannot(errno)) return false;
  if (dir_entry(in, to) == ENTRY_NONE) return dir_rename(in, from, to);
  errno = EEXIST;
  return false;
}

bool dir_exchange(const Dir *in, const char *a, const char *b) {
  return renameat2(in->fd, a, in->fd, b, RENAME_EXCHANGE) == 0;
}

bool dir_remove_file(const Dir *in, const char *name) {
  EntryKind kind = dir_entry(in, name);
  if (kind == ENTRY_FILE) return unlinkat(in->fd, name, 0) == 0;
  errno = kind == ENTRY_NONE ? ENOENT : EEXIST;
  return false;
}

typedef struct Own {
  const Dir *d;
  DirOwns *owns;
  int removed;
  char other[NAME_MAX + 1];
} Own;

static bool is_own(const Own *o, const char *name) {
  char stem[NAME_MAX + 1];
  size_t n = dir_temporary_of(name);
  snprintf(stem, sizeof stem, "%.*s", (int)n, name);
  return (o->owns(name) || (n && o->owns(stem))) && dir_entry(o->d, name) == ENTRY_FILE;
}

static bool find_other(void *ud, const char *name) {
  Own *o = ud;
  if (is_own(o, name) || dir_entry(o->d, name) == ENTRY_NONE) return true;
  snprintf(o->other, sizeof o->other, "%s", name);
  return false;
}

static bool remove_own(void *ud, const char *name) {
  Own *o = ud;
  if (is_own(o, name)) o->removed += unlinkat(o->d->fd, name, 0) == 0;
  return true;
}

weft_status dir_check_own(const Dir *d, DirOwns *owns, weft_error *e) {
  Own o = {.d = d, .owns = owns};
  TRY(dir_each(d, find_other, &o, e));
  if (!*o.other) return WEFT_OK;
  return err_file(e, WEFT_EFILE, d->path, 0,
                  "has \"%.100s\" in it, which weft did not put there: move it away",
                  o.other);
}

static weft_status remove_all(const Dir *d, DirOwns *owns, weft_error *e) {
  Own o = {.d = d, .owns = owns};
  TRY(dir_check_own(d, owns, e));
  /* readdir may skip names while others are removed. */
  do {
    o.removed = 0;
    TRY(dir_each(d, remove_own, &o, e));
  } while (o.removed);
  return WEFT_OK;
}

weft_status dir_remove(const Dir *in, const char *name, DirOwns *owns, weft_error *e) {
  Dir d;
  if (dir_entry(in, name) == ENTRY_NONE) return WEFT_OK;
  TRY(dir_below(in, name, 0, &d, e));
  weft_status st = remove_all(&d, owns, e);
  if (st == WEFT_OK && unlinkat(in->fd, name, AT_REMOVEDIR) != 0)
    st = dir_fails(in, name, "cannot be removed", errno, e);
  dir_close(&d);
  return st;
}

void dir_sync(const Dir *d) { fsync(d->fd); }
