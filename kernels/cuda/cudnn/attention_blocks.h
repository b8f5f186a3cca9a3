/* attention_blocks.h - an attention op as rectangles of scores, queries by keys, each of
 * which cuDNN can be asked for: a rank over cp has some rows of the sequence, and sees of
 * the keys that it is given some rectangles whole and others below a diagonal. */
#ifndef WEFT_ATTENTION_BLOCKS_H
#define WEFT_ATTENTION_BLOCKS_H

#include "vm/device/device.h"

/* Rows [query, query + queries) of q and [key, key + keys) of k. `causal`: the last query
 * sees all of these keys, the one before it one less, and so on. */
typedef struct AttentionBlock {
  int64_t query, queries, key, keys;
  bool causal;
} AttentionBlock;

enum { BLOCKS_MOST = 2 };

/* The blocks of one of the four attention ops on the rank with coordinate `index` over
 * attr->cut; their number, 0 in a step of a ring whose keys come later than all queries.
 * Each query is in one block at most. */
int attention_blocks(int op, const KernelArgs *a, int index, AttentionBlock b[]);
/* The number of ranks, coordinates of attention_blocks, that blocks depend on. */
int attention_pieces(const KernelArgs *a);

static inline bool attention_is_part(int op) {
  return op == OP_attention_part || op == OP_attention_part_dx;
}
static inline bool attention_is_back(int op) {
  return op == OP_attention_dx || op == OP_attention_part_dx;
}
static inline bool attention_is_forward(int op) {
  return op == OP_attention || op == OP_attention_part;
}
/* Whether earlier steps of the ring are among the operands. */
static inline bool attention_goes_on(int op, const KernelArgs *a) {
  return attention_is_part(op) && a->attr->step > 0;
}
/* The operand doc_starts, and whether it is there. */
static inline int attention_starts(int op) { return attention_is_back(op) ? 6 : 3; }
static inline bool attention_documents(int op, const KernelArgs *a) {
  int at = attention_starts(op);
  return a->nin > at && a->in[at].dtype == DT_I32 && a->attr->rate == 0;
}

#endif
