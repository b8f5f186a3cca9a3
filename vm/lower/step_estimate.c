/* step_estimate.c - a lower bound of the step time from data sheets:
 *
 *   step     = the last rank to have reduced its gradients + the largest update +
 *              unshard; or a rank's own reduction, update and host, if these take longer
 *   actions  = in the order of the schedule, each as long as the work of its stage and
 *              after those that it depends on, with a transfer between ranks
 *   work     = kernels + collectives inside units, less the part of these that overlaps
 *              with kernels: body_time.h
 *   kernel   = max(flops / peak, bytes / memory bandwidth); experts balanced
 *   reduce   = gradient reduction beyond one microbatch's backward (all of it without
 *              overlap_grad_reduce); reductions over different links may be under way
 *              at the same time
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
#include "flat_params.h"
#include "rank_cost.h"
#include "vm/plan/cluster_figures.h"
#include "vm/plan/optimizer.h"
#include "vm/code/body_time.h"

/* Of the collectives over each set of axes that was asked for. */
typedef struct AxisLinks {
  const Mesh *m;
  const Cluster *k;
  VEC(struct AxisLink {
    AxisSet axes;
    Link link;
  })
  of;
} AxisLinks;

static const Link *axis_link(AxisLinks *l, AxisSet axes, Arena *a) {
  int i = 0;
  while (i < l->of.n && l->of.at[i].axes != axes) i++;
  if (i == l->of.n) {
    struct AxisLink *x = VEC_PUSH(a, l->of);
    x->axes = axes, x->link = link_of(l->m, l->k, axes);
  }
  return &l->of.at[i].link;
}

/* Kernels and collectives of one microbatch. */
static double work_seconds(AxisLinks *link, const UnitWork *w, Arena *a) {
  double s = w->seconds - w->hidden;
  for (int i = 0; i < w->move.n; i++) {
    const UnitMove *x = &w->move.at[i];
    s += coll_seconds(axis_link(link, x->axes, a), x->coll, x->bytes, x->count);
  }
  return s;
}

/* Collectives that may be under way at the same time: those on the same links of a rank
 * share them, others do not wait for each other. */
typedef struct Together {
  double on[LINK_KINDS]; /* time of the bytes of all of them */
  double longest;        /* of one of them, with its steps */
} Together;

static void add_together(Together *t, const Mesh *m, const Cluster *k, AxisSet axes,
                         double bytes, bool both) {
  if (bytes <= 0) return;
  Link l = link_of(m, k, axes);
  double whole = link_ring(&l, bytes, 1, both);
  t->on[link_kind(m, k, axes)] += whole - link_ring(&l, 0, 1, both);
  t->longest = MAX(t->longest, whole);
}

static double together_seconds(const Together *t) {
  double s = t->longest;
  for (int i = 0; i < LINK_KINDS; i++) s = MAX(s, t->on[i]);
  return s;
}

/* All moves of a kind. */
static void add_moves(Together *t, const Mesh *m, const Cluster *k, const RankCost *r,
                      StepMoveKind kind) {
  for (int i = 0; i < r->moves.n; i++) {
    const StepMove *x = &r->moves.at[i];
    if (x->kind == kind)
      add_together(t, m, k, x->axes, (double)x->bytes, kind == MOVE_REDUCE);
  }
}

/* The same where each waits for the one before it. */
static double in_turn(const Mesh *m, const Cluster *k, const RankCost *r,
                      StepMoveKind kind) {
  double s = 0;
  for (int i = 0; i < r->moves.n; i++) {
    const StepMove *x = &r->moves.at[i];
    if (x->kind != kind) continue;
    Link l = link_of(m, k, x->axes);
    s += link_ring(&l, (double)x->bytes, x->bytes > 0, kind == MOVE_REDUCE);
  }
  return s;
}

/* What a rank does behind its last action: reductions of gradients, then, when the norm
 * of all pipeline ranks is known, the step of its parameters. */
static double reduce_seconds(const Plan *plan, const Mesh *m, const RankCost *r,
                             double backward) {
  Together t = {0};
  add_moves(&t, m, &plan->cluster, r, MOVE_REDUCE);
  add_moves(&t, m, &plan->cluster, r, MOVE_SCATTER);
  double reduce = together_seconds(&t);
  return plan->strategy.overlap_grad_reduce ? MAX(reduce - backward, 0) : reduce;
}

static double gather_seconds(const Plan *plan, const Mesh *m, const RankCost *r) {
  Together t = {0};
  if (!plan->strategy.overlap_param_gather)
    return in_turn(m, &plan->cluster, r, MOVE_GATHER);
  add_moves(&t, m, &plan->cluster, r, MOVE_GATHER);
  return together_seconds(&t);
}

static double update_seconds(const Plan *plan, const Mesh *m, const RankCost *r) {
  const Cluster *k = &plan->cluster;
  double gather = gather_seconds(plan, m, r);
  bool away = plan->strategy.offload_state;
  double moved = optimizer_bytes(plan);
  double step =
      (double)r->stepped * moved / (away ? k->host_bandwidth : k->hbm_bandwidth);
  if (!away && k->f32 > 0)
    step = MAX(step, (double)r->stepped * optimizer_row(&plan->opt)->flops / k->f32);
  double whole = in_turn(m, k, r, MOVE_WHOLE);
  if (k->f32 > 0) whole += r->products / k->f32;
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
  const Lifetimes *g = &l[AREA_GATHER];
  Together t = {0};
  add_together(&t, m, k, flat_axes(plan, m), (double)(g->moved - g->moved_experts),
               false);
  add_together(&t, m, k, mesh_axes(m, AXIS_BIT(AXIS_EP_SHARD)), (double)g->moved_experts,
               false);
  add_together(&t, m, k, group_axes(m), (double)g->moved_kept, false);
  return together_seconds(&t);
}

/* ---- the pipeline ---- */

/* Seconds of a stage, or of all stages of a rank, for a microbatch. */
typedef struct StageSeconds {
  double f, i, w;
} StageSeconds;

static double total(const StageSeconds *s) { return s->f + s->i + s->w; }

static StageSeconds unit_seconds(AxisLinks *link, const UnitCode *c, Arena *a) {
  double s[BODIES] = {0};
  for (int ph = 0; ph < BODIES; ph++)
    if (unit_calls(c, ph)) s[ph] = work_seconds(link, &c->work[ph], a);
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
  AxisLinks link = {.m = m, .k = k};
  for (int u = 0; u < st->u->n; u++) {
    const UnitCode *code = st->u->at[u].code;
    if (code != last) each = unit_seconds(&link, code, a);
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

/* Of the moves of a step: those over ranks with other data, or all others. */
static double move_bytes_of(const RankCost *r, bool data) {
  double bytes = 0;
  for (int i = 0; i < r->moves.n; i++)
    if (((r->moves.at[i].axes & AXES_OF_DATA) != 0) == data)
      bytes += (double)r->moves.at[i].bytes;
  return bytes;
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
                         move_bytes_of(x, false));
    double rows = axis_bytes(x, AX_EP, mbs) + axis_bytes(x, AX_ETP, mbs);
    e.ep = MAX(e.ep, rows);
    e.ep_even = MAX(e.ep_even, rows - empty_bytes(x, mbs));
    e.cp = MAX(e.cp, axis_bytes(x, AX_CP, mbs) + axis_bytes(x, AX_CP_HEADS, mbs));
    e.dp = MAX(e.dp, axis_bytes(x, AX_DP, mbs) + axis_bytes(x, AX_EP_SHARD, mbs) +
                         move_bytes_of(x, true) + (l ? moved_bytes(l[r]) : 0));
    e.pp = MAX(e.pp, (double)x->sent * mbs + (double)x->tied);
  }
  if (!cluster_lacks(plan, m))
    e.seconds =
        step_seconds(c, l, plan, m, microbatches, schedule, when, scratch, &e.even);
  return e;
}
