/* async_tp.h - cuts collectives over the sequence into chunks that overlap with the
 * products they feed (PyTorch: async tensor parallel). */
#ifndef WEFT_BODY_CHUNKS_H
#define WEFT_BODY_CHUNKS_H

#include "body_code.h"

/* What the pass asks its caller about tensors. */
typedef struct ChunkHooks {
  void *ud;
  bool (*temporary)(void *ud, Tid t);              /* used in this body only */
  Tid (*temp)(void *ud, uint8_t dtype, int64_t n); /* adds one of n elements */
  void (*scratch)(void *ud, CodeInstr *x); /* gives a kernel its scratch operand */
} ChunkHooks;

/* Cuts each all-gather over the sequence that products read, and each reduce-scatter of a
 * product or a sum of products, into CHUNKS chunks where sizes allow, and each such
 * product into parts by rows. WAITs are left out: body_order adds them. Returns the
 * number of instructions in *out, 0 if nothing was cut. */
enum { CHUNKS = 4 };
int body_chunks(Arena *a, const CodeInstr *at, int n, const ChunkHooks *h,
                CodeInstr **out);

#endif
