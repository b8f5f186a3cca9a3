/* kernel_cases.c - the tables of cases, by families of ops. */
#include "kernel_cases.h"

#include <string.h>

#include "vm/graph/op_fp8.h"
#include "vm/program/program.h"

const KernelCase kernel_case[] = {
#include "cases_dense.def"
#include "cases_attention.def"
#include "cases_experts.def"
#include "cases_loss.def"
#include "cases_fused.def"
#include "cases_step.def"
#include "cases_families.def"
#include "cases_fp8.def"
#include "cases_balance.def"
};
const int kernel_cases = LEN(kernel_case);

const GradCase grad_case[] = {
    {OP_embedding_dw, OP_embedding, "x0 d0", "1", false},
    {OP_linear_dx, OP_linear, "d0 x1", "0", false},
    {OP_linear_dw, OP_linear, "x0 d0", "1", false},
    {OP_bias_dw, OP_add_bias, "d0", "1", false},
    {OP_scale, OP_scale, "d0", "0", false},
    {OP_feature_scale, OP_feature_scale, "d0 x1 x2", "0", false},
    {OP_feature_scale_dw, OP_feature_scale, "x0 x2 d0", "1", false},
    {OP_dropout, OP_dropout, "d0 x1", "0", false},
    {OP_gelu_dx, OP_gelu, "x0 d0", "0", false},
    {OP_silu_dx, OP_silu, "x0 d0", "0", false},
    {OP_relu_dx, OP_relu, "x0 d0", "0", false},
    {OP_clamp_dx, OP_clamp, "x0 d0", "0", false},
    {OP_soft_cap_dx, OP_soft_cap, "y0 d0", "0", false},
    {OP_xielu_dx, OP_xielu, "x0 x1 x2 d0", "0", false},
    {OP_xielu_dw, OP_xielu, "x0 x1 x2 d0", "1 2", false},
    {OP_clamped_swiglu_dx, OP_clamped_swiglu, "x0 d0", "0", false},
    {OP_silu_mul_dx, OP_silu_mul, "x0 x1 d0", "0 1", false},
    {OP_swiglu_dx, OP_swiglu, "x0 d0", "0", false},
    {OP_rmsnorm_dx, OP_rmsnorm, "x0 x1 y1 d0", "0", false},
    {OP_rmsnorm_dw, OP_rmsnorm, "x0 y1 d0", "1", false},
    {OP_layernorm_dx, OP_layernorm, "x0 x1 y1 d0", "0", false},
    {OP_layernorm_dw, OP_layernorm, "x0 y1 d0", "1 2", false},
    {OP_center, OP_center, "d0", "0", false},
    {OP_gate, OP_gate, "d0 x1", "0", false},
    {OP_gate_ds, OP_gate, "x0 x1 d0", "1", false},
    {OP_concat, OP_split, "d*", "0", false},
    {OP_rope, OP_rope, "d0 x1", "0", true},
    {OP_rope_qkv_dx, OP_rope_qkv, "d0 d1 d2 x1", "0", true},
    {OP_join_heads, OP_split_heads, "d*", "0", false},
    {OP_split_heads, OP_join_heads, "d0", "0 1", false},
    {OP_attention_dx, OP_attention, "x0 x1 x2 y0 y1 d0 x3 x4", "0 1 2", false},
    {OP_attention_sinks_dw, OP_attention, "x3 y0 y1 d0", "3", false},
    {OP_causal_conv_dx, OP_causal_conv, "x1 d0 x2", "0", false},
    {OP_causal_conv_dw, OP_causal_conv, "x0 d0 x2", "1", false},
    {OP_ssm_steps_dx, OP_ssm_steps, "x0 x1 x2 d0 d1", "0", false},
    {OP_ssm_steps_dw, OP_ssm_steps, "x0 x1 x2 d0 d1", "1 2", false},
    {OP_ssm_scan_dx, OP_ssm_scan, "x0 x1 x2 x3 x4 x5 d0 x6", "0 1 2 3 4", false},
    {OP_ssm_scan_dw, OP_ssm_scan, "x0 d0", "5", false},
    {OP_unflatten, OP_flatten, "d0", "0", false},
    {OP_flatten, OP_unflatten, "d0", "0", false},
    {OP_router_logits_dx, OP_router_logits, "d0 x1", "0", false},
    {OP_router_logits_dw, OP_router_logits, "x0 d0", "1", false},
    {OP_route_dx, OP_route, "x0 y1 d0", "0", false},
    {OP_router_loss_dx, OP_router_loss, "x0 x1 d0", "0", false},
    {OP_permute_dx, OP_permute, "d0 y2", "0", false},
    {OP_grouped_bias_dw, OP_grouped_bias, "d0 x2", "1", false},
    {OP_grouped_linear_dx, OP_grouped_linear, "d0 x1 x2", "0", false},
    {OP_grouped_linear_dw, OP_grouped_linear, "x0 d0 x2", "1", false},
    {OP_combine_dx, OP_combine, "x0 x1 x2 d0", "0 1", false},
    {OP_ce_dx, OP_ce_sum, "x0 x1 x2 y0 u", "0", false},
    {OP_spread, OP_row_sums, "d0", "0", false},
    {OP_spread, OP_sum_all, "d0", "0", false},
    {OP_join_pairs, OP_split_pairs, "d*", "0", false},
    {OP_divide, OP_divide, "d0 x1", "0", false},
    {OP_divide_db, OP_divide, "x1 y0 d0", "1", false},
    {OP_mul, OP_exponential, "d0 y0", "0", false},
    {OP_log_sigmoid_dx, OP_log_sigmoid, "x0 d0", "0", false},
};
const int grad_cases = LEN(grad_case);

bool grad_case_is_of(const GradCase *g, const KernelCase *c) {
  bool sinks = strstr(c->in, " w ") && !strstr(c->in, " s "); /* they are operand 3 */
  return g->forward == c->op && (g->op != OP_attention_sinks_dw || sinks);
}
