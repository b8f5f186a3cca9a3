/* rules.h - the rules that ops.def names: shapes, gradients, costs. Those of placements
 * are in vm/shard/shard_rules.h.
 *
 * Shapes come first, in the logical graph; a gradient rule appends backward ops. */
#ifndef WEFT_RULES_H
#define WEFT_RULES_H

#include "graph.h"

/* NULL in a row is no rule: while rows are read for their functions, it is a name that
 * nothing defines and nothing calls. */
#pragma push_macro("NULL")
#undef NULL

typedef weft_status InferRule(Graph *g, Op *op, weft_error *e);
#define NULL                                               no_infer
#define OP(name, nin, nout, infer, grad, shard, cost, doc) InferRule infer;
#include "ops.def"
#undef NULL

/* dout[k] is the gradient of result k or -1; sets din[k] for every operand that gets a
 * gradient, leaves -1 for the others. */
typedef void GradRule(Graph *g, Oid op, const Tid *dout, Tid *din);
#define NULL                                               no_grad
#define OP(name, nin, nout, infer, grad, shard, cost, doc) GradRule grad;
#include "ops.def"
#undef NULL

typedef double CostRule(const Graph *g, const Op *op);
#define NULL                                               no_cost
#define OP(name, nin, nout, infer, grad, shard, cost, doc) CostRule cost;
#include "ops.def"
#undef NULL

#pragma pop_macro("NULL")

/* Whether the second operand of route is a bias of each expert: else it is keys. */
bool route_has_bias(const Graph *g, const Op *op);
/* The operand of an attention op that holds sinks, or -1. */
int attention_sinks_operand(const Graph *g, const Op *op);
/* The operand of a ce_loss that holds sources, or -1. */
int ce_loss_sources(const Op *op);
/* How many of `keys` a query of attention sees, in the mean over all queries of all
 * ranks; itself is half a key. */
double attention_keys_seen(int code, const OpAttr *a, int64_t keys);

/* What a scan multiplies and adds, forward or for its gradient; of groups with states of
 * n columns and heads of p elements. */
double ssm_scan_flops(double tokens, double heads, double p, double groups, double n,
                      bool back);

/* ---- for the rules themselves ---- */

/* Operand or result number i of op. */
static inline Tensor *op_in(Graph *g, const Op *op, int i) { return &g->t.at[op->in[i]]; }
/* Makes result i of op, which cannot fail; `dim` may be that of a tensor of g. */
weft_status op_result(Graph *g, Op *op, int i, DType dt, const Dim *dim, int ndim);
/* A dimension with one element for each of n groups of `x`; of heads it is cut as they
 * are. */
Dim dim_of_groups(const Dim *x, int64_t n);
/* That of as many heads as `x` has of size d, of another size. */
Dim dim_of_heads(const Dim *x, int d, int size);
weft_status shape_error(const Graph *g, const Op *op, weft_error *e, const char *fmt, ...)
    PRINTF(4, 5);

/* Operand i holds numbers of the compute type: no ids, no statistics. */
weft_status need_numbers(Graph *g, const Op *op, int i, weft_error *e);
/* Whether both have n dimensions or more, of which the first n are of the same sizes. */
bool same_rows(const Tensor *a, const Tensor *b, int n);
/* What made a tensor, through flatten and unflatten; NULL: no op did. */
const Op *maker_of(const Graph *g, const Tensor *t);

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
/* The gradient rule of an op that has one backward op. */
#define GRAD(name, opcode, roles, results)                                               \
  void name(Graph *g, Oid op, const Tid *dout, Tid *din) {                               \
    BACKWARD(g, op, dout, din, opcode, roles, results);                                  \
  }
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
  DY1
};

#endif
