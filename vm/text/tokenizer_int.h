/* tokenizer_int.h - shared by the files of the tokenizer. */
#ifndef WEFT_TEXT_TOKENIZER_INT_H
#define WEFT_TEXT_TOKENIZER_INT_H

#include "regex.h"
#include "tokenizer.h"

/* One way to cut a text into pieces; the pieces go to the next one, those of the last to
 * the merges. */
typedef struct SplitStep {
  void *regex;        /* NULL: does not cut */
  bool matches, gaps; /* which pieces are kept: matches, what is between */
  bool prefix_space;  /* first a space before a piece that has none */
} SplitStep;

typedef struct Token {
  const char *s; /* bytes of text, not as the file writes them */
  int n;         /* -1: there is no such id */
  bool special;
} Token;

/* A token that is found in the text before it is cut. */
typedef struct AddedToken {
  const char *s;
  size_t n;
  int32_t id;
} AddedToken;
typedef VEC(AddedToken) AddedTokens;

typedef struct Merge {
  uint64_t pair; /* UINT64_MAX: free */
  int32_t rank, id;
} Merge;

struct Tokenizer {
  weft_alloc alloc;
  Arena *arena;
  const RegexApi *api;
  const char *path;
  Names names; /* of the vocabulary, as the file writes them */
  Token *token;
  int32_t ntoken;
  int32_t of_byte[256];        /* -1: the vocabulary has no token for it */
  Merge *merge;                /* open addressing */
  uint32_t nmerge;             /* a power of two */
  bool ignore_merges;          /* words of the vocabulary are not merged */
  bool compose;                /* NFC first */
  AddedTokens raw, normalized; /* found before and after that */
  VEC(SplitStep) step;
  VEC(int32_t) before, after; /* what is put around a text */
};

/* ---- tokenizer_json.c ---- */
weft_status tokenizer_read(Tokenizer *t, weft_error *e);
/* The letter that stands for each byte in the file. */
void byte_letters(uint16_t letter[256]);

/* ---- bpe.c ---- */
const Merge *merge_find(const Tokenizer *t, int32_t left, int32_t right);
/* Room for so many merges, and one of them. */
void merges_begin(Tokenizer *t, size_t n);
bool merge_add(Tokenizer *t, int32_t left, int32_t right, int32_t rank, int32_t id);
weft_status bpe_word(const Tokenizer *t, const char *s, size_t n, TokenIds *out,
                     weft_error *e);

#endif
