/* decode_step.c - one step of decoding: runs one token through programs with a key-value
 * cache (Compiled.context) and assembles the logits from the vocabulary shards of all
 * ranks. */
#include "run_int.h"

#include <math.h>

#include "vm/base/f16.h"

typedef struct Decode {
  int32_t token, position;
  float *logits; /* [vocab] */
} Decode;

/* Reads the first n logits that this rank has. */
static void read_columns(Worker *w, int64_t n, float *to) {
  const Compiled *c = w->run->c;
  const Program *p = &c->prog[mesh_coord(&c->mesh, w->rank, AXIS_PP)];
  size_t size = (size_t)dtype_size(c->dtype);
  const char *from = (const char *)rank_arena(w->r) + p->logits;
  uint16_t block[4096];
  if (c->dtype == DT_F32) {
    device_download(&w->dev, to, from, (size_t)n * size);
    return;
  }
  for (int64_t i = 0; i < n; i += LEN(block)) {
    int64_t some = MIN(n - i, LEN(block));
    device_download(&w->dev, block, from + (size_t)i * size, (size_t)some * size);
    for (int64_t k = 0; k < some; k++)
      to[i + k] = c->dtype == DT_BF16 ? bf16_to_f32(block[k]) : f16_to_f32(block[k]);
  }
}

static weft_status job_decode(Worker *w, void *arg, weft_error *e) {
  const Decode *d = arg;
  const Compiled *c = w->run->c;
  const int32_t input[IN_SEED] = {[IN_TOKENS] = d->token, [IN_POSITIONS] = d->position};
  for (int k = 0; k < IN_SEED; k++)
    if (rank_input(w->r, (InputKind)k)) *rank_input(w->r, (InputKind)k) = input[k];
  TRY(rank_step(w->r, false, &w->run->end, e));
  /* The shard of the last rank may have padding columns beyond the vocabulary. */
  int64_t first =
      c->logits_cut ? mesh_index(&c->mesh, c->logits_cut, w->rank) * c->logits : 0;
  int64_t n = MIN(c->logits, c->vocab - first);
  if (n > 0 && (c->logits_cut || w->rank == 0)) read_columns(w, n, d->logits + first);
  return WEFT_OK;
}

/* No token can be chosen by logits one of which is nan or inf; -inf is one that is never
 * chosen. */
static weft_status check_logits(const float *logits, int64_t n, int64_t position,
                                weft_error *e) {
  for (int64_t i = 0; i < n; i++)
    if (!(logits[i] < INFINITY))
      return err_set(
          e, WEFT_ERUN,
          "after token %lld the logit of token %lld is %s: a parameter is not "
          "finite, or an activation is beyond what the type of precision holds",
          (long long)position, (long long)i, isnan(logits[i]) ? "nan" : "inf");
  return WEFT_OK;
}

weft_status run_decode(Run *r, int32_t token, int64_t position, float *logits,
                       weft_error *e) {
  assert(r->c->context && !r->kind->processes);
  if (position < 0 || position >= r->c->context)
    return err_set(e, WEFT_EUSAGE, "position %lld is not below the context of %lld",
                   (long long)position, (long long)r->c->context);
  if (token < 0 || token >= r->c->vocab)
    return err_set(e, WEFT_EUSAGE, "token %d is not below the vocabulary of %lld", token,
                   (long long)r->c->vocab);
  if (r->dead) return err_set(e, WEFT_ERUN, "an earlier token has ended this run");
  Decode d = {token, (int32_t)position, logits};
  r->step = position;
  weft_status st = run_all(r, job_decode, &d, true, e);
  r->step = -1;
  return st == WEFT_OK ? check_logits(logits, r->c->vocab, position, e) : st;
}
