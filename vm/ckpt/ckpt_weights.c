/* ckpt_weights.c - see ckpt_weights.h. */
#include "ckpt_weights.h"

#include <math.h>

#include "vm/base/nf4.h"
#include "vm/weights/adapter_files.h"
#include "vm/weights/quantized.h"
#include "vm/weights/weights_match.h"

enum { BLOCK = 1 << 18 }; /* elements per buffer */

/* ---- weights ---- */

static weft_status read_param(CkptRead *read, const Compiled *c, int i, int64_t at,
                              int64_t n, float *to, weft_error *e) {
  int param = ckpt_param(read->c, c->param[i].name);
  return ckpt_read_part(read, ckpt_kind(STATE_PARAM), param, at, n, to, e);
}

/* Elements [at, at + n) of a weight that is stored in 4 bits; `at` is a multiple of
 * BLOCK. Codes lie in the second half of `to` while what they stand for fills it. */
static weft_status read_nf4(CkptRead *read, const Compiled *c, int codes, int64_t at,
                            int64_t n, float *to, weft_error *e) {
  enum { BLOCKS = BLOCK / NF4_BLOCK, GROUPS = BLOCKS / NF4_GROUP };
  float scale[BLOCKS], group[GROUPS], offset, *code = to + n / 2;
  int scales = quantized_part(c, codes, QUANT_SCALES);
  int groups = quantized_part(c, codes, QUANT_GROUPS);
  int64_t first = at / NF4_BLOCK, blocks = n / NF4_BLOCK;
  TRY(read_param(read, c, codes, at / 2, n / 2, code, e));
  TRY(read_param(read, c, scales, first, blocks, scale, e));
  TRY(read_param(read, c, groups, first / NF4_GROUP, (blocks + NF4_GROUP - 1) / NF4_GROUP,
                 group, e));
  TRY(read_param(read, c, groups, param_count(&c->param[groups]) - 1, 1, &offset, e));
  for (int64_t k = 0; k < n / 2; k++) {
    int64_t b = 2 * k / NF4_BLOCK;
    float by = nf4_unpack_scale((uint8_t)scale[b], group[b / NF4_GROUP], offset);
    int two = (int)code[k];
    to[2 * k] = nf4_level[two >> 4] * by;
    to[2 * k + 1] = nf4_level[two & 15] * by;
  }
  return WEFT_OK;
}

static weft_status read_weight(CkptRead *read, const Compiled *c, int i, int64_t at,
                               int64_t n, float *to, weft_error *e) {
  return (c->param[i].quant ? read_nf4 : read_param)(read, c, i, at, n, to, e);
}

/* ---- merging ---- */

/* The adapter of one base: A (rank, in) and B (out, rank), both whole; of experts, one
 * such matrix after the other. */
typedef struct Merge {
  float *a, *b; /* NULL: the base has none */
  double scale;
  float *m;     /* magnitudes, and what rows are multiplied by, once norms are known; */
  double *norm; /* NULL: it has none */
  int64_t na, nb, nm, rank, in;
  int64_t out, columns; /* of the base: output features, columns of a matrix */
  bool in_out;
} Merge;

static void merge_end(Merge *m) {
  mem_free(NULL, m->a, (size_t)m->na * sizeof *m->a);
  mem_free(NULL, m->b, (size_t)m->nb * sizeof *m->b);
  mem_free(NULL, m->m, (size_t)m->nm * sizeof *m->m);
  mem_free(NULL, m->norm, (size_t)m->nm * sizeof *m->norm);
  *m = (Merge){0};
}

static weft_status read_all(CkptRead *read, const CompiledParam *p, float **to,
                            int64_t *n, weft_error *e) {
  *n = param_count(p);
  *to = mem_new(NULL, (size_t)*n * sizeof **to);
  if (!*to) return err_set(e, WEFT_ENOMEM, "out of memory");
  int param = ckpt_param(read->c, p->name);
  return ckpt_read_part(read, ckpt_kind(STATE_PARAM), param, 0, *n, *to, e);
}

static weft_status merge_begin(CkptRead *read, const Compiled *c, int base,
                               const MergeHow *how, Merge *m, weft_error *e) {
  *m = (Merge){0};
  int a = how ? adapter_part(c, base, ADAPTER_A) : -1;
  int b = how ? adapter_part(c, base, ADAPTER_B) : -1;
  if (a < 0 || b < 0) return WEFT_OK;
  const CompiledParam w = weights_as_model(&c->param[base]), *pa = &c->param[a];
  m->rank = pa->dim[pa->ndim - 2], m->in = pa->dim[pa->ndim - 1];
  m->columns = w.dim[w.ndim - 1];
  m->out = w.dim[w.ndim - 1] * w.dim[w.ndim - 2] / m->in;
  m->scale = plan_adapter_scale(how->adapter, m->rank, pa->alpha);
  m->in_out = adapter_of_in_out(how->model, c->param[base].name);
  TRY(read_all(read, &c->param[a], &m->a, &m->na, e));
  TRY(read_all(read, &c->param[b], &m->b, &m->nb, e));
  int magnitude = adapter_part(c, base, ADAPTER_M);
  if (magnitude < 0) return WEFT_OK;
  TRY(read_all(read, &c->param[magnitude], &m->m, &m->nm, e));
  m->norm = mem_new(NULL, (size_t)m->nm * sizeof *m->norm);
  return m->norm ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
}

/* Which output feature element `at` of a matrix is of. */
static int64_t feature(const Merge *m, int64_t at) {
  return m->in_out ? at % m->columns : at / m->columns;
}

/* W + scale * B A of element `at`, where W is w. */
static double added(const Merge *m, int64_t at, double w) {
  int64_t expert = at / (m->out * m->in);
  at %= m->out * m->in;
  int64_t out = feature(m, at), in = m->in_out ? at / m->columns : at % m->columns;
  const float *b = m->b + (expert * m->out + out) * m->rank;
  const float *a = m->a + expert * m->rank * m->in + in;
  double sum = 0;
  for (int64_t r = 0; r < m->rank; r++) sum += (double)b[r] * a[r * m->in];
  return w + m->scale * sum;
}

/* Adds to elements [at, at + n) of the base. */
static void merge_add(const Merge *m, int64_t at, int64_t n, float *w) {
  for (int64_t k = 0; m->a && k < n; k++) {
    double v = added(m, at + k, w[k]);
    int64_t out = feature(m, at + k);
    w[k] = (float)(m->m ? v * (m->m[out] / sqrt(m->norm[out])) : v);
  }
}

/* Sums the squares of each feature of the base with its adapter, where that has
 * magnitudes. */
static weft_status merge_norms(CkptRead *read, const Compiled *c, int base, int64_t all,
                               const Merge *m, float *block, weft_error *e) {
  for (int64_t at = 0, n; m->m && at < all; at += n) {
    n = MIN(all - at, (int64_t)BLOCK);
    TRY(read_weight(read, c, base, at, n, block, e));
    for (int64_t k = 0; k < n; k++) {
      double v = added(m, at + k, block[k]);
      m->norm[feature(m, at + k)] += v * v;
    }
  }
  return WEFT_OK;
}

/* ---- copying ---- */

static weft_status copy_param(CkptRead *read, const Compiled *c, int i,
                              const WeightsOut *out, const Merge *m, float *block,
                              weft_error *e) {
  int64_t all = param_weights(&c->param[i]);
  TRY(merge_norms(read, c, i, all, m, block, e));
  for (int64_t at = 0, n; at < all; at += n) {
    n = MIN(all - at, (int64_t)BLOCK);
    TRY(read_weight(read, c, i, at, n, block, e));
    merge_add(m, at, n, block);
    TRY(weights_out_put(out, i, at, n, block, e));
  }
  return WEFT_OK;
}

static weft_status copy(CkptRead *read, const Compiled *c, const WeightsOut *out,
                        const MergeHow *how, float *block, weft_error *e) {
  for (int i = 0; i < c->nparam; i++) {
    Merge m;
    if (!weights_out_has(out, &c->param[i])) continue;
    weft_status st = merge_begin(read, c, i, how, &m, e);
    if (st == WEFT_OK) st = copy_param(read, c, i, out, &m, block, e);
    merge_end(&m);
    TRY(st);
  }
  return WEFT_OK;
}

weft_status ckpt_weights(const Ckpt *from, const Compiled *c, const WeightsOutOptions *o,
                         const MergeHow *merge, const StopFlag *stop, uint64_t *read,
                         weft_error *e) {
  CkptRead r = {0};
  WeightsOut *to = NULL;
  float *block = mem_new(NULL, BLOCK * sizeof *block);
  weft_status st = WEFT_OK;
  if (!block) TRY_TO(out, st, err_set(e, WEFT_ENOMEM, "out of memory"));
  TRY_TO(out, st, ckpt_read_begin(from, &r, e));
  r.stop = stop;
  TRY_TO(out, st, weights_out_open(NULL, c, o, &to, e));
  st = copy(&r, c, to, merge, block, e);
  if (st == WEFT_OK)
    st = weights_out_finish(to, e);
  else
    weights_out_drop(to);
out:
  *read = r.read;
  ckpt_read_end(&r);
  mem_free(NULL, block, BLOCK * sizeof *block);
  return st;
}
