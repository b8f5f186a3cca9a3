/* op_attention.c - shapes, gradients and costs of attention. */
#include "rules.h"
#include "sequence.h"

/* Behind doc_starts, before token_numbers; those are integers. */
int attention_sinks_operand(const Graph *g, const Op *op) {
  int last = op->nin - 1 - (op->attr.rate != 0);
  return last >= 3 && g->t.at[op->in[last]].dtype != DT_I32 ? last : -1;
}

static weft_status check_sinks(Graph *g, const Op *op, int64_t heads, weft_error *e) {
  int at = attention_sinks_operand(g, op);
  if (at < 0) return WEFT_OK;
  const Tensor *s = op_in(g, op, at);
  TRY(need_numbers(g, op, at, e));
  if (s->kind != T_PARAM) return shape_error(g, op, e, "sinks must be a parameter");
  if (s->ndim != 1 || s->dim[0].size != heads)
    return shape_error(g, op, e, "the sinks of %lld heads have as many elements",
                       (long long)heads);
  return WEFT_OK;
}

/* Behind q, k and v: where documents begin, and the numbers of tokens, of the same rows.
 */
static weft_status check_places(Graph *g, const Op *op, weft_error *e) {
  for (int i = 3; i < op->nin; i++) {
    const Tensor *t = op_in(g, op, i);
    if (t->dtype != DT_I32) continue;
    bool last = op->attr.rate != 0 && i == op->nin - 1;
    if (t->kind != T_INPUT || t->index != (last ? IN_TOKEN_NUMBERS : IN_DOC_STARTS))
      return shape_error(g, op, e, "operand %d is not doc_starts", i + 1);
    if (!same_rows(t, op_in(g, op, 0), 2))
      return shape_error(g, op, e, "takes (batch, seq, features), a row for each token");
  }
  return WEFT_OK;
}

weft_status infer_attention(Graph *g, Op *op, weft_error *e) {
  int drops = op->attr.rate != 0, sinks = attention_sinks_operand(g, op) >= 0;
  if (op->nin - drops < 3 || op->nin - drops - sinks > 4)
    return shape_error(g, op, e,
                       "takes q, k, v and maybe doc_starts and sinks, got %d tensors",
                       op->nin - drops);
  TRY(check_rate(g, op, e));
  const Tensor *q = op_in(g, op, 0), *k = op_in(g, op, 1), *v = op_in(g, op, 2);
  int d = op->attr.head_dim, dv = attr_value_dim(&op->attr);
  for (int i = 0; i < 3; i++) TRY(need_numbers(g, op, i, e));
  if (q->ndim != 3 || k->ndim != 3 || v->ndim != 3)
    return shape_error(g, op, e, "q, k and v must be (batch, seq, heads*head_dim)");
  if (!same_rows(q, k, 2) || !same_rows(q, v, 2))
    return shape_error(g, op, e, "q, k and v must have the same rows");
  TRY(check_places(g, op, e));
  if (d < 1 || q->dim[2].size % d || k->dim[2].size % d)
    return shape_error(g, op, e, "head_dim = %d does not fit q and k of %lld and %lld", d,
                       (long long)q->dim[2].size, (long long)k->dim[2].size);
  int64_t heads = q->dim[2].size / d, kv = k->dim[2].size / d;
  if (v->dim[2].size != kv * dv)
    return shape_error(g, op, e, "%s = %d does not fit v of %lld for %lld kv heads",
                       op->attr.value_dim ? "value_dim" : "head_dim", dv,
                       (long long)v->dim[2].size, (long long)kv);
  if (heads % kv)
    return shape_error(g, op, e, "%lld kv heads do not divide %lld heads", (long long)kv,
                       (long long)heads);
  TRY(check_sinks(g, op, heads, e));
  if (op->attr.scale == 0) return shape_error(g, op, e, "scale must be given");
  Dim dim[MAX_DIM];
  memcpy(dim, q->dim, sizeof dim);
  Dim whole = q->dim[2]; /* q moves when results are made */
  dim[2] = dim_of_heads(&whole, d, dv);
  op_result(g, op, 0, DT_ACT, dim, 3);
  dim[2] = dim_of_groups(&whole, heads);
  return op_result(g, op, 1, DT_F32, dim, 3);
}

/* What q, k and v get does not ask for sinks: o and lse are of them, too. */
void grad_attention(Graph *g, Oid op, const Tid *dout, Tid *din) {
  uint8_t role[8] = {X0, X1, X2, Y0, Y1, DY0};
  int n = 6, sinks = attention_sinks_operand(g, &g->op.at[op]);
  for (int i = 3; i < g->op.at[op].nin; i++)
    if (i != sinks) role[n++] = (uint8_t)(ROLE_IN + i);
  backward(g, op, dout, din,
           (Backward){OP_attention_dx, role, n, (const int[]){0, 1, 2}, 3});
  if (sinks < 0) return;
  const uint8_t of[] = {(uint8_t)(ROLE_IN + sinks), Y0, Y1, DY0};
  backward(g, op, dout, din, (Backward){OP_attention_sinks_dw, of, 4, &sinks, 1});
}

/* Documents that are cut by themselves are as far apart in each ring step. */
double attention_keys_seen(int code, const OpAttr *a, int64_t keys) {
  bool part = code == OP_attention_part || code == OP_attention_part_dx;
  int n = part ? a->n : 1;
  int64_t T = keys * n, window = a->window;
  if (window == 0 || window >= T) return (double)keys / 2;
  bool steps = part && a->parts == 0;
  double pairs = (double)seq_pairs(T, steps ? n : 1, steps ? a->step : 0,
                                   steps && a->mirror, window);
  double own = !steps || a->step == 0 ? (double)T / 2 : 0;
  return (pairs - own) / (double)T / (steps ? 1 : n);
}

/* Causal: half of the T x T products, or those of a window. Of them `keys` are over the
 * size of a head of k, `values` over that of v; each is T*T*D per head. */
static double products(const Graph *g, const Op *op, int keys, int values) {
  const Tensor *q = &g->t.at[op->in[0]];
  double seen = attention_keys_seen(op->code, &op->attr, g->t.at[op->in[1]].dim[1].local);
  double scores = (double)tensor_count(q) / op->attr.head_dim * 2 * seen;
  return scores * (keys * op->attr.head_dim + values * attr_value_dim(&op->attr));
}

double cost_attention(const Graph *g, const Op *op) { return products(g, op, 1, 1); }

/* Scores again, dq and dk; dP and dv. */
double cost_attention_dx(const Graph *g, const Op *op) { return products(g, op, 3, 2); }

/* ---- one token ---- */

/* Over all rows, or a window of them, though only those up to the position are read. */
double cost_attention_step(const Graph *g, const Op *op) {
  double heads = (double)tensor_count(&g->t.at[op->in[0]]) / op->attr.head_dim;
  int rows = op->attr.window ? MIN(op->attr.n, op->attr.window) : op->attr.n;
  return 2.0 * heads * rows * (op->attr.head_dim + attr_value_dim(&op->attr));
}
