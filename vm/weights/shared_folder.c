/* shared_folder.c - see shared_folder.h. */
#include "shared_folder.h"

#include "snapshot.h"

#include <limits.h>
#include <time.h>
#include <unistd.h>

/* What the first process tells the others. */
typedef struct Mark {
  bool made;
  char name[NAME_MAX + 1];
} Mark;

/* No process may have made this name before: one that is not there is not looked for
 * again where a file system remembers it, and one of another machine would be found. */
static void make_mark(const Dir *in, const char *stem, Mark *m) {
  struct timespec now;
  Text name = {0};
  Dir d;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t h = hash_bytes(0, &now, sizeof now);
  dir_temporary(&name, stem, (int)(h % INT_MAX));
  if (!name.oom && name.n < sizeof m->name && dir_make(in, name.s, &d)) {
    memcpy(m->name, name.s, name.n + 1);
    m->made = true;
    dir_close(&d);
  }
  text_free(&name);
}

/* Opens it: NFS may answer a question from memory, but an open asks the server. */
static weft_status look(const Run *r, const Dir *in, const Mark *m, const char *path,
                        weft_error *e) {
  char host[HOST_NAME_MAX + 1] = "";
  weft_error ignored = NO_ERROR;
  Dir d;
  if (dir_below(in, m->name, 0, &d, &ignored) == WEFT_OK) {
    dir_close(&d);
    return WEFT_OK;
  }
  (void)gethostname(host, sizeof host - 1);
  return err_file(e, WEFT_EUSAGE, path, 0,
                  "is not the same folder on rank %d (host %s) as on rank 0: it must be "
                  "one that all ranks share",
                  run_rank(r), host);
}

static bool owns_nothing(const char *name) { return false; }

weft_status run_shares_folder(Run *r, const Dir *in, const char *stem, const char *path,
                              bool *shared, weft_error *e) {
  Mark m = {0};
  bool first = run_rank(r) == 0;
  *shared = run_is_alone(r);
  if (*shared) return WEFT_OK;
  if (first && in->fd >= 0) make_mark(in, stem, &m);
  weft_status st = run_from_first(r, &m, sizeof m, e);
  bool looks = st == WEFT_OK && m.made, here = !first && in->fd >= 0;
  if (looks) st = run_agree(r, here ? look(r, in, &m, path, e) : WEFT_OK, e);
  if (first && m.made) (void)dir_remove(in, m.name, owns_nothing, NULL);
  *shared = looks && st == WEFT_OK;
  return st;
}
