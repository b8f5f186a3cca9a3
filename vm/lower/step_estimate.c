/* step_estimate.c - a lower bound of the step time from data sheets:
 *
 *   step     = the last rank to have reduced its gradients + the largest update +
 *              unshard; or a rank's own reduction, update and host, if these take longer
 *   actions  = in the order of the schedule, round after round, each as long as the work
 *              of its stage and after those that it depends on, with a transfer between
 *              ranks
 *   work     = of a body: kernels one after the other, collectives from their start until
 *              they are waited for, those of a communicator one after the other
 *   kernel   = max(flops / peak, bytes / memory bandwidth); experts balanced
 *   reduce   = gradients of each chunk from the begin of its last backward on, or from
 *              the end of all actions without overlap_grad_reduce and REDUCE_GRAD;
 *              reductions over different links may be under way at the same time
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

#include <math.h>

/* Of the collectives over each set of axes that was asked for. */
typedef struct AxisLink {
  AxisSet axes;
  Link link;
  LinkKind kind;
} AxisLink;
typedef struct AxisLinks {
  const Plan *plan;
  const Mesh *m;
  Arena *a;
  VEC(AxisLink) of;
} AxisLinks;

static const AxisLink *axis_link(AxisLinks *l, AxisSet axes) {
  const Cluster *k = &l->plan->cluster;
  int i = 0;
  while (i < l->of.n && l->of.at[i].axes != axes) i++;
  if (i == l->of.n)
    *VEC_PUSH(l->a, l->of) =
        (AxisLink){axes, link_of(l->m, k, axes), link_kind(l->m, k, axes)};
  return &l->of.at[i];
}

/* A body on a clock like that of the abstract machine: one compute queue, one queue per
 * communicator. */
static double work_seconds(AxisLinks *l, const UnitWork *w) {
  double now = 0, *end = NEW_N(l->a, double, w->handles),
         *free = NEW_N(l->a, double, w->comms);
  for (int i = 0; i < w->move.n; i++) {
    const UnitMove *x = &w->move.at[i];
    now += x->seconds;
    if (x->waits) {
      now = MAX(now, end[x->handle]);
      continue;
    }
    double s = coll_seconds(&axis_link(l, x->axes)->link, x->coll, x->bytes, 1);
    free[x->comm] = end[x->handle] = MAX(now, free[x->comm]) + s;
  }
  return now + w->seconds;
}

/* Collectives that may be under way at the same time: those on the same links of a rank
 * share them, others do not wait for each other. */
typedef struct Together {
  double on[LINK_KINDS]; /* time of the bytes of all of them */
  double longest;        /* of one of them, with its steps */
} Together;

static void add_together(Together *t, AxisLinks *l, AxisSet axes, double bytes,
                         bool both) {
  if (bytes <= 0) return;
  const AxisLink *x = axis_link(l, axes);
  double whole = link_ring(&x->link, bytes, 1, both);
  t->on[x->kind] += whole - link_ring(&x->link, 0, 1, both);
  t->longest = MAX(t->longest, whole);
}

static double together_seconds(const Together *t) {
  double s = t->longest;
  for (int i = 0; i < LINK_KINDS; i++) s = MAX(s, t->on[i]);
  return s;
}

static void add_move(Together *t, AxisLinks *l, const StepMove *x) {
  add_together(t, l, x->axes, (double)x->bytes, x->kind == MOVE_REDUCE);
}

/* The same where each waits for the one before it. */
static double in_turn(AxisLinks *l, const RankCost *r, StepMoveKind kind) {
  double s = 0;
  for (int i = 0; i < r->moves.n; i++) {
    const StepMove *x = &r->moves.at[i];
    if (x->kind == kind)
      s += link_ring(&axis_link(l, x->axes)->link, (double)x->bytes, x->bytes > 0,
                     kind == MOVE_REDUCE);
  }
  return s;
}

/* When a rank's actions are done; and of each chunk a time before which its gradients
 * are not complete. */
typedef struct RankEnd {
  double all;
  const double *ready;
} RankEnd;

static double ready_at(const RankEnd *end, const StepMove *x) {
  double at = 0;
  for (int c = 0; c < 64 && x->chunks >> c; c++)
    if (x->chunks >> c & 1) at = MAX(at, end->ready[c]);
  return at;
}

/* When the gradients of each of a rank's reductions are there; -1 of other moves.
 * `early`: no reduction waits for the last action. */
static double *ready_moves(const RankCost *r, const RankEnd *end, bool early, Arena *a) {
  double *at = NEW_N(a, double, r->moves.n);
  for (int i = 0; i < r->moves.n; i++) {
    const StepMove *x = &r->moves.at[i];
    bool reduces = x->kind == MOVE_REDUCE || x->kind == MOVE_SCATTER;
    at[i] = !reduces ? -1 : early ? ready_at(end, x) : end->all;
  }
  return at;
}

/* When a rank has reduced its gradients. From any time on it has to reduce at least those
 * that are not complete before it. */
static double reduced_at(AxisLinks *l, const RankCost *r, const RankEnd *end,
                         bool early) {
  Together t = {0};
  double done = end->all, *ready = ready_moves(r, end, early, l->a);
  for (;;) {
    int last = -1;
    for (int i = 0; i < r->moves.n; i++)
      if (ready[i] >= 0 && (last < 0 || ready[i] > ready[last])) last = i;
    if (last < 0) return done;
    add_move(&t, l, &r->moves.at[last]);
    done = MAX(done, ready[last] + together_seconds(&t));
    ready[last] = -1;
  }
}

/* Whether reductions start where the gradients are complete, or the schedule says so. */
static bool reduces_early(const Plan *plan, const Schedule *s) {
  if (plan->strategy.overlap_grad_reduce) return true;
  for (int r = 0; r < s->ranks; r++)
    for (int i = 0; i < s->n[r]; i++)
      if (s->list[r][i].kind == ACT_REDUCE_GRAD) return true;
  return false;
}

/* What a rank does when the norm of all pipeline ranks is known: the step of its
 * parameters. */
static double gather_seconds(AxisLinks *l, const RankCost *r) {
  Together t = {0};
  if (!l->plan->strategy.overlap_param_gather) return in_turn(l, r, MOVE_GATHER);
  for (int i = 0; i < r->moves.n; i++)
    if (r->moves.at[i].kind == MOVE_GATHER) add_move(&t, l, &r->moves.at[i]);
  return together_seconds(&t);
}

static double update_seconds(AxisLinks *l, const RankCost *r) {
  const Plan *plan = l->plan;
  const Cluster *k = &plan->cluster;
  double gather = gather_seconds(l, r);
  bool away = plan->strategy.offload_state;
  double moved = optimizer_bytes(plan);
  double step =
      (double)r->stepped * moved / (away ? k->host_bandwidth : k->hbm_bandwidth);
  if (!away && k->f32 > 0)
    step = MAX(step, (double)r->stepped * optimizer_row(&plan->opt)->flops / k->f32);
  double whole = in_turn(l, r, MOVE_WHOLE);
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
static double unshard_seconds(AxisLinks *link, const Lifetimes *l) {
  const Mesh *m = link->m;
  const Lifetimes *g = &l[AREA_GATHER];
  Together t = {0};
  add_together(&t, link, flat_axes(link->plan, m), (double)(g->moved - g->moved_experts),
               false);
  add_together(&t, link, mesh_axes(m, AXIS_BIT(AXIS_EP_SHARD)), (double)g->moved_experts,
               false);
  add_together(&t, link, group_axes(m), (double)g->moved_kept, false);
  return together_seconds(&t);
}

/* ---- the pipeline ---- */

/* Seconds of a stage, or of all stages of a rank, for a microbatch; the others as in
 * StageTicks, of stages alone. */
typedef struct StageSeconds {
  double f, i, w, after, before, late;
} StageSeconds;

static double total(const StageSeconds *s) { return s->f + s->i + s->w; }

static StageSeconds unit_seconds(AxisLinks *l, const UnitCode *c) {
  double s[BODIES] = {0};
  for (int ph = 0; ph < BODIES; ph++)
    if (unit_calls(c, ph)) s[ph] = work_seconds(l, &c->work[ph]);
  return (StageSeconds){.f = s[PH_F], .i = s[PH_I] + s[PH_B], .w = s[PH_W]};
}

static void add_stage(StageSeconds *to, const StageSeconds *s) {
  to->f += s->f, to->i += s->i, to->w += s->w;
}

static double transfer(AxisLinks *l, const Units *u, const Cross *x, int from, int to) {
  double bytes = 0;
  for (int i = 0; i < x->n; i++) bytes += (double)u->edge[x->at[i]].bytes;
  if (from == to || bytes == 0) return 0;
  Link pair = link_pair(l->m, &l->plan->cluster, from, to);
  return bytes / pair.bandwidth + pair.latency;
}

/* Most units are layers, one behind the other, that share their code. The first one of a
 * stage has its W, if that is no part of B, behind the send to the stage before. */
static StageSeconds *stage_seconds(AxisLinks *l, const Stages *st) {
  StageSeconds *out = NEW_N(l->a, StageSeconds, st->n), each = {0};
  const UnitCode *last = NULL;
  for (int u = 0; u < st->u->n; u++) {
    const UnitCode *code = st->u->at[u].code;
    int stage = st->of_unit[u];
    if (code != last) each = unit_seconds(l, code);
    last = code;
    add_stage(&out[stage], &each);
    if (u == 0 || st->of_unit[u - 1] != stage) out[stage].late = each.w;
  }
  for (int i = 0; i + 1 < st->n; i++) {
    int here = st->rank[i], next = st->rank[i + 1];
    out[i].after = transfer(l, st->u, &st->fwd[i], here, next);
    out[i + 1].before = transfer(l, st->u, &st->bwd[i], next, here);
  }
  return out;
}

/* Ticks of a second, picoseconds if all actions of a step have less than 2^62 of them. */
static double ticks_of(const StageSeconds *s, int n, int microbatches) {
  enum { MOST_LOG2 = 62 };
  double all = 0;
  for (int i = 0; i < n; i++) all += total(&s[i]) + s[i].after + s[i].before;
  return MIN(1e12, ldexp(1, MOST_LOG2) / MAX(all * microbatches, 1));
}

static StageTicks *stage_ticks(const StageSeconds *s, int n, double second, Arena *a) {
  StageTicks *out = NEW_N(a, StageTicks, n);
  for (int i = 0; i < n; i++)
    out[i] = (StageTicks){.f = (int64_t)(s[i].f * second),
                          .i = (int64_t)(s[i].i * second),
                          .w = (int64_t)(s[i].w * second),
                          .after = (int64_t)(s[i].after * second),
                          .before = (int64_t)(s[i].before * second),
                          .late = (int64_t)(s[i].late * second)};
  return out;
}

/* When each rank has done its last action, and begun the last backward of each chunk. */
static RankEnd *last_actions(AxisLinks *l, const RankCosts *c, const StageSeconds *s,
                             const StageSeconds *rank, int64_t mbs,
                             const Schedule *schedule, const Timeline *when) {
  int ranks = c->st.ranks, v = schedule->virtual_stages;
  RankEnd *end = NEW_N(l->a, RankEnd, ranks);
  double *ready = NEW_N(l->a, double, ranks *v),
         second = ticks_of(s, c->st.n, schedule->microbatches);
  Timeline t = {0};
  if (c->st.n > 1)
    timeline_of_stages(schedule, when, stage_ticks(s, c->st.n, second, l->a), l->a, &t);
  for (int r = 0; r < ranks; r++) {
    double own = (double)mbs * total(&rank[r]);
    for (int k = r * v; k < (r + 1) * v; k++)
      ready[k] = t.last ? (double)t.last_w[k] / second : own - rank[r].i - rank[r].w;
    end[r] = (RankEnd){.all = own, .ready = &ready[r * v]};
    if (t.last) end[r].all = MAX((double)t.last[r] / second, own);
  }
  return end;
}

static double step_seconds(const RankCosts *c, const RankLives *lives, const Plan *plan,
                           const Mesh *m, int64_t mbs, const Schedule *schedule,
                           const Timeline *when, Arena *a, double *even) {
  double reduced = 0, update = 0, alone = 0, held = 0, most = 0;
  AxisLinks l = {.plan = plan, .m = m, .a = a};
  const StageSeconds *stage = stage_seconds(&l, &c->st);
  StageSeconds *rank = NEW_N(a, StageSeconds, c->st.ranks);
  for (int s = 0; s < c->st.n; s++) add_stage(&rank[c->st.rank[s]], &stage[s]);
  const RankEnd *end = last_actions(&l, c, stage, rank, mbs, schedule, when);
  bool early = reduces_early(plan, schedule);
  *even = 0;
  for (int r = 0; r < c->st.ranks; r++) {
    const RankCost *x = &c->rank[r];
    double before = reduced_at(&l, x, &end[r], early), after = update_seconds(&l, x);
    reduced = MAX(reduced, before), update = MAX(update, after);
    alone =
        MAX(alone, before + after + host_seconds(plan, m, x, lives ? lives[r] : NULL));
    most = MAX(most, total(&rank[r]));
    *even += (double)mbs * total(&rank[r]) / c->st.ranks;
    if (lives) held = MAX(held, unshard_seconds(&l, lives[r]));
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
