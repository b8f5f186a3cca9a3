/* file_write.c - writes files that appear whole or not at all. The bytes go to a
 * temporary file in the same folder, which is synced and renamed over the target, so that
 * a crash or a full disk leaves the target as it was. Devices and pipes are written
 * directly. Also files that are appended to (logs). */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MODE = 0666, FLAGS = O_CLOEXEC | O_NOCTTY | O_NOFOLLOW };

static const Dir *folder_of(const FileOut *f) { return f->in ? f->in : &f->own; }

static weft_status fails(const FileOut *f, int why, weft_error *e) {
  return dir_fails(folder_of(f), f->name, "cannot be written", why, e);
}

/* Finds the folder of a path given by the user. */
static weft_status place(const Dir *in, const char *name, FileOut *out, weft_error *e) {
  *out = (FileOut){.in = in, .own = DIR_CLOSED, .name = name, .fd = -1};
  return in ? WEFT_OK : dir_above(name, "cannot be written", &out->own, &out->name, e);
}

/* ---- writing at any offset ---- */

/* Creates a file next to the target, under the first free temporary name: other processes
 * may be writing the same target, and a killed run may have left its file. It is open for
 * writing alone: through a descriptor that may read, a client of NFS fetches the pages of
 * which it gets a part, and sends them back whole, over what other machines have written
 * to the same page meanwhile. */
static bool open_temporary(FileOut *f, unsigned mode) {
  for (int i = 0; i < 100; i++) {
    dir_temporary(&f->temporary, f->name, i);
    if (f->temporary.oom) break;
    f->fd = openat(folder_of(f)->fd, f->temporary.s, FLAGS | O_WRONLY | O_CREAT | O_EXCL,
                   mode);
    f->first = f->fd >= 0;
    if (f->first || errno != EEXIST) return f->first;
  }
  if (f->temporary.oom) errno = ENOMEM;
  return false;
}

/* Reserves the space now, so that a full disk is found before the work begins; where the
 * file system cannot, it is found by the writes. Some, as tmpfs, give up at a signal,
 * whatever its handler says of calls that go on. */
static bool take_space(int fd, uint64_t size) {
  if (size > INT64_MAX) {
    errno = EFBIG;
    return false;
  }
  if (size == 0 || TEMP_FAILURE_RETRY(fallocate(fd, 0, 0, (off_t)size)) == 0) return true;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return false;
  return TEMP_FAILURE_RETRY(ftruncate(fd, (off_t)size)) == 0;
}

static weft_status create(FileOut *f, uint64_t size, unsigned mode, weft_error *e) {
  if (open_temporary(f, mode) && take_space(f->fd, size)) return WEFT_OK;
  weft_status st = fails(f, errno, e);
  file_drop(f);
  return st;
}

/* Only a regular file, or no file, may be replaced. */
static weft_status check_target(const FileOut *f, bool only_new, weft_error *e) {
  EntryKind kind = dir_entry(folder_of(f), f->name);
  if (kind == ENTRY_NONE || (kind == ENTRY_FILE && !only_new)) return WEFT_OK;
  if (kind == ENTRY_FOLDER) return fails(f, EISDIR, e);
  if (kind == ENTRY_LINK || only_new) return fails(f, EEXIST, e);
  return dir_fails(folder_of(f), f->name, "cannot be written: it is not a file", 0, e);
}

static weft_status open_out(const Dir *in, const char *name, uint64_t size, unsigned mode,
                            bool only_new, FileOut *out, weft_error *e) {
  weft_status st = place(in, name, out, e);
  out->only_new = only_new;
  if (st == WEFT_OK) st = check_target(out, only_new, e);
  if (st == WEFT_OK) return create(out, size, mode, e);
  file_drop(out);
  return st;
}

weft_status file_create(const Dir *in, const char *name, uint64_t size, FileOut *out,
                        weft_error *e) {
  return open_out(in, name, size, MODE, false, out, e);
}

weft_status file_create_new(const Dir *in, const char *name, FileOut *out,
                            weft_error *e) {
  return open_out(in, name, 0, MODE, true, out, e);
}

/* If the file is open already, as behind /dev/stdout, a duplicate of that descriptor: two
 * independent offsets would overwrite each other. */
static int shared(int fd) {
  struct stat is, own;
  for (int k = STDOUT_FILENO; k <= STDERR_FILENO && fstat(fd, &is) == 0; k++)
    if (fstat(k, &own) == 0 && own.st_dev == is.st_dev && own.st_ino == is.st_ino) {
      close(fd);
      return fcntl(k, F_DUPFD_CLOEXEC, 0);
    }
  return fd;
}

/* Opens a device or a pipe for appending; a pipe without a reader is an error. Links of
 * the system are followed. */
static int open_plain(const Dir *in, const char *name, EntryKind kind) {
  int follow = kind == ENTRY_LINK ? O_NOFOLLOW : 0;
  int fd = openat(in->fd, name, (FLAGS & ~follow) | O_WRONLY | O_APPEND | O_NONBLOCK);
  if (fd < 0) return fd;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return follow ? shared(fd) : fd;
}

static bool is_plain(const Dir *in, EntryKind kind) {
  return kind == ENTRY_OTHER || (kind == ENTRY_LINK && dir_is_system(in));
}

weft_status file_stream(const Dir *in, const char *name, FileOut *out, weft_error *e) {
  TRY(place(in, name, out, e));
  EntryKind kind = dir_entry(folder_of(out), out->name);
  out->plain = is_plain(folder_of(out), kind);
  weft_status st = out->plain ? WEFT_OK : check_target(out, false, e);
  if (st == WEFT_OK && !out->plain) return create(out, 0, MODE, e);
  if (st == WEFT_OK) {
    out->fd = open_plain(folder_of(out), out->name, kind);
    if (out->fd >= 0) return st;
    st = fails(out, errno, e);
  }
  file_drop(out);
  return st;
}

weft_status file_join(const Dir *in, const char *name, const char *temporary,
                      FileOut *out, weft_error *e) {
  TRY(place(in, name, out, e));
  text_add(&out->temporary, temporary);
  if (out->temporary.oom) errno = ENOMEM;
  struct stat st;
  bool good = !out->temporary.oom && !strchr(temporary, '/');
  if (!out->temporary.oom && !good) errno = EINVAL;
  if (good)
    out->fd = openat(folder_of(out)->fd, temporary, FLAGS | O_WRONLY | O_NONBLOCK);
  if (out->fd >= 0 && fstat(out->fd, &st) == 0 && S_ISREG(st.st_mode)) return WEFT_OK;
  int why = out->fd < 0 ? errno : EINVAL;
  char what[300];
  snprintf(what, sizeof what,
           "cannot be written: %.200s, which another process made for it", temporary);
  weft_status status = dir_fails(folder_of(out), out->name, what, why, e);
  file_drop(out);
  return status;
}

static bool put(int fd, const char *s, size_t n, bool plain, uint64_t at) {
  while (n > 0) {
    size_t some = MIN(n, (size_t)1 << 30);
    ssize_t w = plain ? write(fd, s, some) : pwrite(fd, s, some, (off_t)at);
    if (w < 0 && errno == EINTR) continue;
    if (w == 0) errno = ENOSPC;
    if (w <= 0) return false;
    s += w;
    at += (uint64_t)w;
    n -= (size_t)w;
  }
  return true;
}

weft_status file_put(const FileOut *f, uint64_t at, const void *data, size_t n,
                     weft_error *e) {
  return put(f->fd, data, n, f->plain, at) ? WEFT_OK : fails(f, errno, e);
}

static bool get(int fd, char *to, size_t n, uint64_t at) {
  while (n > 0) {
    ssize_t got = pread(fd, to, MIN(n, (size_t)1 << 30), (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = EIO;
    if (got <= 0) return false;
    to += got, at += (uint64_t)got, n -= (size_t)got;
  }
  return true;
}

weft_status file_again(const FileOut *f, uint64_t at, void *data, size_t n,
                       weft_error *e) {
  assert(f->first && !f->plain);
  int fd = openat(folder_of(f)->fd, f->temporary.s, FLAGS | O_RDONLY);
  int why = fd >= 0 && get(fd, data, n, at) ? 0 : errno;
  if (fd >= 0) close(fd);
  return why ? fails(f, why, e) : WEFT_OK;
}

static bool take_name(const FileOut *f) {
  return (f->only_new ? dir_rename_new : dir_rename)(folder_of(f), f->temporary.s,
                                                     f->name);
}

weft_status file_finish(FileOut *f, weft_error *e) {
  const Dir *in = folder_of(f);
  weft_status st = WEFT_OK;
  int why = f->plain || TEMP_FAILURE_RETRY(fsync(f->fd)) == 0 ? 0 : errno;
  if (close(f->fd) != 0 && !why) why = errno;
  f->fd = -1;
  if (f->first && !why && !take_name(f)) why = errno;
  if (f->first && !why) {
    dir_sync(in);
    f->first = false; /* the temporary file has been renamed */
  }
  if (why) st = fails(f, why, e);
  file_drop(f);
  return st;
}

void file_drop(FileOut *f) {
  if (f->fd >= 0) close(f->fd);
  if (f->first) dir_remove_file(folder_of(f), f->temporary.s);
  text_free(&f->temporary);
  dir_close(&f->own);
  *f = (FileOut){.own = DIR_CLOSED, .fd = -1};
}

/* ---- whole files ---- */

static weft_status put_parts(FileOut *f, const FilePart *part, int n, weft_error *e) {
  uint64_t at = 0;
  for (int i = 0; i < n; at += part[i++].bytes) {
    weft_status st = file_put(f, at, part[i].data, part[i].bytes, e);
    if (st == WEFT_OK) continue;
    file_drop(f);
    return st;
  }
  return file_finish(f, e);
}

weft_status file_write(const Dir *in, const char *name, const FilePart *part, int n,
                       weft_error *e) {
  FileOut f;
  TRY(file_stream(in, name, &f, e));
  return put_parts(&f, part, n, e);
}

weft_status file_write_text(const Dir *in, const char *name, Text *t, weft_error *e) {
  weft_status st = t->oom ? err_set(e, WEFT_ENOMEM, "out of memory")
                          : file_write(in, name, &(FilePart){t->s, t->n}, 1, e);
  text_free(t);
  return st;
}

weft_status file_write_as(const Dir *in, const char *name, const FilePart *part, int n,
                          unsigned mode, bool only_new, weft_error *e) {
  FileOut f;
  TRY(open_out(in, name, 0, mode, only_new, &f, e));
  return put_parts(&f, part, n, e);
}

void file_undo(const Dir *in, const char *name) {
  FileOut f;
  if (place(in, name, &f, NULL) == WEFT_OK) (void)dir_remove_file(folder_of(&f), f.name);
  file_drop(&f);
}

weft_status file_check(const char *name, bool only_new, weft_error *e) {
  FileOut f;
  weft_status st = place(NULL, name, &f, e);
  bool plain = st == WEFT_OK && !only_new &&
               is_plain(folder_of(&f), dir_entry(folder_of(&f), f.name));
  if (st == WEFT_OK && !plain) st = check_target(&f, only_new, e);
  if (st == WEFT_OK && !plain && !open_temporary(&f, MODE)) st = fails(&f, errno, e);
  file_drop(&f);
  return st;
}

/* ---- appending ---- */

static int open_end(const Dir *in, const char *name, unsigned mode, bool only_new) {
  EntryKind kind = dir_entry(in, name);
  if (!only_new && is_plain(in, kind)) return open_plain(in, name, kind);
  int flags = FLAGS | O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK | (only_new ? O_EXCL : 0);
  return openat(in->fd, name, flags, mode);
}

weft_status file_extend(const Dir *in, const char *name, unsigned mode, bool only_new,
                        FileEnd *out, weft_error *e) {
  FileOut at;
  struct stat st;
  *out = (FileEnd){.fd = -1, .empty = true};
  TRY(place(in, name, &at, e));
  weft_status status = WEFT_OK;
  Text path = {0};
  if (in) text_printf(&path, "%s/", in->path);
  text_add(&path, name);
  int fd = path.oom ? -1 : open_end(folder_of(&at), at.name, mode, only_new);
  if (fd < 0) status = fails(&at, path.oom ? ENOMEM : errno, e);
  file_drop(&at);
  if (fd < 0) {
    text_free(&path);
    return status;
  }
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) out->empty = st.st_size == 0;
  out->path = path.s;
  out->fd = fd;
  return WEFT_OK;
}

weft_status file_add(const FileEnd *f, const void *data, size_t n, weft_error *e) {
  if (put(f->fd, data, n, true, 0)) return WEFT_OK;
  return err_file(e, WEFT_EFILE, f->path, 0, "cannot be written: %s", strerror(errno));
}

weft_status file_add_text(const FileEnd *f, Text *t, weft_error *e) {
  weft_status st =
      t->oom ? err_set(e, WEFT_ENOMEM, "out of memory") : file_add(f, t->s, t->n, e);
  text_free(t);
  return st;
}

void file_mode(const FileEnd *f, unsigned mode) {
  struct stat st;
  if (fstat(f->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & 0777 & ~mode)
    fchmod(f->fd, st.st_mode & mode);
}

char file_last(const FileEnd *f) {
  struct stat st;
  char last = 0;
  bool sized = fstat(f->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
  return sized && pread(f->fd, &last, 1, st.st_size - 1) == 1 ? last : 0;
}

bool file_tail(const FileEnd *f, size_t most, Text *out, int64_t *size) {
  struct stat st;
  if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  *size = st.st_size;
  size_t room = (size_t)MIN((uint64_t)st.st_size, (uint64_t)most), n = 0;
  char *s = mem_new(NULL, room + 1);
  if (s && pread(f->fd, s, room, st.st_size - (off_t)room) == (ssize_t)room)
    while (n < room && s[room - n - 1] != '\n') n++;
  bool whole = n > 0 && (n < room || room == (size_t)st.st_size);
  if (whole) text_addn(out, s + room - n, n);
  mem_free(NULL, s, room + 1);
  return whole && !out->oom;
}

weft_status file_cut(const FileEnd *f, size_t n, int64_t size, weft_error *e) {
  struct stat st;
  if (fstat(f->fd, &st) == 0 &&
      (st.st_size != size || ftruncate(f->fd, size - (off_t)n) == 0))
    return WEFT_OK;
  return err_file(e, WEFT_EFILE, f->path, 0, "cannot be written: %s", strerror(errno));
}

void file_end(FileEnd *f) {
  if (f->fd >= 0) close(f->fd);
  free(f->path);
  *f = (FileEnd){.fd = -1};
}
