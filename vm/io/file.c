/* file.c - regular files, read as a whole or in parts. Folders, pipes, devices and
 * unreadable files give errors that say so. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_KEPT = 64 };

static const char *kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/* Without O_NONBLOCK, opening a pipe without a writer would block for ever. */
enum { READ = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

/* Checks the result of open, with its errno; on an error closes *fd. */
static weft_status check_regular(const char *path, int *fd, struct stat *st,
                                 weft_error *e) {
  if (*fd < 0)
    return err_file(e, WEFT_EFILE, path, 0, "cannot be opened: %s", strerror(errno));
  if (fstat(*fd, st) != 0) {
    err_file(e, WEFT_EFILE, path, 0, "cannot be examined: %s", strerror(errno));
  } else if (!S_ISREG(st->st_mode)) {
    err_file(e, WEFT_EFILE, path, 0, "is %s, a file is expected", kind_of(st->st_mode));
  } else {
    return WEFT_OK;
  }
  close(*fd);
  *fd = -1;
  return WEFT_EFILE;
}

static weft_status open_regular(const char *path, int *fd, struct stat *st,
                                weft_error *e) {
  *fd = open(path, READ);
  return check_regular(path, fd, st, e);
}

/* ---- reading parts ---- */

static int64_t modified(const struct stat *st) {
  return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static weft_status take(int fd, const char *path, File *out, weft_error *e) {
  struct stat st;
  *out = (File){.path = path, .fd = fd};
  TRY(check_regular(path, &out->fd, &st, e));
  out->size = (uint64_t)st.st_size;
  out->modified = modified(&st);
  return WEFT_OK;
}

weft_status file_open(const char *path, File *out, weft_error *e) {
  return take(open(path, READ), path, out, e);
}

weft_status file_open_in(const Dir *in, const char *path, File *out, weft_error *e) {
  const char *slash = strrchr(path, '/');
  return take(openat(in->fd, slash ? slash + 1 : path, READ | O_NOFOLLOW), path, out, e);
}

/* All reads have to be of the same, unchanged file. */
static weft_status unchanged(const File *f, const struct stat *st, weft_error *e) {
  unsigned long long was = f->size, is = (unsigned long long)st->st_size;
  if (is < was)
    return err_file(e, WEFT_EFILE, f->path, 0,
                    "has become shorter: it had %llu bytes when it was opened, and now "
                    "has %llu",
                    was, is);
  if (is == was && modified(st) == f->modified) return WEFT_OK;
  return err_file(e, WEFT_EFILE, f->path, 0,
                  "was written to after it was opened; it must stay as it is while it is "
                  "used");
}

void file_park(File *f) {
  if (f->path && f->fd >= 0) close(f->fd);
  f->fd = -1;
}

void file_keep_few(File *f, int i) {
  if (i >= FILES_KEPT) file_park(f);
}

void file_close(File *f) {
  file_park(f);
  *f = (File){.fd = -1};
}

static weft_status read_at(int fd, const File *f, uint64_t at, void *to, size_t n,
                           weft_error *e) {
  for (char *p = to; n > 0;) {
    ssize_t got = pread(fd, p, MIN(n, (size_t)1 << 30), (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return err_file(e, WEFT_EFILE, f->path, 0, "cannot be read: %s", strerror(errno));
    if (got == 0)
      return err_file(e, WEFT_EFILE, f->path, 0,
                      "has become shorter: it had %llu bytes when it was opened, and now "
                      "ends before byte %llu",
                      (unsigned long long)f->size, (unsigned long long)at + 1);
    p += got;
    at += (uint64_t)got;
    n -= (size_t)got;
  }
  return WEFT_OK;
}

weft_status file_at(const File *f, uint64_t at, void *to, size_t n, weft_error *e) {
  struct stat now;
  int fd = f->fd;
  assert(n <= f->size && at <= f->size - n);
  if (fd < 0)
    TRY(open_regular(f->path, &fd, &now, e));
  else if (fstat(fd, &now) != 0)
    return err_file(e, WEFT_EFILE, f->path, 0, "cannot be examined: %s", strerror(errno));
  weft_status st = unchanged(f, &now, e);
  if (st == WEFT_OK) st = read_at(fd, f, at, to, n, e);
  if (fd != f->fd) close(fd);
  return st;
}

/* ---- reading whole files ---- */

static weft_status too_large(const char *path, size_t most, weft_error *e) {
  return err_file(e, WEFT_EFILE, path, 0, "is larger than the %zu MiB that are read here",
                  most >> 20);
}

/* Reads to the end, which may have moved since the file was opened. */
static weft_status slurp(int fd, const char *path, size_t most, Text *t, weft_error *e) {
  char chunk[16384];
  for (;;) {
    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n == 0) return WEFT_OK;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return err_file(e, WEFT_EFILE, path, 0, "cannot be read: %s", strerror(errno));
    if (t->n + (size_t)n > most) return too_large(path, most, e);
    text_addn(t, chunk, (size_t)n);
    if (t->oom) return err_file(e, WEFT_ENOMEM, path, 0, "does not fit into memory");
  }
}

weft_status file_read(const weft_alloc *a, const char *path, size_t most, char **s,
                      size_t *n, weft_error *e) {
  int fd;
  struct stat info;
  Text t = {.alloc = a};
  weft_status status;
  *s = NULL;
  *n = 0;
  TRY(open_regular(path, &fd, &info, e));
  if ((uint64_t)info.st_size > most) TRY_TO(out, status, too_large(path, most, e));
  TRY_TO(out, status, slurp(fd, path, most, &t, e));
  char *copy = mem_new(a, t.n + 1);
  if (copy) {
    if (t.n) memcpy(copy, t.s, t.n);
    *s = copy;
    *n = t.n;
  } else {
    status = err_file(e, WEFT_ENOMEM, path, 0, "does not fit into memory");
  }
out:
  text_free(&t);
  close(fd);
  return status;
}
