/* cudnn_rule.c - which attention ops cuDNN supports, and their scratch, by op, attributes
 * and shapes alone, so that a plan can be checked without cuDNN or a GPU. */
#include <stdio.h>

#include "attention_graph.h"
#include "cudnn_attention.h"

enum { Q, K, V, PLAIN_FORWARD = 3, PLAIN_BACKWARD = 6, HEAD_UNIT = 8, HEAD_MOST = 128 };

static bool in_bf16(const KernelArgs *a) {
  for (int i = 0; i <= V; i++)
    if (a->in[i].dtype != DT_BF16 || a->out[0].dtype != DT_BF16) return false;
  return true;
}

const char *cudnn_refuses(int op, const KernelArgs *a) {
  const OpAttr *t = a->attr;
  bool back = op == OP_attention_dx, plain = op == OP_attention || back;
  int nin = back ? PLAIN_BACKWARD : PLAIN_FORWARD;
  const struct {
    bool holds;
    const char *why;
  } rule[] = {
      {plain, "ring attention over cp accumulates in f32, which cuDNN does not"},
      {in_bf16(a), "it computes in bf16 only"},
      {t->rate == 0, "it does not drop by weft's masks, which every mesh has alike"},
      {t->window == 0, "weft's graph for it has no sliding window"},
      {t->soft_cap == 0, "weft's graph for it has no cap of scores"},
      {back || !kernel_sinks(a, PLAIN_FORWARD), "weft's graph for it has no sinks"},
      {a->nin == nin, "its causal mask does not support packed documents"},
      {t->n <= 1 && t->parts <= 1,
       "its causal mask does not support a part of the sequence (cp)"},
      {a->in[Q].ndim == 3 && a->in[Q].dim[1] == a->in[K].dim[1],
       "the numbers of queries and keys differ"},
      {a->in[Q].dim[2] % a->in[K].dim[2] == 0,
       "the number of query heads is not a multiple of the key-value heads"},
      {t->head_dim % HEAD_UNIT == 0 && t->head_dim <= HEAD_MOST,
       "head_dim must be a multiple of 8 and at most 128"},
      {attr_value_dim(t) == t->head_dim, "the heads of v and k have different sizes"},
      {!back || a->in[Q].dim[1] > 1, "it has no gradients of a single token"},
  };
  for (int i = 0; i < LEN(rule); i++)
    if (!rule[i].holds) return rule[i].why;
  return NULL;
}

/* As cuDNN's own frontend knows them (cudnn-frontend 1.16 and 1.23, its node of these
 * gradients): it refuses the former two, and works around the latter with a padding mask,
 * which is another graph. */
weft_status cudnn_sound(size_t version, int op, const KernelArgs *a, weft_error *e) {
  enum { SOUND = 91501, WRONG = 91000, WRONG_TOO = 91001, TILE = 128 };
  long long tokens = (long long)a->in[Q].dim[1];
  bool wrong = version == WRONG || version == WRONG_TOO;
  char does[120] = "computes wrong gradients of attention";
  if (op != OP_attention_dx || version >= SOUND) return WEFT_OK;
  if (!wrong && tokens % TILE == 0) return WEFT_OK;
  if (!wrong)
    snprintf(
        does, sizeof does,
        "reads outside of memory for gradients of %lld tokens, which are no multiple "
        "of %d",
        tokens, TILE);
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

/* cuDNN's own workspace at most, on GPUs 8.0, 9.0 and 10.0. For gradients that is
 * Ampere's: sums of dk and dv per query head in f32; Hopper and Blackwell need half. */
static int64_t own_work(int op, const KernelArgs *a) {
  enum { SMALL = 256, ROWS = 8 };
  const KTensor *q = &a->in[Q];
  if (op != OP_attention_dx) return SMALL;
  int64_t rows = (q->dim[1] + ROWS - 1) / ROWS * ROWS;
  return 2 * q->dim[0] * rows * q->dim[2] * (int64_t)sizeof(float) + SMALL;
}

uint64_t cudnn_work(int op, const KernelArgs *a) {
  AttentionGraph g;
  attention_graph(op, a, &g);
  return (uint64_t)(g.scratch + own_work(op, a));
}
