/* estimate.c - how long a step would take on GPUs that are as fast as their data sheets:
 *
 *   step     = pipeline + fill + the largest tail of a rank + held
 *   pipeline = the largest work of a rank / (1 - bubble)
 *   work     = microbatches * (kernels + collectives inside units)
 *   kernel   = max(flops / peak, bytes / memory bandwidth)
 *   fill     = 2 * (stages - 1) * one transfer between stages
 *   tail     = gradient reduction beyond one microbatch's backward (all of it without
 *              overlap_grad_reduce) + the optimizer, which is bound by memory
 *   held     = gathers and scatters of blocks that are whole for a while, beyond the work
 *              of all microbatches (all of them where gathers do not start ahead)
 *
 * Rings: all_reduce moves 2 (n-1)/n of the bytes in 2 (n-1) steps, all_gather and
 * reduce_scatter half of both. A group inside a machine uses NVLink, any other the
 * network cards of its members there. Nothing is fitted: real runs take longer. */
#include "share.h"

typedef struct Link {
  double bandwidth, latency;
  int n; /* members */
} Link;

static Link link_of(const Mesh *m, const Cluster *k, AxisSet axes) {
  Link l = {k->nvlink_bandwidth, k->nvlink_latency, mesh_size(m, axes)};
  int64_t extent = 1, here = 1;
  for (Axis a = 0; a < AXIS_ALL_END; a++) {
    if (!(axes & AXIS_BIT(a))) continue;
    int stride = mesh_stride(m, a);
    extent += (int64_t)stride * (m->size[a] - 1);
    here *= MIN((int64_t)m->size[a], MAX(k->gpus / stride, 1));
  }
  if (extent <= k->gpus) return l;
  l.bandwidth = MIN(l.bandwidth, k->network_bandwidth * (double)here);
  l.latency = k->network_latency;
  return l;
}

static double ring_seconds(const Link *l, double bytes, double count, bool both) {
  if (l->n < 2 || count == 0) return 0;
  double steps = (both ? 2.0 : 1.0) * (l->n - 1);
  return steps * (bytes / l->n / l->bandwidth + count * l->latency);
}

/* What is counted for the first part of a factor is over all of it, or nearly so. */
static AxisSet counted_over(ShardAxis a) {
  bool later = a > 0 && ax_of_one_factor(a - 1, a);
  return later ? ax_mesh(a) : axes_whole(ax_mesh(a));
}

/* Kernels and collectives of one microbatch. */
static double work_seconds(const Mesh *m, const Cluster *k, const UnitWork *w) {
  double s = w->seconds;
  for (int a = 0; a < AX_N; a++) {
    Link l = link_of(m, k, counted_over((ShardAxis)a));
    for (int c = COLL_ALL_REDUCE; c < COLL_PAIRS; c++)
      s += ring_seconds(&l, w->bytes[a][c], w->count[a][c], c == COLL_ALL_REDUCE);
  }
  return s;
}

static double tail_seconds(const Plan *plan, const Mesh *m, const RankShare *r,
                           double backward) {
  const Cluster *k = &plan->cluster;
  Link dp = link_of(m, k, AXES_DP), tp = link_of(m, k, AXIS_BIT(AXIS_TP));
  double reduce = ring_seconds(&dp, (double)r->reduced, r->reduced > 0, true) +
                  ring_seconds(&dp, (double)r->scattered, r->scattered > 0, false) +
                  ring_seconds(&tp, (double)r->reduced_tp, r->reduced_tp > 0, true);
  if (plan->strategy.overlap_grad_reduce) reduce = MAX(reduce - backward, 0);
  /* Read: the gradient twice (norm, step), master and moments; written: the latter and
   * the compute-type copy. */
  double moved = 5 * 4 + 3 * 4 + dtype_size(plan->dtype);
  double gather = ring_seconds(&dp, (double)r->gathered, r->gathered > 0, false);
  double step = (double)r->stepped * moved / k->hbm_bandwidth;
  return reduce +
         (plan->strategy.overlap_param_gather ? MAX(gather, step) : gather + step);
}

static double moved_bytes(const Lifetimes *l) {
  return (double)l[AREA_GATHER].moved + (double)l[AREA_GATHER].moved_kept;
}

/* Gathers and scatters of blocks that are whole for a while. */
static double held_seconds(const Mesh *m, const Cluster *k, const Lifetimes *l) {
  double all = (double)l[AREA_GATHER].moved, kept = (double)l[AREA_GATHER].moved_kept;
  Link dp = link_of(m, k, AXES_DP), group = link_of(m, k, AXIS_BIT(AXIS_DP_INNER));
  return ring_seconds(&dp, all, all > 0, false) +
         ring_seconds(&group, kept, kept > 0, false);
}

static double step_seconds(const Shares *c, const Lifetimes (*l)[AREA_N],
                           const Plan *plan, const Mesh *m, int64_t mbs, double bubble) {
  const Cluster *k = &plan->cluster;
  double most = 0, tail = 0, sent = 0, held = 0;
  for (int r = 0; r < c->st.ranks; r++) {
    double s[3];
    for (int ph = 0; ph < 3; ph++)
      s[ph] = work_seconds(m, k, &c->rank[r].work[ph]);
    most = MAX(most, s[PH_F] + s[PH_I] + s[PH_W]);
    tail = MAX(tail, tail_seconds(plan, m, &c->rank[r], s[PH_I] + s[PH_W]));
    held = MAX(held, held_seconds(m, k, l[r]));
  }
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

static double axis_bytes(const RankShare *r, ShardAxis a, double mbs) {
  double bytes = 0;
  for (int ph = 0; ph < 3; ph++)
    for (int c = 0; c < COLL_N; c++)
      bytes += r->work[ph].bytes[a][c];
  return bytes * mbs;
}

Estimate estimate(const Shares *c, const Lifetimes (*l)[AREA_N], const Plan *plan,
                  const Mesh *m, int64_t microbatches, double bubble) {
  Estimate e = {0};
  double mbs = (double)microbatches, copies = (double)m->world / c->st.ranks;
  for (int r = 0; r < c->st.ranks; r++) {
    const RankShare *x = &c->rank[r];
    for (int ph = 0; ph < 3; ph++) {
      e.flops += x->work[ph].flops * mbs * copies;
      e.again += x->work[ph].again * mbs * copies;
    }
    e.tp = MAX(e.tp, axis_bytes(x, AX_TP, mbs) + axis_bytes(x, AX_TP_REP, mbs) +
                         (double)x->reduced_tp);
    e.dp = MAX(e.dp, axis_bytes(x, AX_DP, mbs) + (double)x->reduced +
                         (double)x->scattered + (double)x->gathered + moved_bytes(l[r]));
    e.pp = MAX(e.pp, (double)x->sent * mbs + (double)x->tied);
  }
  if (plan->cluster.gpu) e.seconds = step_seconds(c, l, plan, m, microbatches, bubble);
  return e;
}
