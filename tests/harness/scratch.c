/* scratch.c - helpers for tests that use files or run out of memory. */
#include "scratch.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

char scratch_dir[64];
Arena *scratch_arena;
weft_error scratch_error;
static int open_before; /* when the test began */

int scratch_descriptors(void) {
  int n = -3; /* ".", "..", and that of the folder itself */
  DIR *d = opendir("/proc/self/fd");
  ck_assert_ptr_nonnull(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

void scratch_setup(void) {
  open_before = scratch_descriptors();
  strcpy(scratch_dir, "/tmp/weft-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(scratch_dir));
  scratch_arena = arena_new(NULL);
  err_clear(&scratch_error);
}

void scratch_teardown(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -r '%s'", scratch_dir);
  ck_assert_int_eq(system(command), 0);
  arena_free(scratch_arena);
  int more = scratch_descriptors() - open_before;
  ck_assert_msg(more <= 0, "%d descriptors were left open", more);
}

const char *scratch_path(const char *name) {
  return arena_printf(scratch_arena, "%s/%s", scratch_dir, name);
}

const char *scratch_put(const char *name, const void *p, size_t n) {
  const char *path = scratch_path(name);
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(p, 1, n, f), n);
  ck_assert_int_eq(fclose(f), 0);
  return path;
}

const char *scratch_list(void) {
  struct dirent **entry;
  const char *s = "";
  int n = scandir(scratch_dir, &entry, NULL, alphasort);
  ck_assert_int_ge(n, 2);
  for (int i = 0; i < n; i++) {
    if (entry[i]->d_name[0] != '.')
      s = arena_printf(scratch_arena, "%s%s ", s, entry[i]->d_name);
    free(entry[i]);
  }
  free(entry);
  return s;
}

void scratch_check_error(weft_status got, weft_status want, const char *file,
                         const char *text) {
  ck_assert_int_eq(got, want);
  ck_assert_int_eq(scratch_error.code, want);
  ck_assert_str_eq(scratch_error.text, text);
  ck_assert_str_eq(scratch_error.file, file);
  err_clear(&scratch_error);
}

void *scratch_alloc(void *ud, void *p, size_t old, size_t n) {
  ScratchMeter *m = ud;
  if (n == 0) {
    m->held -= (int64_t)old;
    free(p);
    return NULL;
  }
  if (m->left <= 0) return NULL;
  m->left--;
  m->held += (int64_t)n - (int64_t)old;
  return realloc(p, n);
}
