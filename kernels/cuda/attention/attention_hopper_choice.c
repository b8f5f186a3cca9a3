/* attention_hopper_choice.c - whether attention forward is computed by wgmma, where the
 * GPU has it, or by mma.sync: each op and shape is compared when a program is loaded. */
#include <stdio.h>

#include "attention_hopper.h"
#include "attention_trial.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"

enum { CAPABILITY = 90 };

/* Where the state of an op has it. */
static bool *taken(const KernelArgs *a) {
  size_t at = attr_of_library(a->attr) ? CUDNN_STATE : 0;
  return a->state ? (bool *)((char *)a->state + at) : NULL;
}

bool hopper_takes(const KernelArgs *a) {
  const bool *is = taken(a);
  return is && *is;
}

/* Behind q, k and v; nothing that is dropped has this kernel, nor numbers of tokens. */
static bool has_documents(const KernelArgs *a) {
  for (int i = 3; i < a->nin; i++)
    if (a->in[i].dtype == DT_I32) return true;
  return false;
}

static uint64_t hash_positions(uint64_t h, const KernelArgs *a) {
  const OpAttr *t = a->attr;
  int64_t is[] = {t->window, t->parts, t->n, t->mirror, t->step, a->index};
  return hash_bytes(h, is, sizeof is);
}

/* All that decides which tiles and masks there are: positions in the sequence where
 * windows or documents end, else blocks. */
static uint64_t hash_op(int op, const KernelArgs *a) {
  const OpAttr *t = a->attr;
  const float factor[] = {t->scale, t->soft_cap};
  int64_t is[] = {op, t->head_dim, t->value_dim};
  uint64_t h = hash_bytes(hash_bytes(0, is, sizeof is), factor, sizeof factor);
  bool ends = t->window || has_documents(a);
  return attention_hash(ends ? hash_positions(h, a) : attention_hash_blocks(h, op, a), a);
}

/* What differs, and an evaluation that cannot be compared, is left to mma.sync; the first
 * reason is kept. */
static void leave(Device *d, const KernelArgs *a, const char *why) {
  CudaContext *c = d->ctx;
  if (!c->fallback[0])
    snprintf(c->fallback, sizeof c->fallback,
             "attention of %lld tokens in heads of %d goes on by mma.sync, as on GPUs "
             "without wgmma: %s",
             (long long)a->in[0].dim[1], a->attr->head_dim, why);
  d->fallback = c->fallback;
}

weft_status hopper_prepare(Device *d, int op, KernelArgs *a, weft_error *e) {
  static const Contender hopper = {
      .name = "wgmma", .than = "mma.sync", .advice = "", .run = cuda_attention_hopper};
  CudaContext *c = d->ctx;
  bool differs = false, *is = taken(a);
  if (!c || !is) return WEFT_OK;
  *is = false;
  if (c->capability != CAPABILITY || a->attr->backend == BACKEND_COPIES ||
      !cuda_attention_hopper_has(a))
    return WEFT_OK;
  if (!c->hopper) c->hopper = mem_new(d->alloc, sizeof(Tried));
  if (!c->hopper) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_error why = NO_ERROR;
  weft_status st =
      attention_trial(d, &hopper, c->hopper, hash_op(op, a), op, a, &differs, &why);
  *is = st == WEFT_OK;
  if (st == WEFT_OK) return st;
  if (!differs && st != WEFT_ENOMEM)
    return err_set(e, st,
                   "attention: %s; WEFT_GPU=8.0 in the environment does without wgmma",
                   why.text);
  leave(d, a, why.text);
  return WEFT_OK;
}

void hopper_close(Device *d) {
  CudaContext *c = d->ctx;
  if (!c || !c->hopper) return;
  attention_forget(d, c->hopper);
  mem_free(d->alloc, c->hopper, sizeof(Tried));
  c->hopper = NULL;
}
