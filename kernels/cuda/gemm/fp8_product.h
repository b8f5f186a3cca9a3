/* fp8_product.h - products of operands that are rounded to fp8 on a GPU. Each operand is
 * copied to the scratch as codes, with the dimension of the sum last, as tensor cores
 * want it; with them what scales the result back: a number for a tensor, row or column,
 * or the exponents of blocks. Then cuBLASLt multiplies or, where a kernel runs without
 * it, weft's own kernel. cuda_workspace.c has the layout, which is of shapes alone. */
#ifndef WEFT_CUDA_FP8_PRODUCT_H
#define WEFT_CUDA_FP8_PRODUCT_H

#include "cublaslt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Fp8Operand {
  int in;                /* of KernelArgs */
  int64_t rows, columns; /* as it is stored */
  bool down, e5m2;       /* the sum is over its rows; else they are e4m3 */
  /* The copy: `outer` rows of `pitch` codes; those behind the first k are 0. */
  int64_t outer, k, pitch;
  /* Element (r, c) has scale r / each * width + c % width, of so many; 0: blocks have. */
  int64_t scales, each, width, groups;
  /* Offsets in the scratch: of codes, of factors of the result, of factors of elements.
   */
  uint64_t codes, back, scale;
  uint64_t back_bytes;
} Fp8Operand;

/* c(m,n) (+)= a(m,k) b(k,n): of[0] is a, of[1] is b transposed. */
typedef struct Fp8Product {
  int recipe; /* OpAttr.fp8 */
  bool powers;
  Fp8Operand of[2];
  uint64_t gemm, gemm_bytes; /* the library's scratch */
  uint64_t bytes;            /* all of it */
} Fp8Product;
Fp8Product cuda_fp8_product(int op, const KernelArgs *a);
/* NULL, or why cuBLASLt has no such product. */
const char *cuda_fp8_refuses(int op, const KernelArgs *a);

/* cast_fp8.cu: factors of elements and of results, and the codes of operand x. */
void cuda_cast_scales(Device *d, const Fp8Product *p, const KernelArgs *a);
void cuda_cast_codes(Device *d, const Fp8Product *p, const Fp8Operand *o,
                     const KernelArgs *a);

/* linear_fp8_lt.c. False if nothing was enqueued: nothing was prepared. */
weft_status prepare_linear_fp8_lt(Device *d, KernelArgs *a, weft_error *e);
weft_status prepare_linear_fp8_dx_lt(Device *d, KernelArgs *a, weft_error *e);
weft_status prepare_linear_fp8_dw_lt(Device *d, KernelArgs *a, weft_error *e);
bool cuda_multiply_fp8_lt(Device *d, const Fp8Product *p, const KernelArgs *a);

/* Largest magnitudes: parts that each result is cut into, and f32 of scratch for them. */
int64_t cuda_amax_cut(const KernelArgs *a);
uint64_t cuda_amax_parts(const KernelArgs *a);

#ifdef __cplusplus
}
#endif

#endif
