/* tokenizer.c - encodes and decodes: added tokens are found first, the rest is normalized
 * and split into words, whose bytes are merged. */
#include <stdlib.h>
#include <sys/stat.h>

#include "tokenizer_int.h"

/* ---- open ---- */

static const char *file_of(Arena *a, const char *path) {
  struct stat st;
  bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
  return folder ? arena_printf(a, "%s/tokenizer.json", path) : arena_str(a, path);
}

static weft_status open_tokenizer(Tokenizer *t, const char *path, weft_error *e) {
  if (setjmp(*arena_guard(t->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  t->path = file_of(t->arena, path);
  TRY(regex_api(&t->api, e));
  return tokenizer_read(t, e);
}

weft_status tokenizer_open(const weft_alloc *a, const char *path, Tokenizer **out,
                           weft_error *e) {
  *out = NULL;
  Tokenizer *t = mem_new(a, sizeof *t);
  if (!t || !(t->arena = arena_new(a))) {
    mem_free(a, t, sizeof *t);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  if (a) t->alloc = *a;
  weft_status st = open_tokenizer(t, path, e);
  if (st != WEFT_OK)
    tokenizer_close(t);
  else
    *out = t;
  return st;
}

void tokenizer_close(Tokenizer *t) {
  if (!t) return;
  for (int i = 0; i < t->step.n; i++)
    if (t->step.at[i].regex) t->api->release(t->step.at[i].regex);
  arena_free(t->arena);
  weft_alloc alloc = t->alloc;
  mem_free(&alloc, t, sizeof *t);
}

int32_t tokenizer_ids(const Tokenizer *t) { return t->ntoken; }

static int32_t find_added(const AddedTokens *list, const char *token) {
  for (int i = 0; i < list->n; i++)
    if (strcmp(list->at[i].s, token) == 0) return list->at[i].id;
  return -1;
}

int32_t tokenizer_find(const Tokenizer *t, const char *token) {
  int32_t id = find_added(&t->raw, token);
  if (id < 0) id = find_added(&t->normalized, token);
  return id >= 0 ? id : names_find(&t->names, token);
}

/* ---- cutting ---- */

/* Applies the split steps from `i` on to s; the last step's pieces are merged. */
static weft_status cut(const Tokenizer *t, int i, const char *s, size_t n, TokenIds *out,
                       weft_error *e);

static weft_status search(const Tokenizer *t, const SplitStep *p, const char *s, size_t n,
                          size_t at, size_t *begin, size_t *end, weft_error *e) {
  int found = at <= n ? t->api->search(p->regex, s, n, at, begin, end) : 0;
  if (found < 0)
    return err_file(e, WEFT_EFILE, t->path, 0,
                    "the search for the next word in %zu bytes of text was given up", n);
  if (!found) *begin = *end = n + 1;
  return WEFT_OK;
}

/* Where the next search begins behind an empty match: behind the next character. */
static size_t behind_character(const char *s, size_t n, size_t at) {
  for (at++; at < n && ((unsigned char)s[at] & 0xc0) == 0x80;) at++;
  return at;
}

/* An empty match cuts, too, as (?=b) does; but not where the match before it ended, if
 * that was not empty. */
static weft_status cut_at_matches(const Tokenizer *t, int i, const char *s, size_t n,
                                  TokenIds *out, weft_error *e) {
  const SplitStep *p = &t->step.at[i];
  size_t done = 0, at = 0, begin, end, last = SIZE_MAX;
  for (;;) {
    TRY(search(t, p, s, n, at, &begin, &end, e));
    if (begin > n) break;
    bool empty = begin == end, again = empty && begin == last;
    at = empty ? behind_character(s, n, end) : end;
    last = empty ? SIZE_MAX : end;
    if (again) continue;
    if (p->gaps) TRY(cut(t, i + 1, s + done, begin - done, out, e));
    if (p->matches) TRY(cut(t, i + 1, s + begin, end - begin, out, e));
    done = end;
  }
  return p->gaps ? cut(t, i + 1, s + done, n - done, out, e) : WEFT_OK;
}

static weft_status cut_step(const Tokenizer *t, int i, const char *s, size_t n,
                            TokenIds *out, weft_error *e) {
  return t->step.at[i].regex ? cut_at_matches(t, i, s, n, out, e)
                             : cut(t, i + 1, s, n, out, e);
}

static weft_status cut(const Tokenizer *t, int i, const char *s, size_t n, TokenIds *out,
                       weft_error *e) {
  if (n == 0) return WEFT_OK;
  if (i == t->step.n) return bpe_word(t, s, n, out, e);
  if (!t->step.at[i].prefix_space || *s == ' ') return cut_step(t, i, s, n, out, e);
  Text spaced = {.alloc = &t->alloc};
  text_addn(&spaced, " ", 1);
  text_addn(&spaced, s, n);
  weft_status st = spaced.oom ? err_set(e, WEFT_ENOMEM, "out of memory")
                              : cut_step(t, i, spaced.s, spaced.n, out, e);
  text_free(&spaced);
  return st;
}

/* ---- added tokens ---- */

/* The longest token of the list that is a prefix of s. */
static const AddedToken *added_at(const AddedTokens *list, const char *s, size_t n) {
  const AddedToken *best = NULL;
  for (int i = 0; i < list->n; i++) {
    const AddedToken *x = &list->at[i];
    if (x->n <= n && (!best || x->n > best->n) && memcmp(s, x->s, x->n) == 0) best = x;
  }
  return best;
}

typedef weft_status (*Between)(const Tokenizer *t, const char *s, size_t n, TokenIds *out,
                               weft_error *e);

static weft_status around_added(const Tokenizer *t, const AddedTokens *list,
                                const char *s, size_t n, Between between, TokenIds *out,
                                weft_error *e) {
  bool begins[256] = {false};
  size_t done = 0;
  for (int i = 0; i < list->n; i++) begins[(unsigned char)*list->at[i].s] = true;
  for (size_t i = 0; i < n;) {
    const AddedToken *x =
        begins[(unsigned char)s[i]] ? added_at(list, s + i, n - i) : NULL;
    if (!x) {
      i++;
      continue;
    }
    TRY(between(t, s + done, i - done, out, e));
    TRY(token_ids_add(out, x->id, e));
    done = i += x->n;
  }
  return between(t, s + done, n - done, out, e);
}

static weft_status words(const Tokenizer *t, const char *s, size_t n, TokenIds *out,
                         weft_error *e) {
  return cut(t, 0, s, n, out, e);
}

static weft_status normalized(const Tokenizer *t, const char *s, size_t n, TokenIds *out,
                              weft_error *e) {
  char *composed = NULL;
  if (n == 0) return WEFT_OK;
  if (t->compose) {
    s = composed = t->api->compose(s, n, &n);
    if (!composed) return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  weft_status st = around_added(t, &t->normalized, s, n, words, out, e);
  free(composed);
  return st;
}

static weft_status need_utf8(const Tokenizer *t, const char *s, size_t n, weft_error *e) {
  size_t valid = n ? t->api->valid(s, n) : 0;
  if (valid == n) return WEFT_OK;
  return err_set(e, WEFT_EFILE, "the text is not UTF-8 from byte %zu on", valid);
}

weft_status tokenizer_begin(const Tokenizer *t, TokenIds *out, weft_error *e) {
  for (int i = 0; i < t->before.n; i++) TRY(token_ids_add(out, t->before.at[i], e));
  return WEFT_OK;
}

weft_status tokenizer_encode(const Tokenizer *t, const char *s, size_t n, bool special,
                             TokenIds *out, weft_error *e) {
  TRY(need_utf8(t, s, n, e));
  if (special) TRY(tokenizer_begin(t, out, e));
  TRY(around_added(t, &t->raw, s, n, normalized, out, e));
  for (int i = 0; special && i < t->after.n; i++)
    TRY(token_ids_add(out, t->after.at[i], e));
  return WEFT_OK;
}

weft_status tokenizer_normal(const Tokenizer *t, const char *s, size_t n, Text *out,
                             weft_error *e) {
  TRY(need_utf8(t, s, n, e));
  char *composed = t->compose && n ? t->api->compose(s, n, &n) : NULL;
  bool none = t->compose && n && !composed;
  if (!none) text_addn(out, composed ? composed : s, n);
  free(composed);
  return none || out->oom ? err_set(e, WEFT_ENOMEM, "out of memory") : WEFT_OK;
}

const char *tokenizer_special_in(const Tokenizer *t, const char *s, size_t n) {
  const AddedTokens *list[] = {&t->raw, &t->normalized};
  for (size_t i = 0; i < n; i++)
    for (int k = 0; k < LEN(list); k++) {
      const AddedToken *x = added_at(list[k], s + i, n - i);
      if (x && t->token[x->id].special) return x->s;
    }
  return NULL;
}

size_t tokenizer_length(const Tokenizer *t, int32_t id) { return (size_t)t->token[id].n; }

/* ---- decoding ---- */

weft_status tokenizer_decode(const Tokenizer *t, const int32_t *ids, size_t n,
                             bool special, Text *out, weft_error *e) {
  for (size_t i = 0; i < n; i++) {
    bool known = ids[i] >= 0 && ids[i] < t->ntoken && t->token[ids[i]].n >= 0;
    if (!known)
      return err_file(e, WEFT_EFILE, t->path, 0, "has no token with the id %d", ids[i]);
    const Token *x = &t->token[ids[i]];
    if (!x->special || special) text_addn(out, x->s, (size_t)x->n);
  }
  return out->oom ? err_set(e, WEFT_ENOMEM, "out of memory") : WEFT_OK;
}
