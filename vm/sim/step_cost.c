/* step_cost.c - one answer of tables and data sheets; see step_cost.h. */
#include "step_cost.h"

bool instr_uses_host(const Program *p, const Instr *in) {
  for (int i = 0; i < instr_operands(in); i++)
    if (on_host(p->operand[in->operand + (uint32_t)i].off)) return true;
  return false;
}

Cost cost_of_kernel(const CostSource *s, const Program *p, const Instr *in,
                    const KernelWork *w, bool host) {
  if (s->table && !host) {
    char shape[KERNEL_SHAPE];
    KernelWork typed = *w;
    kernel_shape(p, in, shape);
    typed.dtype = kernel_dtype(p, in);
    Cost c = table_kernel_cost(s->table, s->cluster, in->op, shape, &typed);
    if (c.from != COST_SHEET) return c;
  }
  Cluster there = *s->cluster;
  if (host) there.hbm_bandwidth = there.host_bandwidth;
  return (Cost){sheet_kernel(&there, &s->rates, w), COST_SHEET};
}

/* Where ranks share cores a collective was measured with all of these; its members have
 * as many threads, of which more than there are cores wait for each other again when the
 * clock shares the cores. */
static double alone(const CostTable *t, const MoveWork *w) {
  bool pair = w->kind == COLL_SEND;
  return t->cores > 0 && !pair && w->over.n > t->cores ? (double)t->cores / w->over.n : 1;
}

/* Rows are of ranks of one machine: no row says what the network takes. */
MoveCost cost_of_move(const CostSource *s, const MoveWork *w, DType dtype) {
  if (s->table && w->over.n > 1 && w->link != LINK_NETWORK) {
    Cost c = table_move_cost(s->table, w->kind, dtype, w->over.n, w->bytes);
    if (c.from != COST_SHEET)
      return (MoveCost){c.seconds * alone(s->table, w),
                        s->table->cores > 0 ? 0 : sheet_move_full(&s->rates, w), c.from};
  }
  return (MoveCost){sheet_move(&s->rates, w), sheet_move_full(&s->rates, w), COST_SHEET};
}

void table_cluster(const CostTable *t, int ranks, Cluster *out) {
  const double latency = 1e-6; /* of one rank that wakes another */
  *out = (Cluster){.gpu = t->machine,
                   .nodes = 1,
                   .gpus = ranks,
                   .f32 = t->f32,
                   .bf16 = t->bf16,
                   .hbm_bandwidth = t->bandwidth,
                   .nvlink_bandwidth = t->bandwidth / 2,
                   .nvlink_latency = latency,
                   .host_bandwidth = t->bandwidth};
}
