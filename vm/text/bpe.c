/* bpe.c - byte-pair merges of a word: of all adjacent pairs with a merge, the one of
 * lowest rank first, leftmost first, like `tokenizers`. */
#include "tokenizer_int.h"

/* ---- the table of merges ---- */

static uint64_t pair_of(int32_t left, int32_t right) {
  return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static Merge *slot_of(const Tokenizer *t, uint64_t pair) {
  uint32_t i = (uint32_t)(pair * 0x9e3779b97f4a7c15u >> 32);
  for (;; i++) {
    Merge *m = &t->merge[i & (t->nmerge - 1)];
    if (m->pair == pair || m->pair == UINT64_MAX) return m;
  }
}

static const Merge *find_merge(const Tokenizer *t, int32_t left, int32_t right) {
  const Merge *m = slot_of(t, pair_of(left, right));
  return m->pair == UINT64_MAX ? NULL : m;
}

void merges_begin(Tokenizer *t, size_t n) {
  t->nmerge = 16;
  while (t->nmerge < 2 * n) t->nmerge *= 2;
  t->merge = NEW_N(t->arena, Merge, t->nmerge);
  for (uint32_t i = 0; i < t->nmerge; i++) t->merge[i].pair = UINT64_MAX;
}

bool merge_add(Tokenizer *t, int32_t left, int32_t right, int32_t rank, int32_t id) {
  Merge *m = slot_of(t, pair_of(left, right));
  if (m->pair != UINT64_MAX) return false;
  *m = (Merge){pair_of(left, right), rank, id};
  return true;
}

/* ---- ids ---- */

weft_status token_ids_add(TokenIds *ids, int32_t id, weft_error *e) {
  if (ids->n == ids->cap) {
    size_t cap = ids->cap ? 2 * ids->cap : 256, size = sizeof *ids->at;
    int32_t *at = mem_resize(ids->alloc, ids->at, ids->cap * size, cap * size);
    if (!at) return err_set(e, WEFT_ENOMEM, "out of memory");
    ids->at = at;
    ids->cap = cap;
  }
  ids->at[ids->n++] = id;
  return WEFT_OK;
}

void token_ids_free(TokenIds *ids) {
  mem_free(ids->alloc, ids->at, ids->cap * sizeof *ids->at);
  *ids = (TokenIds){0};
}

/* ---- a word ---- */

typedef struct Symbol {
  int32_t id;         /* -1: merged into the one before */
  int32_t prev, next; /* -1: none */
} Symbol;

/* A possible merge of a symbol with the next. */
typedef struct Chance {
  int32_t rank, at, id;
} Chance;

typedef struct Word {
  const Tokenizer *t;
  Symbol *symbol;
  Chance *heap; /* a heap; the first is the best */
  int32_t nheap;
} Word;

static bool better(const Chance *a, const Chance *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_add(Word *w, Chance c) {
  int32_t i = w->nheap++;
  for (; i > 0 && better(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
    w->heap[i] = w->heap[(i - 1) / 2];
  w->heap[i] = c;
}

static Chance heap_take(Word *w) {
  Chance best = w->heap[0], last = w->heap[--w->nheap];
  int32_t i = 0;
  for (int32_t k; (k = 2 * i + 1) < w->nheap; i = k) {
    if (k + 1 < w->nheap && better(&w->heap[k + 1], &w->heap[k])) k++;
    if (!better(&w->heap[k], &last)) break;
    w->heap[i] = w->heap[k];
  }
  w->heap[i] = last;
  return best;
}

static void consider(Word *w, int32_t at) {
  if (at < 0 || w->symbol[at].next < 0) return;
  const Merge *m = find_merge(w->t, w->symbol[at].id, w->symbol[w->symbol[at].next].id);
  if (m) heap_add(w, (Chance){m->rank, at, m->id});
}

static void merge_all(Word *w) {
  while (w->nheap) {
    Chance c = heap_take(w);
    Symbol *s = &w->symbol[c.at];
    if (s->id < 0 || s->next < 0) continue;
    Symbol *right = &w->symbol[s->next];
    const Merge *m = find_merge(w->t, s->id, right->id);
    if (!m || m->id != c.id) continue; /* a symbol has changed meanwhile */
    s->id = c.id;
    right->id = -1;
    s->next = right->next;
    if (s->next >= 0) w->symbol[s->next].prev = c.at;
    consider(w, s->prev);
    consider(w, c.at);
  }
}

/* The whole word as a token, in the file's alphabet. */
static weft_status whole(const Tokenizer *t, const char *s, size_t n, int32_t *id,
                         weft_error *e) {
  uint16_t letter[256];
  Text name = {0};
  byte_letters(letter);
  for (size_t i = 0; i < n; i++) {
    uint16_t c = letter[(unsigned char)s[i]];
    char utf8[2] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f))};
    if (c < 0x80)
      text_addn(&name, &(char){(char)c}, 1);
    else
      text_addn(&name, utf8, 2);
  }
  *id = name.oom ? -1 : names_find(&t->names, name.s);
  weft_status st = name.oom ? err_set(e, WEFT_ENOMEM, "out of memory") : WEFT_OK;
  text_free(&name);
  return st;
}

static weft_status merge_word(Word *w, const char *s, int32_t n, TokenIds *out,
                              weft_error *e) {
  for (int32_t i = 0; i < n; i++) {
    int32_t id = w->t->of_byte[(unsigned char)s[i]];
    if (id < 0)
      return err_file(e, WEFT_EFILE, w->t->path, 0,
                      "has no token for the byte 0x%02x, which is in the text",
                      (unsigned char)s[i]);
    w->symbol[i] = (Symbol){id, i - 1, i + 1 < n ? i + 1 : -1};
  }
  for (int32_t i = 0; i < n; i++) consider(w, i);
  merge_all(w);
  for (int32_t i = 0; i >= 0; i = w->symbol[i].next)
    TRY(token_ids_add(out, w->symbol[i].id, e));
  return WEFT_OK;
}

weft_status bpe_word(const Tokenizer *t, const char *s, size_t n, TokenIds *out,
                     weft_error *e) {
  enum { SHORT = 64 };
  Symbol symbol[SHORT];
  Chance heap[3 * SHORT]; /* n - 1 at first, and two more per merge */
  Word w = {t, symbol, heap, 0};
  int32_t id = -1;
  if (n == 0) return WEFT_OK;
  if (n > INT32_MAX / 4) return err_set(e, WEFT_ELIMIT, "a word of %zu bytes", n);
  if (t->ignore_merges) TRY(whole(t, s, n, &id, e));
  if (id >= 0) return token_ids_add(out, id, e);
  if (n <= SHORT) return merge_word(&w, s, (int32_t)n, out, e);
  w.symbol = mem_new(&t->alloc, n * sizeof *symbol);
  w.heap = mem_new(&t->alloc, 3 * n * sizeof *heap);
  weft_status st = w.symbol && w.heap ? merge_word(&w, s, (int32_t)n, out, e)
                                      : err_set(e, WEFT_ENOMEM, "out of memory");
  mem_free(&t->alloc, w.symbol, n * sizeof *symbol);
  mem_free(&t->alloc, w.heap, 3 * n * sizeof *heap);
  return st;
}
