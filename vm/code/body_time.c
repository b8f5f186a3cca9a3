/* body_time.c - times of kernels by the roofline and of collectives by link speeds; see
 * body_time.h. */
#include "body_time.h"

#include "vm/plan/cluster_figures.h"

/* The figures of stdlib/clusters/h100-sxm.lua, for plans without all figures of a GPU:
 * only proportions matter for the order of a body, and naming that GPU changes no
 * program. */
static Cluster typical(void) {
  return (Cluster){.gpus = 8,
                   .bf16 = 989.4e12,
                   .fp8 = 1979e12,
                   .f32 = 67e12,
                   .hbm_bandwidth = 3.35e12,
                   .nvlink_bandwidth = 450e9,
                   .nvlink_latency = 3.4e-6,
                   .network_bandwidth = 50e9,
                   .network_latency = 9.6e-6};
}

BodyClock body_clock(const CompileInput *in, int copies) {
  const Plan *p = in->plan;
  BodyClock c = {.gpu = cluster_lacks(p, in->mesh) ? typical() : p->cluster,
                 .dtype = p->dtype,
                 .mesh = *in->mesh};
  mesh_split_tp(&c.mesh, copies);
  mesh_split_cp(&c.mesh, plan_cp_heads(p, &c.mesh));
  return c;
}

/* Of products whose operands are rounded to fp8 that of fp8. */
static double peak_of(const BodyClock *c, int op) {
  bool fp8 = op == OP_linear_fp8 || op == OP_linear_fp8_dx || op == OP_linear_fp8_dw;
  return fp8 && c->gpu.fp8 > 0 ? c->gpu.fp8 : cluster_rate(&c->gpu, c->dtype);
}

/* Roofline time, of experts without the rows that none has, or with them if `even` is
 * NULL. The parts of a product that was cut follow each other, so its weight is read from
 * memory once. */
static double kernel_seconds(const BodyClock *c, const CodeInstr *x,
                             const EvenList *even) {
  static const EvenList none = {0};
  double rate = peak_of(c, x->i.op), flops = x->flops + (even ? 0 : x->room);
  double moved = kernel_traffic(&x->i, x->operand, even ? even : &none);
  if (x->pieces) moved -= (double)operand_bytes(&x->operand[1]) * (1 - 1.0 / x->pieces);
  return rate > 0 ? MAX(flops / rate, moved / c->gpu.hbm_bandwidth) : 0;
}

double kernel_even_seconds(const BodyClock *c, const CodeInstr *x) {
  return kernel_seconds(c, x, &c->even);
}

double coll_even(const CodeInstr *x) {
  return coll_info[x->i.coll].is & COLL_COUNTED ? (double)x->attr.scale : 1;
}

double coll_seconds(const Link *l, CollKind coll, double bytes, double count) {
  if (coll == COLL_SHIFT) return link_shift(l, bytes, count);
  if (coll == COLL_ALL_TO_ALL || coll == COLL_ALL_TO_ALL_V)
    return link_exchange(l, bytes, count);
  return link_ring(l, bytes, count, coll == COLL_ALL_REDUCE);
}

static double transfer_seconds(const BodyClock *c, const CodeInstr *x, AxisSet axes) {
  AxisSet data = axes_split(AXES_DP) | AXIS_BIT(AXIS_EP_SHARD);
  if (axes_split(axes) & data) return 0;
  Link l = link_near(&c->gpu, mesh_size(&c->mesh, axes));
  double bytes = (double)coll_bytes(&x->i, x->operand) * coll_even(x);
  return coll_seconds(&l, (CollKind)x->i.coll, bytes, 1);
}

double instr_seconds(const BodyClock *c, const CodeInstr *x, const AxisSet *comm) {
  if (x->i.code == I_COLL) return transfer_seconds(c, x, comm[x->i.comm]);
  return x->i.code == I_KERNEL ? kernel_seconds(c, x, NULL) : 0;
}

/* ---- experts ---- */

void body_even(BodyClock *c, const UnitBody *b, Arena *a) {
  double choices = 0;
  for (int i = 0; i < b->n; i++)
    even_note(&b->at[i].i, b->at[i].operand, &b->at[i].attr, &choices, a, &c->even);
}
