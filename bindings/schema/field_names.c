/* field_names.c - the lists of legal names in schema.def: aliases, and names that are
 * known but not built. */
#include "schema.h"

#include <ctype.h>

/* Compares without case, '-' and '_': "Interleaved1F1B" is "interleaved_1f1b". */
static bool same_name(const char *a, size_t na, const char *b, size_t nb) {
  size_t i = 0, j = 0;
  for (;;) {
    while (i < na && (a[i] == '-' || a[i] == '_')) i++;
    while (j < nb && (b[j] == '-' || b[j] == '_')) j++;
    if (i == na || j == nb) return i == na && j == nb;
    if (tolower((unsigned char)a[i++]) != tolower((unsigned char)b[j++])) return false;
  }
}

bool name_same(const char *a, const char *b) {
  return same_name(a, strlen(a), b, strlen(b));
}

const char *begins_with_name(Arena *a, const char *text, const char *const *names, int n,
                             size_t least) {
  const char *best = NULL;
  for (size_t k = strlen(text); k >= least && !best; k--)
    for (int i = 0; i < n && !best; i++)
      if ((!text[k] || strchr("-_", text[k])) &&
          name_same(arena_strn(a, text, k), names[i]))
        best = names[i];
  return best;
}

bool name_next(Arena *a, const char **p, bool *later, NameWord *w) {
  for (*p += strspn(*p, " "); **p == '|'; *p += 1 + strspn(*p + 1, " ")) *later = true;
  size_t n = strcspn(*p, " ");
  if (!n) return false;
  const char *eq = memchr(*p, '=', n);
  w->s = *p;
  w->n = eq ? (size_t)(eq - *p) : n;
  w->canon = eq ? arena_strn(a, eq + 1, n - w->n - 1) : arena_strn(a, *p, n);
  w->later = *later;
  *p += n;
  return true;
}

bool name_listed(const char *names, const char *name) {
  size_t n = strlen(name);
  for (const char *p = names; (p = strstr(p, name)); p += n)
    if ((p == names || strchr(" =", p[-1])) && (!p[n] || p[n] == ' ')) return true;
  return false;
}

static void unknown_name(Check *c, const char *names, const char *path,
                         const char *text) {
  VEC(const char *) all = {0};
  const char *list = "";
  NameWord w;
  bool later = false;
  for (const char *p = names; name_next(c->arena, &p, &later, &w);) {
    *VEC_PUSH(c->arena, all) = arena_strn(c->arena, w.s, w.n);
    if (!later && w.n == strlen(w.canon) && strncmp(w.s, w.canon, w.n) == 0)
      list = arena_printf(c->arena, "%s%s%s", list, *list ? ", " : "one of: ", w.canon);
  }
  Diag *g = diag_error(c->d, "unknown-name", path, "unknown value \"%s\"", text);
  const char *near = name_suggest(text, all.at, all.n);
  g->suggestion = near ? near : list;
}

const char *check_name(Check *c, const char *names, const char *path, const char *text) {
  NameWord w;
  bool later = false;
  for (const char *p = names; name_next(c->arena, &p, &later, &w);) {
    if (!same_name(w.s, w.n, text, strlen(text))) continue;
    if (!w.later) return w.canon;
    not_built(c, path, arena_printf(c->arena, "\"%s\"", text));
    return NULL;
  }
  unknown_name(c, names, path, text);
  return NULL;
}
