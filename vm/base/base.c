/* base.c - errors, the heap, string buffers and strings; see base.h. Arenas and vectors
 * are arena.c. */
#include "base.h"
#include "terminal.h"

#include <ctype.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- errors ---- */

static void fill(weft_error *e, weft_status code, const char *file, int line,
                 const char *fmt, va_list ap) {
  if (!e || e->code != WEFT_OK) return;
  e->code = code;
  e->line = line;
  e->rank = -1;
  snprintf(e->file, sizeof e->file, "%s", file ? file : "");
  vsnprintf(e->text, sizeof e->text, fmt, ap);
  show_in(e->file, sizeof e->file, ONE_LINE);
  show_in(e->text, sizeof e->text, PARAGRAPH);
}

weft_status err_set(weft_error *e, weft_status code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fill(e, code, NULL, 0, fmt, ap);
  va_end(ap);
  return code;
}

weft_status err_file(weft_error *e, weft_status code, const char *file, int line,
                     const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fill(e, code, file, line, fmt, ap);
  va_end(ap);
  return code;
}

void err_clear(weft_error *e) {
  if (e) memset(e, 0, sizeof *e), e->rank = -1;
}

/* ---- heap ---- */

#ifdef __SANITIZE_ADDRESS__
/* A host's allocator may rely on the sizes that it is given back; the C library's does
 * not, so that only here a wrong one is seen wherever memory is used. */
static void check_size(void *p, size_t size) {
  if (p && malloc_usable_size(p) != size) {
    fprintf(stderr, "weft: a block of %zu bytes is given back as one of %zu\n",
            malloc_usable_size(p), size);
    abort();
  }
}
#else
static void check_size(const void *p, size_t size) { (void)p, (void)size; }
#endif

void *mem_resize(const weft_alloc *a, void *p, size_t old, size_t n) {
  if (a && a->fn) return a->fn(a->ud, p, old, n);
  check_size(p, old);
  if (n == 0) {
    free(p);
    return NULL;
  }
  return realloc(p, n);
}

void *mem_new(const weft_alloc *a, size_t n) {
  void *p = mem_resize(a, NULL, 0, n ? n : 1);
  if (p) memset(p, 0, n);
  return p;
}

void mem_free(const weft_alloc *a, void *p, size_t n) {
  if (p) mem_resize(a, p, n ? n : 1, 0);
}

/* ---- structs of weft.h ---- */

weft_status struct_read(void *to, size_t size, const void *from, const char *name,
                        weft_error *e) {
  memset(to, 0, size);
  if (!from) return WEFT_OK;
  size_t n;
  memcpy(&n, from, sizeof n);
  if (n < sizeof n || n > 4096)
    return err_set(e, WEFT_EUSAGE, "%s.size is %zu; set it to sizeof(%s)", name, n, name);
  for (size_t i = size; i < n; i++)
    if (((const char *)from)[i])
      return err_set(e, WEFT_EUSAGE, "%s was made for a later version of weft", name);
  memcpy(to, from, MIN(n, size));
  return WEFT_OK;
}

/* ---- text ---- */

static bool reserve(Text *t, size_t more) {
  if (t->n + more + 1 <= t->cap) return true;
  size_t cap = MAX(t->cap * 2, t->n + more + 1);
  cap = MAX(cap, (size_t)256);
  char *s = mem_resize(t->alloc, t->s, t->cap, cap);
  if (!s) {
    t->oom = true;
    return false;
  }
  t->s = s;
  t->cap = cap;
  return true;
}

void text_addn(Text *t, const char *s, size_t n) {
  if (!reserve(t, n)) return;
  memcpy(t->s + t->n, s, n);
  t->n += n;
  t->s[t->n] = 0;
}

void text_add(Text *t, const char *s) { text_addn(t, s, strlen(s)); }

void text_printf(Text *t, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  if (n >= 0 && reserve(t, (size_t)n)) {
    vsnprintf(t->s + t->n, (size_t)n + 1, fmt, again);
    t->n += (size_t)n;
  }
  va_end(again);
  va_end(ap);
}

void text_free(Text *t) {
  mem_free(t->alloc, t->s, t->cap);
  *t = (Text){.alloc = t->alloc};
}

/* ---- bounded text ---- */

TextBuf textbuf(char *buf, size_t size) {
  assert(size > 0);
  buf[0] = 0;
  return (TextBuf){.s = buf, .size = size};
}

void textbuf_printf(TextBuf *t, const char *fmt, ...) {
  va_list ap;
  size_t room = t->size - t->n;
  va_start(ap, fmt);
  int n = vsnprintf(t->s + t->n, room, fmt, ap);
  va_end(ap);
  if (n < 0) t->s[t->n] = 0;
  if (n < 0 || (size_t)n >= room) t->cut = true;
  t->n += n < 0 ? 0 : MIN((size_t)n, room - 1);
}

/* ---- strings ---- */

bool str_eq(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

bool str_ends(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

bool str_ieq(const char *a, const char *b) {
  if (!a || !b) return a == b;
  for (; *a && *b; a++, b++)
    if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
  return *a == *b;
}

int str_index(const char *s, const char *const *names, int n) {
  for (int i = 0; i < n; i++)
    if (str_eq(s, names[i])) return i;
  return -1;
}

int order_texts(const void *x, const void *y) {
  return strcmp(*(const char *const *)x, *(const char *const *)y);
}

int order_numbers(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}

uint64_t hash_bytes(uint64_t h, const void *p, size_t n) {
  const unsigned char *s = p;
  h ^= 14695981039346656037u;
  for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * 1099511628211u;
  return h;
}

/* Rows of the edit-distance table, in which two neighbours that changed places are one
 * edit; names longer than a row never match. */
int str_distance(const char *a, const char *b) {
  enum { LONGEST = 64 };
  int rows[3][LONGEST + 1], n = (int)strlen(a), m = (int)strlen(b);
  if (n > LONGEST || m > LONGEST) return LONGEST;
  for (int j = 0; j <= m; j++) rows[0][j] = j;
  for (int i = 1; i <= n; i++) {
    int *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
      row[j] = MIN(MIN(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
      if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
          y == tolower((unsigned char)a[i - 2]))
        row[j] = MIN(row[j], before[j - 2] + 1);
    }
  }
  return rows[n % 3][m];
}

static int common_prefix(const char *a, const char *b) {
  int n = 0;
  while (a[n] && tolower((unsigned char)a[n]) == tolower((unsigned char)b[n])) n++;
  return n;
}

/* Of two equally near names prefers the one with the same beginning. The order of the
 * list must not decide: a Lua table's order differs between runs. */
static bool nearer(const char *s, const char *name, const char *best) {
  int a = common_prefix(s, name), b = common_prefix(s, best);
  return a != b ? a > b : strcmp(name, best) < 0;
}

/* Edits after which a name is still taken for a slip of the hand: a suggestion that is
 * not near is believed, and leads away. */
static int edits_of_a_slip(size_t n) { return n < 6 ? 1 : n < 12 ? 2 : n < 15 ? 3 : 4; }

const char *str_nearest(const char *s, const char *const *names, int n) {
  const char *best = NULL;
  int least = edits_of_a_slip(strlen(s)) + 1;
  for (int i = 0; i < n; i++) {
    int d = str_distance(s, names[i]);
    /* A name without a single matching letter is no suggestion, however short. */
    if (d >= (int)MAX(strlen(s), strlen(names[i]))) continue;
    bool tie = d == least && best && nearer(s, names[i], best);
    if (d < least || tie) least = d, best = names[i];
  }
  return best;
}
