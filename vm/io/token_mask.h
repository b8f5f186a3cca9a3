/* token_mask.h - which tokens of a token file are learnt: x.mask beside x.bin. The format
 * is in docs/data.md.
 *
 * A token whose bit is 1 counts as a label, when it is the token that comes next; one
 * whose bit is 0 is only read. */
#ifndef WEFT_IO_TOKEN_MASK_H
#define WEFT_IO_TOKEN_MASK_H

#include "file.h"

/* ---- writing ---- the bits come in order, in parts of any size */

typedef struct TokenMaskOut TokenMaskOut;
/* The target is unchanged until token_mask_finish; `only_new`: it must not exist, then or
 * now. If `in` is NULL the name is a path; both are borrowed. */
weft_status token_mask_create(const weft_alloc *a, const Dir *in, const char *name,
                              bool only_new, TokenMaskOut **out, weft_error *e);
/* The next n tokens: 0 is not learnt, anything else is. */
weft_status token_mask_add(TokenMaskOut *m, const uint8_t *learnt, size_t n,
                           weft_error *e);
/* Ties the mask to `bin`, all of whose bytes are written and which is not finished yet:
 * finish it last, so that there never is a new .bin with an old mask or with none. Frees
 * `m`, also after an error, and then keeps the target. */
weft_status token_mask_finish(TokenMaskOut *m, const FileOut *bin, weft_error *e);
void token_mask_drop(TokenMaskOut *m); /* discards it; may be NULL */

/* ---- reading ---- */

typedef struct TokenMask {
  File file; /* file.path NULL: there is none */
  int64_t tokens, learnt;
} TokenMask;
/* The path of the mask of x.bin; NULL if the path does not end in .bin. */
const char *token_mask_of(Arena *a, const char *path);
/* Opens the mask at `path` (borrowed) of a token file with so many tokens. Reads a few
 * hundred KiB, whatever the size of both: that it belongs to `bin` is checked here, its
 * bits where they are read. */
weft_status token_mask_open(const char *path, const File *bin, int64_t tokens,
                            TokenMask *out, weft_error *e);
/* Sets learnt[i] to 0 or 1 for tokens [at, at + n). Thread-safe. */
weft_status token_mask_read(const TokenMask *m, int64_t at, int64_t n, uint8_t *learnt,
                            weft_error *e);

#endif
