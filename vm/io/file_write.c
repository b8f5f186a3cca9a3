/* file_write.c - writes whole files. The bytes go to a temporary file in the same folder,
 * which is synced and renamed over the target, so that a crash or a full disk leaves the
 * target as it was. A device or a pipe is written as it is. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

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

static bool put_all(int fd, const FilePart *part, int n) {
  for (int i = 0; i < n; i++)
    if (!put(fd, part[i].data, part[i].bytes)) return false;
  return true;
}

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

static weft_status write_and_rename(const char *path, Text *name, const FilePart *part,
                                    int n, weft_error *e) {
  int fd = open_temporary(path, name);
  if (name->oom) return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  if (fd < 0)
    return err_file(e, WEFT_EFILE, path, 0, "cannot be written: %s", strerror(errno));
  bool ok = put_all(fd, part, n) && fsync(fd) == 0;
  int why = errno;
  if (close(fd) != 0 && ok) ok = false, why = errno;
  if (ok && rename(name->s, path) != 0) ok = false, why = errno;
  if (!ok) {
    unlink(name->s);
    return err_file(e, WEFT_EFILE, path, 0, "cannot be written: %s", strerror(why));
  }
  sync_folder(path);
  return WEFT_OK;
}

static weft_status write_device(const char *path, const FilePart *part, int n,
                                weft_error *e) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool ok = fd >= 0 && put_all(fd, part, n);
  int why = errno;
  if (fd >= 0) close(fd);
  if (ok) return WEFT_OK;
  return err_file(e, WEFT_EFILE, path, 0, "cannot be written: %s", strerror(why));
}

weft_status file_write(const char *path, const FilePart *part, int n, weft_error *e) {
  struct stat st;
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) return write_device(path, part, n, e);
  Text name = {0};
  weft_status status = write_and_rename(path, &name, part, n, e);
  text_free(&name);
  return status;
}
