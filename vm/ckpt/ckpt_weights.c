/* ckpt_weights.c - see ckpt_weights.h. */
#include "ckpt_weights.h"

enum { BLOCK = 1 << 18 }; /* elements per buffer */

static weft_status copy(CkptRead *read, const Compiled *c, const WeightsOut *out,
                        float *block, weft_error *e) {
  for (int i = 0; i < c->nparam; i++) {
    int param = ckpt_param(read->c, c->param[i].name);
    int64_t all = param_count(&c->param[i]);
    for (int64_t at = 0, n; at < all; at += n) {
      n = MIN(all - at, (int64_t)BLOCK);
      TRY(ckpt_read_part(read, ckpt_kind(STATE_PARAM), param, at, n, block, e));
      TRY(weights_out_put(out, i, at, n, block, e));
    }
  }
  return WEFT_OK;
}

weft_status ckpt_weights(const Ckpt *from, const Compiled *c, const WeightsOutOptions *o,
                         uint64_t *read, weft_error *e) {
  CkptRead r = {0};
  WeightsOut *to = NULL;
  float *block = mem_new(NULL, BLOCK * sizeof *block);
  weft_status st = WEFT_OK;
  if (!block) TRY_TO(out, st, err_set(e, WEFT_ENOMEM, "out of memory"));
  TRY_TO(out, st, ckpt_read_begin(from, &r, e));
  TRY_TO(out, st, weights_out_open(NULL, c, o, &to, e));
  st = copy(&r, c, to, block, e);
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
