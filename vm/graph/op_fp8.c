/* op_fp8.c - shapes and gradients of linears in fp8 and of what their scales come of; see
 * op_fp8.h. */
#include "op_fp8.h"

#include "rules.h"

int fp8_kind(int code, const OpAttr *a, int i) {
  if (a->fp8 != FP8_ROWWISE) return 0;
  return fp8_sums_rows(code, a, i) ? FP8_COLUMNS : FP8_ROWS;
}

/* ---- amax ---- */

static bool has_tokens(const Tensor *x) {
  return x->kind != T_PARAM && (x->dim[0].tag == TAG_BATCH || x->dim[0].tag == TAG_TOKEN);
}

static void amax_result(Graph *g, Op *op) {
  const Tensor x = *op_in(g, op, 0);
  Dim dim[MAX_DIM], group = {.size = 1};
  int ndim = 0, how = op->attr.fp8_how;
  if (has_tokens(&x)) group = (Dim){.size = MAX(op->attr.groups, 1), .tag = TAG_BATCH};
  if (how & FP8_ROWS)
    for (; ndim < x.ndim - 1; ndim++) dim[ndim] = x.dim[ndim];
  else if (!(how & FP8_COLUMNS) || has_tokens(&x))
    dim[ndim++] = group;
  if (how & FP8_COLUMNS) dim[ndim++] = x.dim[x.ndim - 1];
  op_result(g, op, 0, DT_F32, dim, ndim);
}

weft_status infer_amax(Graph *g, Op *op, weft_error *e) {
  TRY(need_numbers(g, op, 0, e));
  amax_result(g, op);
  return WEFT_OK;
}

Tid fp8_add_amax(Graph *g, Op of, Oid fwd, int code, int i, Tid t) {
  Oid id = graph_add(g, OP_amax, 1, 1, of.unit, fwd < 0 ? PH_F : PH_I);
  Op *op = &g->op.at[id];
  op->name = of.name, op->line = of.line, op->fwd = fwd;
  op->attr = (OpAttr){.layout = of.attr.layout,
                      .groups = of.attr.groups,
                      .fp8_how = fp8_kind(code, &of.attr, i)};
  op->in[0] = t;
  amax_result(g, op);
  Tid m = op->out[0];
  g->t.at[m].producer = id;
  g->t.at[m].unit = of.unit;
  return m;
}

/* ---- linear_fp8 ---- */

weft_status infer_linear_fp8(Graph *g, Op *op, weft_error *e) {
  int want = op->attr.fp8 == FP8_MX ? 2 : 4;
  if (op->attr.fp8 < FP8_TENSORWISE || op->attr.fp8 > FP8_MX || op->nin != want)
    return shape_error(g, op, e, "is made of a linear by precision = \"fp8\"");
  return infer_linear(g, op, e);
}

/* What the gradients need of forward scales, they find anew: along other dimensions, or
 * the same number where an operand has one. */
static Tid scale_of(Graph *g, Oid f, int code, int i, Tid t, int operand) {
  const Op *op = &g->op.at[f];
  if (operand >= 0 && fp8_kind(code, &op->attr, i) == 0) return op->in[2 + operand];
  return fp8_add_amax(g, *op, f, code, i, t);
}

typedef struct Product {
  int code, operand[2]; /* of the forward op; -1: the output gradient */
  int result;           /* the operand whose gradient it is */
} Product;

static void add_product(Graph *g, Oid f, Product p, Tid dy, Tid *dy_amax, Tid *din) {
  Tid in[4];
  bool scaled = g->op.at[f].attr.fp8 != FP8_MX;
  for (int i = 0; i < 2; i++) {
    int k = p.operand[i];
    in[i] = k < 0 ? dy : g->op.at[f].in[k];
    if (!scaled) continue;
    bool known = k < 0 && *dy_amax >= 0 && fp8_kind(p.code, &g->op.at[f].attr, i) == 0;
    in[2 + i] = known ? *dy_amax : scale_of(g, f, p.code, i, in[i], k);
    if (k < 0) *dy_amax = in[2 + i];
  }
  uint8_t role[4];
  for (int i = 0; i < 4; i++) {
    int k = p.operand[i % 2];
    role[i] = (uint8_t)(k < 0 ? ROLE_DOUT : ROLE_IN + k);
  }
  Tid dout[] = {dy};
  backward(g, f, dout, din, (Backward){p.code, role, scaled ? 4 : 2, &p.result, 1});
  Op *op = &g->op.at[g->op.n - 1];
  for (int i = 2; scaled && i < 4; i++) op->in[i] = in[i], op->role[i] = ROLE_NONE;
}

void grad_linear_fp8(Graph *g, Oid op, const Tid *dout, Tid *din) {
  Tid amax = -1;
  add_product(g, op, (Product){OP_linear_fp8_dx, {-1, 1}, 0}, dout[0], &amax, din);
  add_product(g, op, (Product){OP_linear_fp8_dw, {0, -1}, 1}, dout[0], &amax, din);
}
