/* attention_graph.h - attention and its gradients as small ops between tensors of four
 * dimensions, as cuDNN is told of them. There is one table and it has two readers:
 * cudnn_plan.c makes cuDNN's descriptors of it, and tests evaluate it as it stands, so
 * that what cuDNN is asked for is known to be what the kernels of attention compute. */
#ifndef WEFT_ATTENTION_GRAPH_H
#define WEFT_ATTENTION_GRAPH_H

#include "vm/device/device.h"

typedef enum { AG_BF16, AG_F32, AG_I32, AG_BOOL } AgType;

/* Where the elements of a tensor are: in an operand or a result, in the scratch, in a
 * number of the host, or nowhere but between two ops. */
typedef enum { AG_IN, AG_OUT, AG_SCRATCH, AG_NUMBER, AG_BETWEEN } AgWhere;

typedef struct AgTensor {
  const char *name;
  AgType type;
  AgWhere where;
  int index;  /* of the operand, the result */
  int64_t at; /* AG_SCRATCH: byte of the scratch */
  float number;
  int64_t dim[4], stride[4]; /* batch, heads, rows, columns; in elements */
} AgTensor;

/* Where an operand has a smaller dimension than the result, one element of it serves
 * dim/smaller neighbours, as a head of keys serves its group of heads. */
typedef enum {
  AG_MATMUL, /* y = x b, of each batch and head */
  AG_MUL,    /* y = x * b, element by element, as those below */
  AG_SUB,
  AG_ADD,
  AG_DIV,
  AG_EXP,
  AG_LOG,
  AG_COPY,
  AG_ROW, /* y = the number of the row, of the column */
  AG_COLUMN,
  AG_NOT_LESS, /* y = x >= b */
  AG_SELECT,   /* y = t ? x : b */
  AG_MOST,     /* y = the maximum, the sum of the elements of x that it serves */
  AG_SUM,
  AG_VIEW /* y has the memory of x and other strides */
} AgKind;

typedef struct AgNode {
  AgKind kind;
  uint8_t y, x, b, t; /* numbers of tensors; those that a kind has not are 0 */
} AgNode;

enum { AG_TENSORS = 40, AG_NODES = 24 };

typedef struct AttentionGraph {
  AgTensor tensor[AG_TENSORS];
  const AgNode *node;
  int ntensor, nnode;
  int64_t scratch; /* bytes that its tensors take of the scratch */
} AttentionGraph;

/* Of OP_attention or OP_attention_dx over whole sequences of equal length; a->work may
 * not be known yet. */
void attention_graph(int op, const KernelArgs *a, AttentionGraph *g);
/* The operands that a kind has besides x. */
bool ag_has_b(AgKind k);
bool ag_has_t(AgKind k);

#endif
