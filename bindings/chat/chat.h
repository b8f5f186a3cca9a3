/* chat.h - a data set of conversations becomes a token file with a mask. */
#ifndef WEFT_CHAT_H
#define WEFT_CHAT_H

#include "template.h"
#include "vm/io/dir.h"
#include "vm/text/tokenizer.h"

/* ---- tokenizer_config.c ---- */
/* What lies beside a tokenizer.json: tokenizer_config.json, chat_template.jinja. All of
 * it may be missing: NULL. */
typedef struct TokenizerConfig {
  const char *path; /* of the file that holds the template, else of the config */
  const char *bos, *eos, *pad;
  const char *template; /* Jinja */
} TokenizerConfig;
weft_status tokenizer_config_read(Arena *a, const char *tokenizer, TokenizerConfig *out,
                                  weft_error *e);
/* The folder of a path, which may be one. */
const char *tokenizer_folder(Arena *a, const char *path);
/* SHA-256 of a template without spaces and lines at its ends, as hexadecimal digits. */
void chat_template_hash(const char *jinja, char hex[65]);
/* Sets missing options of the spec at the top of the stack: bos and eos, and where it
 * names no template, the one that is recognised. Raises for one that is not. */
void tokenizer_config_apply(lua_State *L, const TokenizerConfig *c);

/* ---- tokens.c ---- */
typedef struct ChatTokens {
  TokenIds ids;
  uint8_t *learnt; /* ids.n */
  size_t cap;
  Text spelled, normal; /* working space */
} ChatTokens;
void chat_tokens_free(ChatTokens *t);
/* Replaces `out`: the ids of the text, special tokens in it included, and which of them
 * have a byte that is learnt. */
weft_status chat_tokens(const Tokenizer *t, const ChatText *text, ChatTokens *out,
                        weft_error *e);

/* ---- chat_file.c ---- */
typedef struct ChatFileSpec {
  const char *const *files;
  int nfiles;
  const Tokenizer *tokenizer;
  const ChatTemplate *template;
  const Dir *in;      /* of the token file; NULL: `out` is a path */
  const char *out;    /* ends in .bin */
  int64_t max_length; /* tokens of a conversation; 0: any */
  bool drop_bad;      /* leaves out conversations that cannot be used */
  const StopFlag *stop;
} ChatFileSpec;

typedef struct ChatCounts {
  int64_t conversations, tokens, learnt; /* in the file */
  int64_t truncated;                     /* of these conversations */
  int64_t unreasoned;    /* answers in them that are learnt without their reasoning */
  int64_t bad, unlearnt; /* dropped: not usable; nothing to learn in them */
  char first_bad[400];   /* why the first of them is not usable */
  int64_t longest;       /* tokens of the longest conversation */
  char longest_at[400];  /* its file and line */
  int64_t top;           /* the highest id of a token, */
  char top_at[400];      /* where it is first, */
  char top_text[100];    /* and the token */
  const char *modules;   /* NULL, or those of the plan that its template asked for when it
                            was called: lines of a name and the hash of its text */
} ChatCounts;
weft_status chat_file_write(const ChatFileSpec *spec, ChatCounts *n, weft_error *e);

#endif
