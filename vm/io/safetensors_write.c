/* safetensors_write.c - writes tensors as one safetensors file. The bytes go to a
 * temporary file in the same folder, which is synced and renamed over the target, so that
 * a crash or a full disk leaves the target as it was. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "../base/json.h"
#include "io.h"
#include "st_type.h"

static size_t bytes_of(const StWrite *t) {
  size_t n = (size_t)st_type(st_type_name(t->dtype))->size;
  assert(t->ndim >= 0 && t->ndim <= LEN(t->dim));
  for (int i = 0; i < t->ndim; i++) n *= (size_t)t->dim[i];
  return n;
}

/* The header, padded with spaces so that data starts at a multiple of 8. */
static void write_header(Text *out, const StWrite *t, int n) {
  Json j = {.out = out};
  size_t at = 0;
  json_open(&j, NULL, '{');
  for (int i = 0; i < n; i++) {
    json_open(&j, t[i].name, '{');
    json_str(&j, "dtype", st_type_name(t[i].dtype));
    json_open(&j, "shape", '[');
    for (int k = 0; k < t[i].ndim; k++) json_int(&j, NULL, t[i].dim[k]);
    json_close(&j, ']');
    json_open(&j, "data_offsets", '[');
    json_int(&j, NULL, (int64_t)at);
    json_int(&j, NULL, (int64_t)(at += bytes_of(&t[i])));
    json_close(&j, ']');
    json_close(&j, '}');
  }
  json_close(&j, '}');
  while (out->n % 8 && !out->oom) text_add(out, " ");
}

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

static bool put_all(int fd, const Text *header, const StWrite *t, int n) {
  uint64_t size = header->n;
  if (!put(fd, &size, sizeof size) || !put(fd, header->s, header->n)) return false;
  for (int i = 0; i < n; i++)
    if (!put(fd, t[i].data, bytes_of(&t[i]))) return false;
  return fsync(fd) == 0;
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
  if (slash) text_addn(&dir, path, (size_t)(slash - path) + 1);
  else text_add(&dir, ".");
  int fd = dir.oom ? -1 : open(dir.s, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
  text_free(&dir);
}

static weft_status write_and_rename(const char *path, const Text *header, Text *name,
                                    const StWrite *t, int n, weft_error *e) {
  int fd = open_temporary(path, name);
  if (name->oom) return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  if (fd < 0)
    return err_file(e, WEFT_EFILE, path, 0, "cannot be written: %s", strerror(errno));
  bool ok = put_all(fd, header, t, n);
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

weft_status st_write(const char *path, const StWrite *t, int n, weft_error *e) {
  Text header = {0}, name = {0};
  write_header(&header, t, n);
  weft_status status = header.oom ? err_file(e, WEFT_ENOMEM, path, 0, "out of memory")
                                  : write_and_rename(path, &header, &name, t, n, e);
  text_free(&header);
  text_free(&name);
  return status;
}
