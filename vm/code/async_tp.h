/* async_tp.h - cuts collectives over the sequence into chunks that overlap with the
 * products they feed (PyTorch: async tensor parallel). */
#ifndef WEFT_BODY_CHUNKS_H
#define WEFT_BODY_CHUNKS_H

#include "body_code.h"

/* What the pass asks of whoever knows tensors. */
typedef struct ChunkHooks {
  void *ud;
  bool (*temporary)(void *ud, Tid t);              /* lives in this body only */
  Tid (*temp)(void *ud, uint8_t dtype, int64_t n); /* a new one of n elements */
  void (*scratch)(void *ud, CodeInstr *x);         /* gives a kernel its scratch */
} ChunkHooks;

/* An all_gather over the sequence that products read, and a reduce_scatter of what one
 * product made or of a sum of products, become CHUNKS of rows each where the sizes allow
 * it, and each product one for the rows of a chunk that lie together. Waits are left out:
 * body_order puts them in. Returns how many instructions there are in *out, 0 if nothing
 * is to be changed. */
enum { CHUNKS = 4 };
int body_chunks(Arena *a, const CodeInstr *at, int n, const ChunkHooks *h,
                CodeInstr **out);

#endif
