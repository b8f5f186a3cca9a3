/* cudnn_staged.c - results of a block that lie in scratch, put where they belong: of a
 * ring's step, whose results are sums with the steps before, and of keys that several
 * blocks have. */
#include "cudnn_attention.h"

enum { O, LSE, O_BEFORE = 3, LSE_BEFORE, DQ_BEFORE = 6 }; /* results and operands */

/* What earlier steps gave of result i, or NULL. */
static const KTensor *before(int op, const KernelArgs *a, int i) {
  if (!attention_goes_on(op, a)) return NULL;
  if (!attention_is_back(op)) return &a->in[i == O ? O_BEFORE : LSE_BEFORE];
  return i == 0 ? &a->in[DQ_BEFORE] : NULL; /* dk and dv are those of the step alone */
}

static const AgTensor *staged(const AttentionGraph *g, int result) {
  for (int i = 0; i < g->ntensor; i++)
    if (g->tensor[i].where == AG_STAGED && g->tensor[i].index == result)
      return &g->tensor[i];
  return NULL;
}

static BlockRows rows_of(const KernelArgs *a, const AgTensor *t, int64_t first) {
  return (BlockRows){.p = (char *)a->work + t->at,
                     .type = t->type == AG_F32 ? DT_F32 : DT_BF16,
                     .first = first,
                     .rows = t->dim[2]};
}

void cudnn_put_staged(Device *d, int op, const KernelArgs *a, const AttentionGraph *g,
                      const AttentionBlock *b, bool again) {
  bool back = attention_is_back(op);
  if (!back && attention_goes_on(op, a)) {
    BlockRows rows = rows_of(a, staged(g, O), b->query);
    const float *lse = rows_of(a, staged(g, LSE), 0).p;
    cuda_merge_rows(d, &a->out[O], &a->out[LSE], &a->in[O_BEFORE], &a->in[LSE_BEFORE],
                    rows, lse, a->attr->head_dim);
    return;
  }
  for (int i = 0; i < a->nout; i++) {
    const AgTensor *t = staged(g, i);
    bool keys = back && i > 0;
    if (t)
      cuda_put_rows(d, &a->out[i], again ? &a->out[i] : before(op, a, i),
                    rows_of(a, t, keys ? b->key : b->query));
  }
}

void cudnn_pass_on(Device *d, int op, const KernelArgs *a) {
  for (int i = 0; i < a->nout; i++)
    cuda_put_rows(d, &a->out[i], before(op, a, i), (BlockRows){0});
}
