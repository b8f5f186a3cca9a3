/* linear.c - linear and its gradients: one product of matrices each. The state is the
 * prepared product. */
#include "gemm.h"
#include "kernel.h"

static weft_status prepare(Device *dev, KernelArgs *a, GemmShape s, weft_error *e) {
  Gemm *g = NULL;
  if (a->in[0].dtype != a->in[1].dtype)
    return err_set(e, WEFT_EINTERNAL, "operands of a linear layer are %s and %s",
                   dtype_name(a->in[0].dtype), dtype_name(a->in[1].dtype));
  s.in = a->in[0].dtype;
  s.out = a->out[0].dtype;
  TRY(gemm_new(dev->alloc, &s, dev->threads, &g, e));
  a->state = g;
  return WEFT_OK;
}

void release_gemm(Device *dev, KernelArgs *a) {
  gemm_free(a->state);
  a->state = NULL;
}

/* y(rows,O) = x(rows,I) w */
weft_status prepare_linear(Device *dev, KernelArgs *a, weft_error *e) {
  const KTensor *x = &a->in[0], *y = &a->out[0];
  return prepare(dev, a,
                 (GemmShape){.m = rows_of(x),
                             .n = last_dim(y),
                             .k = last_dim(x),
                             .tb = a->attr->layout == 0},
                 e);
}

/* dx(rows,I) = dy(rows,O) w^T */
weft_status prepare_linear_dx(Device *dev, KernelArgs *a, weft_error *e) {
  const KTensor *dy = &a->in[0], *dx = &a->out[0];
  return prepare(dev, a,
                 (GemmShape){.m = rows_of(dy),
                             .n = last_dim(dx),
                             .k = last_dim(dy),
                             .tb = a->attr->layout == 1},
                 e);
}

/* dW(O,I) = dy^T x for layout 0, dW(I,O) = x^T dy for layout 1 */
weft_status prepare_linear_dw(Device *dev, KernelArgs *a, weft_error *e) {
  int64_t i = last_dim(&a->in[0]), o = last_dim(&a->in[1]);
  bool turned = a->attr->layout == 0;
  return prepare(dev, a,
                 (GemmShape){.m = turned ? o : i,
                             .n = turned ? i : o,
                             .k = rows_of(&a->in[0]),
                             .ta = true},
                 e);
}

void cpu_linear(Device *dev, const KernelArgs *a) {
  gemm_run(a->state, a->in[0].p, a->in[1].p, a->out[0].p, a->accumulate);
}

void cpu_linear_dx(Device *dev, const KernelArgs *a) { cpu_linear(dev, a); }

void cpu_linear_dw(Device *dev, const KernelArgs *a) {
  int first = a->attr->layout == 0;
  gemm_run(a->state, a->in[first].p, a->in[!first].p, a->out[0].p, a->accumulate);
}
