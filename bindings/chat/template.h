/* template.h - the template of a data set: a row to its text, and the ranges of it that
 * are learnt. */
#ifndef WEFT_CHAT_TEMPLATE_H
#define WEFT_CHAT_TEMPLATE_H

#include <jansson.h>

#include "bindings/sandbox/sandbox.h"

/* ---- json_ordered.c ---- */
/* Pushes a value as stdlib/chat/text.lua describes it: an object keeps the order of its
 * fields. */
void json_push_ordered(lua_State *L, const json_t *v);
/* A function for Lua: the value of a text of JSON, or nil. */
int json_from_text(lua_State *L);

/* ---- template.c ---- */
/* Bytes [from, to) of a text. */
typedef struct ChatRange {
  size_t from, to;
} ChatRange;

typedef struct ChatText {
  Text text;
  ChatRange *learnt; /* in order, none empty */
  size_t n, cap;
  int64_t unreasoned; /* learnt answers whose reasoning is not in it */
  bool begins; /* the tokenizer's begin token comes before it: no template wrote it */
} ChatText;
void chat_text_free(ChatText *t);

typedef struct ChatTemplate {
  LangState *state;
  int call; /* registry reference of the function of rows, or of stdlib/chat/talk.lua */
  int answers; /* of a row: 2 where it has a chosen and a rejected one, else 1 */
} ChatTemplate;
struct Tokenizer;
struct TokenizerConfig;
typedef struct ChatOpen {
  const char *path; /* where the spec comes from, for messages; "": it says so itself */
  /* Pushes a table with the fields of `spec` in stdlib/chat/chat.lua; may raise. */
  void (*push_spec)(lua_State *L, void *ud);
  void *ud;
  const struct TokenizerConfig *config; /* gives what the spec does not say */
  const struct Tokenizer *refuse; /* its special tokens in messages are errors; or NULL */
  bool talks;                     /* for chat_talk, in the place of chat_render */
} ChatOpen;
weft_status chat_template_open(LangState *s, const ChatOpen *o, ChatTemplate *out,
                               weft_error *e);
void chat_template_close(ChatTemplate *t);
/* Replaces `out` by the row with this one of its answers, from 0. WEFT_EPLAN: the row
 * cannot be used, and `e` says why; other rows may. */
weft_status chat_render(const ChatTemplate *t, const json_t *row, int answer,
                        ChatText *out, weft_error *e);
/* A conversation that goes on: does "ending", "ask" or "answer" of stdlib/chat/talk.lua
 * with the bytes s[0, n), and replaces `out` by the text that it gives. WEFT_EPLAN: the
 * template does not take them. */
weft_status chat_talk(const ChatTemplate *t, const char *verb, const char *s, size_t n,
                      Text *out, weft_error *e);

#endif
