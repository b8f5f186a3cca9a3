/* arena.c - arenas: a list of blocks, newest first, that are freed together; and what
 * grows or is printed in one. See base.h. */
#include "base.h"

#include <stdio.h>

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

typedef struct ArenaCall {
  Arena *a;
  ArenaFn *fn;
  void *ud;
  weft_error *e;
  weft_status st;
} ArenaCall;

static void run_call(void *ud) {
  ArenaCall *c = ud;
  c->st = c->fn(c->a, c->ud, c->e);
}

weft_status arena_call(Arena *a, ArenaFn *fn, void *ud, weft_error *e) {
  ArenaCall c = {a, fn, ud, e, WEFT_OK};
  return a && arena_try(a, run_call, &c) ? c.st
                                         : err_set(e, WEFT_ENOMEM, "out of memory");
}

weft_status arena_scoped(const weft_alloc *from, ArenaFn *fn, void *ud, weft_error *e) {
  Arena *a = arena_new(from);
  weft_status st = arena_call(a, fn, ud, e);
  arena_free(a);
  return st;
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

/* ---- a text of the heap ---- */

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
