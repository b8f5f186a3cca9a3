/* linear_fp8_lt.c - products of fp8 codes through cuBLASLt: both operands with the
 * dimension of the sum last, the only layout that all tensor cores with fp8 have; sums in
 * f32, by every addend; scales are read on the device. */
#include "cublaslt_int.h"
#include "fp8_product.h"
#include "vm/graph/op_fp8.h"

/* ---- what a GPU has ---- */

/* Of compute capability 8.9 on there are tensor cores for fp8; cuBLASLt scales rows and
 * columns on those of 9.0 alone, blocks on those of 10.0 and newer. */
static const char *lacks(int recipe, int capability) {
  switch (recipe) {
  case FP8_ROWWISE: return capability / 10 != 9 ? "\"rowwise\" needs 9.0" : NULL;
  case FP8_MX: return capability < 100 ? "\"mxfp8\" needs 10.0 or newer" : NULL;
  default: return capability < 89 ? "\"tensorwise\" needs 8.9 or newer" : NULL;
  }
}

static weft_status check(int capability, int op, const KernelArgs *a, weft_error *e) {
  const char *why = lacks(a->attr->fp8, capability);
  if (why)
    return err_set(e, WEFT_EPLAN,
                   "precision = \"fp8\": recipe = %s, but the GPU has compute capability "
                   "%d.%d",
                   why, capability / 10, capability % 10);
  why = cuda_fp8_refuses(op, a);
  if (why) return err_set(e, WEFT_EPLAN, "cuBLASLt does not multiply it in fp8: %s", why);
  return WEFT_OK;
}

/* ---- preparation ---- */

static Product product_of(const Fp8Product *p, DType out) {
  const Fp8Operand *a = &p->of[0], *b = &p->of[1];
  return (Product){.m = a->outer,
                   .n = b->outer,
                   .k = a->pitch,
                   .a_row = a->pitch,
                   .a_col = 1,
                   .b_row = 1,
                   .b_col = b->pitch,
                   .out = out,
                   .fp8 = p->recipe,
                   .a_e5m2 = a->e5m2,
                   .b_e5m2 = b->e5m2,
                   .a_scales = a->back_bytes,
                   .b_scales = b->back_bytes};
}

static weft_status prepare(Device *d, KernelArgs *a, int op, weft_error *e) {
  const CudaContext *c = d->ctx;
  if (!a->state || !c || !c->lt) return WEFT_OK;
  if (c->choices) TRY(check(c->choices->capability, op, a, e));
  if (cuda_fp8_refuses(op, a)) return WEFT_OK;
  Fp8Product p = cuda_fp8_product(op, a);
  Product lt = product_of(&p, a->out[0].dtype);
  return prepare_product_lt(d, a, &lt, p.gemm_bytes, e);
}

PREPARES(linear_fp8)
PREPARES(linear_fp8_dx)
PREPARES(linear_fp8_dw)

/* ---- running ---- */

bool cuda_multiply_fp8_lt(Device *d, const Fp8Product *p, const KernelArgs *a) {
  const Prepared *s = a->state;
  const char *work = a->work;
  if (!s || !s->how) return false;
  LtCall call = {.x = work + p->of[0].codes,
                 .y = work + p->of[1].codes,
                 .x_scale = work + p->of[0].back,
                 .y_scale = work + p->of[1].back,
                 .out = a->out[0].p,
                 .add = a->accumulate,
                 .work = p->gemm_bytes ? (char *)a->work + p->gemm : NULL,
                 .bytes = p->gemm_bytes};
  return lt_launch(d, s, &call);
}
