/* cuda_workspace.c - scratch sizes of the CUDA kernels, compiled for the host, so that a
 * plan is sized without a GPU. */
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "vm/device/linear_ce_calls.h"

int64_t cuda_part_rows(int64_t rows) {
  int64_t least = (rows + CUDA_PARTS_MAX - 1) / CUDA_PARTS_MAX;
  return MAX(least, CUDA_PART_ROWS);
}

int64_t cuda_parts(int64_t rows) {
  int64_t each = cuda_part_rows(rows);
  return MAX((rows + each - 1) / each, 1);
}

/* Partial sums over rows, f32, per column and result; see columns.cuh. */
static uint64_t columns(int64_t rows, int64_t width, int results) {
  return (uint64_t)(cuda_parts(rows) * width * results) * sizeof(float);
}

/* Workspace for cuBLASLt if it may be used: NVIDIA's recommendation for Hopper. */
uint64_t cuda_gemm_work(const KernelArgs *a) {
  enum { ROOM = 32 << 20, LARGE = 1 << 20 };
  bool large = cuda_count(&a->in[0]) >= LARGE && cuda_count(&a->in[1]) >= LARGE;
  return large ? ROOM : 0;
}

/* The logits of a piece, and the scratch of the product that needs most. */
static uint64_t linear_ce_work(int op, const KernelArgs *a) {
  LinearCeCall call[LINEAR_CE_CALLS];
  uint64_t most = 0;
  for (int i = 0, n = linear_ce_calls(op, a, 0, call); i < n; i++)
    most = MAX(most, cuda_work(call[i].op, &call[i].a));
  return linear_ce_logits_bytes(a) + most;
}

uint64_t cuda_work(int op, const KernelArgs *a) {
  const KTensor *x = &a->in[0];
  if (a->attr->backend == BACKEND_CUDNN) return cudnn_work(op, a);
  switch (op) {
  case OP_linear:
  case OP_linear_dx:
  case OP_linear_dw: return cuda_gemm_work(a);
  case OP_linear_ce_stats:
  case OP_linear_ce_back:
  case OP_linear_ce_dx:
  case OP_linear_ce_dw: return linear_ce_work(op, a);
  case OP_feature_scale_dw:
  case OP_bias_dw: return columns(cuda_rows(x), cuda_last(x), 1);
  case OP_layernorm_dw: return columns(cuda_rows(x), cuda_last(x), 2);
  case OP_rmsnorm_dw:
  case OP_rmsnorm_back: {
    int64_t g = cuda_last(&a->out[0]);
    return columns(cuda_count(x) / g, g, 1);
  }
  case OP_unit_norm:
  case OP_sqnorm: return CUDA_NORM_BLOCKS * sizeof(double);
  case OP_attention_dx:
  case OP_attention_part_dx: /* delta, for each query and head */
    return (uint64_t)(cuda_count(x) / a->attr->head_dim) * sizeof(float);
  default: return 0;
  }
}

uint64_t cuda_state(int op, const KernelArgs *a) {
  if (a->attr->backend == BACKEND_CUDNN) return CUDNN_STATE;
  if (linear_ce(op)) return LINEAR_CE_CALLS * CUDA_LT_STATE;
  bool product = op == OP_linear || op == OP_linear_dx || op == OP_linear_dw;
  return product ? CUDA_LT_STATE : 0;
}
