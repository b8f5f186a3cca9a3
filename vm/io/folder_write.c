/* folder_write.c - folders that appear whole or not at all: a temporary folder beside the
 * target is renamed. */
#include <errno.h>
#include <stdlib.h>

#include "file.h"

/* ---- checking the target ---- */

static bool found_one(void *ud, const char *name) {
  *(bool *)ud = true;
  return false;
}

static weft_status check_target(const Dir *in, const char *name, weft_error *e) {
  EntryKind kind = dir_entry(in, name);
  Dir d;
  bool full = false;
  if (!dir_writable(in)) return dir_fails(in, name, "cannot be made", errno, e);
  if (kind == ENTRY_NONE) return WEFT_OK;
  if (kind == ENTRY_LINK) return dir_fails(in, name, "cannot be made", EEXIST, e);
  if (kind != ENTRY_FOLDER)
    return dir_fails(in, name, "exists and is not a folder", 0, e);
  TRY(dir_below(in, name, 0, &d, e));
  weft_status st = dir_each(&d, found_one, &full, e);
  dir_close(&d);
  if (st != WEFT_OK || !full) return st;
  return dir_fails(
      in, name, "exists and is not empty; give another name, or remove it first", 0, e);
}

/* Finds the parent folder and the name; a path may end in slashes. */
static weft_status place(const Dir *in, const char *name, FolderOut *out, weft_error *e) {
  *out = (FolderOut){.in = DIR_CLOSED, .dir = DIR_CLOSED};
  const char *last = name;
  char *path = strdup(name);
  weft_status st = path ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
  for (size_t n = strlen(name); path && n > 1 && path[n - 1] == '/';) path[--n] = '\0';
  if (st == WEFT_OK)
    st = in ? dir_below(in, ".", 0, &out->in, e)
            : dir_above(path, "cannot be made", &out->in, &last, e);
  if (st == WEFT_OK && !(out->name = strdup(in ? path : last)))
    st = err_set(e, WEFT_ENOMEM, "out of memory");
  free(path);
  if (st != WEFT_OK) folder_drop(out);
  return st;
}

weft_status folder_free(const char *path, weft_error *e) {
  FolderOut f;
  TRY(place(NULL, path, &f, e));
  weft_status st = check_target(&f.in, f.name, e);
  folder_drop(&f);
  return st;
}

weft_status folder_above(const char *path, Dir *in, char **name, weft_error *e) {
  FolderOut f;
  TRY(place(NULL, path, &f, e));
  *in = f.in;
  *name = f.name;
  return WEFT_OK;
}

/* ---- creating ---- */

static bool make_temporary(FolderOut *f) {
  for (int i = 0; i < 100; i++) {
    dir_temporary(&f->temporary, f->name, i);
    if (f->temporary.oom) errno = ENOMEM;
    f->first = !f->temporary.oom && dir_make(&f->in, f->temporary.s, &f->dir);
    if (f->first || errno != EEXIST) return f->first;
  }
  return false;
}

weft_status folder_create(const Dir *in, const char *name, DirOwns *owns, FolderOut *out,
                          weft_error *e) {
  TRY(place(in, name, out, e));
  out->owns = owns;
  weft_status st = check_target(&out->in, out->name, e);
  if (st == WEFT_OK && !make_temporary(out))
    st = dir_fails(&out->in, out->name, "cannot be made", errno, e);
  if (st != WEFT_OK) folder_drop(out);
  return st;
}

weft_status folder_join(const Dir *in, const char *name, const char *temporary,
                        FolderOut *out, weft_error *e) {
  TRY(place(in, name, out, e));
  weft_status st = dir_below(&out->in, temporary, 0, &out->dir, e);
  if (st != WEFT_OK) folder_drop(out);
  return st;
}

/* ---- finishing ---- */

weft_status folder_finish(FolderOut *f, weft_error *e) {
  weft_status st = WEFT_OK;
  if (f->first) dir_sync(&f->dir);
  if (f->first && dir_rename(&f->in, f->temporary.s, f->name)) {
    f->first = false;
    dir_sync(&f->in);
  } else if (f->first) {
    st = dir_fails(&f->in, f->name, "cannot be made", errno, e);
  }
  folder_drop(f);
  return st;
}

void folder_drop(FolderOut *f) {
  if (f->first) (void)dir_remove(&f->in, f->temporary.s, f->owns, NULL);
  text_free(&f->temporary);
  dir_close(&f->dir);
  dir_close(&f->in);
  free(f->name);
  *f = (FolderOut){.in = DIR_CLOSED, .dir = DIR_CLOSED};
}
