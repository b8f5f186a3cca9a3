/* source_synthetic.c - random tokens without an end, of which some or all are learnt. */
#include "source.h"
#include "vm/base/rng.h"

static weft_status open_synthetic(Data *d, const DataSpec *spec, weft_error *e) {
  if (spec->vocab > d->vocab)
    return err_set(e, WEFT_EPLAN,
                   "data.vocab = %lld is larger than the model's vocabulary of %lld",
                   (long long)spec->vocab, (long long)d->vocab);
  if (spec->vocab > 0) d->vocab = spec->vocab;
  d->learnt = spec->learnt;
  d->masked = spec->learnt > 0 && spec->learnt < 1;
  d->described =
      arena_printf(d->arena, "synthetic tokens, vocabulary %lld", (long long)d->vocab);
  if (d->masked)
    d->described = arena_printf(d->arena, "%s, %.3g %% of them learnt", d->described,
                                100 * d->learnt);
  return WEFT_OK;
}

static weft_status synthetic_ids(const Data *d, int64_t at, int64_t n, int32_t *out,
                                 weft_error *e) {
  Rng r = rng_make(d->seed, d->val ? "data.synthetic.val" : "data.synthetic");
  for (int64_t i = 0; i < n; i++)
    out[i] =
        (int32_t)((uint64_t)rng_u32(&r, (uint64_t)(at + i)) * (uint64_t)d->vocab >> 32);
  return WEFT_OK;
}

static weft_status synthetic_mask(const Data *d, int64_t at, int64_t n, int32_t *labels,
                                  weft_error *e) {
  Rng r = rng_make(d->seed, d->val ? "data.learnt.val" : "data.learnt");
  for (int64_t i = 0; i < n; i++)
    if (rng_uniform(&r, (uint64_t)(at + i)) >= d->learnt) labels[i] = LABEL_IGNORED;
  return WEFT_OK;
}

const Source source_synthetic = {open_synthetic, synthetic_ids, synthetic_mask, "tokens",
                                 "token"};
