/* rules.h - the rules that ops.def names: shapes, gradients, costs. Those of placements
 * are in vm/shard/shard_rules.h.
 *
 * Shapes come first, in the logical graph; a gradient rule appends backward ops. */
#ifndef WEFT_RULES_H
#define WEFT_RULES_H

#include "graph.h"

#define INFER(name) weft_status name(Graph *g, Op *op, weft_error *e);
INFER(infer_embedding)
INFER(infer_linear)
INFER(infer_add_bias)
INFER(infer_same)
INFER(infer_soft_cap)
INFER(infer_dropout)
INFER(infer_nf4)
INFER(infer_feature_sqnorms)
INFER(infer_feature_scale)
INFER(infer_clamped_swiglu)
INFER(infer_center)
INFER(infer_gate)
INFER(infer_rmsnorm)
INFER(infer_layernorm)
INFER(infer_split)
INFER(infer_rope)
INFER(infer_split_heads)
INFER(infer_join_heads)
INFER(infer_attention)
INFER(infer_flatten)
INFER(infer_unflatten)
INFER(infer_router_logits)
INFER(infer_route)
INFER(infer_expert_counts)
INFER(infer_router_loss)
INFER(infer_permute)
INFER(infer_grouped_linear)
INFER(infer_grouped_bias)
INFER(infer_combine)
INFER(infer_ce_max)
INFER(infer_ce_sum)
INFER(infer_ce_loss)
INFER(infer_ce_losses)
INFER(infer_label_mask)
INFER(infer_row_sums)
INFER(infer_sum_all)
INFER(infer_split_pairs)
INFER(infer_divergence_sums)
INFER(infer_divergence_rows)
#undef INFER

/* dout[k] is the gradient of result k or -1; sets din[k] for every operand that gets a
 * gradient, leaves -1 for the others. */
#define GRAD(name) void name(Graph *g, Oid op, const Tid *dout, Tid *din);
GRAD(grad_embedding)
GRAD(grad_linear)
GRAD(grad_add_bias)
GRAD(grad_add)
GRAD(grad_mul)
GRAD(grad_scale)
GRAD(grad_dropout)
GRAD(grad_feature_scale)
GRAD(grad_gelu)
GRAD(grad_silu)
GRAD(grad_relu)
GRAD(grad_soft_cap)
GRAD(grad_center)
GRAD(grad_gate)
GRAD(grad_silu_mul)
GRAD(grad_clamped_swiglu)
GRAD(grad_rmsnorm)
GRAD(grad_layernorm)
GRAD(grad_split)
GRAD(grad_rope)
GRAD(grad_split_heads)
GRAD(grad_join_heads)
GRAD(grad_attention)
GRAD(grad_flatten)
GRAD(grad_unflatten)
GRAD(grad_router_logits)
GRAD(grad_route)
GRAD(grad_router_loss)
GRAD(grad_permute)
GRAD(grad_grouped_linear)
GRAD(grad_grouped_bias)
GRAD(grad_combine)
GRAD(grad_ce_sum)
GRAD(grad_ce_loss)
GRAD(grad_ce_losses)
GRAD(grad_row_sums)
GRAD(grad_sum_all)
GRAD(grad_split_pairs)
GRAD(grad_divide)
GRAD(grad_offset)
GRAD(grad_exponential)
GRAD(grad_log_sigmoid)
GRAD(grad_divergence_sums)
GRAD(grad_divergence_rows)
#undef GRAD

#define COST(name) double name(const Graph *g, const Op *op);
COST(cost_move)
COST(cost_linear)
COST(cost_linear_dx)
COST(cost_linear_dw)
COST(cost_linear_ce_back)
COST(cost_linear_ce_part)
COST(cost_sqnorms)
COST(cost_grouped)
COST(cost_grouped_dx)
COST(cost_grouped_dw)
COST(cost_attention)
COST(cost_attention_dx)
COST(cost_attention_step)
#undef COST
/* The operand of an attention op that holds sinks, or -1. */
int attention_sinks_operand(const Graph *g, const Op *op);
/* The operand of a ce_loss that holds sources, or -1. */
int ce_loss_sources(const Op *op);
/* How many of `keys` a query of attention sees, in the mean over all queries of all
 * ranks; itself is half a key. */
double attention_keys_seen(int code, const OpAttr *a, int64_t keys);

/* ---- for the rules themselves ---- */

/* Operand or result number i of op. */
static inline Tensor *op_in(Graph *g, const Op *op, int i) { return &g->t.at[op->in[i]]; }
/* Makes result i of op. */
void op_result(Graph *g, Op *op, int i, DType dt, const Dim *dim, int ndim);
/* A dimension with one element for each of n groups of `x`; of heads it is cut as they
 * are. */
Dim dim_of_groups(const Dim *x, int64_t n);
/* That of as many heads as `x` has of size d, of another size. */
Dim dim_of_heads(const Dim *x, int d, int size);
weft_status shape_error(const Graph *g, const Op *op, weft_error *e, const char *fmt, ...)
    PRINTF(4, 5);

/* Operand i holds numbers of the compute type: no ids, no statistics. */
weft_status need_numbers(Graph *g, const Op *op, int i, weft_error *e);

/* That attr.rate is one. */
weft_status check_rate(const Graph *g, const Op *op, weft_error *e);

/* Adds the backward op `code` of forward op `fwd`. Operands are given as roles:
 * ROLE_IN+i, ROLE_OUT+i of the forward op, ROLE_DOUT+i; results as operand numbers of the
 * forward op whose gradients they are. Sets din[] of those. */
typedef struct Backward {
  int code;
  const uint8_t *role;
  int nin;
  const int *result;
  int nout;
} Backward;
void backward(Graph *g, Oid fwd, const Tid *dout, Tid *din, Backward b);
#define BACKWARD(g, op, dout, din, opcode, roles, results)                               \
  backward(g, op, dout, din,                                                             \
           (Backward){opcode, (const uint8_t[]){UNWRAP roles},                           \
                      LEN(((const uint8_t[]){UNWRAP roles})),                            \
                      (const int[]){UNWRAP results},                                     \
                      LEN(((const int[]){UNWRAP results}))})
#define UNWRAP(...) __VA_ARGS__
/* Shorthand for roles. */
enum {
  X0 = ROLE_IN,
  X1,
  X2,
  X3,
  X4,
  X5,
  X6,
  Y0 = ROLE_OUT,
  Y1,
  Y2,
  DY0 = ROLE_DOUT,
  DY1,
  DY2,
  DY3
};

#endif
