/* cublaslt.cpp - products by plain loops, as the descriptors and layouts say, on a stream
 * of runtime.cpp. What cuBLASLt refuses is refused: sizes that do not match, rows further
 * apart than the leading dimension, an operand that is aligned worse than was promised;
 * of fp8, another layout than the one that all GPUs have, two operands in e5m2, rows that
 * are no whole vectors, and ways to scale that the GPU does not have; of other types,
 * scales.
 */
#include <algorithm>
#include <cstring>
#include <vector>

#include "cublasLt.h"
#include "runtime.h"
#include "emulate.h"
#include "tests/reference/fp8_codes.h"

extern "C" const LtAlgorithm lt_algorithm[LT_ALGORITHMS] = {{30, false, false},
                                                            {1, true, false},
                                                            {2, false, true},
                                                            {10, false, false},
                                                            {20, false, false}};

/* Of scales: one number, a number for each row of the result, exponents of blocks. */
enum { SCALE_ONE = 0, SCALE_BLOCKS = 2, SCALE_OUTER = 3 };
struct StandinDesc {
  cublasOperation_t op[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
  const void *scale[2] = {};
  int32_t mode[2] = {SCALE_ONE, SCALE_ONE};
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

bool is_fp8(cudaDataType_t t) { return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2; }

float get(const void *p, const StandinLayout &l, cublasOperation_t op, uint64_t r,
          uint64_t c) {
  uint64_t i = op ? r * (uint64_t)l.ld + c : c * (uint64_t)l.ld + r;
  if (l.type == CUDA_R_32F) return ((const float *)p)[i];
  if (is_fp8(l.type))
    return fp8_value(l.type == CUDA_R_8F_E4M3 ? FP8_E4M3 : FP8_E5M2,
                     ((const uint8_t *)p)[i]);
  return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

void put(void *p, const StandinLayout &l, uint64_t r, uint64_t c, float x) {
  uint64_t i = c * (uint64_t)l.ld + r;
  if (l.type == CUDA_R_32F)
    ((float *)p)[i] = x;
  else
    ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(x);
}

/* Compute capability 8.9 has one scale an operand, 9.0 those of rows, 10.0 of blocks. */
bool has_mode(int mode) {
  int c = standin_is()->capability;
  return mode == SCALE_ONE      ? c >= 89
         : mode == SCALE_OUTER  ? c / 10 == 9
         : mode == SCALE_BLOCKS ? c >= 100
                                : false;
}

bool takes_fp8(const StandinDesc &d, const StandinLayout &a, const StandinLayout &b,
               const StandinLayout &c) {
  uint64_t each = c.type == CUDA_R_32F ? 4 : 2;
  bool blocks = d.mode[0] == SCALE_BLOCKS;
  return d.op[0] == CUBLAS_OP_T && d.op[1] == CUBLAS_OP_N && a.rows % 16 == 0 &&
         a.ld % 16 == 0 && b.ld % 16 == 0 && c.rows * each % 16 == 0 &&
         !(a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) && has_mode(d.mode[0]) &&
         d.mode[0] == d.mode[1] && d.scale[0] && d.scale[1] &&
         (!blocks || a.rows % 32 == 0);
}

bool matches(const StandinDesc &d, const StandinLayout &a, const StandinLayout &b,
             const StandinLayout &c) {
  return rows(a, d.op[0]) == c.rows && cols(b, d.op[1]) == c.cols &&
         cols(a, d.op[0]) == rows(b, d.op[1]) && is_fp8(a.type) == is_fp8(b.type) &&
         (is_fp8(a.type) ? takes_fp8(d, a, b, c)
                         : a.type == b.type && !d.scale[0] && !d.scale[1]);
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

/* Elements of blocks by their exponents, which lie in tiles of 128 rows by 4 blocks. */
void scale_blocks(std::vector<float> &x, const void *scale, uint64_t inner) {
  const uint8_t *e = (const uint8_t *)scale;
  for (uint64_t i = 0; i < x.size(); i++) {
    uint64_t row = i / inner, block = i % inner / 32;
    uint64_t tile = row / 128 * ((inner / 32 + 3) / 4) + block / 4;
    uint8_t by = e[tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4];
    x[i] *= by == 0xff ? NAN : ldexpf(1, (int)by - 127);
  }
}

/* What the result in this row, or column, is scaled by. */
float scale_at(const StandinDesc &d, int which, uint64_t i) {
  const float *s = (const float *)d.scale[which];
  if (!s || d.mode[which] == SCALE_BLOCKS) return 1;
  return s[d.mode[which] == SCALE_OUTER ? i : 0];
}

/* Towards zero, to so many bits. */
float keep(float x, int bits) {
  int e;
  float m = frexpf(x, &e);
  return bits ? ldexpf(truncf(ldexpf(m, bits)), e - bits) : x;
}

/* Hopper's tensor cores keep fewer bits of a sum than f32 has, which is added to one in
 * f32 now and then. */
float sum_of(const float *x, const float *y, uint64_t n, int bits) {
  const uint64_t each = 128;
  float sum = 0, part = 0;
  for (uint64_t k = 0; k < n; k++) {
    part = keep(part + x[k] * y[k], bits);
    if (!bits || (k + 1) % each) continue;
    sum += part, part = 0;
  }
  return sum + part;
}

void multiply(StandinDesc d, float alpha, const void *a, StandinLayout la, const void *b,
              StandinLayout lb, float beta, void *out, StandinLayout lc) {
  uint64_t inner = cols(la, d.op[0]);
  int bits = is_fp8(la.type) ? standin_is()->fp8_bits : 0;
  std::vector<float> x = along(a, la, d.op[0], true), y = along(b, lb, d.op[1], false);
  if (d.mode[0] == SCALE_BLOCKS) {
    scale_blocks(x, d.scale[0], inner);
    scale_blocks(y, d.scale[1], inner);
  }
  for (uint64_t c = 0; c < lc.cols; c++)
    for (uint64_t r = 0; r < lc.rows; r++) {
      float sum = sum_of(&x[r * inner], &y[c * inner], inner, bits);
      float old = beta != 0 ? get(out, lc, CUBLAS_OP_N, r, c) : 0;
      float by = is_fp8(la.type) ? scale_at(d, 0, r) * scale_at(d, 1, c) : 1;
      put(out, lc, r, c, alpha * by * sum + beta * old);
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
  struct {
    void *to;
    size_t n;
  } at = {};
  switch (which) {
  case CUBLASLT_MATMUL_DESC_TRANSA: at = {&d->op[0], sizeof d->op[0]}; break;
  case CUBLASLT_MATMUL_DESC_TRANSB: at = {&d->op[1], sizeof d->op[1]}; break;
  case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: at = {&d->scale[0], sizeof(void *)}; break;
  case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: at = {&d->scale[1], sizeof(void *)}; break;
  case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: at = {&d->mode[0], sizeof(int32_t)}; break;
  case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: at = {&d->mode[1], sizeof(int32_t)}; break;
  }
  if (!at.to || n != at.n) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(at.to, value, n);
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
  if (standin_is()->lt_refuses == 1) return CUBLAS_STATUS_NOT_SUPPORTED;
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
      bytes < algo->data[1] || lt_algorithm[algo->data[2]].fails ||
      standin_is()->lt_refuses == 2)
    return CUBLAS_STATUS_INVALID_VALUE;
  StandinDesc how = *d;
  StandinLayout x = *la, y = *lb, z = *lout;
  float scale = *(const float *)alpha, add = *(const float *)beta;
  uint64_t which = algo->data[2];
  standin_first_use(&lt_algorithm[which]);
  if (standin_fails(s)) return CUBLAS_STATUS_EXECUTION_FAILED;
  emulate::enqueue(s, [=] {
    if (!emulate::idle(nullptr)) multiply(how, scale, a, x, b, y, add, out, z);
    runtime().clock += lt_algorithm[which].ms * std::max(standin_is()->lt_slow, 1);
    products[which]++;
  });
  return CUBLAS_STATUS_SUCCESS;
}
