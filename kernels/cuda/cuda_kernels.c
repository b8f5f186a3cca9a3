/* cuda_kernels.c - the table of CUDA kernels by op. Conversions of placement other than
 * slice are communication and have none. */
#include "kernels/cuda/attention/attention_hopper.h"
#include "kernels/cuda/cudnn/attention_blocks.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/gemm/fp8_product.h"

#define cuda_all_reduce     NULL
#define cuda_all_gather     NULL
#define cuda_reduce_scatter NULL
#define cuda_all_to_all     NULL
#define cuda_all_to_all_v   NULL
#define cuda_shift          NULL

/* Refuses head sizes for which attention_shape.cuh has no kernels. */
static weft_status prepare_heads(Device *d, KernelArgs *a, weft_error *e) {
  enum { HEAD_MAX = 256 };
  int most = MAX(a->attr->head_dim, a->attr->value_dim);
  if (most > HEAD_MAX)
    return err_set(e, WEFT_EPLAN, "head_dim = %d: attention on a GPU takes at most %d",
                   most, HEAD_MAX);
  return WEFT_OK;
}

/* Prepares weft's own kernels or, if the plan says so, cuDNN's, which may leave it to
 * weft's. */
static weft_status prepare(Device *d, int op, KernelArgs *a, weft_error *e) {
  TRY(attr_of_library(a->attr) ? cudnn_prepare(d, op, a, e) : prepare_heads(d, a, e));
  if (!attention_is_forward(op) || cudnn_takes(a)) return WEFT_OK;
  return hopper_prepare(d, op, a, e);
}
#define EITHER(op)                                                                       \
  static weft_status prepare_##op(Device *d, KernelArgs *a, weft_error *e) {             \
    return prepare(d, OP_##op, a, e);                                                    \
  }
EITHER(attention)
EITHER(attention_dx)
EITHER(attention_part)
EITHER(attention_part_dx)
#undef EITHER

/* What makes and ends the state of an op. */
#define WITH(op, begin, end) [OP_##op].prepare = begin, [OP_##op].release = end

const Kernel cuda_kernels[OP_N] = {
#define OP(name, nin, nout, infer, grad, shard, cost, doc) [OP_##name].run = cuda_##name,
#include "vm/graph/ops.def"
    WITH(linear, prepare_linear_lt, release_lt),
    WITH(linear_dx, prepare_linear_dx_lt, release_lt),
    WITH(linear_dw, prepare_linear_dw_lt, release_lt),
    WITH(linear_fp8, prepare_linear_fp8_lt, release_lt),
    WITH(linear_fp8_dx, prepare_linear_fp8_dx_lt, release_lt),
    WITH(linear_fp8_dw, prepare_linear_fp8_dw_lt, release_lt),
    WITH(linear_ce_stats, prepare_linear_ce_stats_lt, release_linear_ce_lt),
    WITH(linear_ce_back, prepare_linear_ce_back_lt, release_linear_ce_lt),
    WITH(linear_ce_dx, prepare_linear_ce_dx_lt, release_linear_ce_lt),
    WITH(linear_ce_dw, prepare_linear_ce_dw_lt, release_linear_ce_lt),
    WITH(attention, prepare_attention, cudnn_release),
    WITH(attention_dx, prepare_attention_dx, cudnn_release),
    WITH(attention_part, prepare_attention_part, cudnn_release),
    WITH(attention_part_dx, prepare_attention_part_dx, cudnn_release),
    [OP_attention_step].prepare = prepare_heads,
};
