/* linear_ce_lt.c - a head whose logits never exist whole: see
 * vm/device/linear_ce_calls.h. The state is that of the products, one behind the other.
 */
#include "cublaslt.h"
#include "vm/device/linear_ce_calls.h"

static void *state_of(const KernelArgs *a, int call) {
  return a->state ? (char *)a->state + (size_t)call * CUDA_LT_STATE : NULL;
}

static weft_status prepare_call(Device *d, LinearCeCall *c, weft_error *e) {
  switch (c->op) {
  case OP_linear: return prepare_linear_lt(d, &c->a, e);
  case OP_linear_dw: return prepare_linear_dw_lt(d, &c->a, e);
  case OP_linear_dx: return prepare_linear_dx_lt(d, &c->a, e);
  default: return WEFT_OK;
  }
}

void release_linear_ce_lt(Device *d, KernelArgs *a) {
  for (int i = 0; i < LINEAR_CE_CALLS; i++)
    release_lt(d, &(KernelArgs){.state = state_of(a, i)});
}

/* The algorithm of a product that is added to, which pieces after the first are. */
static weft_status prepare(Device *d, KernelArgs *a, int op, weft_error *e) {
  LinearCeCall call[LINEAR_CE_CALLS];
  weft_status st = WEFT_OK;
  for (int i = 0, n = linear_ce_calls(op, a, 0, call); i < n && st == WEFT_OK; i++) {
    call[i].a.state = state_of(a, i);
    call[i].a.accumulate |= call[i].op == OP_linear_dw && a->attr->n > 1;
    st = prepare_call(d, &call[i], e);
  }
  if (st != WEFT_OK) release_linear_ce_lt(d, a);
  return st;
}

static void run(Device *d, const KernelArgs *a, int op) {
  LinearCeCall call[LINEAR_CE_CALLS];
  for (int64_t piece = 0; piece < a->attr->n; piece++)
    for (int i = 0, n = linear_ce_calls(op, a, piece, call); i < n; i++) {
      KernelArgs *k = &call[i].a;
      k->state = state_of(a, i);
      cuda_kernels[call[i].op].run(d, k);
    }
}

#define KERNEL(name)                                                                     \
  PREPARES(linear_ce_##name)                                                             \
  void cuda_linear_ce_##name(Device *d, const KernelArgs *a) {                           \
    run(d, a, OP_linear_ce_##name);                                                      \
  }
LINEAR_CE_OPS(KERNEL)
