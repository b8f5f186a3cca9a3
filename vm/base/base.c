/* base.c - errors, the heap, arenas, vectors and string buffers; see base.h. */
#include "base.h"
#include "terminal.h"

#include <ctype.h>
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

void *mem_resize(const weft_alloc *a, void *p, size_t old, size_t n) {
  if (a && a->fn) return a->fn(a->ud, p, old, n);
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

/* ---- arena ---- a list of blocks, newest first; freed together */

typedef struct Block {
  struct Block *next;
  size_t size, used;
  bool own; /* holds one growing array */
  _Alignas(16) char data[];
} Block;

struct Arena {
  weft_alloc alloc;
  Block *head, *spare; /* spare: kept by arena_reset */
  size_t total;
  jmp_buf guard;
};

enum { BLOCK_MIN = 64 << 10 };

Arena *arena_new(const weft_alloc *a) {
  Arena *r = mem_new(a, sizeof *r);
  if (r && a) r->alloc = *a;
  return r;
}

static void free_blocks(const weft_alloc *alloc, Block *b) {
  for (Block *next; b; b = next) {
    next = b->next;
    mem_free(alloc, b, sizeof *b + b->size);
  }
}

void arena_free(Arena *a) {
  if (!a) return;
  weft_alloc alloc = a->alloc;
  free_blocks(&alloc, a->head);
  free_blocks(&alloc, a->spare);
  mem_free(&alloc, a, sizeof *a);
}

void arena_reset(Arena *a) {
  while (a->head) {
    Block *b = a->head;
    a->head = b->next;
    b->next = a->spare;
    b->used = 0, b->own = false;
    a->spare = b;
  }
}

static size_t block_bytes(const Block *b) {
  size_t n = 0;
  for (; b; b = b->next) n += sizeof *b + b->size;
  return n;
}

size_t arena_bytes(const Arena *a) {
  return sizeof *a + block_bytes(a->head) + block_bytes(a->spare);
}

size_t arena_least(void) { return sizeof(Arena) + sizeof(Block) + BLOCK_MIN; }

const weft_alloc *arena_allocator(const Arena *a) { return &a->alloc; }

jmp_buf *arena_guard(Arena *a) { return &a->guard; }

bool arena_try(Arena *a, void (*fn)(void *ud), void *ud) {
  jmp_buf saved;
  memcpy(&saved, &a->guard, sizeof saved);
  if (setjmp(a->guard)) {
    memcpy(&a->guard, &saved, sizeof saved);
    return false;
  }
  fn(ud);
  memcpy(&a->guard, &saved, sizeof saved);
  return true;
}

/* A block with room for n bytes: one kept by a reset, or a new one (at least `least`). */
static Block *take_block(Arena *a, size_t n, size_t least) {
  for (Block **at = &a->spare; *at; at = &(*at)->next) {
    Block *b = *at;
    if (b->size < n) continue;
    *at = b->next;
    return b;
  }
  size_t size = MAX(n, least);
  Block *b = mem_resize(&a->alloc, NULL, 0, sizeof *b + size);
  if (!b) longjmp(a->guard, 1);
  *b = (Block){.size = size};
  a->total += size;
  return b;
}

void *arena_raw(Arena *a, size_t n) {
  if (n > SIZE_MAX / 2) longjmp(a->guard, 1);
  n = (n + 15) & ~(size_t)15;
  if (!a->head || a->head->size - a->head->used < n) {
    size_t least = MAX((size_t)BLOCK_MIN, MIN(a->total / 4, (size_t)16 << 20));
    Block *b = take_block(a, n, least);
    b->next = a->head;
    a->head = b;
  }
  void *p = a->head->data + a->head->used;
  a->head->used += n;
  return p;
}

void *arena_alloc(Arena *a, size_t n) { return memset(arena_raw(a, n), 0, n); }

void *arena_copy(Arena *a, const void *from, size_t n) {
  void *p = arena_raw(a, n);
  return n ? memcpy(p, from, n) : p;
}

char *arena_strn(Arena *a, const char *s, size_t n) {
  char *p = arena_alloc(a, n + 1);
  return memcpy(p, s, n);
}

char *arena_str(Arena *a, const char *s) {
  return s ? arena_strn(a, s, strlen(s)) : NULL;
}

char *arena_vprintf(Arena *a, const char *fmt, va_list ap) {
  char brief[128]; /* most strings are, and are formatted once */
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(brief, sizeof brief, fmt, ap);
  char *p = arena_alloc(a, (size_t)n + 1);
  if ((size_t)n < sizeof brief)
    memcpy(p, brief, (size_t)n);
  else
    vsnprintf(p, (size_t)n + 1, fmt, again);
  va_end(again);
  return p;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *p = arena_vprintf(a, fmt, ap);
  va_end(ap);
  return p;
}

/* Large growing arrays have blocks of their own, behind the first one, so that the
 * allocator can resize them. Returns the link to the block of `p`. */
static Block **own_block(Arena *a, const void *p) {
  Block **at = a->head ? &a->head->next : NULL;
  while (at && *at && (*at)->data != (const char *)p) at = &(*at)->next;
  return at && *at && (*at)->own ? at : NULL;
}

static void *grow_large(Arena *a, void *old, size_t used, size_t bytes) {
  Block **at = own_block(a, old), *b;
  if (at && (*at)->size >= bytes) {
    b = *at;
  } else if (at) {
    size_t was = (*at)->size;
    b = mem_resize(&a->alloc, *at, sizeof *b + was, sizeof *b + bytes);
    if (!b) longjmp(a->guard, 1);
    *at = b;
    b->size = bytes;
    a->total += bytes - was;
  } else {
    if (!a->head) arena_raw(a, 1);
    b = take_block(a, bytes, bytes);
    b->own = true;
    b->next = a->head->next;
    a->head->next = b;
    if (used) memcpy(b->data, old, used);
  }
  b->used = b->size;
  return b->data;
}

void *vec_grow(Arena *a, void *at, int n, int *cap, size_t size) {
  enum { LARGE = 256 << 10 };
  *cap = *cap ? *cap * 2 : 8;
  size_t bytes = (size_t)*cap * size, used = (size_t)n * size;
  if (bytes >= LARGE) return grow_large(a, at, used, (bytes + 15) & ~(size_t)15);
  void *p = arena_raw(a, bytes);
  if (n) memcpy(p, at, used);
  return p;
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

typedef struct Taking {
  Arena *arena;
  const Text *from;
  char *to;
} Taking;

static void take(void *ud) {
  Taking *x = ud;
  x->to = arena_strn(x->arena, x->from->s ? x->from->s : "", x->from->n);
}

char *arena_take(Arena *a, Text *t) {
  Taking x = {a, t, NULL};
  bool memory = !t->oom && arena_try(a, take, &x);
  text_free(t);
  if (!memory) longjmp(a->guard, 1);
  return x.to;
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
