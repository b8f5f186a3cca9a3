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

int cuda_loss_blocks(int64_t rows, int each) {
  enum { MOST = 1024 };
  return (int)MIN(MAX((rows + each - 1) / each, 1), MOST);
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

/* Two partial sums a segment, and the order of the tokens. */
static uint64_t embedding_dw_work(const KernelArgs *a) {
  enum { SEGMENT = CUDA_EMBEDDING_SEGMENT };
  int64_t tokens = cuda_count(&a->in[0]), width = cuda_last(&a->out[0]);
  int64_t segments = (tokens + SEGMENT - 1) / SEGMENT;
  return (uint64_t)(2 * segments * width + tokens) * sizeof(float);
}

/* Gradients of logits in f32 as three summands in bf16, which tensor cores multiply. */
static uint64_t router_planes(const KTensor *dl) {
  enum { PLANES = 3, BYTES = 2 };
  return (uint64_t)cuda_count(dl) * PLANES * BYTES;
}

/* Of each chunk of a head what it leaves of a state, and a state, or two. */
static uint64_t scan_work(const KernelArgs *a, int states) {
  int64_t heads = a->in[0].dim[0] * a->in[1].dim[2], size = cuda_last(&a->in[0]);
  int64_t chunks = (a->in[0].dim[1] + SSM_CHUNK - 1) / SSM_CHUNK;
  size = size / a->in[1].dim[2] * a->attr->head_dim;
  return (uint64_t)(heads * chunks * (1 + states * size)) * sizeof(float);
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
  case OP_causal_conv_dw: return columns(cuda_rows(x), cuda_count(&a->out[0]), 1);
  case OP_ssm_steps_dw: return columns(cuda_rows(x), cuda_last(x), 2);
  case OP_ssm_scan: return scan_work(a, 1);
  case OP_ssm_scan_dx: return scan_work(a, 2);
  case OP_layernorm_dw: return columns(cuda_rows(x), cuda_last(x), 2);
  case OP_rmsnorm_dw:
  case OP_rmsnorm_back: {
    int64_t g = cuda_last(&a->out[0]);
    return columns(cuda_count(x) / g, g, 1);
  }
  case OP_embedding_dw: return embedding_dw_work(a);
  case OP_ce_loss:
    return (uint64_t)cuda_loss_blocks(cuda_count(&a->in[1]), CUDA_LOSS_ROWS) *
           sizeof(double);
  case OP_router_loss:
    return (uint64_t)cuda_loss_blocks(cuda_rows(x), 1) * sizeof(double);
  case OP_router_logits_dx:
    return a->in[1].dtype == DT_BF16 ? router_planes(&a->in[0]) : 0;
  case OP_router_logits_dw: return x->dtype == DT_BF16 ? router_planes(&a->in[1]) : 0;
  case OP_unit_norm:
  case OP_sqnorm: return CUDA_NORM_BLOCKS * sizeof(double);
  case OP_factored_norm: return (uint64_t)a->out[0].dim[0] * sizeof(double[2]);
  case OP_factored_step: return (uint64_t)a->in[4].dim[0] * sizeof(double[2]);
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
