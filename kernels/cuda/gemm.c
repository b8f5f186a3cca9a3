/* gemm.c - products through cuBLASLt, all of it behind this file: sums in f32, results
 * and accumulation in f32 for gradients of weights. The library thinks in columns, so
 * what it is asked for is the transposed product. It is told that sums are not cut (no
 * split over k), so results are the same bits each time. */
#include "gemm.h"

#include <cublasLt.h>

enum { ALIGNED = 16 };

typedef struct Prepared {
  cublasLtMatmulDesc_t how;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algo;
} Prepared;
_Static_assert(sizeof(Prepared) <= CUDA_LT_STATE, "what work.c says");

/* ---- what is multiplied ---- */

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
  /* The weight as (in, out), for its gradient of x as (out, in). */
  int64_t width = in[1].dim[1];
  bool as_stored = (op == OP_linear) == (x->attr->layout != 0);
  p.b_row = as_stored ? width : 1, p.b_col = as_stored ? 1 : width;
  return p;
}

/* ---- choosing ---- */

static weft_status failed(cublasStatus_t r, const char *what, weft_error *e) {
  return err_set(e, WEFT_ERUN, "cuBLASLt: %s: status %d", what, (int)r);
}

static cudaDataType_t type_of(DType t) {
  return t == DT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* A matrix (rows, cols) with these strides as one of columns, transposed: (cols, rows).
 */
static cublasStatus_t turned(cublasLtMatrixLayout_t *out, cublasOperation_t *op, DType t,
                             int64_t rows, int64_t cols, int64_t row, int64_t col) {
  uint64_t r = (uint64_t)rows, c = (uint64_t)cols;
  *op = col == 1 ? CUBLAS_OP_N : CUBLAS_OP_T;
  if (col == 1) return cublasLtMatrixLayoutCreate(out, type_of(t), c, r, row);
  return cublasLtMatrixLayoutCreate(out, type_of(t), r, c, col);
}

static cublasStatus_t describe(Prepared *s, const Product *p) {
  cublasOperation_t first, second;
  cublasStatus_t r = cublasLtMatmulDescCreate(&s->how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (!r) r = turned(&s->a, &first, p->in, p->k, p->n, p->b_row, p->b_col);
  if (!r) r = turned(&s->b, &second, p->in, p->m, p->k, p->a_row, p->a_col);
  if (!r)
    r = cublasLtMatrixLayoutCreate(&s->c, type_of(p->out), (uint64_t)p->n, (uint64_t)p->m,
                                   p->n);
  if (!r)
    r = cublasLtMatmulDescSetAttribute(s->how, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                       sizeof first);
  if (!r)
    r = cublasLtMatmulDescSetAttribute(s->how, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                       sizeof second);
  return r;
}

static cublasStatus_t limit(cublasLtMatmulPreference_t pref, uint64_t work) {
  static const cublasLtMatmulPreferenceAttributes_t sides[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  uint32_t align = ALIGNED, whole = CUBLASLT_REDUCTION_SCHEME_NONE;
  cublasStatus_t r = cublasLtMatmulPreferenceSetAttribute(
      pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work);
  if (!r)
    r = cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &whole, sizeof whole);
  for (int i = 0; !r && i < LEN(sides); i++)
    r = cublasLtMatmulPreferenceSetAttribute(pref, sides[i], &align, sizeof align);
  return r;
}

/* The first that the library's rule names, which depends on shapes and the GPU alone. */
static cublasStatus_t choose(void *lt, Prepared *s, uint64_t work) {
  cublasLtMatmulPreference_t pref;
  cublasLtMatmulHeuristicResult_t got;
  int n = 0;
  cublasStatus_t r = cublasLtMatmulPreferenceCreate(&pref);
  if (r) return r;
  r = limit(pref, work);
  if (!r)
    r = cublasLtMatmulAlgoGetHeuristic(lt, s->how, s->a, s->b, s->c, s->c, pref, 1, &got,
                                       &n);
  if (!r && !n) r = CUBLAS_STATUS_NOT_SUPPORTED;
  if (!r) s->algo = got.algo;
  (void)cublasLtMatmulPreferenceDestroy(pref);
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

static weft_status prepare(Device *d, int op, KernelArgs *a, weft_error *e) {
  Product p = cuda_product(op, a);
  const CudaContext *c = d->ctx;
  Prepared *s = a->state;
  if (!s || !c || !c->lt || !p.m || !p.n || !p.k) return WEFT_OK;
  cublasStatus_t r = describe(s, &p);
  if (!r) r = choose(c->lt, s, cuda_work(op, a));
  if (!r) return WEFT_OK;
  release_lt(d, a);
  return failed(r, "a product cannot be prepared", e);
}

weft_status prepare_linear_lt(Device *d, KernelArgs *a, weft_error *e) {
  return prepare(d, OP_linear, a, e);
}
weft_status prepare_linear_dx_lt(Device *d, KernelArgs *a, weft_error *e) {
  return prepare(d, OP_linear_dx, a, e);
}
weft_status prepare_linear_dw_lt(Device *d, KernelArgs *a, weft_error *e) {
  return prepare(d, OP_linear_dw, a, e);
}

/* ---- running ---- */

static bool fits(const void *p) {
  return (uintptr_t)p % ALIGNED == 0;
}

bool cuda_multiply_lt(Device *d, const Product *p, const KernelArgs *a) {
  const Prepared *s = a->state;
  const float one = 1, beta = a->accumulate;
  const void *x = a->in[p->a].p, *y = a->in[p->b].p;
  void *out = a->out[0].p;
  if (!s || !s->how || !fits(x) || !fits(y) || !fits(out)) return false;
  CudaContext *c = d->ctx;
  const void *given[] = {s, x, y, out, a->work};
  c->print = hash_bytes(c->print, given, sizeof given);
  c->print = hash_bytes(c->print, &beta, sizeof beta);
  c->print = hash_bytes(c->print, &s->algo, sizeof s->algo);
  if (d->dry) return true;
  cublasStatus_t r = cublasLtMatmul(
      c->lt, s->how, &one, y, s->a, x, s->b, &beta, out, s->c, out, s->c, &s->algo,
      a->work, a->work ? cuda_gemm_work(a) : 0, (cudaStream_t)c->stream);
  if (!c->lt_failed) c->lt_failed = (int)r;
  return true;
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
