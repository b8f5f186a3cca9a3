/* linear_ce.c - a head whose logits never exist whole: see vm/device/linear_ce_calls.h.
 * The state is the prepared products, one behind the other. */
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/kernel.h"
#include "vm/device/linear_ce_calls.h"

static Gemm *product_of(const KernelArgs *a, int call) { return (Gemm *)a->state + call; }

static weft_status prepare(Device *dev, KernelArgs *a, int op, weft_error *e) {
  LinearCeCall call[LINEAR_CE_CALLS];
  if (a->in[0].dtype != a->in[1].dtype)
    return err_set(e, WEFT_EINTERNAL, "operands of a head are %s and %s",
                   dtype_name(a->in[0].dtype), dtype_name(a->in[1].dtype));
  for (int i = 0, n = linear_ce_calls(op, a, 0, call); i < n; i++) {
    if (!cpu_is_product(call[i].op)) continue;
    GemmShape s = gemm_of(call[i].op, &call[i].a);
    gemm_init(product_of(a, i), &s, dev->threads);
  }
  return WEFT_OK;
}

/* A state that was not filled is zeros, which gemm_end leaves alone. */
void release_linear_ce(Device *dev, KernelArgs *a) {
  for (int i = 0; i < LINEAR_CE_CALLS; i++) gemm_end(product_of(a, i));
}

static void run(Device *dev, const KernelArgs *a, int op) {
  LinearCeCall call[LINEAR_CE_CALLS];
  for (int64_t piece = 0; piece < a->attr->n; piece++)
    for (int i = 0, n = linear_ce_calls(op, a, piece, call); i < n; i++) {
      KernelArgs *k = &call[i].a;
      k->state = product_of(a, i);
      switch (call[i].op) {
      case OP_linear: cpu_linear(dev, k); break;
      case OP_ce_stats: cpu_ce_stats(dev, k); break;
      case OP_ce_dx: cpu_ce_dx(dev, k); break;
      case OP_linear_dw: cpu_linear_dw(dev, k); break;
      default: cpu_linear_dx(dev, k);
      }
    }
}

#define KERNEL(name)                                                                     \
  PREPARES(linear_ce_##name)                                                             \
  void cpu_linear_ce_##name(Device *dev, const KernelArgs *a) {                          \
    run(dev, a, OP_linear_ce_##name);                                                    \
  }
LINEAR_CE_OPS(KERNEL)
