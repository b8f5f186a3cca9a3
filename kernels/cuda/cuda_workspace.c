/* cuda_workspace.c - scratch sizes of the CUDA kernels, compiled for the host, so that a
 * plan is sized without a GPU. */
#include "kernels/cuda/attention/attention_hopper.h"
#include "kernels/cuda/cudnn/attention_blocks.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/gemm/fp8_product.h"
#include "vm/device/linear_ce_calls.h"
#include "vm/graph/op_fp8.h"

int cuda_dtype_size(DType t) { return dtype_size(t); }

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

/* ---- fp8 ---- */

static uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

static Fp8Operand fp8_operand(int op, const KernelArgs *a, int i) {
  enum { CODES = 16, BLOCKS = 128 }; /* multiples that tensor cores take */
  const KTensor *x = &a->in[i];
  bool mx = a->attr->fp8 == FP8_MX, rowwise = a->attr->fp8 == FP8_ROWWISE;
  Fp8Operand o = {.in = i,
                  .rows = cuda_rows(x),
                  .columns = cuda_last(x),
                  .down = fp8_sums_rows(op, a->attr, i),
                  .e5m2 = fp8_operand_type(op, a->attr, i) == FP8_E5M2};
  o.outer = o.down ? o.columns : o.rows, o.k = o.down ? o.rows : o.columns;
  o.pitch = (int64_t)up((uint64_t)o.k, mx ? BLOCKS : CODES);
  o.scales = mx ? 0 : cuda_count(&a->in[2 + i]);
  o.width = rowwise && o.down ? o.columns : 1;
  o.groups = mx ? 1 : o.scales / o.width;
  if (rowwise && !o.down) o.groups = 1;
  o.each = mx ? 0 : rowwise && !o.down ? 1 : o.rows / MAX(o.groups, 1);
  return o;
}

/* Blocks have a byte each, in tiles of 128 rows by 4 blocks. */
static uint64_t fp8_scale_bytes(const Fp8Operand *o) {
  enum { TILE = 128 };
  if (o->scales) return (uint64_t)o->scales * sizeof(float);
  return up((uint64_t)o->outer, TILE) * (uint64_t)o->pitch / MX_BLOCK;
}

Fp8Product cuda_fp8_product(int op, const KernelArgs *a) {
  int first = op == OP_linear_fp8_dw && a->attr->layout == 0;
  Fp8Product p = {.recipe = a->attr->fp8,
                  .powers = a->attr->fp8_how & FP8_POWERS,
                  .of = {fp8_operand(op, a, first), fp8_operand(op, a, !first)}};
  for (int i = 0; i < 2; i++) {
    Fp8Operand *o = &p.of[i];
    o->codes = p.bytes;
    o->back = o->codes + up((uint64_t)(o->outer * o->pitch), DEVICE_ALIGN);
    o->back_bytes = fp8_scale_bytes(o);
    o->scale = o->back + up(o->back_bytes, DEVICE_ALIGN);
    p.bytes = o->scale + (o->scales ? up(o->back_bytes, DEVICE_ALIGN) : 0);
  }
  p.gemm = p.bytes;
  p.gemm_bytes = cuda_gemm_work(a);
  p.bytes += p.gemm_bytes;
  return p;
}

/* Rows of the result are whole vectors of 16 bytes. */
const char *cuda_fp8_refuses(int op, const KernelArgs *a) {
  enum { VECTOR = 16 };
  Fp8Product p = cuda_fp8_product(op, a);
  int64_t each = VECTOR / dtype_size(a->out[0].dtype);
  if (p.of[0].groups > 1 || p.of[1].groups > 1)
    return "a rank has several microbatches, which have scales of their own";
  if (p.of[1].outer % each)
    return "rows of its result on a rank are no multiple of 16 bytes";
  return NULL;
}

/* Parts of the largest magnitudes, f32: of each result so many, or one, which is it. */
int64_t cuda_amax_cut(const KernelArgs *a) {
  enum { ELEMENTS = 1 << 14, ROWS = 32, MOST = 512 };
  int64_t part = a->attr->fp8_how & FP8_COLUMNS ? ROWS : ELEMENTS;
  int64_t of_one = cuda_count(&a->in[0]) / MAX(cuda_count(&a->out[0]), 1);
  return MIN(MAX((of_one + part - 1) / part, 1), MOST);
}

uint64_t cuda_amax_parts(const KernelArgs *a) {
  int64_t cut = cuda_amax_cut(a);
  return cut > 1 ? (uint64_t)(cut * cuda_count(&a->out[0])) : 0;
}

uint64_t cuda_work(int op, const KernelArgs *a) {
  const KTensor *x = &a->in[0];
  if (attr_of_library(a->attr)) return cudnn_work(op, a);
  switch (op) {
  case OP_linear:
  case OP_linear_dx:
  case OP_linear_dw: return cuda_gemm_work(a);
  case OP_linear_fp8:
  case OP_linear_fp8_dx:
  case OP_linear_fp8_dw: return cuda_fp8_product(op, a).bytes;
  case OP_amax: return cuda_amax_parts(a) * sizeof(float);
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
  case OP_sinkhorn: /* a factor of each row */
    return (uint64_t)cuda_rows(x) * sizeof(double);
  case OP_router_loss:
    return (uint64_t)cuda_loss_blocks(cuda_rows(x), 1) * sizeof(double);
  case OP_router_logits_dx:
    return a->in[1].dtype == DT_BF16 ? router_planes(&a->in[0]) : 0;
  case OP_router_logits_dw: return x->dtype == DT_BF16 ? router_planes(&a->in[1]) : 0;
  case OP_unit_norm:
  case OP_sqnorm: return CUDA_NORM_BLOCKS * sizeof(double);
  case OP_xielu_dw: return CUDA_NORM_BLOCKS * sizeof(double[2]);
  case OP_factored_norm: return (uint64_t)a->out[0].dim[0] * sizeof(double[2]);
  case OP_factored_step: return (uint64_t)a->in[4].dim[0] * sizeof(double[2]);
  case OP_attention_dx:
  case OP_attention_part_dx: /* delta, for each query and head */
    return (uint64_t)(cuda_count(x) / a->attr->head_dim) * sizeof(float);
  default: return 0;
  }
}

uint64_t cuda_state(int op, const KernelArgs *a) {
  uint64_t hopper = attention_is_forward(op) ? HOPPER_STATE : 0;
  if (attr_of_library(a->attr)) return CUDNN_STATE + hopper;
  if (linear_ce(op)) return LINEAR_CE_CALLS * CUDA_LT_STATE;
  bool product =
      op == OP_linear || op == OP_linear_dx || op == OP_linear_dw || is_linear_fp8(op);
  return product ? CUDA_LT_STATE : hopper;
}
