/* folder_write.c - folders that appear whole or not at all, by the rename of a temporary
 * folder beside them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

static weft_status fails(const char *path, int why, weft_error *e) {
  return err_file(e, WEFT_EFILE, path, 0, "cannot be made: %s", strerror(why));
}

/* Whether there is a folder above it that may be written. */
static weft_status check_above(const char *path, weft_error *e) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  while (n > 0 && path[n - 1] != '/') n--;
  char *above = n ? strndup(path, n) : strdup(".");
  if (!above) return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  int why = access(above, W_OK | X_OK) == 0 ? 0 : errno;
  free(above);
  return why ? fails(path, why, e) : WEFT_OK;
}

weft_status folder_free(const char *path, weft_error *e) {
  struct stat st;
  int n = 0;
  TRY(check_above(path, e));
  if (lstat(path, &st) != 0) return errno == ENOENT ? WEFT_OK : fails(path, errno, e);
  if (!S_ISDIR(st.st_mode))
    return err_file(e, WEFT_EFILE, path, 0, "exists and is not a folder");
  DIR *d = opendir(path);
  if (!d) return fails(path, errno, e);
  for (struct dirent *x; (x = readdir(d));)
    n += !str_eq(x->d_name, ".") && !str_eq(x->d_name, "..");
  closedir(d);
  if (!n) return WEFT_OK;
  return err_file(e, WEFT_EFILE, path, 0,
                  "exists and is not empty; give another name, or remove it first");
}

/* The name of a folder that does not exist yet goes to `name`. */
static int make_temporary(const char *path, Text *name) {
  for (int i = 0; i < 100; i++) {
    name->n = 0;
    text_printf(name, "%s.%ld-%d.tmp", path, (long)getpid(), i);
    if (name->oom) return ENOMEM;
    if (mkdir(name->s, 0777) == 0) return 0;
    if (errno != EEXIST) return errno;
  }
  return EEXIST;
}

weft_status folder_create(const char *path, FolderOut *out, weft_error *e) {
  *out = (FolderOut){0};
  TRY(folder_free(path, e));
  out->path = strdup(path);
  if (!out->path) return err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
  for (size_t n = strlen(path); n > 1 && out->path[n - 1] == '/';)
    out->path[--n] = '\0';
  int why = make_temporary(out->path, &out->name);
  if (!why) return WEFT_OK;
  out->name.n = 0; /* it is not ours */
  folder_drop(out);
  return fails(path, why, e);
}

/* The folder's own entries, and then its name; see file_write.c for what cannot. */
static void sync_one(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

weft_status folder_finish(FolderOut *f, weft_error *e) {
  sync_one(f->name.s);
  weft_status st = WEFT_OK;
  if (rename(f->name.s, f->path) == 0) {
    f->name.n = 0;
    char *slash = strrchr(f->path, '/');
    if (slash) slash[slash == f->path] = '\0';
    sync_one(slash ? f->path : ".");
  } else {
    st = fails(f->path, errno, e);
  }
  folder_drop(f);
  return st;
}

void folder_drop(FolderOut *f) {
  DIR *d = f->name.n ? opendir(f->name.s) : NULL;
  for (struct dirent *x; d && (x = readdir(d));)
    if (!str_eq(x->d_name, ".") && !str_eq(x->d_name, ".."))
      unlinkat(dirfd(d), x->d_name, 0);
  if (d) closedir(d);
  if (d) rmdir(f->name.s);
  text_free(&f->name);
  free(f->path);
  *f = (FolderOut){0};
}
