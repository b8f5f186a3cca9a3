/* cublaslt.c - GEMM through cuBLASLt: f32 accumulation; weight gradients are added to in
 * f32 and stored in their type. The library is column-major, so it is asked for the
 * transposed product. */
#include <stdio.h>

#include "cublaslt_int.h"
#include "kernels/cuda/launch/failed_before.h"
#include "vm/graph/op_fp8.h"

_Static_assert(sizeof(Prepared) <= CUDA_LT_STATE, "what cuda_workspace.c says");

/* ---- operands ---- */

Product cuda_product(int op, const KernelArgs *x) {
  const KTensor *in = x->in, *out = x->out;
  int64_t rows = cuda_rows(&in[0]);
  Product p = {.in = in[0].dtype, .out = out[0].dtype, .b = 1};
  if (op == OP_linear_dw) {
    /* dW(out, in) = dy^T x, or dW(in, out) = x^T dy. */
    int first = x->attr->layout ? 0 : 1;
    int64_t m = cuda_last(&in[first]), n = cuda_last(&in[1 - first]);
    return (Product){.m = m,
                     .n = n,
                     .k = rows,
                     .a_row = 1,
                     .a_col = m,
                     .b_row = n,
                     .b_col = 1,
                     .a = first,
                     .b = 1 - first,
                     .in = p.in,
                     .out = p.out};
  }
  p.m = rows, p.k = cuda_last(&in[0]), p.n = cuda_last(&out[0]);
  p.a_row = p.k, p.a_col = 1;
  /* The weight as (in, out); for its gradient with respect to x as (out, in). */
  int64_t width = in[1].dim[1];
  bool as_stored = (op == OP_linear) == (x->attr->layout != 0);
  p.b_row = as_stored ? width : 1, p.b_col = as_stored ? 1 : width;
  return p;
}

/* ---- preparation ---- */

static weft_status failed(cublasStatus_t r, const char *what, weft_error *e) {
  return err_set(e, WEFT_ERUN, "cuBLASLt: %s: status %d", what, (int)r);
}

static cudaDataType_t type_of(DType t) { return t == DT_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

static cudaDataType_t operand_type(const Product *p, bool e5m2) {
  if (!p->fp8) return type_of(p->in);
  return e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

/* A matrix (rows, cols) with these strides as column-major, transposed: (cols, rows).
 * Both strides of a single row may be 1, and it is no matrix of rows that are 1 apart. */
static cublasStatus_t turned(cublasLtMatrixLayout_t *out, cublasOperation_t *op,
                             cudaDataType_t t, int64_t rows, int64_t cols, int64_t row,
                             int64_t col) {
  uint64_t r = (uint64_t)rows, c = (uint64_t)cols;
  bool by_row = col == 1 && row >= cols;
  *op = by_row ? CUBLAS_OP_N : CUBLAS_OP_T;
  if (by_row) return cublasLtMatrixLayoutCreate(out, t, c, r, row);
  return cublasLtMatrixLayoutCreate(out, t, r, c, col);
}

/* What cublasLt.h has since cuBLAS 12.9; an older library refuses it. */
enum { A_SCALE_MODE = 31, B_SCALE_MODE = 32 };
static const int32_t scale_mode[] = {
    [FP8_TENSORWISE] = 0, [FP8_ROWWISE] = 3 /* of rows and columns */, [FP8_MX] = 2};

static cublasStatus_t set_scale(const Prepared *s, bool second, const void *p) {
  return cublasLtMatmulDescSetAttribute(s->how,
                                        second ? CUBLASLT_MATMUL_DESC_B_SCALE_POINTER
                                               : CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                        &p, sizeof p);
}

/* Addresses come with each launch; what proposes algorithms asks whether there are any.
 */
static cublasStatus_t describe_scales(Prepared *s, int recipe) {
  const void *some = (const void *)(uintptr_t)DEVICE_ALIGN;
  const int32_t *mode = &scale_mode[recipe];
  cublasStatus_t r = set_scale(s, false, some);
  if (!r) r = set_scale(s, true, some);
  if (!r && *mode)
    r = cublasLtMatmulDescSetAttribute(
        s->how, (cublasLtMatmulDescAttributes_t)A_SCALE_MODE, mode, sizeof *mode);
  if (!r && *mode)
    r = cublasLtMatmulDescSetAttribute(
        s->how, (cublasLtMatmulDescAttributes_t)B_SCALE_MODE, mode, sizeof *mode);
  return r;
}

static cublasStatus_t describe(Prepared *s, const Product *p) {
  cublasOperation_t first, second;
  cublasStatus_t r = cublasLtMatmulDescCreate(&s->how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cudaDataType_t x = operand_type(p, p->a_e5m2), y = operand_type(p, p->b_e5m2);
  if (!r) r = turned(&s->a, &first, y, p->k, p->n, p->b_row, p->b_col);
  if (!r) r = turned(&s->b, &second, x, p->m, p->k, p->a_row, p->a_col);
  if (!r)
    r = cublasLtMatrixLayoutCreate(&s->c, type_of(p->out), (uint64_t)p->n, (uint64_t)p->m,
                                   p->n);
  if (!r)
    r = cublasLtMatmulDescSetAttribute(s->how, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                       sizeof first);
  if (!r)
    r = cublasLtMatmulDescSetAttribute(s->how, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                       sizeof second);
  if (!r && p->fp8) r = describe_scales(s, p->fp8);
  return r;
}

void release_lt(Device *d, KernelArgs *a) {
  Prepared *s = a->state;
  if (!s) return;
  if (s->c) (void)cublasLtMatrixLayoutDestroy(s->c);
  if (s->b) (void)cublasLtMatrixLayoutDestroy(s->b);
  if (s->a) (void)cublasLtMatrixLayoutDestroy(s->a);
  if (s->how) (void)cublasLtMatmulDescDestroy(s->how);
  *s = (Prepared){0};
}

/* cuBLASLt has no products of f32 into 16 bits. */
static bool known_types(const Product *p) { return p->out == DT_F32 || p->out == p->in; }

weft_status prepare_product_lt(Device *d, KernelArgs *a, const Product *p, uint64_t work,
                               weft_error *e) {
  Prepared *s = a->state;
  if (!p->m || !p->n || !p->k) return WEFT_OK;
  s->m = p->m, s->n = p->n, s->k = p->k;
  cublasStatus_t r = describe(s, p);
  weft_status st = WEFT_OK;
  if (r)
    st = failed(r, "a product cannot be prepared", e);
  else
    st = choose_algorithm(d, s, p, a->accumulate, work, e);
  if (st != WEFT_OK) release_lt(d, a);
  return st;
}

static weft_status prepare(Device *d, KernelArgs *a, int op, weft_error *e) {
  Product p = cuda_product(op, a);
  const CudaContext *c = d->ctx;
  if (!a->state || !c || !c->lt || !known_types(&p)) return WEFT_OK;
  return prepare_product_lt(d, a, &p, cuda_work(op, a), e);
}

PREPARES(linear)
PREPARES(linear_dx)
PREPARES(linear_dw)

/* ---- running ---- */

static bool fits(const void *p) { return (uintptr_t)p % LT_ALIGNED == 0; }

cublasStatus_t lt_multiply(const CudaContext *c, const Prepared *s,
                           const cublasLtMatmulAlgo_t *algo, const LtCall *x) {
  const float one = 1, beta = x->add;
  cublasStatus_t r = CUBLAS_STATUS_SUCCESS;
  if (x->x_scale) r = set_scale(s, false, x->y_scale);
  if (!r && x->x_scale) r = set_scale(s, true, x->x_scale);
  if (r) return r;
  return cublasLtMatmul(c->lt, s->how, &one, x->y, s->a, x->x, s->b, &beta, x->out, s->c,
                        x->out, s->c, algo, x->work, x->bytes, (cudaStream_t)c->stream);
}

bool lt_launch(Device *d, const Prepared *s, const LtCall *x) {
  if (!fits(x->x) || !fits(x->y) || !fits(x->out)) return false;
  CudaContext *c = d->ctx;
  const float beta = x->add;
  const void *given[] = {s, x->x, x->y, x->out, x->work};
  c->print = hash_bytes(c->print, given, sizeof given);
  c->print = hash_bytes(c->print, &beta, sizeof beta);
  c->print = hash_bytes(c->print, &s->algo, sizeof s->algo);
  if (d->dry && !d->loads) return true;
  cublasStatus_t r = lt_multiply(c, s, &s->algo, x);
  if (r && !c->refused[0] && !cuda_failed_before(c))
    snprintf(c->refused, sizeof c->refused,
             "cuBLASLt: the product of %lld x %lld x %lld failed: status %d",
             (long long)s->m, (long long)s->k, (long long)s->n, (int)r);
  return true;
}

bool cuda_multiply_lt(Device *d, const Product *p, const KernelArgs *a) {
  const Prepared *s = a->state;
  if (!s || !s->how) return false;
  LtCall call = {.x = a->in[p->a].p,
                 .y = a->in[p->b].p,
                 .out = a->out[0].p,
                 .add = a->accumulate,
                 .work = a->work,
                 .bytes = a->work ? cuda_gemm_work(a) : 0};
  return lt_launch(d, s, &call);
}

/* ---- the library ---- */

void *cuda_lt_open(const char **why) {
  cublasLtHandle_t lt = NULL;
  cublasStatus_t r = cublasLtCreate(&lt);
  *why = cublasLtGetStatusString(r);
  return r == CUBLAS_STATUS_SUCCESS ? lt : NULL;
}

void cuda_lt_close(void *lt) {
  if (lt) (void)cublasLtDestroy(lt);
}
