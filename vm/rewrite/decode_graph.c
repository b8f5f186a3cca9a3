/* decode_graph.c - the graph of one decoding step: rewrites attention to attention_step
 * with a key-value cache, and the loss to logits. */
#include "rewrite_passes.h"

#include "vm/graph/rules.h"

/* Adds the cache for k: `context` rows. */
static Tid add_rows(Graph *g, Tid k, int64_t context, const Op *op, Oid id) {
  Dim dim[MAX_DIM];
  memcpy(dim, g->t.at[k].dim, sizeof dim);
  dim[1] = (Dim){.size = context, .local = context, .parts = 1, .unit = 1};
  Tid t = graph_tensor(g, T_VALUE, DT_ACT, dim, 3);
  g->t.at[t].producer = id;
  g->t.at[t].unit = op->unit;
  return t;
}

/* Attention of one query: without a mask, and without packed documents. */
static void one_query(Graph *g, Oid id, int64_t context) {
  Op op = g->op.at[id];
  Tid *in = NEW_N(g->arena, Tid, 5), *out = NEW_N(g->arena, Tid, 3);
  memcpy(in, op.in, 3 * sizeof *in);
  in[3] = graph_input(g, IN_POSITIONS);
  int sinks = attention_sinks_operand(g, &op), n = 4;
  if (sinks >= 0) in[n++] = op.in[sinks];
  out[0] = op.out[0];
  out[1] = add_rows(g, in[1], context, &op, id);
  out[2] = add_rows(g, in[2], context, &op, id);
  op.code = OP_attention_step;
  op.attr.n = (int32_t)context;
  op.attr.rate = 0;
  op.in = in, op.nin = (int16_t)n;
  op.out = out, op.nout = 3;
  g->op.at[id] = op;
}

/* The op that makes a tensor, if it is of this code, else NULL. */
static const Op *made_by(const Graph *g, Tid t, int code) {
  Oid id = t >= 0 ? g->t.at[t].producer : -1;
  return id >= 0 && g->op.at[id].code == code ? &g->op.at[id] : NULL;
}

bool decode_graph(Graph *g, int64_t context, Diags *d) {
  const Op *loss = made_by(g, g->loss, OP_ce_loss);
  const Op *sum = loss ? made_by(g, loss->in[0], OP_ce_sum) : NULL;
  if (!sum) {
    diag_error(d, "not-built", "model",
               "it does not return g:cross_entropy(logits, labels), so there are no "
               "logits to sample a token from");
    return false;
  }
  for (Oid id = 0; id < g->op.n; id++) {
    const Op *op = &g->op.at[id];
    if (op->code != OP_causal_conv && op->code != OP_ssm_scan) continue;
    diag_error(
        d, "not-built", "model",
        "%s%s%s goes over the tokens of a sequence: to make one token at a time its "
        "state would have to be kept from token to token, as the keys and values of "
        "attention are, which is not built",
        op_info[op->code].name, op->name ? " of " : "", op->name ? op->name : "");
    return false;
  }
  g->loss = sum->in[0];
  for (Oid id = 0; id < g->op.n; id++)
    if (g->op.at[id].code == OP_attention) one_query(g, id, context);
  return true;
}
