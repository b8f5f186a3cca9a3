/* source_synthetic.c - random tokens without an end. */
#include "source.h"
#include "vm/base/rng.h"

static weft_status open_synthetic(Data *d, const DataSpec *spec, weft_error *e) {
  if (spec->vocab > d->vocab)
    return err_set(e, WEFT_EPLAN,
                   "data.vocab = %lld is larger than the model's vocabulary of %lld",
                   (long long)spec->vocab, (long long)d->vocab);
  if (spec->vocab > 0) d->vocab = spec->vocab;
  d->described =
      arena_printf(d->arena, "synthetic tokens, vocabulary %lld", (long long)d->vocab);
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

const Source source_synthetic = {open_synthetic, synthetic_ids, "tokens", "token"};
