/* repl_names.c - completion of names that are not in Lua's tables: fields of plans, their
 * values, styles, schedules and files. */
#include "repl_complete.h"

#include <dirent.h>
#include <sys/stat.h>

void complete_add(Completions *c, const char *name, const char *prefix, size_t n,
                  const char *suffix) {
  if (c->match.n >= COMPLETIONS_MOST || strncmp(name, prefix, n) != 0) return;
  *VEC_PUSH(c->arena, c->match) = arena_str(c->arena, name);
  c->suffix = suffix;
}

void complete_fields(Completions *c, const char *scope, const char *prefix, size_t n,
                     const char *suffix) {
  for (const Field *f = schema; f->scope; f++)
    if (strcmp(f->scope, scope) == 0) complete_add(c, f->key, prefix, n, suffix);
}

void complete_path(Completions *c, int from, const char *prefix, size_t n,
                   const char *suffix) {
  size_t last = n;
  while (last && prefix[last - 1] != '.')
    last--;
  const char *scope = scan_path(c->arena, prefix, last ? last - 1 : 0);
  c->from = from + (int)last;
  if (scope) complete_fields(c, scope, prefix + last, n - last, suffix);
}

/* The words of a list of names that are built, aliases left out. */
static void add_names(Completions *c, const char *names, const char *prefix, size_t n) {
  NameWord w;
  bool later = false;
  for (const char *p = names; name_next(c->arena, &p, &later, &w);)
    if (!later && w.n == strlen(w.canon)) complete_add(c, w.canon, prefix, n, NULL);
}

void complete_values(Completions *c, const Field *f, const char *prefix, size_t n) {
  if (str_eq(f->key, "schedule"))
    add_names(c, schema_schedules, prefix, n);
  else if (f->names && (f->type == FIELD_NAME || f->type == FIELD_NAMED))
    add_names(c, f->names, prefix, n);
}

void complete_styles(Completions *c, const char *prefix, size_t n) {
  for (const char *const *s = tp_style_names(); *s; s++)
    complete_add(c, *s, prefix, n, NULL);
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), k = strlen(end);
  return n >= k && strcmp(s + n - k, end) == 0;
}

void complete_files(Completions *c, int from, const char *prefix, size_t n,
                    const char *only) {
  size_t last = n;
  while (last && prefix[last - 1] != '/')
    last--;
  const char *folder = last ? arena_strn(c->arena, prefix, last) : "./";
  c->from = from + (int)last;
  DIR *d = opendir(folder);
  if (!d) return;
  for (struct dirent *f; (f = readdir(d));) {
    struct stat s;
    if (*f->d_name == '.' && (n == last || prefix[last] != '.')) continue;
    if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0) continue;
    bool folder_too = stat(arena_printf(c->arena, "%s%s", folder, f->d_name), &s) == 0 &&
                      S_ISDIR(s.st_mode);
    if (folder_too)
      complete_add(c, arena_printf(c->arena, "%s/", f->d_name), prefix + last, n - last,
                   NULL);
    else if (!only || ends_with(f->d_name, only))
      complete_add(c, f->d_name, prefix + last, n - last, NULL);
  }
  closedir(d);
}
