/* foreign_names.c - what fields are called in other systems. */
#include "schema.h"

static const ForeignName names[] = {
#define FOREIGN(name, here)   {#name, FOREIGN_HERE, here},
#define MODEL_KEY(name, keys) {#name, FOREIGN_MODEL, keys},
#define NEEDLESS(name, why)   {#name, FOREIGN_NEEDLESS, why},
#define ABSENT(name, what)    {#name, FOREIGN_ABSENT, what},
#include "foreign/foreign_names.def"
};

static int parts_of(const char *path) {
  int n = 1;
  for (; *path; path++) n += *path == '.';
  return n;
}

/* The last `n` parts of a path that has more. */
static const char *last_parts(const char *path, int n) {
  for (int more = parts_of(path) - n; more > 0; more--) path = strchr(path, '.') + 1;
  return path;
}

const ForeignName *foreign_find(const char *path) {
  const ForeignName *best = NULL;
  int longest = 0, parts = parts_of(path);
  for (int i = 0; i < LEN(names); i++) {
    int n = parts_of(names[i].name);
    if (n <= longest || n > parts || !name_same(names[i].name, last_parts(path, n)))
      continue;
    longest = n;
    best = &names[i];
  }
  return best;
}

const ForeignName *foreign_near(Arena *a, const char *name) {
  enum { LEAST = 6 };
  VEC(const char *) last = {0};
  for (int i = 0; i < LEN(names); i++) *VEC_PUSH(a, last) = last_parts(names[i].name, 1);
  if (strlen(name) < LEAST) return NULL;
  const char *near = name_suggest(name, last.at, last.n);
  enum { SLIP = 2 };
  bool begins = near && strncmp(near, name, strlen(name)) == 0;
  if (near && !begins && str_distance(near, name) > SLIP) near = NULL;
  if (!near) near = begins_with_name(a, name, last.at, last.n, LEAST);
  for (int i = 0; near && i < last.n; i++)
    if (parts_of(names[i].name) == 1 && strcmp(names[i].name, near) == 0)
      return &names[i];
  return NULL;
}

const char *foreign_says(Arena *a, const ForeignName *f) {
  switch (f->is) {
  case FOREIGN_NEEDLESS: return arena_printf(a, "leave it out: %s", f->text);
  case FOREIGN_ABSENT: return arena_printf(a, "not in weft: %s", f->text);
  case FOREIGN_MODEL:
    return arena_printf(a, "weft's name is %.*s, a key of weft.model",
                        (int)strcspn(f->text, " "), f->text);
  case FOREIGN_HERE: break;
  }
  bool name = !strchr(f->text, ' ');
  return arena_printf(a, name ? "weft's name is %s" : "in weft: %s", f->text);
}
