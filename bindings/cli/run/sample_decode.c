/* sample_decode.c - one continuation, token by token, and how it is printed. */
#include "sample.h"

#include <unistd.h>

#include "vm/base/terminal.h"

/* The bytes of a token, maybe a part of a character. Models may have more ids than their
 * tokenizer has tokens, or than there are bytes; these have no text. */
static void text_of(const Sample *s, int32_t token, Text *out) {
  weft_error e = NO_ERROR;
  bool none = s->tok ? tokenizer_decode(s->tok, &token, 1, true, out, &e) == WEFT_EFILE
                     : token > UINT8_MAX;
  if (none)
    text_add(out, "\uFFFD");
  else if (!s->tok)
    text_addn(out, &(char){(char)token}, 1);
}

/* Prints bytes [from, to) of the continuation; returns how many were printed. On a
 * terminal control characters are made visible and an incomplete character waits for its
 * rest. */
static size_t print_bytes(const One *o, size_t from, size_t to, bool end) {
  size_t n = to > from ? to - from : 0;
  if (n && isatty(STDOUT_FILENO)) {
    Text t = {0};
    n = text_add_shown(&t, o->text.s + from, n, FREE_LINES, end);
    print_text(stdout, &t);
  } else if (n) {
    fwrite(o->text.s + from, 1, n, stdout);
  }
  fflush(stdout);
  return n;
}

void sample_print_prompt(const Sample *s, const One *o) {
  Text t = {0};
  for (int64_t i = 0; i < o->prompt; i++)
    if (s->bytes || s->tok)
      text_of(s, o->token[i], &t);
    else
      text_printf(&t, "%s%d", i ? "," : "", o->token[i]);
  One shown = {.text = t};
  print_bytes(&shown, 0, t.n, true);
  text_free(&t);
}

/* Adds the text of the last token; true if it ends the continuation. Text that may be the
 * beginning of a stop string is printed once it is known not to be one. */
static bool add_text(const Sample *s, One *o, size_t *printed, bool prints) {
  size_t before = o->text.n;
  text_of(s, o->token[o->n - 1], &o->text);
  int64_t at = sample_until(&s->end, &o->text, before);
  if (at >= 0) o->text.n = (size_t)at;
  size_t to = o->text.n - (at >= 0 ? 0 : sample_maybe(&s->end, &o->text));
  if (prints) *printed += print_bytes(o, *printed, to, false);
  return at >= 0;
}

/* The first position that has to be run: what is in the cache stays, but the logits after
 * the last token of the prompt are needed. */
static int64_t first_to_run(const Sample *s, const One *o) {
  int64_t n = 0;
  while (n < s->nhad && n + 1 < o->prompt && s->had[n] == o->token[n]) n++;
  return n;
}

static weft_status run_token(Sample *s, int32_t token, int64_t at) {
  s->nhad = at;
  TRY(run_decode(s->run, token, at, s->logits, &s->job.e));
  s->had[s->nhad++] = token;
  const char *why = run_not_captured(s->run);
  if (why)
    verb_warns(s->cli, &s->job, "steps are launched op by op from here on: %s", why);
  return WEFT_OK;
}

/* Generation ends after any token, also inside a character: nothing that is done with the
 * text later takes a part of one. */
static weft_status complete(Sample *s, Text *text) {
  Text whole = {0};
  text_add_utf8(&whole, text->s, text->n);
  text_free(text);
  *text = whole;
  return whole.oom ? err_set(&s->job.e, WEFT_ENOMEM, "out of memory") : WEFT_OK;
}

weft_status sample_generate(Sample *s, One *o) {
  const Compiled *c = s->job.compiled;
  bool prints = !s->cli->json, text = s->bytes || s->tok;
  size_t printed = 0;
  o->ended = "length";
  for (int64_t i = first_to_run(s, o); i + 1 < o->most; i++) {
    TRY(run_token(s, o->token[i], i));
    if (i + 1 < o->prompt) continue;
    int32_t id = sample_token(&s->choice, s->logits, c->vocab, i + 1, s->room);
    o->token[o->n++] = id;
    if (prints && !text)
      printf("%s%d", i + 1 > (s->cli->quiet ? o->prompt : 0) ? "," : "", id);
    if (sample_is_eos(&s->end, id))
      o->ended = "eos";
    else if (text && add_text(s, o, &printed, prints))
      o->ended = "stop";
    if (o->ended[0] != 'l') break;
  }
  if (prints) print_bytes(o, printed, o->text.n, true);
  if (prints) putchar('\n');
  fflush(stdout);
  TRY(complete(s, &o->text));
  o->done = true;
  return WEFT_OK;
}

void sample_json(Json *out, const Sample *s, const One *o) {
  json_str(out, "ended", o->ended);
  json_int(out, "prompt", o->prompt);
  if (s->bytes || s->tok) json_strn(out, "text", o->text.n ? o->text.s : "", o->text.n);
  json_open(out, "tokens", '[');
  for (int64_t i = 0; i < o->n; i++) json_int(out, NULL, o->token[i]);
  json_close(out, ']');
}
