/* chat_cache.h - the folder with the token files of a data set: named by a hash of all
 * that they depend on, it appears whole or not at all. */
#ifndef WEFT_CHAT_CACHE_H
#define WEFT_CHAT_CACHE_H

#include "chat.h"

#define CHAT_CACHE ".weft"

/* The data of one weft.chat; see the fields of the same names in schema.def. */
typedef struct ChatSet {
  const char *const **files; /* of each name */
  int *nfiles;
  int n;                 /* names */
  const char *tokenizer; /* the file */
  const TokenizerConfig *config;
  const char *written; /* format, template, train_on and options, as they were written */
  int64_t max_length;
  bool drop_bad, refuse_special;
} ChatSet;

/* "chat-1a2b3c": the folder's name. */
weft_status chat_cache_name(Arena *a, const ChatSet *s, const char **name, weft_error *e);
/* The name of the same with these modules (ChatCounts), where that of the folder `name`
 * has others. */
const char *chat_cache_next(Arena *a, const char *name, const char *modules);
/* "1.bin": the token file of name i, from 0. */
const char *chat_cache_file(Arena *a, int i);
/* Whether the folder is there; if so, *n is the sum of what was counted. */
bool chat_cache_has(Arena *a, const char *dir, const char *name, ChatCounts *n);
/* Writes it in the folder `dir` of the plan. `file` writes the token file of name i into
 * a folder. Another process may do the same: the first one stays. */
weft_status chat_cache_write(Arena *a, const char *dir, const char *name, int files,
                             weft_status (*file)(void *ud, int i, const Dir *in,
                                                 ChatCounts *n, weft_error *e),
                             void *ud, ChatCounts *n, weft_error *e);

#endif
