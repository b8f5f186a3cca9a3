/* step_estimate.c - a lower bound of the step time from data sheets:
 *
 *   step     = pipeline + fill + the largest tail of a rank + host + unshard
 *   pipeline = the largest work of a rank / (1 - bubble)
 *   work     = microbatches * (kernels + collectives inside units, less the part of
 *              these that overlaps with kernels: body_time.h)
 *   kernel   = max(flops / peak, bytes / memory bandwidth); experts balanced
 *   fill     = 2 * (stages - 1) * one transfer between stages
 *   tail     = gradient reduction beyond one microbatch's backward (all of it without
 *              overlap_grad_reduce) + the optimizer, which is bound by memory, and where
 *              it makes matrices orthogonal their gathers and products
 *   host     = copies of an offloading strategy, which overlap with nothing: gradients
 *              to the host and parameters back, where the optimizer is bound by the
 *              host's memory; shards of parameters before each gather
 *   unshard  = gathers and reduce-scatters of unsharded buckets beyond the work of all
 *              microbatches (all of them without prefetch)
 *
 * Expert dispatch is timed as if experts were balanced where only real rows travel, too;
 * its bytes (Estimate.ep) are those of full capacity. Nothing is fitted to measurements:
 * real runs take longer. */
#include "rank_cost.h"
#include "vm/plan/cluster_figures.h"
#include "vm/plan/optimizer.h"
#include "vm/code/body_time.h"

/* Traffic that is counted for the first part of a split axis uses all of that axis, or
 * nearly. */
static AxisSet counted_over(ShardAxis a) {
  bool later = a > 0 && ax_of_one_factor(a - 1, a);
  return later ? ax_mesh(a) : axes_whole(ax_mesh(a));
}

/* Kernels and collectives of one microbatch. */
static double work_seconds(const Mesh *m, const Cluster *k, const UnitWork *w) {
  double s = w->seconds - w->hidden;
  for (int a = 0; a < AX_N; a++) {
    Link l = link_of(m, k, counted_over((ShardAxis)a));
    for (int c = COLL_ALL_REDUCE; c < COLL_PAIRS; c++) {
      bool counted = coll_info[c].is & COLL_COUNTED;
      double bytes = w->bytes[a][c] - (counted ? w->empty[a] : 0);
      s += coll_seconds(&l, (CollKind)c, bytes, w->count[a][c]);
    }
  }
  return s;
}

static double tail_seconds(const Plan *plan, const Mesh *m, const RankCost *r,
                           double backward) {
  const Cluster *k = &plan->cluster;
  Link dp = link_of(m, k, AXES_DP_CP), tp = link_of(m, k, AXIS_BIT(AXIS_TP));
  Link flat = link_of(m, k, flat_axes(plan, m));
  double reduce = link_ring(&dp, (double)r->reduced, r->reduced > 0, true) +
                  link_ring(&flat, (double)r->scattered, r->scattered > 0, false) +
                  link_ring(&tp, (double)r->reduced_tp, r->reduced_tp > 0, true);
  if (plan->strategy.overlap_grad_reduce) reduce = MAX(reduce - backward, 0);
  double gather = link_ring(&flat, (double)r->gathered, r->gathered > 0, false);
  bool away = plan->strategy.offload_state;
  double moved = optimizer_bytes(plan);
  double step =
      (double)r->stepped * moved / (away ? k->host_bandwidth : k->hbm_bandwidth);
  if (!away && k->f32 > 0)
    step = MAX(step, (double)r->stepped * optimizer_row(&plan->opt)->flops / k->f32);
  double whole = link_ring(&flat, (double)r->whole.flat, r->whole.flat > 0, false) +
                 link_ring(&tp, (double)r->whole.cut, r->whole.cut > 0, false);
  if (k->f32 > 0) whole += r->whole.flops / k->f32;
  return reduce + whole +
         (plan->strategy.overlap_param_gather ? MAX(gather, step) : gather + step);
}

/* Copies between device and host memory. */
static double host_seconds(const Plan *plan, const Mesh *m, const RankCost *r,
                           const Lifetimes *l) {
  const Strategy *s = &plan->strategy;
  double bytes = 0;
  if (s->offload_state)
    bytes += (double)r->stepped * (dtype_size(plan->grad) + dtype_size(plan->dtype));
  if (s->offload_params && l)
    bytes += (double)l[AREA_GATHER].copies / mesh_size(m, flat_axes(plan, m));
  return bytes > 0 ? bytes / plan->cluster.host_bandwidth : 0;
}

static double moved_bytes(const Lifetimes *l) {
  return (double)l[AREA_GATHER].moved + (double)l[AREA_GATHER].moved_kept;
}

/* All-gathers and reduce-scatters of unsharded buckets. */
static double unshard_seconds(const Plan *plan, const Mesh *m, const Lifetimes *l) {
  const Cluster *k = &plan->cluster;
  double all = (double)l[AREA_GATHER].moved, kept = (double)l[AREA_GATHER].moved_kept;
  Link flat = link_of(m, k, flat_axes(plan, m)), group = link_of(m, k, group_axes(m));
  return link_ring(&flat, all, all > 0, false) + link_ring(&group, kept, kept > 0, false);
}

static double step_seconds(const RankCosts *c, const RankLives *l, const Plan *plan,
                           const Mesh *m, int64_t mbs, double bubble, double *even) {
  const Cluster *k = &plan->cluster;
  double most = 0, all = 0, tail = 0, sent = 0, held = 0;
  for (int r = 0; r < c->st.ranks; r++) {
    const RankCost *x = &c->rank[r];
    double forward = work_seconds(m, k, &x->work[PH_F]), backward = 0;
    for (int ph = PH_I; ph < BODIES; ph++) backward += work_seconds(m, k, &x->work[ph]);
    most = MAX(most, forward + backward);
    all += forward + backward;
    tail = MAX(tail, tail_seconds(plan, m, x, backward) +
                         host_seconds(plan, m, x, l ? l[r] : NULL));
    if (l) held = MAX(held, unshard_seconds(plan, m, l[r]));
  }
  *even = (double)mbs * all / c->st.ranks;
  for (int s = 0; s + 1 < c->st.n; s++) {
    double bytes = 0;
    for (int i = 0; i < c->st.fwd[s].n; i++)
      bytes += (double)c->st.u->edge[c->st.fwd[s].at[i]].bytes;
    sent = MAX(sent, bytes);
  }
  Link pp = link_of(m, k, AXIS_BIT(AXIS_PP));
  double fill =
      c->st.ranks < 2 ? 0 : 2.0 * (c->st.n - 1) * (sent / pp.bandwidth + pp.latency);
  if (plan->strategy.prefetch[0]) held = MAX(held - (double)mbs * most, 0);
  return (double)mbs * most / (1 - bubble) + fill + tail + held;
}

static double axis_bytes(const RankCost *r, ShardAxis a, double mbs) {
  double bytes = 0;
  for (int ph = 0; ph < BODIES; ph++)
    for (int c = 0; c < COLL_N; c++) bytes += r->work[ph].bytes[a][c];
  return bytes * mbs;
}

/* Bytes of padding in the exchanges of expert dispatch, if experts are balanced. */
static double empty_bytes(const RankCost *r, double mbs) {
  double bytes = 0;
  for (int ph = 0; ph < BODIES; ph++)
    for (int a = 0; a < AX_N; a++) bytes += r->work[ph].empty[a];
  return bytes * mbs;
}

Estimate estimate(const RankCosts *c, const RankLives *l, const Plan *plan, const Mesh *m,
                  int64_t microbatches, double bubble) {
  Estimate e = {0};
  double mbs = (double)microbatches, copies = (double)m->world / c->st.ranks;
  for (int r = 0; r < c->st.ranks; r++) {
    const RankCost *x = &c->rank[r];
    for (int ph = 0; ph < BODIES; ph++) {
      e.flops += x->work[ph].flops * mbs * copies;
      e.recomputed += x->work[ph].recomputed * mbs * copies;
    }
    e.tp = MAX(e.tp, axis_bytes(x, AX_TP, mbs) + axis_bytes(x, AX_TP_REP, mbs) +
                         (double)x->reduced_tp + (double)x->whole.cut);
    double rows = axis_bytes(x, AX_EP, mbs) + axis_bytes(x, AX_ETP, mbs);
    e.ep = MAX(e.ep, rows);
    e.ep_even = MAX(e.ep_even, rows - empty_bytes(x, mbs));
    e.cp = MAX(e.cp, axis_bytes(x, AX_CP, mbs) + axis_bytes(x, AX_CP_HEADS, mbs));
    e.dp = MAX(e.dp, axis_bytes(x, AX_DP, mbs) + axis_bytes(x, AX_EP_SHARD, mbs) +
                         (double)x->reduced + (double)x->scattered + (double)x->gathered +
                         (double)x->whole.flat + (l ? moved_bytes(l[r]) : 0));
    e.pp = MAX(e.pp, (double)x->sent * mbs + (double)x->tied);
  }
  if (!cluster_lacks(plan, m))
    e.seconds = step_seconds(c, l, plan, m, microbatches, bubble, &e.even);
  return e;
}
