/* attention_graph.c - the graphs of attention_graph.h.
 *
 * Dimensions are letters: B sequences, H query heads, K key heads, T queries, S keys, D
 * elements of a head of q and k, E of v and o. cuDNN's engines match a graph by its
 * shape: ops, their order, intermediate tensors and types. So they cannot be written
 * otherwise. */
#include "attention_graph.h"

#include <float.h>

typedef enum { ONE, B, H, K, T, S, D, E, LETTERS } Letter;

/* Memory layouts. */
typedef enum {
  STORED,        /* (B, rows, heads, columns), as weft stores activations */
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
 * subtracts from it); the factor of row sums; tokens that a query sees; rows of the
 * block. */
typedef enum { SCALE, NEVER, KEEP_ALL, WINDOW, KEYS, QUERIES } Number;

#define SCORES                                                                           \
  { B, H, T, S }
#define TURNED                                                                           \
  { B, H, S, T }
#define EACH                                                                             \
  { B, H, T, ONE }
#define NUMBER                                                                           \
  { ONE, ONE, ONE, ONE }

/* ---- what a query sees ---- of the scores, or of what is left of them */

enum {
#define MASK(id, ...) id,
#include "attention_graph.def"
  M_N
};

static const Row mask_tensor[M_N] = {
#define MASK(id, ...) [id] = {__VA_ARGS__},
#include "attention_graph.def"
};

static int add(AttentionGraph *g, AgKind kind, int y, int x, int b, int t) {
  assert(g->nnode < AG_NODES);
  g->node[g->nnode++] = (AgNode){kind, (uint8_t)y, (uint8_t)x, (uint8_t)b, (uint8_t)t};
  return y;
}

/* Up to the diagonal that ends in the last key: the last query sees it. */
static int add_diagonal(AttentionGraph *g, const AttentionBlock *b, int scores) {
  int last = add(g, AG_ROW, M_ROW, scores, 0, 0);
  (void)add(g, AG_COLUMN, M_COLUMN, scores, 0, 0);
  if (b->keys != b->queries) {
    last = add(g, AG_ADD, M_ROW_KEYS, last, M_KEYS, 0);
    last = add(g, AG_SUB, M_LAST, last, M_QUERIES, 0);
  }
  (void)add(g, AG_NOT_LESS, M_SEEN, last, M_COLUMN, 0);
  return add(g, AG_SELECT, M_SCORES, scores, M_NEVER, M_SEEN);
}

static int add_window(AttentionGraph *g, int scores) {
  (void)add(g, AG_ROW, M_ROW_AGAIN, scores, 0, 0);
  (void)add(g, AG_COLUMN, M_COLUMN_AGAIN, scores, 0, 0);
  (void)add(g, AG_ADD, M_UPTO, M_COLUMN_AGAIN, M_WINDOW, 0);
  (void)add(g, AG_GREATER, M_IN_WINDOW, M_UPTO, M_ROW_AGAIN, 0);
  return add(g, AG_SELECT, M_WINDOWED, scores, M_NEVER, M_IN_WINDOW);
}

static int add_documents(AttentionGraph *g, int scores) {
  (void)add(g, AG_NOT_LESS, M_OF_DOCUMENT, M_COLUMN, M_STARTS, 0);
  return add(g, AG_SELECT, M_DOCUMENTS, scores, M_NEVER, M_OF_DOCUMENT);
}

/* Masked scores: those of a tensor that was not. */
static int add_masks(AttentionGraph *g, int op, const KernelArgs *a,
                     const AttentionBlock *b, int scores) {
  if (b->causal) scores = add_diagonal(g, b, scores);
  if (a->attr->window) scores = add_window(g, scores);
  if (attention_documents(op, a)) scores = add_documents(g, scores);
  return scores;
}

/* ---- o = softmax(scale * q k^T, masked) v, lse = log of its sums ---- */

enum {
  F_FIRST = M_N - 1, /* the masks' tensors come first, in both graphs */
#define FORWARD(id, ...) id,
#include "attention_graph.def"
  F_N
};

static const Row forward_tensor[F_N] = {
#define FORWARD(id, ...) [id] = {__VA_ARGS__},
#include "attention_graph.def"
};

static const AgNode forward_scores[] = {
    {AG_MATMUL, F_S, F_Q, F_KT, 0},
    {AG_MUL, F_SCALED, F_S, F_SCALE, 0},
};

/* M_SCORES is what is left by the last mask. */
static const AgNode forward_result[] = {
    {AG_MOST, F_MOST, M_SCORES, 0, 0}, {AG_SUB, F_LESS, M_SCORES, F_MOST, 0},
    {AG_EXP, F_E, F_LESS, 0, 0},       {AG_SUM, F_SUM, F_E, 0, 0},
    {AG_LOG, F_LOG, F_SUM, 0, 0},      {AG_ADD, F_LSE, F_MOST, F_LOG, 0},
    {AG_DIV, F_P, F_E, F_SUM, 0},      {AG_MATMUL, F_O, F_P, F_V, 0},
};

/* ---- gradients: p recomputed from lse, dS = p * (do v^T - delta) * scale ----
 *
 * Before 9.26 Ampere's engines take lse as (B,H,T) without gaps, whatever strides it is
 * said to have (NVIDIA/cudnn-frontend, pull request 304): it is copied to such a place.
 */

enum {
  G_FIRST = M_N - 1,
#define BACKWARD(id, ...) id,
#include "attention_graph.def"
  G_N
};

static const Row backward_tensor[G_N] = {
#define BACKWARD(id, ...) [id] = {__VA_ARGS__},
#include "attention_graph.def"
};

static const AgNode backward_scores[] = {
    {AG_MUL, G_DO_O, G_DO, G_O, 0},          {AG_SUM, G_ROW_SUM, G_DO_O, 0, 0},
    {AG_MUL, G_DELTA, G_ROW_SUM, G_KEEP, 0}, {AG_MATMUL, G_S, G_Q, G_KT, 0},
    {AG_MUL, G_SCALED, G_S, G_SCALE, 0},     {AG_SUB, G_LESS, G_SCALED, G_LSE, 0},
};

static const AgNode backward_result[] = {
    {AG_EXP, G_P, M_SCORES, 0, 0},
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

_Static_assert(LEN(forward_tensor) <= AG_TENSORS && LEN(backward_tensor) <= AG_TENSORS,
               "what attention_graph.h says");

bool ag_has_t(AgKind k) { return k == AG_SELECT; }

bool ag_has_b(AgKind k) {
  return k <= AG_DIV || k == AG_NOT_LESS || k == AG_GREATER || k == AG_SELECT;
}

static void add_all(AttentionGraph *g, const AgNode *node, int n, int scores) {
  for (int i = 0; i < n; i++) {
    AgNode x = node[i];
    if (x.x == M_SCORES) x.x = (uint8_t)scores;
    (void)add(g, x.kind, x.y, x.x, x.b, x.t);
  }
}

static void add_nodes(AttentionGraph *g, int op, const KernelArgs *a,
                      const AttentionBlock *b) {
  if (attention_is_back(op)) {
    add_all(g, backward_scores, LEN(backward_scores), 0);
    int left = add_masks(g, op, a, b, G_LESS);
    add_all(g, backward_result, LEN(backward_result), left);
  } else {
    add_all(g, forward_scores, LEN(forward_scores), 0);
    int left = add_masks(g, op, a, b, F_SCALED);
    add_all(g, forward_result, LEN(forward_result), left);
  }
}

/* ---- tensors ---- */

typedef struct Sizes {
  int64_t of[LETTERS];
  int64_t queries, keys; /* rows of the operands: the block has some of them */
  int op;
  const KernelArgs *a;
  const AttentionBlock *b;
} Sizes;

static Sizes sizes_of(int op, const KernelArgs *a, const AttentionBlock *b) {
  const KTensor *q = &a->in[0], *k = &a->in[1];
  int64_t d = a->attr->head_dim;
  Sizes s = {.queries = q->dim[1], .keys = k->dim[1], .op = op, .a = a, .b = b};
  s.of[ONE] = 1, s.of[B] = q->dim[0];
  s.of[H] = q->dim[2] / d, s.of[K] = k->dim[2] / d;
  s.of[T] = b->queries, s.of[S] = b->keys;
  s.of[D] = d, s.of[E] = attr_value_dim(a->attr);
  return s;
}

/* `rows` of which the memory has so many. */
static void strides_of(Layout l, const int64_t dim[4], int64_t memory,
                       int64_t stride[4]) {
  bool turned = l == STORED_TURNED || l == DENSE_TURNED;
  bool stored = l == STORED || l == STORED_TURNED;
  int64_t heads = dim[1], rows = dim[turned ? 3 : 2], cols = dim[turned ? 2 : 3];
  stride[0] = heads * (stored ? memory : rows) * cols;
  stride[1] = stored ? cols : rows * cols;
  stride[turned ? 3 : 2] = stored ? heads * cols : cols;
  stride[turned ? 2 : 3] = 1;
}

/* Whether cuDNN writes the result to scratch: what is added up over steps of a ring or
 * over blocks (dk and dv of keys that two have), and lse, as a block's rows of it may
 * begin at no multiple of 16 bytes. o and dq of a query come from one block. */
static bool staged(const Sizes *s, const Row *r) {
  if (attention_is_part(s->op)) return true;
  if (attention_pieces(s->a) < 2) return false;
  return attention_is_back(s->op) ? r->index > 0 : r->index == 1;
}

static int64_t size_in_memory(AgType t) { return t == AG_BF16 ? 2 : 4; }

static int64_t up(int64_t bytes) {
  enum { ALIGN = 256 };
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void set_number(AgTensor *t, const Sizes *s) {
  const OpAttr *attr = s->a->attr;
  switch (t->index) {
  case SCALE: t->number = attr->scale; break;
  case NEVER: t->number = -FLT_MAX; break;
  case KEEP_ALL: t->number = 1; break;
  case WINDOW: t->number = (float)attr->window; break;
  case KEYS: t->count = (int32_t)s->b->keys; break;
  default: t->count = (int32_t)s->b->queries; break;
  }
}

static AgTensor tensor_of(const Row *r, const Sizes *s, int64_t *scratch) {
  AgTensor t = {.name = r->name, .type = r->type, .where = r->where, .index = r->index};
  bool turned = r->layout == STORED_TURNED || r->layout == DENSE_TURNED, keys = false;
  int64_t count = 1;
  for (int k = 0; k < 4; k++) count *= t.dim[k] = s->of[r->dim[k]];
  if (r->dim[0] == B) keys = r->dim[turned ? 3 : 2] == S;
  if (t.where == AG_OUT && staged(s, r)) t.where = AG_STAGED;
  int64_t memory = t.where == AG_STAGED ? (keys ? s->b->keys : s->b->queries)
                                        : (keys ? s->keys : s->queries);
  strides_of(r->layout, t.dim, memory, t.stride);
  if (t.where == AG_NUMBER) set_number(&t, s);
  if (t.where == AG_IN || t.where == AG_OUT)
    t.at = (keys ? s->b->key : s->b->query) * t.stride[turned ? 3 : 2] *
           size_in_memory(t.type);
  if (t.where == AG_BY_HEADS) t.from = s->b->query;
  if (t.where != AG_SCRATCH && t.where != AG_BY_HEADS && t.where != AG_STAGED) return t;
  t.at = *scratch;
  *scratch += up(count * size_in_memory(t.type));
  return t;
}

/* Tensors that some op of the graph has. */
static void find_used(const AttentionGraph *g, bool used[AG_TENSORS]) {
  for (int i = 0; i < g->nnode; i++) {
    const AgNode *n = &g->node[i];
    used[n->y] = used[n->x] = true;
    if (ag_has_b(n->kind)) used[n->b] = true;
    if (ag_has_t(n->kind)) used[n->t] = true;
  }
}

void attention_graph(int op, const KernelArgs *a, const AttentionBlock *b,
                     AttentionGraph *g) {
  bool back = attention_is_back(op), used[AG_TENSORS] = {0};
  const Row *row = back ? backward_tensor : forward_tensor;
  Sizes s = sizes_of(op, a, b);
  *g = (AttentionGraph){.ntensor = back ? G_N : F_N};
  add_nodes(g, op, a, b);
  find_used(g, used);
  for (int i = 0; i < g->ntensor; i++) {
    const Row *r = i < M_N ? &mask_tensor[i] : &row[i];
    g->tensor[i] = used[i] ? tensor_of(r, &s, &g->scratch)
                           : (AgTensor){.name = r->name, .where = AG_NOWHERE};
  }
  g->tensor[M_STARTS].index = attention_starts(op);
}
