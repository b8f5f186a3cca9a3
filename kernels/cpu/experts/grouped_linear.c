/* grouped_linear.c - multiplies the rows of each expert by its weight: one product after
 * the other, each on all threads. The state serves any number of rows. */
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/kernel.h"

static weft_status prepare(Device *dev, KernelArgs *a, int op, weft_error *e) {
  GemmShape s = gemm_of(op, a);
  gemm_init_many(a->state, &s, dev->threads);
  return WEFT_OK;
}

PREPARES(grouped_linear)
PREPARES(grouped_linear_dx)
PREPARES(grouped_linear_dw)

/* Rows after those of all experts become 0. */
static void grouped(const KernelArgs *a, int op) {
  const KTensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
  const int32_t *ends = a->in[2].p;
  GemmShape s = gemm_of(op, a);
  int64_t experts = w->dim[0];
  for (int64_t i = 0; i < experts; i++) {
    s.m = ends[i + 1] - ends[i];
    gemm_run_as(a->state, &s, at(x->p, x->dtype, ends[i] * s.k),
                at(w->p, w->dtype, i * s.k * s.n), at(y->p, y->dtype, ends[i] * s.n),
                false, a->work);
  }
  int64_t used = ends[experts];
  memset(at(y->p, y->dtype, used * s.n), 0,
         (size_t)((y->dim[0] - used) * s.n) * (size_t)dtype_size(y->dtype));
}

void cpu_grouped_linear(Device *dev, const KernelArgs *a) {
  grouped(a, OP_grouped_linear);
}

void cpu_grouped_linear_dx(Device *dev, const KernelArgs *a) {
  grouped(a, OP_grouped_linear_dx);
}

/* The weight gradient of an expert without rows is 0. */
void cpu_grouped_linear_dw(Device *dev, const KernelArgs *a) {
  const KTensor *x = &a->in[0], *dy = &a->in[1];
  const int32_t *ends = a->in[2].p;
  GemmShape s = gemm_of(OP_grouped_linear_dw, a);
  if (a->attr->layout) { /* x^T dy */
    const KTensor *swap = x;
    x = dy, dy = swap;
  }
  for (int64_t i = 0; i < a->out[0].dim[0]; i++) {
    void *dw = at(a->out[0].p, s.out, i * s.m * s.n);
    s.k = ends[i + 1] - ends[i];
    if (s.k > 0)
      gemm_run_as(a->state, &s, at(dy->p, dy->dtype, ends[i] * s.m),
                  at(x->p, x->dtype, ends[i] * s.n), dw, a->accumulate, a->work);
    else if (!a->accumulate)
      memset(dw, 0, (size_t)(s.m * s.n) * (size_t)dtype_size(s.out));
  }
}
