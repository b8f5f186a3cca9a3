/* file.c - whole files, mapped or read into memory. Directories, pipes where a map is
 * wanted and files that cannot be read are errors that say so. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

static weft_status open_read(const char *path, int flags, int *fd, struct stat *st,
                             weft_error *e) {
  *fd = open(path, O_RDONLY | O_CLOEXEC | flags);
  if (*fd < 0)
    return err_file(e, WEFT_EFILE, path, 0, "cannot be opened: %s", strerror(errno));
  if (fstat(*fd, st) != 0)
    err_file(e, WEFT_EFILE, path, 0, "cannot be examined: %s", strerror(errno));
  else if (S_ISDIR(st->st_mode))
    err_file(e, WEFT_EFILE, path, 0, "is a directory, a file is expected");
  else
    return WEFT_OK;
  close(*fd);
  return WEFT_EFILE;
}

weft_status file_map(const char *path, FileMap *out, weft_error *e) {
  int fd;
  struct stat st;
  weft_status status = WEFT_OK;
  *out = (FileMap){0};
  /* Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever. */
  TRY(open_read(path, O_NONBLOCK, &fd, &st, e));
  if (!S_ISREG(st.st_mode)) {
    status = err_file(e, WEFT_EFILE, path, 0, "is not a regular file");
  } else if (st.st_size > 0) {
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
      status = err_file(e, WEFT_EFILE, path, 0, "cannot be mapped: %s", strerror(errno));
    else
      *out = (FileMap){p, (size_t)st.st_size};
  }
  close(fd);
  return status;
}

void file_unmap(FileMap *m) {
  if (m->at) munmap((void *)m->at, m->size);
  *m = (FileMap){0};
}

/* Reads to the end, also from a pipe, whose size is not known before. */
static weft_status slurp(int fd, const char *path, Text *t, weft_error *e) {
  char chunk[16384];
  for (;;) {
    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n == 0) return WEFT_OK;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return err_file(e, WEFT_EFILE, path, 0, "cannot be read: %s", strerror(errno));
    text_addn(t, chunk, (size_t)n);
    if (t->oom) return err_file(e, WEFT_ENOMEM, path, 0, "does not fit into memory");
  }
}

weft_status file_read(const weft_alloc *a, const char *path, char **s, size_t *n,
                      weft_error *e) {
  int fd;
  struct stat st;
  Text t = {.alloc = a};
  weft_status status;
  *s = NULL;
  *n = 0;
  TRY(open_read(path, 0, &fd, &st, e));
  TRY_TO(out, status, slurp(fd, path, &t, e));
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
