/* wgrad_split.c - where I and W are split (zero bubble), moves cheap weight gradients
 * into I: those of norm weights and biases, which would keep their operands alive until
 * W. Only products stay in W, as in the papers on zero bubble. */
#include "rewrite_passes.h"

#include "vm/graph/rules.h"

/* Whether an op only moves data and its results end in gradients of parameters. */
static bool is_light(const Graph *logical, const Graph *g, const Op *op) {
  if (op->phase != PH_W || op_info[op->code].cost != cost_move || !op_adds(op->code))
    return false;
  for (int k = 0; k < op->nout; k++) {
    Tid of = g->t.at[op->out[k]].grad_of;
    if (of < 0 || logical->t.at[of].kind != T_PARAM) return false;
  }
  return true;
}

static bool known_to_i(const Graph *g, const Op *op) {
  for (int k = 0; k < op->nin; k++) {
    Oid maker = g->t.at[op->in[k]].producer;
    if (maker >= 0 && g->op.at[maker].phase == PH_W) return false;
  }
  return true;
}

/* Units without I are not changed. */
void split_wgrads(const Graph *logical, Sharded *s) {
  Graph *g = s->g;
  bool *has_i = NEW_N(g->arena, bool, g->unit.n);
  for (int i = 0; i < g->op.n; i++) has_i[g->op.at[i].unit] |= g->op.at[i].phase == PH_I;
  for (int i = 0; i < g->op.n; i++) {
    Op *op = &g->op.at[i];
    if (has_i[op->unit] && is_light(logical, g, op) && known_to_i(g, op))
      op->phase = PH_I;
  }
}
