/* folder_hint.c - what is meant by a folder where a plan is expected: by the names of the
 * files in it, of which none is opened. */
#include "sandbox.h"
#include "vm/base/terminal.h"
#include "vm/ckpt/manifest.h"
#include "vm/io/dir.h"

enum { SHOWN = 4 };

typedef struct Looked {
  Arena *a;
  const char *folder;
  const char *plan[SHOWN]; /* the first by name */
  int plans;
  const char *settings; /* the hint of a file of another system */
  bool model, checkpoint;
} Looked;

static void add_plan(Looked *l, const char *name) {
  int at = MIN(l->plans, SHOWN);
  l->plans++;
  for (; at > 0 && strcmp(name, l->plan[at - 1]) < 0; at--)
    if (at < SHOWN) l->plan[at] = l->plan[at - 1];
  if (at < SHOWN) l->plan[at] = name;
}

static bool look(void *ud, const char *entry) {
  Looked *l = ud;
  const char *shown = arena_shown(l->a, arena_str(l->a, entry), ONE_LINE);
  if (strcmp(entry, "config.json") == 0) l->model = true;
  if (strcmp(entry, MANIFEST_NAME) == 0 || strncmp(entry, "step-", 5) == 0)
    l->checkpoint = true;
  if (str_ends(entry, ".lua") && !str_ends(entry, ".d.lua") && entry[0] != '.')
    add_plan(l, shown);
  if (!l->settings)
    l->settings = settings_hint(l->a, arena_printf(l->a, "%s/%s", l->folder, shown));
  return true;
}

/* "x, y and 3 more" */
static const char *names(const Looked *l) {
  const char *list = l->plan[0];
  int shown = l->plans > SHOWN ? SHOWN - 1 : l->plans;
  for (int i = 1; i < shown; i++) list = arena_printf(l->a, "%s, %s", list, l->plan[i]);
  return shown == l->plans ? list
                           : arena_printf(l->a, "%s and %d more", list, l->plans - shown);
}

const char *folder_hint(Arena *a, const char *path) {
  weft_error ignored = {0};
  Dir dir = DIR_CLOSED;
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  Looked l = {.a = a, .folder = arena_shown(a, arena_strn(a, path, n), ONE_LINE)};
  if (dir_open(path, 0, &dir, &ignored) != WEFT_OK) return NULL;
  weft_status st = dir_each(&dir, look, &l, &ignored);
  dir_close(&dir);
  if (st != WEFT_OK) return NULL;
  if (l.plans == 1) return arena_printf(a, "its plan is %s/%s", l.folder, l.plan[0]);
  if (l.plans > 1)
    return arena_printf(a, "it has %d Lua files, name one of them: %s", l.plans,
                        names(&l));
  if (l.checkpoint)
    return arena_printf(a, "it has checkpoints, which weft ckpt ls %s lists", l.folder);
  if (l.model)
    return arena_printf(a,
                        "it has a model: weft import %s -o plan.lua makes a plan that "
                        "trains one of this kind",
                        l.folder);
  if (l.settings) return l.settings;
  return "it has no Lua file: weft init NEW makes a folder with a plan in it";
}
