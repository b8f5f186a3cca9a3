/* attention_graph.c - the tables of attention_graph.h.
 *
 * Dimensions are letters: B sequences, H query heads, K key heads, T tokens, D elements
 * of a head of q and k, E of v and o. cuDNN's engines match a graph by its shape: ops,
 * their order, intermediate tensors and types. So they cannot be written otherwise. */
#include "attention_graph.h"

#include <float.h>

typedef enum { ONE, B, H, K, T, D, E, LETTERS } Letter;

/* Memory layouts. */
typedef enum {
  STORED,        /* (B, T, heads, columns), as weft stores activations */
  STORED_TURNED, /* the same memory with rows and columns transposed */
  DENSE,         /* in the order of the dimensions */
  DENSE_TURNED   /* with rows and columns exchanged */
} Layout;

typedef struct Row {
  const char *name;
  AgType type;
  AgWhere where;
  int index; /* of the operand, the result or the number */
  Layout layout;
  uint8_t dim[4];
} Row;

/* AG_NUMBER: the scale of scores; the value of a masked score (finite, because cuDNN
 * subtracts from it); and the factor of row sums. */
typedef enum { SCALE, NEVER, KEEP_ALL } Number;

#define SCORES                                                                           \
  { B, H, T, T }
#define EACH                                                                             \
  { B, H, T, ONE }
#define NUMBER                                                                           \
  { ONE, ONE, ONE, ONE }

/* ---- o = softmax(scale * q k^T, masked) v, lse = log of its sums ---- */

enum {
#define FORWARD(id, ...) id,
#include "attention_graph.def"
  F_N
};

static const Row forward_tensor[F_N] = {
#define FORWARD(id, ...) [id] = {__VA_ARGS__},
#include "attention_graph.def"
};

static const AgNode forward_node[] = {
    {AG_MATMUL, F_S, F_Q, F_KT, 0},
    {AG_MUL, F_SCALED, F_S, F_SCALE, 0},
    {AG_ROW, F_ROW, F_SCALED, 0, 0},
    {AG_COLUMN, F_COLUMN, F_SCALED, 0, 0},
    {AG_NOT_LESS, F_SEEN, F_ROW, F_COLUMN, 0},
    {AG_SELECT, F_MASKED, F_SCALED, F_NEVER, F_SEEN},
    {AG_MOST, F_MOST, F_MASKED, 0, 0},
    {AG_SUB, F_LESS, F_MASKED, F_MOST, 0},
    {AG_EXP, F_E, F_LESS, 0, 0},
    {AG_SUM, F_SUM, F_E, 0, 0},
    {AG_LOG, F_LOG, F_SUM, 0, 0},
    {AG_ADD, F_LSE, F_MOST, F_LOG, 0},
    {AG_DIV, F_P, F_E, F_SUM, 0},
    {AG_MATMUL, F_O, F_P, F_V, 0},
};

/* ---- gradients: p recomputed from lse, dS = p * (do v^T - delta) * scale ----
 *
 * Before 9.26 Ampere's engines take lse as (B,H,T) without gaps, whatever strides it is
 * said to have (NVIDIA/cudnn-frontend, pull request 304): it is copied to such a place.
 */

enum {
#define BACKWARD(id, ...) id,
#include "attention_graph.def"
  G_N
};

static const Row backward_tensor[G_N] = {
#define BACKWARD(id, ...) [id] = {__VA_ARGS__},
#include "attention_graph.def"
};

static const AgNode backward_node[] = {
    {AG_MUL, G_DO_O, G_DO, G_O, 0},
    {AG_SUM, G_ROW_SUM, G_DO_O, 0, 0},
    {AG_MUL, G_DELTA, G_ROW_SUM, G_KEEP, 0},
    {AG_MATMUL, G_S, G_Q, G_KT, 0},
    {AG_MUL, G_SCALED, G_S, G_SCALE, 0},
    {AG_SUB, G_LESS, G_SCALED, G_LSE, 0},
    {AG_ROW, G_ROW, G_LESS, 0, 0},
    {AG_COLUMN, G_COLUMN, G_LESS, 0, 0},
    {AG_NOT_LESS, G_SEEN, G_ROW, G_COLUMN, 0},
    {AG_SELECT, G_MASKED, G_LESS, G_NEVER, G_SEEN},
    {AG_EXP, G_P, G_MASKED, 0, 0},
    {AG_VIEW, G_PT, G_P, 0, 0},
    {AG_MATMUL, G_DV_HEADS, G_PT, G_DO, 0},
    {AG_SUM, G_DV, G_DV_HEADS, 0, 0},
    {AG_MATMUL, G_DP, G_DO, G_VT, 0},
    {AG_SUB, G_DP_LESS, G_DP, G_DELTA, 0},
    {AG_MUL, G_DS_UNSCALED, G_DP_LESS, G_P, 0},
    {AG_MUL, G_DS, G_DS_UNSCALED, G_SCALE, 0},
    {AG_VIEW, G_DST, G_DS, 0, 0},
    {AG_MATMUL, G_DK_HEADS, G_DST, G_Q, 0},
    {AG_SUM, G_DK, G_DK_HEADS, 0, 0},
    {AG_VIEW, G_K, G_KT, 0, 0},
    {AG_MATMUL, G_DQ_SUMS, G_DS, G_K, 0},
    {AG_COPY, G_DQ, G_DQ_SUMS, 0, 0},
};

_Static_assert(LEN(forward_tensor) <= AG_TENSORS && LEN(backward_tensor) <= AG_TENSORS &&
                   LEN(forward_node) <= AG_NODES && LEN(backward_node) <= AG_NODES,
               "what attention_graph.h says");

/* ---- filling in sizes ---- */

bool ag_has_t(AgKind k) { return k == AG_SELECT; }

bool ag_has_b(AgKind k) { return k <= AG_DIV || k == AG_NOT_LESS || k == AG_SELECT; }

static void sizes_of(const KernelArgs *a, int64_t size[LETTERS]) {
  const KTensor *q = &a->in[0], *k = &a->in[1];
  int64_t d = a->attr->head_dim;
  size[ONE] = 1;
  size[B] = q->dim[0], size[T] = q->dim[1];
  size[H] = q->dim[2] / d, size[K] = k->dim[2] / d;
  size[D] = d, size[E] = attr_value_dim(a->attr);
}

static void strides_of(Layout l, const int64_t dim[4], int64_t stride[4]) {
  int64_t heads = dim[1], rows = dim[2], cols = dim[3];
  bool turned = l == STORED_TURNED || l == DENSE_TURNED;
  if (turned) rows = dim[3], cols = dim[2];
  bool stored = l == STORED || l == STORED_TURNED;
  stride[0] = heads * rows * cols;
  stride[1] = stored ? cols : rows * cols;
  stride[turned ? 3 : 2] = stored ? heads * cols : cols;
  stride[turned ? 2 : 3] = 1;
}

static float number_of(const OpAttr *attr, int which) {
  return which == SCALE ? attr->scale : which == NEVER ? -FLT_MAX : 1;
}

void attention_graph(int op, const KernelArgs *a, AttentionGraph *g) {
  enum { ALIGN = 256 };
  bool back = op == OP_attention_dx;
  const Row *row = back ? backward_tensor : forward_tensor;
  int64_t size[LETTERS];
  sizes_of(a, size);
  *g = (AttentionGraph){.node = back ? backward_node : forward_node,
                        .nnode = back ? LEN(backward_node) : LEN(forward_node),
                        .ntensor = back ? G_N : F_N};
  for (int i = 0; i < g->ntensor; i++) {
    AgTensor *t = &g->tensor[i];
    *t = (AgTensor){.name = row[i].name,
                    .type = row[i].type,
                    .where = row[i].where,
                    .index = row[i].index};
    int64_t count = 1;
    for (int k = 0; k < 4; k++) count *= t->dim[k] = size[row[i].dim[k]];
    strides_of(row[i].layout, t->dim, t->stride);
    if (t->where == AG_NUMBER) t->number = number_of(a->attr, t->index);
    if (t->where != AG_SCRATCH && t->where != AG_BY_HEADS) continue;
    t->at = g->scratch;
    g->scratch += (count * (int64_t)sizeof(float) + ALIGN - 1) / ALIGN * ALIGN;
  }
}
