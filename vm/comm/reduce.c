/* reduce.c - load, add and store of one block, per type. The loops are plain so that the
 * compiler vectorizes them; adding is element-wise, so vector width changes no bit. */
#include "reduce.h"

#include "vm/base/f16.h"

void reduce_load(DType t, ReduceAcc *acc, const void *in, size_t n) {
  assert(n <= REDUCE_BLOCK);
  if (t == DT_BF16) {
    const bf16 *b = in;
    for (size_t i = 0; i < n; i++) acc->f32[i] = bf16_to_f32(b[i]);
  } else if (t == DT_F16) {
    const f16 *h = in;
    for (size_t i = 0; i < n; i++) acc->f32[i] = f16_to_f32(h[i]);
  } else {
    memcpy(acc, in, n * (size_t)dtype_size(t));
  }
}

/* One loop per type and operation. MAX also takes the new value if it is a NaN. */
#define SUM(a, x)     ((a) + (x))
#define WRAP(a, x)    ((int32_t)((uint32_t)(a) + (uint32_t)(x)))
#define GREATER(a, x) ((x) > (a) || (x) != (x) ? (x) : (a))
#define LOOP(name, T, A, value, f)                                                       \
  static void name(A *restrict a, const T *restrict in, size_t n) {                      \
    for (size_t i = 0; i < n; i++) {                                                     \
      A x = value(in[i]);                                                                \
      a[i] = f(a[i], x);                                                                 \
    }                                                                                    \
  }
LOOP(sum_f32, float, float, , SUM)
LOOP(max_f32, float, float, , GREATER)
LOOP(sum_bf16, bf16, float, bf16_to_f32, SUM)
LOOP(max_bf16, bf16, float, bf16_to_f32, GREATER)
LOOP(sum_f16, f16, float, f16_to_f32, SUM)
LOOP(max_f16, f16, float, f16_to_f32, GREATER)
LOOP(sum_f64, double, double, , SUM)
LOOP(max_f64, double, double, , GREATER)
LOOP(sum_i32, int32_t, int32_t, , WRAP)
LOOP(max_i32, int32_t, int32_t, , GREATER)

void reduce_add(DType t, RedOp op, ReduceAcc *acc, const void *in, size_t n) {
  assert(n <= REDUCE_BLOCK);
  bool sum = op == RED_SUM;
  switch (t) {
  case DT_F32: (sum ? sum_f32 : max_f32)(acc->f32, in, n); return;
  case DT_BF16: (sum ? sum_bf16 : max_bf16)(acc->f32, in, n); return;
  case DT_F16: (sum ? sum_f16 : max_f16)(acc->f32, in, n); return;
  case DT_F64: (sum ? sum_f64 : max_f64)(acc->f64, in, n); return;
  case DT_I32: (sum ? sum_i32 : max_i32)(acc->i32, in, n); return;
  case DT_U8: /* codes are gathered, not added */
  case DT_Q8:
  case DT_UQ8:
  case DT_ACT:
  case DT_GRAD: break;
  }
  assert(!"the type of a collective is resolved");
}

void reduce_store(DType t, void *out, const ReduceAcc *acc, size_t n) {
  assert(n <= REDUCE_BLOCK);
  if (t == DT_BF16) {
    bf16 *b = out;
    for (size_t i = 0; i < n; i++) b[i] = bf16_from_f32(acc->f32[i]);
  } else if (t == DT_F16) {
    f16 *h = out;
    for (size_t i = 0; i < n; i++) h[i] = f16_from_f32(acc->f32[i]);
  } else {
    memcpy(out, acc, n * (size_t)dtype_size(t));
  }
}
