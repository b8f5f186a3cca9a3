/* attention_hopper_choice.c - whether attention forward is computed by wgmma, where the
 * GPU has it, or by mma.sync: each op and shape is compared when a program is loaded. */
#include <stdio.h>

#include "attention_hopper.h"
#include "attention_trial.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/launch/failed_before.h"

enum { CAPABILITY = 90 };

/* CudaContext.hopper */
typedef struct Hopper {
  Tried same, others;
} Hopper;

/* Where the state of an op has it. */
static bool *taken(const KernelArgs *a) {
  size_t at = a->attr->backend != BACKEND_NATIVE ? CUDNN_STATE : 0;
  return a->state ? (bool *)((char *)a->state + at) : NULL;
}

bool hopper_takes(const KernelArgs *a) {
  const bool *is = taken(a);
  return is && *is;
}

static uint64_t hash_tensors(uint64_t h, const KTensor *t, int n) {
  for (int i = 0; i < n; i++) {
    int64_t is[] = {t[i].dtype, t[i].ndim};
    h = hash_bytes(h, is, sizeof is);
    h = hash_bytes(h, t[i].dim, (size_t)t[i].ndim * sizeof *t[i].dim);
  }
  return h;
}

/* All that decides which tiles and masks there are. */
static uint64_t hash_op(int op, const KernelArgs *a) {
  const OpAttr *t = a->attr;
  const float factor[] = {t->scale, t->soft_cap};
  int64_t is[] = {op,       t->head_dim, t->value_dim, t->window, t->n,
                  a->index, t->step,     t->mirror,    t->parts};
  uint64_t h = hash_bytes(hash_bytes(0, is, sizeof is), factor, sizeof factor);
  return hash_tensors(hash_tensors(h, a->in, a->nin), a->out, a->nout);
}

/* An error of what ran stays one; anything else is a reason for mma.sync. */
static weft_status leave(Device *d, weft_status st, const char *why, weft_error *e) {
  CudaContext *c = d->ctx;
  if (cuda_error_of_what_ran(c)) return err_set(e, st, "%s", why);
  c->refused[0] = 0;
  if (!c->fallback[0])
    snprintf(c->fallback, sizeof c->fallback,
             "attention forward goes on by mma.sync, as on GPUs without wgmma: %s", why);
  d->fallback = c->fallback;
  return WEFT_OK;
}

weft_status hopper_prepare(Device *d, int op, KernelArgs *a, weft_error *e) {
  static const Contender hopper = {
      .name = "wgmma", .than = "mma.sync", .advice = "", .run = cuda_attention_hopper};
  CudaContext *c = d->ctx;
  bool differs = false, *is = taken(a);
  if (!c || !is || c->capability != CAPABILITY || !cuda_attention_hopper_has(a))
    return WEFT_OK;
  if (!c->hopper) c->hopper = mem_new(d->alloc, sizeof(Hopper));
  if (!c->hopper) return err_set(e, WEFT_ENOMEM, "out of memory");
  Hopper *h = c->hopper;
  uint64_t hash = hash_op(op, a);
  if (attention_was_tried(&h->others, hash)) return WEFT_OK;
  weft_error none = NO_ERROR;
  weft_status st = attention_trial(d, &hopper, &h->same, hash, op, a, &differs, &none);
  *is = st == WEFT_OK;
  if (st == WEFT_OK) return WEFT_OK;
  attention_tried(&h->others, hash);
  return leave(d, st, none.text, e);
}

void hopper_close(Device *d) {
  CudaContext *c = d->ctx;
  if (c && c->hopper) mem_free(d->alloc, c->hopper, sizeof(Hopper));
  if (c) c->hopper = NULL;
}
