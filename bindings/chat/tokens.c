/* tokens.c - ids of a conversation. The whole text is encoded at once, as Transformers
 * does it, so a token may lie across the border of two pieces: it is learnt if any byte
 * of it is. Where tokens lie follows from their lengths, as long as they spell the text.
 * A text that no template wrote then gets the special tokens that the tokenizer puts
 * before one.
 */
#include "chat.h"

void chat_tokens_free(ChatTokens *t) {
  token_ids_free(&t->ids);
  mem_free(NULL, t->learnt, t->cap);
  text_free(&t->spelled);
  text_free(&t->normal);
  *t = (ChatTokens){0};
}

static bool spells(const ChatTokens *o, const char *s, size_t n) {
  return o->spelled.n >= n && (n == 0 || memcmp(o->spelled.s, s, n) == 0);
}

/* Moves a place of the text to where it is in what the ids spell, which is the normalized
 * text if these differ. */
static weft_status place(const Tokenizer *t, const ChatText *text, ChatTokens *o,
                         size_t *at, weft_error *e) {
  o->normal.n = 0;
  TRY(tokenizer_normal(t, text->text.s, *at, &o->normal, e));
  if (!spells(o, o->normal.s, o->normal.n))
    return err_set(e, WEFT_EFILE,
                   "the tokenizer adds to the text or takes from it, so which tokens are "
                   "learnt cannot be told");
  *at = o->normal.n;
  return WEFT_OK;
}

/* Sets learnt[i] for tokens that have a byte in [from, to); *i and *begin are where the
 * search goes on. */
static void mark(const Tokenizer *t, ChatTokens *o, ChatRange r, size_t *i,
                 size_t *begin) {
  for (; *i < o->ids.n && *begin < r.to; ++*i) {
    size_t end = *begin + tokenizer_length(t, o->ids.at[*i]);
    if (end > r.from && end > *begin) o->learnt[*i] = 1;
    if (end > r.to) return; /* the next range may begin in this token */
    *begin = end;
  }
}

static weft_status room(ChatTokens *o, weft_error *e) {
  if (o->ids.n > o->cap) {
    uint8_t *at = mem_resize(NULL, o->learnt, o->cap, o->ids.n);
    if (!at) return err_set(e, WEFT_ENOMEM, "out of memory");
    o->learnt = at;
    o->cap = o->ids.n;
  }
  if (o->ids.n) memset(o->learnt, 0, o->ids.n);
  return WEFT_OK;
}

/* The ids of the text, behind those that the tokenizer puts before one, if the text has
 * not have them already; *before: how many these are. */
static weft_status encode(const Tokenizer *t, const ChatText *text, ChatTokens *o,
                          size_t *before, weft_error *e) {
  TokenIds *ids = &o->ids;
  ids->n = 0;
  if (text->begins) TRY(tokenizer_begin(t, ids, e));
  size_t k = *before = ids->n, size = sizeof *ids->at;
  const char *s = text->text.s ? text->text.s : "";
  TRY(tokenizer_encode(t, s, text->text.n, false, ids, e));
  if (k == 0 || ids->n < 2 * k || memcmp(ids->at, ids->at + k, k * size)) return WEFT_OK;
  ids->n -= k;
  *before = 0;
  memmove(ids->at, ids->at + k, ids->n * size);
  return WEFT_OK;
}

weft_status chat_tokens(const Tokenizer *t, const ChatText *text, ChatTokens *out,
                        weft_error *e) {
  size_t n = text->text.n, i, begin = 0;
  out->spelled.n = 0;
  TRY(encode(t, text, out, &i, e));
  if (out->ids.n > i)
    TRY(tokenizer_decode(t, out->ids.at + i, out->ids.n - i, true, &out->spelled, e));
  TRY(room(out, e));
  bool same = out->spelled.n == n && spells(out, text->text.s, n);
  for (size_t k = 0; k < text->n; k++) {
    ChatRange r = text->learnt[k];
    if (!same) {
      TRY(place(t, text, out, &r.from, e));
      TRY(place(t, text, out, &r.to, e));
    }
    mark(t, out, r, &i, &begin);
  }
  return WEFT_OK;
}
