/* step_estimate.c - a lower bound of the step time from data sheets:
 *
 *   step     = the last rank to have reduced its gradients + the largest update +
 * unshard, or a rank's own reduction, update and host, if these take longer actions  = in
 * the order of the schedule, each as long as the work of its stage and after those that
 * it depends on, with a transfer between ranks work     = kernels + collectives inside
 * units, less the part of these that overlaps with kernels: body_time.h kernel   =
 * max(flops / peak, bytes / memory bandwidth); experts balanced reduce   = gradient
 * reduction beyond one microbatch's backward (all of it without overlap_grad_reduce)
 *   update   = the optimizer, which is bound by memory, and where it makes matrices
 *              orthogonal their gathers and products; it waits for the norm of all ranks
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

/* Of the collectives of each axis. */
typedef struct AxisLinks {
  Link of[AX_N];
} AxisLinks;

static AxisLinks axis_links(const Mesh *m, const Cluster *k) {
  AxisLinks out;
  for (int a = 0; a < AX_N; a++) out.of[a] = link_of(m, k, counted_over((ShardAxis)a));
  return out;
}

/* Kernels and collectives of one microbatch. */
static double work_seconds(const AxisLinks *link, const UnitWork *w) {
  double s = w->seconds - w->hidden;
  for (int a = 0; a < AX_N; a++) {
    Link l = link->of[a];
    for (int c = COLL_ALL_REDUCE; c < COLL_PAIRS; c++) {
      bool counted = coll_info[c].is & COLL_COUNTED;
      double bytes = w->bytes[a][c] - (counted ? w->empty[a] : 0);
      s += coll_seconds(&l, (CollKind)c, bytes, w->count[a][c]);
    }
  }
  return s;
}

/* What a rank does behind its last action: reductions of gradients, then, when the norm
 * of all pipeline ranks is known, the step of its parameters. */
static double reduce_seconds(const Plan *plan, const Mesh *m, const RankCost *r,
                             double backward) {
  const Cluster *k = &plan->cluster;
  Link dp = link_of(m, k, AXES_DP_CP), tp = link_of(m, k, AXIS_BIT(AXIS_TP));
  Link flat = link_of(m, k, flat_axes(plan, m));
  double reduce = link_ring(&dp, (double)r->reduced, r->reduced > 0, true) +
                  link_ring(&flat, (double)r->scattered, r->scattered > 0, false) +
                  link_ring(&tp, (double)r->reduced_tp, r->reduced_tp > 0, true);
  return plan->strategy.overlap_grad_reduce ? MAX(reduce - backward, 0) : reduce;
}

static double update_seconds(const Plan *plan, const Mesh *m, const RankCost *r) {
  const Cluster *k = &plan->cluster;
  Link tp = link_of(m, k, AXIS_BIT(AXIS_TP)), flat = link_of(m, k, flat_axes(plan, m));
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
  return whole +
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

/* ---- the pipeline ---- */

/* Seconds of a stage, or of all stages of a rank, for a microbatch. */
typedef struct StageSeconds {
  double f, i, w;
} StageSeconds;

static double total(const StageSeconds *s) { return s->f + s->i + s->w; }

static StageSeconds unit_seconds(const AxisLinks *link, const UnitCode *c) {
  double s[BODIES] = {0};
  for (int ph = 0; ph < BODIES; ph++)
    if (unit_calls(c, ph)) s[ph] = work_seconds(link, &c->work[ph]);
  return (StageSeconds){s[PH_F], s[PH_I] + s[PH_B], s[PH_W]};
}

static void add_stage(StageSeconds *to, const StageSeconds *s) {
  to->f += s->f, to->i += s->i, to->w += s->w;
}

/* Most units are layers, one behind the other, that share their code. */
static StageSeconds *stage_seconds(const Stages *st, const Mesh *m, const Cluster *k,
                                   Arena *a) {
  StageSeconds *out = NEW_N(a, StageSeconds, st->n), each = {0};
  const UnitCode *last = NULL;
  const AxisLinks link = axis_links(m, k);
  for (int u = 0; u < st->u->n; u++) {
    const UnitCode *code = st->u->at[u].code;
    if (code != last) each = unit_seconds(&link, code);
    last = code;
    add_stage(&out[st->of_unit[u]], &each);
  }
  return out;
}

static double transfer(const Units *u, const Mesh *m, const Cluster *k, const Cross *x,
                       int from, int to) {
  double bytes = 0;
  for (int i = 0; i < x->n; i++) bytes += (double)u->edge[x->at[i]].bytes;
  if (from == to || bytes == 0) return 0;
  Link l = link_pair(m, k, from, to);
  return bytes / l.bandwidth + l.latency;
}

#define TICKS 1e12 /* of a second */

static int64_t ticks(double seconds) { return (int64_t)(seconds * TICKS); }

static StageTicks *stage_ticks(const Stages *st, const StageSeconds *s, const Mesh *m,
                               const Cluster *k, Arena *a) {
  StageTicks *out = NEW_N(a, StageTicks, st->n);
  for (int i = 0; i < st->n; i++)
    out[i] = (StageTicks){.f = ticks(s[i].f), .i = ticks(s[i].i), .w = ticks(s[i].w)};
  for (int i = 0; i + 1 < st->n; i++) {
    int here = st->rank[i], next = st->rank[i + 1];
    out[i].after = ticks(transfer(st->u, m, k, &st->fwd[i], here, next));
    out[i + 1].before = ticks(transfer(st->u, m, k, &st->bwd[i], next, here));
  }
  return out;
}

/* When each rank has done its last action. Rounds of a step follow each other without a
 * gap. */
static double *last_actions(const RankCosts *c, const StageSeconds *s,
                            const StageSeconds *rank, const Plan *plan, const Mesh *m,
                            int64_t mbs, const Schedule *schedule, const Timeline *when,
                            Arena *a) {
  int ranks = c->st.ranks;
  double *end = NEW_N(a, double, ranks), more = (double)(mbs - schedule->microbatches);
  Timeline t = {0};
  if (ranks > 1) {
    const StageTicks *cost = stage_ticks(&c->st, s, m, &plan->cluster, a);
    timeline_of_stages(schedule, when, cost, a, &t);
  }
  for (int r = 0; r < ranks; r++) {
    double own = (double)mbs * total(&rank[r]);
    end[r] = t.last ? MAX((double)t.last[r] / TICKS + more * total(&rank[r]), own) : own;
  }
  return end;
}

static double step_seconds(const RankCosts *c, const RankLives *l, const Plan *plan,
                           const Mesh *m, int64_t mbs, const Schedule *schedule,
                           const Timeline *when, Arena *a, double *even) {
  double reduced = 0, update = 0, alone = 0, held = 0, most = 0;
  const StageSeconds *stage = stage_seconds(&c->st, m, &plan->cluster, a);
  StageSeconds *rank = NEW_N(a, StageSeconds, c->st.ranks);
  for (int s = 0; s < c->st.n; s++) add_stage(&rank[c->st.rank[s]], &stage[s]);
  const double *end = last_actions(c, stage, rank, plan, m, mbs, schedule, when, a);
  *even = 0;
  for (int r = 0; r < c->st.ranks; r++) {
    const RankCost *x = &c->rank[r];
    double before = end[r] + reduce_seconds(plan, m, x, rank[r].i + rank[r].w);
    double after = update_seconds(plan, m, x);
    reduced = MAX(reduced, before), update = MAX(update, after);
    alone = MAX(alone, before + after + host_seconds(plan, m, x, l ? l[r] : NULL));
    most = MAX(most, total(&rank[r]));
    *even += (double)mbs * total(&rank[r]) / c->st.ranks;
    if (l) held = MAX(held, unshard_seconds(plan, m, l[r]));
  }
  if (plan->strategy.prefetch[0]) held = MAX(held - (double)mbs * most, 0);
  bool waits = !plan->opt.post_validation; /* with the step for the norm */
  return (waits ? MAX(reduced + update, alone) : alone) + held;
}

/* ---- bytes ---- */

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
                  int64_t microbatches, const Schedule *schedule, const Timeline *when,
                  Arena *scratch) {
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
    e.seconds =
        step_seconds(c, l, plan, m, microbatches, schedule, when, scratch, &e.even);
  return e;
}
