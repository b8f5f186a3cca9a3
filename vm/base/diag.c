/* diag.c - collects the diagnostics of a plan and sorts them by line; the table of their
 * codes. */
#include "diag.h"
#include "terminal.h"

static const DiagCode codes[] = {
#define CODE(name, summary, text) {name, summary, text},
#include "diag.def"
};

const DiagCode *diag_codes(int *n) {
  *n = LEN(codes);
  return codes;
}

const DiagCode *diag_code(const char *name) {
  for (int i = 0; i < LEN(codes); i++)
    if (strcmp(codes[i].name, name) == 0) return &codes[i];
  return NULL;
}

const char *diag_code_near(const char *name) {
  const char *names[LEN(codes)];
  for (int i = 0; i < LEN(codes); i++) names[i] = codes[i].name;
  return str_nearest(name, names, LEN(codes));
}

static Diag *add(Diags *d, DiagSeverity severity, const char *code, const char *path,
                 const char *fmt, va_list ap) {
  assert(diag_code(code));
  Diag new = {.severity = severity, .code = arena_str(d->arena, code)};
  new.path = arena_str(d->arena, path ? path : "");
  new.summary = arena_shown(d->arena, arena_vprintf(d->arena, fmt, ap), PARAGRAPH);
  if (severity == DIAG_ERROR)
    d->errors++;
  else
    d->warnings++;
  Diag *at = VEC_PUSH(d->arena, d->list);
  *at = new;
  return at;
}

Diag *diag_error(Diags *d, const char *code, const char *path, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *at = add(d, DIAG_ERROR, code, path, fmt, ap);
  va_end(ap);
  return at;
}

Diag *diag_warn(Diags *d, const char *code, const char *path, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *at = add(d, DIAG_WARNING, code, path, fmt, ap);
  va_end(ap);
  for (Diag *x = d->list.at; x < at; x++) {
    if (x->severity != DIAG_WARNING || strcmp(x->path, at->path) != 0 ||
        strcmp(x->summary, at->summary) != 0)
      continue;
    d->list.n--, d->warnings--;
    return x;
  }
  return at;
}

/* Entries without a file come last, and within a file those without a line. */
static bool after(const Diag *a, const Diag *b) {
  if (!a->file || !b->file) {
    if (a->file || b->file) return !a->file;
  } else {
    int c = strcmp(a->file, b->file);
    if (c) return c > 0;
  }
  unsigned la = a->line > 0 ? (unsigned)a->line : UINT32_MAX;
  unsigned lb = b->line > 0 ? (unsigned)b->line : UINT32_MAX;
  return la > lb;
}

/* Merge sort: equal entries must keep their order, and qsort is not stable. */
void diag_sort(Diags *d) {
  int n = d->list.n;
  Diag *from = d->list.at, *to = n > 1 ? NEW_N(d->arena, Diag, n) : NULL;
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t lo = 0; lo < n; lo += 2 * width) {
      int64_t mid = MIN(lo + width, n), hi = MIN(lo + 2 * width, n), i = lo, j = mid;
      for (int64_t k = lo; k < hi; k++)
        to[k] =
            i < mid && (j >= hi || !after(&from[i], &from[j])) ? from[i++] : from[j++];
    }
    Diag *swap = from;
    from = to;
    to = swap;
  }
  if (from != d->list.at) {
    d->list.at = from;
    d->list.cap = n;
  }
}
