/* tokenizer_int.h - shared by the files of the tokenizer. */
#ifndef WEFT_TEXT_TOKENIZER_INT_H
#define WEFT_TEXT_TOKENIZER_INT_H

#include "regex.h"
#include "tokenizer.h"

/* One way to split a string into pieces; the next step splits these. */
typedef struct SplitStep {
  void *regex;        /* NULL: no split */
  bool matches, gaps; /* which pieces are kept: matches, the gaps between them */
  bool prefix_space;  /* first adds a space before a piece that has none */
} SplitStep;

typedef struct Token {
  const char *s; /* bytes of text, not the file's alphabet */
  int n;         /* -1: no such id */
  bool special;
} Token;

/* A token that is found in the text before it is split. */
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
  Names names; /* of the vocabulary, in the file's alphabet */
  Token *token;
  int32_t ntoken;
  int32_t of_byte[256];        /* -1: the vocabulary has no token for it */
  Merge *merge;                /* open addressing */
  uint32_t nmerge;             /* a power of two */
  bool ignore_merges;          /* words of the vocabulary are tokens, without merges */
  bool compose;                /* normalize to NFC */
  AddedTokens raw, normalized; /* found before and after normalization */
  VEC(SplitStep) step;
  VEC(int32_t) before, after; /* special tokens around a text */
};

/* ---- tokenizer_json.c ---- */
weft_status tokenizer_read(Tokenizer *t, weft_error *e);
/* The letter that represents each byte in the file. */
void byte_letters(uint16_t letter[256]);

/* ---- bpe.c ---- */
/* Allocates for n merges; adds one. */
void merges_begin(Tokenizer *t, size_t n);
bool merge_add(Tokenizer *t, int32_t left, int32_t right, int32_t rank, int32_t id);
weft_status bpe_word(const Tokenizer *t, const char *s, size_t n, TokenIds *out,
                     weft_error *e);

#endif
