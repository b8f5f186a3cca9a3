/* token_file_write.h - writes token files: Megatron's x.bin and x.idx, maybe with x.mask,
 * or llm.c's. Nothing is at its place before all of it is written. */
#ifndef WEFT_IO_TOKEN_FILE_WRITE_H
#define WEFT_IO_TOKEN_FILE_WRITE_H

#include "file.h"

typedef enum { TOKEN_FILE_MEGATRON, TOKEN_FILE_LLMC } TokenFileKind;

typedef struct TokenFileSpec {
  const Dir *in;    /* NULL: `name` is a path of the user, where no file of these names,
                       nor an index or a mask, may be; both are borrowed */
  const char *name; /* ends in .bin */
  TokenFileKind kind;
  int32_t ids; /* all are below */
  bool mask;   /* only Megatron's */
} TokenFileSpec;

typedef struct TokenFileOut TokenFileOut;
weft_status token_file_create(const TokenFileSpec *spec, TokenFileOut **out,
                              weft_error *e);
/* A document of n > 0 ids; `learnt` has a byte for each if there is a mask. */
weft_status token_file_add(TokenFileOut *w, const int32_t *ids, const uint8_t *learnt,
                           size_t n, weft_error *e);
/* So far. */
int64_t token_file_documents(const TokenFileOut *w);
int64_t token_file_tokens(const TokenFileOut *w);
int token_file_bits(const TokenFileOut *w); /* of an id */
/* Frees `w`, also after an error, and then keeps the targets. */
weft_status token_file_finish(TokenFileOut *w, weft_error *e);
void token_file_drop(TokenFileOut *w); /* discards it; may be NULL */

#endif
