/* cpu_kernels.c - the table of CPU kernels by op. Conversions of placement other than
 * slice are communication and have none. Compiled once per instruction set: CPU_SET is
 * its name, and only cpu_set_<name> is exported. */
#include "kernel.h"
#include "kernels/cpu/gemm/gemm.h"
#include "levels.h"

#define cpu_all_reduce     NULL
#define cpu_all_gather     NULL
#define cpu_reduce_scatter NULL
#define cpu_all_to_all     NULL
#define cpu_all_to_all_v   NULL
#define cpu_shift          NULL

/* What makes and ends the state of an op. */
#define WITH(op, begin, end) [OP_##op].prepare = begin, [OP_##op].release = end

static const Kernel kernels[OP_N] = {
#define OP(name, nin, nout, infer, grad, shard, cost, doc) [OP_##name].run = cpu_##name,
#include "vm/graph/ops.def"
    WITH(linear, prepare_linear, release_gemm),
    WITH(linear_dx, prepare_linear_dx, release_gemm),
    WITH(linear_dw, prepare_linear_dw, release_gemm),
    WITH(linear_fp8, prepare_linear_fp8, release_gemm),
    WITH(linear_fp8_dx, prepare_linear_fp8_dx, release_gemm),
    WITH(linear_fp8_dw, prepare_linear_fp8_dw, release_gemm),
    WITH(grouped_linear, prepare_grouped_linear, release_gemm),
    WITH(grouped_linear_dx, prepare_grouped_linear_dx, release_gemm),
    WITH(grouped_linear_dw, prepare_grouped_linear_dw, release_gemm),
    WITH(linear_ce_stats, prepare_linear_ce_stats, release_linear_ce),
    WITH(linear_ce_back, prepare_linear_ce_back, release_linear_ce),
    WITH(linear_ce_dx, prepare_linear_ce_dx, release_linear_ce),
    WITH(linear_ce_dw, prepare_linear_ce_dw, release_linear_ce),
    [OP_attention].prepare = prepare_attention,
    [OP_attention_dx].prepare = prepare_attention,
    [OP_attention_part].prepare = prepare_attention,
    [OP_attention_part_dx].prepare = prepare_attention,
    [OP_attention_step].prepare = prepare_attention,
    [OP_rope].prepare = prepare_rope,
    [OP_rope_pair].prepare = prepare_rope,
    [OP_rope_qkv].prepare = prepare_rope,
    [OP_rope_qkv_dx].prepare = prepare_rope,
};

#define CAT(a, b)   a##b
#define SET(name)   CAT(cpu_set_, name)
#define TEXT(name)  #name
#define TITLE(name) TEXT(name)

const CpuSet SET(CPU_SET) = {
    .name = TITLE(CPU_SET),
    .kernel = kernels,
    .gemm_plain = gemm_plain,
    .gemm_blocks = gemm_blocks,
};
