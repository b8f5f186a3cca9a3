/* linear.c - linear and its gradients, one GEMM each. The state is the prepared GEMM. */
#include "kernels/cpu/gemm/gemm.h"
#include "kernel.h"

static weft_status prepare(Device *dev, KernelArgs *a, int op, weft_error *e) {
  if (a->in[0].dtype != a->in[1].dtype)
    return err_set(e, WEFT_EINTERNAL, "operands of a linear layer are %s and %s",
                   dtype_name(a->in[0].dtype), dtype_name(a->in[1].dtype));
  GemmShape s = gemm_of(op, a);
  gemm_init(a->state, &s, dev->threads);
  return WEFT_OK;
}

PREPARES(linear)
PREPARES(linear_dx)
PREPARES(linear_dw)

void release_gemm(Device *dev, KernelArgs *a) { gemm_end(a->state); }

void cpu_linear(Device *dev, const KernelArgs *a) {
  gemm_run(a->state, a->in[0].p, a->in[1].p, a->out[0].p, a->accumulate, a->work);
}

void cpu_linear_dx(Device *dev, const KernelArgs *a) { cpu_linear(dev, a); }

void cpu_linear_dw(Device *dev, const KernelArgs *a) {
  int first = a->attr->layout == 0;
  gemm_run(a->state, a->in[first].p, a->in[!first].p, a->out[0].p, a->accumulate,
           a->work);
}
