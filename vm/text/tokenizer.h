/* tokenizer.h - text to ids and back, by a tokenizer.json of Hugging Face: byte-level BPE
 * (GPT-2, Llama 3, Qwen, SmolLM). Unsupported parts of a file are refused by name, so
 * that ids either equal those of the library `tokenizers` or there are none. */
#ifndef WEFT_TEXT_TOKENIZER_H
#define WEFT_TEXT_TOKENIZER_H

#include "vm/base/base.h"

typedef struct Tokenizer Tokenizer;
/* `path`: the file, or the folder that it lies in. */
weft_status tokenizer_open(const weft_alloc *a, const char *path, Tokenizer **out,
                           weft_error *e);
void tokenizer_close(Tokenizer *t);
/* All ids are below this. */
int32_t tokenizer_ids(const Tokenizer *t);
/* The id of a token as the file writes it ("<|endoftext|>"); -1: none. */
int32_t tokenizer_find(const Tokenizer *t, const char *token);

/* Initialize with zeros; free with token_ids_free. */
typedef struct TokenIds {
  const weft_alloc *alloc; /* NULL: the C library's */
  int32_t *at;
  size_t n, cap;
} TokenIds;
void token_ids_free(TokenIds *ids);
weft_status token_ids_add(TokenIds *ids, int32_t id, weft_error *e);
/* Adds the ids of s[0, n), which is UTF-8. `special`: with the special tokens that the
 * file puts around a text, such as a begin token. Thread-safe. */
weft_status tokenizer_encode(const Tokenizer *t, const char *s, size_t n, bool special,
                             TokenIds *out, weft_error *e);
/* Adds the special tokens that the file puts before a text. */
weft_status tokenizer_begin(const Tokenizer *t, TokenIds *out, weft_error *e);
/* The text that is split into tokens: as the file normalizes s[0, n). */
weft_status tokenizer_normal(const Tokenizer *t, const char *s, size_t n, Text *out,
                             weft_error *e);
/* The first special token that is found in s[0, n), or NULL. */
const char *tokenizer_special_in(const Tokenizer *t, const char *s, size_t n);
/* How many bytes of text an id of tokenizer_encode stands for. */
size_t tokenizer_length(const Tokenizer *t, int32_t id);
/* Adds the bytes of the ids; a part of a text need not be UTF-8. `special`: with special
 * tokens, as the file writes them. */
weft_status tokenizer_decode(const Tokenizer *t, const int32_t *ids, size_t n,
                             bool special, Text *out, weft_error *e);

#endif
