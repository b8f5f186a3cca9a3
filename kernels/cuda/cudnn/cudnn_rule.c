/* cudnn_rule.c - which attention ops cuDNN supports, and their scratch, by op, attributes
 * and shapes alone, so that a plan can be checked without cuDNN or a GPU. */
#include <stdio.h>

#include "attention_graph.h"
#include "cudnn_attention.h"

enum { Q, K, V, HEAD_UNIT = 8, HEAD_MOST = 128, TILE = 128 /* keys */ };

/* Results of a ring's steps are sums, which are made outside of cuDNN. */
static bool in_bf16(int op, const KernelArgs *a) {
  for (int i = 0; i <= V; i++)
    if (a->in[i].dtype != DT_BF16) return false;
  return attention_is_part(op) || a->out[0].dtype == DT_BF16;
}

/* Operands without doc_starts and sinks. */
static int operands(int op, const KernelArgs *a) {
  int forward = V + 1, backward = 6, sums = attention_is_back(op) ? 1 : 2;
  int n = attention_is_back(op) ? backward : forward;
  return n + (attention_goes_on(op, a) ? sums : 0);
}

static bool rows_are_those_of_pieces(int op, const KernelArgs *a) {
  int64_t n = attention_is_part(op) ? 1 : attention_pieces(a);
  return a->in[Q].ndim == 3 && n * a->in[Q].dim[1] == a->in[K].dim[1];
}

/* A query that sees itself alone has no gradient; neither has cuDNN a plan of it, nor,
 * in some versions, of one query that sees some of several keys. */
static bool has_rows(int op, const KernelArgs *a) {
  bool pieces = attention_pieces(a) > 1;
  if (!pieces && !attention_is_back(op)) return true;
  return a->in[Q].dim[1] / (pieces && a->attr->mirror ? 2 : 1) > 1;
}

const char *cudnn_refuses(int op, const KernelArgs *a) {
  const OpAttr *t = a->attr;
  bool back = attention_is_back(op), pieces = attention_pieces(a) > 1;
  bool attends = op == OP_attention || back || op == OP_attention_part;
  int nin = operands(op, a);
  const struct {
    bool holds;
    const char *why;
  } rule[] = {
      {attends, "it has no attention of single tokens"},
      {in_bf16(op, a), "it computes in bf16 only"},
      {t->rate == 0, "it does not drop by weft's masks, which every mesh has alike"},
      {t->soft_cap == 0, "weft's graph for it has no cap of scores"},
      {back || !kernel_sinks(a, nin), "weft's graph for it has no sinks"},
      {a->nin == nin || !pieces,
       "weft's graph for it has no packed documents of which cp cuts the sequence"},
      {t->window == 0 || !pieces,
       "weft's graph for it has no sliding window over a part of the sequence (cp)"},
      {t->parts <= 1, "its causal mask does not support documents that cp cuts"},
      {a->nin <= nin + 1 && (a->nin == nin || attention_documents(op, a)),
       "weft's graph for it does not have these operands"},
      {rows_are_those_of_pieces(op, a), "the numbers of queries and keys differ"},
      {a->in[Q].dim[2] % a->in[K].dim[2] == 0,
       "the number of query heads is not a multiple of the key-value heads"},
      {t->head_dim % HEAD_UNIT == 0 && t->head_dim <= HEAD_MOST,
       "head_dim must be a multiple of 8 and at most 128"},
      {attr_value_dim(t) == t->head_dim, "the heads of v and k have different sizes"},
      {has_rows(op, a), "it has no gradients of a single token"},
  };
  for (int i = 0; i < LEN(rule); i++)
    if (!rule[i].holds) return rule[i].why;
  return NULL;
}

/* Calls f of the blocks of all ranks: what is checked holds on each. */
static void each_block(int op, const KernelArgs *a,
                       void (*f)(int op, const KernelArgs *a, const AttentionBlock *b,
                                 void *to),
                       void *to) {
  AttentionBlock b[BLOCKS_MOST];
  for (int i = 0; i < attention_pieces(a); i++)
    for (int k = attention_blocks(op, a, i, b); k-- > 0;) f(op, a, &b[k], to);
}

static void uneven_keys(int op, const KernelArgs *a, const AttentionBlock *b, void *to) {
  (void)op, (void)a;
  if (b->keys % TILE) *(int64_t *)to = b->keys;
}

/* As cuDNN's own frontend knows them (cudnn-frontend 1.16 and 1.23, its node of these
 * gradients): it refuses the former two, and works around the latter with a padding mask,
 * which is another graph. */
weft_status cudnn_sound(size_t version, int op, const KernelArgs *a, weft_error *e) {
  enum { SOUND = 91501, WRONG = 91000, WRONG_TOO = 91001 };
  bool wrong = version == WRONG || version == WRONG_TOO, back = attention_is_back(op);
  char does[120] = "computes attention wrongly";
  int64_t keys = 0;
  if (version >= SOUND) return WEFT_OK;
  if (back) each_block(op, a, uneven_keys, &keys);
  if (!wrong && keys == 0) return WEFT_OK;
  if (!wrong)
    snprintf(
        does, sizeof does,
        "reads outside of memory for gradients of %lld tokens, which are no multiple "
        "of %d",
        (long long)keys, TILE);
  return err_set(e, WEFT_EPLAN,
                 "cuDNN %d.%d.%d %s: install 9.15.1 or newer, or use attention_backend = "
                 "\"native\"",
                 (int)(version / 10000), (int)(version / 100 % 100), (int)(version % 100),
                 does);
}

bool cudnn_unsound(int version, int op, const KernelArgs *a) {
  weft_error e = NO_ERROR;
  return cudnn_sound((size_t)version, op, a, &e) != WEFT_OK;
}

/* cuDNN's own workspace at most, on GPUs 8.0, 9.0 and 10.0, as its plans say. For
 * gradients that is Ampere's: rows of queries and of keys in f32, for each query head;
 * Hopper's kernels want those of keys alone. */
int64_t cudnn_own_work(int op, const KernelArgs *a, const AttentionBlock *b) {
  enum { SMALL = 256, ROWS = 8 };
  const KTensor *q = &a->in[Q];
  if (!attention_is_back(op)) return SMALL;
  int64_t rows = (b->queries + ROWS - 1) / ROWS * ROWS + b->keys;
  return q->dim[0] * rows * q->dim[2] * (int64_t)sizeof(float) + SMALL;
}

static void most_work(int op, const KernelArgs *a, const AttentionBlock *b, void *to) {
  AttentionGraph g;
  int64_t *most = to;
  attention_graph(op, a, b, &g);
  *most = MAX(*most, g.scratch + cudnn_own_work(op, a, b));
}

uint64_t cudnn_work(int op, const KernelArgs *a) {
  int64_t most = 0;
  each_block(op, a, most_work, &most);
  return (uint64_t)most;
}
