/* folders.c - where files named by a plan may be: below its own folder or below one that
 * the user named, with all symlinks resolved. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "file.h"

static const char *join(Arena *a, const char *folder, const char *name) {
  bool here = !folder || !*folder;
  return here ? arena_str(a, name) : arena_printf(a, "%s/%s", folder, name);
}

const char *folders_find(const Folders *f, Arena *a, const char *name) {
  if (*name == '/') return arena_str(a, name);
  const char *first = join(a, f->plan, name);
  if (access(first, F_OK) == 0) return first;
  for (int i = 0; i < f->nmore; i++) {
    const char *path = join(a, f->more[i], name);
    if (access(path, F_OK) == 0) return path;
  }
  return first;
}

static bool below(const char *real, const char *folder) {
  char dir[PATH_MAX];
  if (!realpath(folder && *folder ? folder : ".", dir)) return false;
  size_t n = strlen(dir);
  return strncmp(real, dir, n) == 0 && (!real[n] || real[n] == '/' || dir[n - 1] == '/');
}

weft_status folders_hold(const Folders *f, const char *path, weft_error *e) {
  char real[PATH_MAX];
  if (!realpath(path, real))
    return err_file(e, WEFT_EFILE, path, 0, "cannot be opened: %s", strerror(errno));
  if (below(real, f->plan)) return WEFT_OK;
  for (int i = 0; i < f->nmore; i++)
    if (below(real, f->more[i])) return WEFT_OK;
  const char *leads = strcmp(path, real) ? real : NULL;
  return err_file(e, WEFT_EFILE, path, 0,
                  "%s%s%sis outside of the plan's folder; give the folder that it may be "
                  "read from: --data DIR",
                  leads ? "leads to " : "", leads ? leads : "", leads ? ", which " : "");
}

/* ---- folders that a plan writes to ---- */

/* The rest of an absolute path below a folder, or NULL. */
static const char *rest_below(const char *path, const char *folder) {
  size_t n = strlen(folder);
  while (n && folder[n - 1] == '/') n--;
  return strncmp(path, folder, n) == 0 && (!path[n] || path[n] == '/') ? path + n : NULL;
}

const char *folders_below(Arena *a, const char *plan, const char *name) {
  char real[PATH_MAX];
  const char *rest = name;
  if (*name == '/') {
    rest = *plan == '/' ? rest_below(name, plan) : NULL;
    if (!rest && realpath(*plan ? plan : ".", real)) rest = rest_below(name, real);
    if (!rest) return NULL;
    rest += strspn(rest, "/");
  }
  if (dir_climbs(rest)) return NULL;
  return *rest ? join(a, plan, rest) : arena_str(a, *plan ? plan : ".");
}
