/* attention_graph.h - attention and its gradients as a graph of small ops on tensors of
 * four dimensions, in cuDNN's terms. The graph has two readers: cudnn_graph.c turns it
 * into cuDNN's descriptors, and tests evaluate it, which shows that it equals the
 * attention kernels. */
#ifndef WEFT_ATTENTION_GRAPH_H
#define WEFT_ATTENTION_GRAPH_H

#include "attention_blocks.h"

typedef enum { AG_BF16, AG_F32, AG_I32, AG_BOOL } AgType;

/* Where a tensor is: an operand, a result, scratch, a host constant, or virtual between
 * two ops; AG_NOWHERE: in no op of this graph. In scratch, too: AG_BY_HEADS, into which
 * an operand (B,T,H), of 4 bytes an element and at any address, is copied as (B,H,T)
 * before the graph runs; and AG_STAGED, a result
 * whose rows are put, or added, where they belong after it has run. */
typedef enum {
  AG_IN,
  AG_OUT,
  AG_SCRATCH,
  AG_BY_HEADS,
  AG_STAGED,
  AG_NUMBER,
  AG_BETWEEN,
  AG_NOWHERE
} AgWhere;

typedef struct AgTensor {
  const char *name;
  AgType type;
  AgWhere where;
  int index;    /* of the operand or result */
  int64_t at;   /* its byte in the operand, the result or the scratch */
  int64_t from; /* AG_BY_HEADS: the first row of the operand */
  union {
    float number;  /* AG_NUMBER in f32 */
    int32_t count; /* and in i32 */
  };
  int64_t dim[4], stride[4]; /* batch, heads, rows, columns; in elements */
} AgTensor;

/* If an operand's dimension is smaller than the result's, each element is broadcast to
 * dim/smaller neighbours, as a key head to its query heads (GQA). */
typedef enum {
  AG_MATMUL, /* y = x b, per batch and head */
  AG_MUL,    /* y = x * b, element-wise, like those below */
  AG_SUB,
  AG_ADD,
  AG_DIV,
  AG_EXP,
  AG_LOG,
  AG_COPY,
  AG_ROW, /* y = row index, column index */
  AG_COLUMN,
  AG_NOT_LESS, /* y = x >= b */
  AG_GREATER,  /* y = x > b */
  AG_SELECT,   /* y = t ? x : b */
  AG_MOST,     /* y = maximum, sum over the elements of x broadcast from it */
  AG_SUM,
  AG_VIEW /* y is x's memory with other strides */
} AgKind;

typedef struct AgNode {
  AgKind kind;
  uint8_t y, x, b, t; /* tensor indices; unused ones are 0 */
} AgNode;

enum { AG_TENSORS = 48, AG_NODES = 36 };

typedef struct AttentionGraph {
  AgTensor tensor[AG_TENSORS];
  AgNode node[AG_NODES];
  int ntensor, nnode;
  int64_t scratch; /* bytes of scratch used by its tensors */
} AttentionGraph;

/* One block of an attention op; a->work may be NULL. */
void attention_graph(int op, const KernelArgs *a, const AttentionBlock *b,
                     AttentionGraph *g);
/* True for kinds with this operand besides x. */
bool ag_has_b(AgKind k);
bool ag_has_t(AgKind k);

#endif
