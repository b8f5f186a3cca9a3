/* cublaslt.cpp - products by plain loops, as the descriptors and layouts say, on a stream
 * of runtime.cpp. What cuBLASLt refuses is refused: sizes that do not match, rows further
 * apart than the leading dimension, an operand that is aligned worse than was promised.
 */
#include <cstring>
#include <vector>

#include "cublasLt.h"
#include "runtime.h"
#include "emulate.h"

extern "C" const LtAlgorithm lt_algorithm[LT_ALGORITHMS] = {{30, false, false},
                                                            {1, true, false},
                                                            {2, false, true},
                                                            {10, false, false},
                                                            {20, false, false}};

struct StandinDesc {
  cublasOperation_t op[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
};
struct StandinLayout {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t ld;
};
struct StandinPreference {
  uint64_t work = 0;
  uint32_t align = 256;
};

namespace {

uint64_t products[LT_ALGORITHMS]; /* under the lock of the runtime */

/* Of the operand after its operation. */
uint64_t rows(const StandinLayout &l, cublasOperation_t op) {
  return op ? l.cols : l.rows;
}
uint64_t cols(const StandinLayout &l, cublasOperation_t op) {
  return op ? l.rows : l.cols;
}

float get(const void *p, const StandinLayout &l, cublasOperation_t op, uint64_t r,
          uint64_t c) {
  uint64_t i = op ? r * (uint64_t)l.ld + c : c * (uint64_t)l.ld + r;
  if (l.type == CUDA_R_32F) return ((const float *)p)[i];
  return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

void put(void *p, const StandinLayout &l, uint64_t r, uint64_t c, float x) {
  uint64_t i = c * (uint64_t)l.ld + r;
  if (l.type == CUDA_R_32F)
    ((float *)p)[i] = x;
  else
    ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(x);
}

bool matches(const StandinDesc &d, const StandinLayout &a, const StandinLayout &b,
             const StandinLayout &c) {
  return rows(a, d.op[0]) == c.rows && cols(b, d.op[1]) == c.cols &&
         cols(a, d.op[0]) == rows(b, d.op[1]) && a.type == b.type;
}

/* The operand after its operation as dense f32, with the sum's index inside. */
std::vector<float> along(const void *p, const StandinLayout &l, cublasOperation_t op,
                         bool a) {
  uint64_t outer = a ? rows(l, op) : cols(l, op), inner = a ? cols(l, op) : rows(l, op);
  std::vector<float> x(outer * inner);
  for (uint64_t o = 0; o < outer; o++)
    for (uint64_t k = 0; k < inner; k++)
      x[o * inner + k] = get(p, l, op, a ? o : k, a ? k : o);
  return x;
}

void multiply(StandinDesc d, float alpha, const void *a, StandinLayout la, const void *b,
              StandinLayout lb, float beta, void *out, StandinLayout lc) {
  uint64_t inner = cols(la, d.op[0]);
  std::vector<float> x = along(a, la, d.op[0], true), y = along(b, lb, d.op[1], false);
  for (uint64_t c = 0; c < lc.cols; c++)
    for (uint64_t r = 0; r < lc.rows; r++) {
      float sum = 0;
      for (uint64_t k = 0; k < inner; k++) sum += x[r * inner + k] * y[c * inner + k];
      float old = beta != 0 ? get(out, lc, CUBLAS_OP_N, r, c) : 0;
      put(out, lc, r, c, alpha * sum + beta * old);
    }
}

} // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t *lt) {
  *lt = (cublasLtHandle_t) new char;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t lt) {
  delete (char *)lt;
  return CUBLAS_STATUS_SUCCESS;
}
const char *cublasLtGetStatusString(cublasStatus_t r) { return r ? "failed" : "success"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *d = new StandinDesc;
  return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t n) {
  cublasOperation_t *to = &d->op[which == CUBLASLT_MATMUL_DESC_TRANSB];
  if (n != sizeof *to) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, value, n);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  *l = new StandinLayout{type, rows, cols, ld};
  return ld >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) {
  *p = new StandinPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                     cublasLtMatmulPreferenceAttributes_t which,
                                     const void *value, size_t n) {
  bool bytes = which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (n != (bytes ? sizeof p->work : sizeof p->align)) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes) memcpy(&p->work, value, n);
  if (which >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) memcpy(&p->align, value, n);
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t standin_products(int algorithm) {
  StandinLock lock;
  return products[algorithm];
}

/* An algorithm is what it was promised, and its number. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lt, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
    cublasLtMatmulPreference_t p, int most, cublasLtMatmulHeuristicResult_t *r, int *n) {
  *n = 0;
  if (!matches(*d, *a, *b, *out)) return CUBLAS_STATUS_INVALID_VALUE;
  for (; *n < most && *n < standin_is()->algorithms && *n < LT_ALGORITHMS; ++*n, ++r) {
    *r = cublasLtMatmulHeuristicResult_t{};
    r->algo.data[0] = p->align, r->algo.data[1] = r->workspaceSize = p->work;
    r->algo.data[2] = (uint64_t)*n;
    if (lt_algorithm[*n].refused) r->state = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lt, cublasLtMatmulDesc_t d,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t la,
                              const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t lc, void *out,
                              cublasLtMatrixLayout_t lout,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t bytes,
                              cudaStream_t s) {
  uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)out;
  if (!matches(*d, *la, *lb, *lout) || c != out || all % algo->data[0] ||
      bytes < algo->data[1] || lt_algorithm[algo->data[2]].fails)
    return CUBLAS_STATUS_INVALID_VALUE;
  StandinDesc how = *d;
  StandinLayout x = *la, y = *lb, z = *lout;
  float scale = *(const float *)alpha, add = *(const float *)beta;
  uint64_t which = algo->data[2];
  standin_first_use(&lt_algorithm[which]);
  emulate::enqueue(s, [=] {
    if (!emulate::idle(nullptr)) multiply(how, scale, a, x, b, y, add, out, z);
    runtime().clock += lt_algorithm[which].ms;
    products[which]++;
  });
  return CUBLAS_STATUS_SUCCESS;
}
