/* cpu_workspace.c - sizes of the scratch and the state of CPU kernels. Compiled once, for
 * any CPU: the sizes are for the widest vectors and for CPUs without bf16 units, so a
 * plan has the same size everywhere. */
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/ssm/ssm.h"
#include "vm/device/linear_ce_calls.h"
#include "vm/graph/op_fp8.h"

/* dq of all heads as f32, in rows of whole vectors, and delta per query:
 * attention_dx.c. */
static uint64_t attention_dx(const KernelArgs *a) {
  Heads s = heads_of(a, a->nin);
  uint64_t rows = (uint64_t)(s.b * s.h * s.tiles * TILE);
  uint64_t wide = (uint64_t)(s.qk.d + LANES_MAX - 1) / LANES_MAX * LANES_MAX;
  return rows * (wide + 1) * sizeof(float);
}

/* y(rows,O) = x(rows,I) w; dx(rows,I) = dy(rows,O) w^T; dW(O,I) = dy^T x for layout 0,
 * dW(I,O) = x^T dy for layout 1. Grouped: an expert that gets all rows. */
GemmShape gemm_of(int op, const KernelArgs *a) {
  const KTensor *x = &a->in[0], *y = &a->out[0];
  GemmShape s = {.in = is_linear_fp8(op) ? DT_F32 : x->dtype, .out = y->dtype};
  if (op == OP_linear_dw || op == OP_linear_fp8_dw || op == OP_grouped_linear_dw) {
    int64_t i = last_dim(x), o = last_dim(&a->in[1]);
    bool turned = a->attr->layout == 0;
    s.m = turned ? o : i, s.n = turned ? i : o, s.k = rows_of(x);
    s.ta = true;
  } else {
    s.m = rows_of(x), s.n = last_dim(y), s.k = last_dim(x);
    bool dx = op == OP_linear_dx || op == OP_linear_fp8_dx || op == OP_grouped_linear_dx;
    s.tb = a->attr->layout == dx;
  }
  return s;
}

/* Two widened operands and, unless it is written directly, the result. */
uint64_t gemm_work(const GemmShape *s) {
  if (!gemm_in_blocks(s)) return 0;
  GemmBlock b = gemm_block(s);
  int64_t c = s->out == DT_F32 ? 0 : b.m * b.n;
  return sizeof(float) * (uint64_t)(b.m * b.k + b.k * b.n + c) + 3 * GEMM_LINE;
}

uint64_t fp8_copy_bytes(const KTensor *x) {
  uint64_t bytes = (uint64_t)count_of(x) * sizeof(float);
  return (bytes + GEMM_LINE - 1) / GEMM_LINE * GEMM_LINE;
}

bool cpu_is_product(int op) {
  return is_linear_fp8(op) || op == OP_linear || op == OP_linear_dx ||
         op == OP_linear_dw || op == OP_grouped_linear || op == OP_grouped_linear_dx ||
         op == OP_grouped_linear_dw;
}

/* The logits of a piece, and the scratch of the product that needs most. */
static uint64_t linear_ce_work(int op, const KernelArgs *a) {
  LinearCeCall call[LINEAR_CE_CALLS];
  uint64_t most = 0;
  for (int i = 0, n = linear_ce_calls(op, a, 0, call); i < n; i++)
    most = MAX(most, cpu_work(call[i].op, &call[i].a));
  return linear_ce_logits_bytes(a) + most;
}

static uint64_t scan(const KernelArgs *a, bool back) {
  Scan s = scan_of(a);
  int64_t items = s.b * (back ? s.g : s.h);
  return (uint64_t)(items * scan_floats(&s, back)) * sizeof(float);
}

/* Into 16 bits: the tokens of each row of the table (embedding.c). */
static uint64_t embedding_dw(const KernelArgs *a) {
  if (a->out[0].dtype == DT_F32) return 0;
  return (uint64_t)(a->out[0].dim[0] + count_of(&a->in[0])) * sizeof(int32_t);
}

uint64_t cpu_work(int op, const KernelArgs *a) {
  if (op == OP_ssm_scan || op == OP_ssm_scan_dx) return scan(a, op == OP_ssm_scan_dx);
  if (op == OP_attention_dx || op == OP_attention_part_dx) return attention_dx(a);
  if (op == OP_embedding_dw) return embedding_dw(a);
  if (op == OP_sqnorm || op == OP_unit_norm) return SQNORM_BLOCKS * sizeof(double);
  if (op == OP_xielu_dw) return SQNORM_BLOCKS * sizeof(double[2]);
  if (op == OP_permute && a->attr->drop == DROP_PROBS)
    return (uint64_t)count_of(&a->in[1]) * sizeof(Choice);
  if (linear_ce(op)) return linear_ce_work(op, a);
  if (!cpu_is_product(op)) return 0;
  GemmShape s = gemm_of(op, a);
  uint64_t copies =
      is_linear_fp8(op) ? fp8_copy_bytes(&a->in[0]) + fp8_copy_bytes(&a->in[1]) : 0;
  return copies + gemm_work(&s);
}

static bool turns(int op) {
  return op == OP_rope || op == OP_rope_pair || op == OP_rope_qkv || op == OP_rope_qkv_dx;
}

uint64_t cpu_state(int op, const KernelArgs *a) {
  if (turns(op)) return (uint64_t)(attr_rotary_dim(a->attr) / 2) * sizeof(double);
  if (linear_ce(op)) return LINEAR_CE_CALLS * sizeof(Gemm);
  return cpu_is_product(op) ? sizeof(Gemm) : 0;
}
