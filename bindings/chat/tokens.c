/* tokens.c - ids of a conversation. The whole text is encoded at once, as Transformers
 * does it, so a token may lie across the border of two pieces: it is learnt if any byte
 * of it is. Where tokens lie follows from their lengths, as long as they spell the text.
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

weft_status chat_tokens(const Tokenizer *t, const ChatText *text, ChatTokens *out,
                        weft_error *e) {
  size_t n = text->text.n, i = 0, begin = 0;
  out->ids.n = out->spelled.n = 0;
  TRY(tokenizer_encode(t, text->text.s ? text->text.s : "", n, false, &out->ids, e));
  TRY(tokenizer_decode(t, out->ids.at, out->ids.n, true, &out->spelled, e));
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
