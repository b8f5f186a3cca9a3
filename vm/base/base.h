/* base.h - what every file of weft may use: statuses, arenas, vectors, strings.
 *
 * An Arena owns everything of one compile and is freed at once. An allocation that fails
 * jumps to the arena's owner (see arena_guard), so code between them never tests for
 * NULL. */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vm/weft.h"

#define LEN(a)       ((int)(sizeof(a) / sizeof *(a)))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))
/* A status that callers must check. */
#define CHECKED __attribute__((warn_unused_result))

/* ---- errors ---- */

/* What an error that nobody has filled begins as: one that holds whatever lay on the
 * stack would keep that instead of what is told to it. */
#define NO_ERROR                                                                         \
  { .rank = -1 }

/* Fills `e` (may be NULL) unless it has an error already; returns `code`. */
weft_status err_set(weft_error *e, weft_status code, const char *fmt, ...) PRINTF(3, 4);
/* The same with the file (and line, or 0) of the error. */
weft_status err_file(weft_error *e, weft_status code, const char *file, int line,
                     const char *fmt, ...) PRINTF(5, 6);
void err_clear(weft_error *e);

#define TRY(call)                                                                        \
  do {                                                                                   \
    weft_status try_s_ = (call);                                                         \
    if (try_s_ != WEFT_OK) return try_s_;                                                \
  } while (0)
#define TRY_TO(label, st, call)                                                          \
  do {                                                                                   \
    (st) = (call);                                                                       \
    if ((st) != WEFT_OK) goto label;                                                     \
  } while (0)

/* ---- interruption ---- set by a signal handler or any thread, polled by long work */

#ifdef __cplusplus /* not for GPU kernels, which include this header */
typedef int StopFlag;
#else
typedef _Atomic int StopFlag;
#endif

/* ---- heap ---- */

/* As weft_alloc.fn; `a` may be NULL or empty: the C library's heap. */
void *mem_resize(const weft_alloc *a, void *p, size_t old, size_t n);
void *mem_new(const weft_alloc *a, size_t n); /* zeroed; NULL when out */
void mem_free(const weft_alloc *a, void *p, size_t n);

/* ---- structs of weft.h ---- they begin with their size: an older caller's is shorter */

/* Zeroes `to`, then copies as many bytes as the caller's struct has; `from` NULL: none.
 * WEFT_EUSAGE if its size is wrong, or if it sets members unknown to this version. */
weft_status struct_read(void *to, size_t size, const void *from, const char *name,
                        weft_error *e);

/* ---- arena ---- */

typedef struct Arena Arena;
Arena *arena_new(const weft_alloc *a); /* NULL when out of memory */
void arena_free(Arena *a);             /* NULL is allowed */
/* Empties the arena but keeps its memory for reuse. */
void arena_reset(Arena *a);
size_t arena_bytes(const Arena *a); /* all bytes taken from its allocator */
size_t arena_least(void);           /* the least of these after one allocation */
const weft_alloc *arena_allocator(const Arena *a); /* the one of arena_new: for scratch */
void *arena_alloc(Arena *a, size_t n);             /* zeroed, 16-aligned */
void *arena_raw(Arena *a, size_t n);               /* the same, not zeroed */
void *arena_copy(Arena *a, const void *from, size_t n); /* `from` may be NULL if n is 0 */
char *arena_str(Arena *a, const char *s);               /* copies; NULL stays NULL */
char *arena_strn(Arena *a, const char *s, size_t n);
char *arena_printf(Arena *a, const char *fmt, ...) PRINTF(2, 3);
char *arena_vprintf(Arena *a, const char *fmt, va_list ap) PRINTF(2, 0)
    __attribute__((nonnull(2)));
/* Where a failed allocation jumps to. The owner writes
 *   if (setjmp(*arena_guard(a))) { arena_free(a); return WEFT_ENOMEM; } */
jmp_buf *arena_guard(Arena *a);
/* Runs fn(ud); false if an allocation in the arena failed. For code that owns more than
 * the arena; restores the owner's guard. */
bool arena_try(Arena *a, void (*fn)(void *ud), void *ud);
/* What fn(a, ud, e) returns, or WEFT_ENOMEM where the arena gets no memory; NULL: it is
 * one that got none. */
typedef weft_status ArenaFn(Arena *a, void *ud, weft_error *e);
weft_status arena_call(Arena *a, ArenaFn *fn, void *ud, weft_error *e);
/* The same in an arena of its own. */
weft_status arena_scoped(const weft_alloc *from, ArenaFn *fn, void *ud, weft_error *e);

#define NEW(arena, T)      ((T *)arena_alloc((arena), sizeof(T)))
#define NEW_N(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))

/* ---- vectors ---- a growing array that lives in an arena:
 *   VEC(int) v = {0};  *VEC_PUSH(arena, v) = 3;  v.at[0]
 * A new element has no value until it is given one. */
#define VEC(T)                                                                           \
  struct {                                                                               \
    T *at;                                                                               \
    int n, cap;                                                                          \
  }
void *vec_grow(Arena *a, void *at, int n, int *cap, size_t size);
#define VEC_PUSH(a, v)                                                                   \
  ((v).n == (v).cap ? ((v).at = vec_grow((a), (v).at, (v).n, &(v).cap, sizeof *(v).at))  \
                    : (v).at,                                                            \
   &(v).at[(v).n++])

/* ---- names ---- numbers by name, in an arena; name_table.c */
typedef struct Names {
  struct NameSlot *slot; /* open addressing, at most half full */
  int n, cap;
} Names;
/* The number of a name, or -1. */
int names_find(const Names *t, const char *name);
/* Adds a new name; its string must outlive the table. */
void names_add(Arena *a, Names *t, const char *name, int number);
/* A table with the same names, to which others can be added. */
Names names_copy(Arena *a, const Names *t);

/* Monotonic time in seconds (clock.c). */
double now_s(void);

/* ---- text ---- a growing string on the heap; never fails loudly: `oom` is sticky */
typedef struct Text {
  const weft_alloc *alloc; /* NULL: the C library's */
  char *s;                 /* always NUL-terminated once something was added */
  size_t n, cap;
  bool oom;
} Text;
void text_add(Text *t, const char *s);
void text_addn(Text *t, const char *s, size_t n);
void text_printf(Text *t, const char *fmt, ...) PRINTF(2, 3);
void text_free(Text *t);
/* Copies the text's string to the arena ("" if empty) and frees the text, even if there
 * is no memory for the copy. */
char *arena_take(Arena *a, Text *t);

/* ---- bounded text ---- in a caller's buffer, always NUL-terminated; what does not fit
 * is left out and sets `cut`. Use it instead of adding up results of snprintf, which are
 * the untruncated lengths and lead behind the buffer. */
typedef struct TextBuf {
  char *s;
  size_t size, n; /* n: bytes written */
  bool cut;
} TextBuf;
TextBuf textbuf(char *buf, size_t size); /* empty; size > 0 */
void textbuf_printf(TextBuf *t, const char *fmt, ...) PRINTF(2, 3);

/* Levenshtein distance, case-insensitive. */
int str_distance(const char *a, const char *b);
/* The nearest of `n` names to `s`, or NULL if none is near enough to suggest. */
const char *str_nearest(const char *s, const char *const *names, int n);
/* The place of `s` among `n` names, or -1. */
int str_index(const char *s, const char *const *names, int n);
bool str_eq(const char *a, const char *b); /* both may be NULL */
bool str_ieq(const char *a, const char *b);
bool str_ends(const char *s, const char *end);
/* For qsort and bsearch: texts in the order of bytes; numbers (double). */
int order_texts(const void *x, const void *y);
int order_numbers(const void *x, const void *y);
uint64_t hash_bytes(uint64_t seed, const void *p, size_t n); /* FNV-1a, stable */

#endif
