/* chat_file.c - one data set to one token file: each conversation is a document. */
#include "chat.h"
#include "rows.h"

#include <stdio.h>

#include "vm/io/token_file_write.h"

typedef struct Work {
  const ChatFileSpec *spec;
  ChatCounts *n;
  TokenFileOut *out;
  ChatText text;
  ChatTokens tokens[2]; /* of the answers of a row */
  int64_t unreasoned;   /* of a row */
} Work;

static size_t learnt_of(const ChatTokens *t, size_t n) {
  size_t sum = 0;
  for (size_t i = 0; i < n; i++) sum += t->learnt[i];
  return sum;
}

/* Tokens that were added to a tokenizer have the highest ids. */
static weft_status note_top(Work *w, const ChatTokens *of, size_t n, const char *path,
                            int line, weft_error *e) {
  ChatCounts *c = w->n;
  const int32_t *id = of->ids.at;
  Text token = {0};
  size_t top = 0;
  for (size_t i = 1; i < n; i++)
    if (id[i] > id[top]) top = i;
  if (!n || (id[top] <= c->top && *c->top_at)) return WEFT_OK;
  TRY(tokenizer_decode(w->spec->tokenizer, &id[top], 1, true, &token, e));
  c->top = id[top];
  snprintf(c->top_at, sizeof c->top_at, "%s:%d", path, line);
  snprintf(c->top_text, sizeof c->top_text, "%s", token.n ? token.s : "");
  text_free(&token);
  return WEFT_OK;
}

/* How many tokens of a conversation are used. */
static size_t used(const Work *w, const ChatTokens *t) {
  size_t most = (size_t)w->spec->max_length;
  return most && t->ids.n > most ? most : t->ids.n;
}

/* Writes a conversation. */
static weft_status add(Work *w, const ChatTokens *t, const char *path, int line,
                       weft_error *e) {
  size_t n = used(w, t), learnt = learnt_of(t, n);
  bool cut = n < t->ids.n;
  w->n->conversations++;
  w->n->tokens += (int64_t)n;
  w->n->learnt += (int64_t)learnt;
  w->n->truncated += cut;
  if ((int64_t)n > w->n->longest) {
    w->n->longest = (int64_t)n;
    snprintf(w->n->longest_at, sizeof w->n->longest_at, "%s:%d", path, line);
  }
  TRY(note_top(w, t, n, path, line, e));
  return token_file_add(w->out, t->ids.at, t->learnt, n, e);
}

/* Writes those of a row, or none of them. */
static weft_status add_all(Work *w, const char *path, int line, weft_error *e) {
  int answers = w->spec->template->answers;
  for (int i = 0; i < answers; i++)
    if (!learnt_of(&w->tokens[i], used(w, &w->tokens[i]))) {
      w->n->unlearnt += answers;
      return WEFT_OK;
    }
  for (int i = 0; i < answers; i++) TRY(add(w, &w->tokens[i], path, line, e));
  w->n->unreasoned += w->unreasoned;
  return WEFT_OK;
}

static weft_status render(Work *w, const json_t *row, weft_error *e) {
  const ChatFileSpec *spec = w->spec;
  w->unreasoned = 0;
  for (int i = 0; i < spec->template->answers; i++) {
    TRY(chat_render(spec->template, row, i, &w->text, e));
    TRY(chat_tokens(spec->tokenizer, &w->text, &w->tokens[i], e));
    w->unreasoned += w->text.unreasoned;
  }
  return WEFT_OK;
}

static weft_status place_error(const char *path, int line, weft_status st,
                               weft_error *e) {
  snprintf(e->file, sizeof e->file, "%s", path);
  e->line = line;
  return st;
}

static weft_status add_row(Work *w, const char *path, const json_t *row, int line,
                           weft_error *e) {
  weft_status st = render(w, row, e);
  if (st == WEFT_EPLAN && w->spec->drop_bad) {
    if (w->n->bad++ == 0)
      snprintf(w->n->first_bad, sizeof w->n->first_bad, "%s:%d: %s", path, line, e->text);
    err_clear(e);
    return WEFT_OK;
  }
  if (st == WEFT_OK) st = add_all(w, path, line, e);
  if (st == WEFT_OK || *e->file) return st;
  return place_error(path, line, st == WEFT_EPLAN ? WEFT_EFILE : st, e);
}

static weft_status add_rows(Work *w, Rows *rows, weft_error *e) {
  for (;;) {
    json_t *row;
    int line = 0;
    if (w->spec->stop && *w->spec->stop) return err_set(e, WEFT_EINTR, "interrupted");
    TRY(chat_rows_next(rows, &row, &line, e));
    if (!row) return WEFT_OK;
    weft_status st = add_row(w, chat_rows_path(rows), row, line, e);
    json_decref(row);
    TRY(st);
  }
}

static weft_status add_files(Work *w, weft_error *e) {
  for (int i = 0; i < w->spec->nfiles; i++) {
    Rows *rows;
    TRY(chat_rows_open(w->spec->files[i], &rows_of_talks, &rows, e));
    weft_status st = add_rows(w, rows, e);
    chat_rows_close(rows);
    TRY(st);
  }
  const ChatCounts *n = w->n;
  if (n->conversations) return WEFT_OK;
  return err_file(
      e, WEFT_EFILE, w->spec->files[0], 0,
      "there is no conversation to learn from: %lld cannot be used, %lld have "
      "nothing that is learnt%s%s",
      (long long)n->bad, (long long)n->unlearnt, *n->first_bad ? "; " : "", n->first_bad);
}

weft_status chat_file_write(const ChatFileSpec *spec, ChatCounts *n, weft_error *e) {
  Work w = {.spec = spec, .n = n};
  TokenFileSpec file = {.in = spec->in,
                        .name = spec->out,
                        .kind = TOKEN_FILE_MEGATRON,
                        .ids = tokenizer_ids(spec->tokenizer),
                        .mask = true};
  *n = (ChatCounts){0};
  TRY(token_file_create(&file, &w.out, e));
  weft_status st = add_files(&w, e);
  if (st == WEFT_OK)
    st = token_file_finish(w.out, e);
  else
    token_file_drop(w.out);
  chat_text_free(&w.text);
  for (int i = 0; i < LEN(w.tokens); i++) chat_tokens_free(&w.tokens[i]);
  return st;
}
