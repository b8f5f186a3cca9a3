/* file_write.c - writes files that appear whole or not at all. The bytes go to a
 * temporary file in the same folder, which is synced and renamed over the target, so that
 * a crash or a full disk leaves the target as it was. A device or a pipe is written as it
 * is. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

static weft_status fails(const char *path, int why, weft_error *e) {
  return err_file(e, WEFT_EFILE, path, 0, "cannot be written: %s", strerror(why));
}

/* ---- at places of one's choice ---- */

/* A new file next to the target; its name goes to `name`. Others may be writing the same
 * target, and an earlier run may have left its file behind: the first free name is it. */
static int open_temporary(const char *path, Text *name) {
  for (int i = 0; i < 100; i++) {
    name->n = 0;
    text_printf(name, "%s.%ld-%d.tmp", path, (long)getpid(), i);
    if (name->oom) break;
    int fd = open(name->s, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

/* Takes the space now, so that a full disk is found before anything was computed; where
 * the file system cannot, it is found when the bytes are written. */
static bool take_space(int fd, uint64_t size) {
  if (size == 0 || fallocate(fd, 0, 0, (off_t)size) == 0) return true;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return false;
  return ftruncate(fd, (off_t)size) == 0;
}

weft_status file_create(const char *path, uint64_t size, FileOut *out, weft_error *e) {
  *out = (FileOut){.path = path, .fd = -1, .first = true};
  struct stat st;
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return fails(path, EISDIR, e);
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
    return err_file(e, WEFT_EFILE, path, 0, "cannot be written: it is not a file");
  if (size > INT64_MAX) return fails(path, EFBIG, e);
  out->fd = open_temporary(path, &out->name);
  int why = errno;
  if (out->fd < 0 && out->name.oom) {
    text_free(&out->name);
    return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  }
  if (out->fd >= 0) {
    if (take_space(out->fd, size)) return WEFT_OK;
    why = errno;
  }
  file_drop(out);
  return fails(path, why, e);
}

weft_status file_join(const char *path, const char *name, FileOut *out, weft_error *e) {
  *out = (FileOut){.path = path, .fd = -1};
  text_add(&out->name, name);
  if (out->name.oom) {
    file_drop(out);
    return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  }
  out->fd = open(name, O_WRONLY | O_CLOEXEC);
  if (out->fd >= 0) return WEFT_OK;
  int why = errno;
  file_drop(out);
  return err_file(e, WEFT_EFILE, path, 0,
                  "cannot be written: %s, which another process made for it: %s", name,
                  strerror(why));
}

weft_status file_put(const FileOut *f, uint64_t at, const void *data, size_t n,
                     weft_error *e) {
  for (const char *s = data; n > 0;) {
    ssize_t w = pwrite(f->fd, s, MIN(n, (size_t)1 << 30), (off_t)at);
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) return fails(f->path, w < 0 ? errno : ENOSPC, e);
    s += w;
    at += (uint64_t)w;
    n -= (size_t)w;
  }
  return WEFT_OK;
}

/* Makes the rename itself last. Not every file system can sync a folder; the data is
 * safe without, so that this is not an error. */
static void sync_folder(const char *path) {
  Text dir = {0};
  const char *slash = strrchr(path, '/');
  if (slash)
    text_addn(&dir, path, (size_t)(slash - path) + 1);
  else
    text_add(&dir, ".");
  int fd = dir.oom ? -1 : open(dir.s, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
  text_free(&dir);
}

weft_status file_finish(FileOut *f, weft_error *e) {
  const char *path = f->path;
  int why = fsync(f->fd) == 0 ? 0 : errno;
  if (close(f->fd) != 0 && !why) why = errno;
  f->fd = -1;
  if (f->first && !why && rename(f->name.s, path) != 0) why = errno;
  if (f->first && !why) {
    sync_folder(path);
    f->first = false; /* there is no temporary file any more */
  }
  file_drop(f);
  return why ? fails(path, why, e) : WEFT_OK;
}

void file_drop(FileOut *f) {
  if (f->fd >= 0) close(f->fd);
  if (f->first && f->name.s && f->name.n) unlink(f->name.s);
  text_free(&f->name);
  *f = (FileOut){.fd = -1};
}

/* ---- one after the other ---- */

static bool put(int fd, const void *p, size_t n) {
  for (const char *s = p; n > 0;) {
    ssize_t w = write(fd, s, MIN(n, (size_t)1 << 30));
    if (w < 0 && errno == EINTR) continue;
    if (w < 0) return false;
    s += w;
    n -= (size_t)w;
  }
  return true;
}

static weft_status write_device(const char *path, const FilePart *part, int n,
                                weft_error *e) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool ok = fd >= 0;
  for (int i = 0; i < n && ok; i++)
    ok = put(fd, part[i].data, part[i].bytes);
  int why = errno;
  if (fd >= 0) close(fd);
  return ok ? WEFT_OK : fails(path, why, e);
}

weft_status file_write(const char *path, const FilePart *part, int n, weft_error *e) {
  struct stat st;
  FileOut f;
  uint64_t at = 0;
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) return write_device(path, part, n, e);
  for (int i = 0; i < n; i++)
    at += part[i].bytes;
  TRY(file_create(path, at, &f, e));
  at = 0;
  for (int i = 0; i < n; at += part[i++].bytes) {
    weft_status status = file_put(&f, at, part[i].data, part[i].bytes, e);
    if (status != WEFT_OK) {
      file_drop(&f);
      return status;
    }
  }
  return file_finish(&f, e);
}
