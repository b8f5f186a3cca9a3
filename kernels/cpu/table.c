/* table.c - the CPU kernel of every op. Changes of placement other than slice are
 * communication and have none. */
#include "kernel.h"

#define cpu_all_reduce NULL
#define cpu_all_gather NULL
#define cpu_reduce_scatter NULL

const Kernel cpu_kernels[OP_N] = {
#define OP(name, nin, nout, infer, grad, shard, cost, doc) [OP_##name].run = cpu_##name,
#include "vm/graph/ops.def"
  [OP_linear].prepare = prepare_linear,
  [OP_linear].release = release_gemm,
  [OP_linear_dx].prepare = prepare_linear_dx,
  [OP_linear_dx].release = release_gemm,
  [OP_linear_dw].prepare = prepare_linear_dw,
  [OP_linear_dw].release = release_gemm,
  [OP_attention].prepare = prepare_attention,
  [OP_attention_dx].prepare = prepare_attention_dx,
  [OP_attention_dx].release = release_attention_dx,
  [OP_rope].prepare = prepare_rope,
  [OP_rope].release = release_rope,
};
