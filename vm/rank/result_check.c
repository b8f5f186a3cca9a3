/* result_check.c - what a step with checks looks at behind each instruction: values that
 * are not finite, and rows that experts had no room for. */
#include <math.h>

#include "interp.h"
#include "vm/base/f16.h"

/* ---- values that are not finite ---- */

/* What the first such value among n elements at p is, or NULL. A shard of the vocabulary
 * without a true column has the maximum -inf, which is right (see ce_max). */
static const char *not_finite(const void *p, DType t, uint64_t n, bool minus_inf) {
  for (uint64_t i = 0; i < n; i++) {
    double x;
    switch (t) {
    case DT_F64: x = ((const double *)p)[i]; break;
    case DT_BF16: x = bf16_to_f32(((const bf16 *)p)[i]); break;
    case DT_F16: x = f16_to_f32(((const f16 *)p)[i]); break;
    default: x = ((const float *)p)[i];
    }
    if (isnan(x)) return "nan";
    if (isinf(x) && !(minus_inf && x < 0)) return x < 0 ? "-inf" : "inf";
  }
  return NULL;
}

/* What the first of these values that is not finite is, or NULL. They are downloaded in
 * large blocks: a transfer takes microseconds, however small. */
static weft_status find_value(Rank *r, const void *p, DType t, uint64_t n, bool minus_inf,
                              const char **gave, weft_error *e) {
  enum { BLOCK = 4 << 20 };
  size_t size = (size_t)dtype_size(t), most = BLOCK / size;
  size_t bytes = (size_t)MIN(n, most) * size;
  char *block = mem_new(NULL, bytes);
  if (!block) return err_set(e, WEFT_ENOMEM, "out of memory");
  *gave = NULL;
  for (uint64_t at = 0; at < n && !*gave; at += most) {
    uint64_t some = MIN(most, n - at);
    device_download(r->dev, block, (const char *)p + at * size, some * size);
    *gave = not_finite(block, t, some, minus_inf);
  }
  mem_free(NULL, block, bytes);
  return WEFT_OK;
}

weft_status check_result(Rank *r, const Instr *in, const void *p, DType t, uint64_t n,
                         weft_error *e) {
  if (t == DT_I32 || t == DT_U8 || dtype_elements(t) > 1 || n == 0) return WEFT_OK;
  bool maximum =
      in->op == OP_ce_max || in->op == OP_ce_stats || in->op == OP_linear_ce_stats;
  bool minus_inf =
      (in->code == I_KERNEL && maximum) || (in->code != I_KERNEL && in->red == RED_MAX);
  const char *gave = NULL;
  char name[256];
  TRY(find_value(r, p, t, n, minus_inf, &gave, e));
  if (!gave) return WEFT_OK;
  rank_describe(r, in, name, sizeof name);
  r->bad = in;
  r->gave = gave;
  err_set(e, WEFT_ERUN, "rank %d: %s gave %s", r->rank, name, gave);
  if (e) e->rank = r->rank;
  return WEFT_ERUN;
}

const Instr *rank_bad(const Rank *r, const char **gave) {
  if (r->bad && gave) *gave = r->gave;
  return r->bad;
}

/* ---- rows that experts had no room for ---- */

/* Choices of a permute, and where they went, as the host sees them. */
typedef struct Sorted {
  const OpAttr *attr;
  int64_t n;
  int32_t *id, *row;
} Sorted;

/* The most that one rank has for another, in parts of the mean. */
static double factor_of(const Sorted *s) {
  int64_t senders = MAX(s->attr->n, 1), owners = MAX(s->attr->parts, 1), most = 0;
  int64_t count[EXPERTS_MAX] = {0}, each = s->attr->experts / owners;
  for (int64_t i = 0; i < s->n; i++) {
    if (s->row[i] == ROW_ELSEWHERE) continue;
    int64_t *n = &count[i / (s->n / senders) * owners + s->id[i] / each];
    ++*n;
    most = MAX(most, *n);
  }
  return (double)most * (double)(senders * owners) / (double)s->n;
}

/* Why `permute` gave nan: more rows than plan.moe.max_tokens_factor has room for. */
static weft_status too_many_rows(const Rank *r, const Sorted *s, weft_error *e) {
  bool all = true;
  for (int64_t i = 0; i < s->n; i++) all &= s->row[i] != ROW_DROPPED;
  if (all) return WEFT_OK;
  err_set(e, WEFT_ERUN,
          "rank %d: %s: more tokens for the experts of a rank than moe.max_tokens_factor "
          "= %g allows; %g would do here (or moe.drop = true)",
          r->rank, r->p->unit[r->call->unit], s->attr->bound,
          ceil(factor_of(s) * 1000) / 1000);
  if (e) e->rank = r->rank;
  return WEFT_ERUN;
}

weft_status check_permuted(Rank *r, const KernelArgs *a, weft_error *e) {
  const KTensor *id = &a->in[1];
  if (a->attr->bound == 0 || a->attr->drop != DROP_NONE) return WEFT_OK;
  Sorted s = {.attr = a->attr, .n = id->dim[0] * id->dim[1]};
  size_t bytes = (size_t)s.n * sizeof *s.id;
  s.id = mem_new(r->alloc, 2 * bytes);
  if (!s.id) return err_set(e, WEFT_ENOMEM, "out of memory");
  s.row = s.id + s.n;
  device_download(r->dev, s.id, id->p, bytes);
  device_download(r->dev, s.row, a->out[2].p, bytes);
  weft_status st = too_many_rows(r, &s, e);
  mem_free(r->alloc, s.id, 2 * bytes);
  return st;
}
