/* step_report.c - what comes of a walk of the clock: the time of a step, where each
 * pipeline rank spends it, by class of kernel and axis of the mesh, waits and ops. */
#include "step_clock_int.h"

#include <stdlib.h>

/* ---- waits ---- */

static int by_place(const void *x, const void *y) {
  const SimWait *a = x, *b = y;
  if (a->pp != b->pp) return a->pp - b->pp;
  if (a->axis != b->axis) return (int)a->axis - (int)b->axis;
  return strcmp(a->what, b->what);
}

static int by_time(const void *x, const void *y) {
  const SimWait *a = x, *b = y;
  if (a->seconds != b->seconds) return a->seconds < b->seconds ? 1 : -1;
  return by_place(x, y);
}

static void sum_waits(Clock *k, SimReport *out) {
  SimWait *w = k->wait.at;
  int n = 0;
  if (k->wait.n) qsort(w, (size_t)k->wait.n, sizeof *w, by_place);
  for (int i = 0; i < k->wait.n; i++) {
    if (n && by_place(&w[n - 1], &w[i]) == 0)
      w[n - 1].seconds += w[i].seconds, w[n - 1].count += w[i].count;
    else
      w[n++] = w[i];
  }
  if (n) qsort(w, (size_t)n, sizeof *w, by_time);
  out->wait = w, out->nwait = n;
}

/* How often a step calls each body. */
static int64_t *body_calls(const Clock *k, const Program *p) {
  int64_t *calls = NEW_N(k->a, int64_t, p->nbody);
  for (uint32_t i = 0; i < p->nmain; i++)
    if (p->code[i].code == I_CALL) calls[p->call[p->code[i].call].body]++;
  return calls;
}

/* ---- ops ---- */

static bool starts_or_runs(const Instr *in) {
  return in->code == I_KERNEL || instr_is[in->code] & INSTR_STARTS;
}

static SimOp *op_of(Clock *k, int pp, const Instr *in) {
  const Program *p = &k->c->prog[pp];
  bool kernel = in->code == I_KERNEL;
  CollKind kind = instr_is[in->code] & INSTR_PAIR ? COLL_SEND : (CollKind)in->coll;
  int op = kernel ? in->op : -1 - (int)kind;
  DType t = kernel ? kernel_dtype(p, in) : (DType)p->operand[in->operand].dtype;
  for (int i = 0; i < k->op.n; i++)
    if (k->op.at[i].op == op && k->op.at[i].dtype == t) return &k->op.at[i];
  const char *name = kernel ? op_info[op].name : coll_info[kind].name;
  SimOp *new = VEC_PUSH(k->a, k->op);
  *new = (SimOp){.name = name, .op = op, .dtype = t};
  return new;
}

/* Instructions that run `times` in a step. A transfer is told by its sender alone. */
static void add_ops(Clock *k, int pp, uint32_t first, uint32_t n, int64_t times) {
  for (uint32_t i = first; i < first + n; i++) {
    const Instr *in = &k->c->prog[pp].code[i];
    if (!starts_or_runs(in) || in->code == I_RECV || times == 0) continue;
    const Known *x = clock_know(k, pp, in);
    SimOp *op = op_of(k, pp, in);
    op->count += times;
    op->seconds[x->from] += x->seconds * (double)times;
  }
}

static double op_seconds(const SimOp *op) {
  double s = 0;
  for (int i = 0; i < COST_FROM_N; i++) s += op->seconds[i];
  return s;
}

static int by_seconds(const void *x, const void *y) {
  double a = op_seconds(x), b = op_seconds(y);
  return a < b ? 1 : a > b ? -1 : 0;
}

static void sum_ops(Clock *k, SimReport *out) {
  for (int pp = 0; pp < k->c->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &k->c->prog[pp];
    int64_t *calls = body_calls(k, p);
    add_ops(k, pp, 0, p->nmain, 1);
    for (int b = 0; b < p->nbody; b++)
      add_ops(k, pp, p->body[b].first, p->body[b].n, calls[b]);
  }
  if (k->op.n) qsort(k->op.at, (size_t)k->op.n, sizeof *k->op.at, by_seconds);
  for (int i = 0; i < k->op.n; i++)
    for (int f = 0; f < COST_FROM_N; f++) out->from[f] += k->op.at[i].seconds[f];
  out->op = k->op.at, out->nop = k->op.n;
}

/* ---- kernels by class ---- */

/* Of instructions that run once. */
static void add_kernels(Clock *k, int pp, uint32_t first, uint32_t n, double *to) {
  const Program *p = &k->c->prog[pp];
  for (uint32_t i = first; i < first + n; i++) {
    const Instr *in = &p->code[i];
    if (in->code != I_KERNEL) continue;
    WorkClass kind = kernel_work(p, in, &k->even[pp]).kind;
    /* Products of Muon's step are the optimizer's. */
    to[i < p->nmain ? WORK_STEP : kind] += clock_know(k, pp, in)->seconds;
  }
}

/* Classes of kernels of a pipeline rank. */
static void sum_kernels(Clock *k, int pp, double busy, double *to) {
  const Program *p = &k->c->prog[pp];
  int64_t *calls = body_calls(k, p);
  double alone = 0;
  add_kernels(k, pp, 0, p->nmain, to);
  for (int b = 0; b < p->nbody; b++) {
    double each[WORK_N] = {0}, n = (double)calls[b];
    add_kernels(k, pp, p->body[b].first, p->body[b].n, each);
    for (int w = 0; w < WORK_N; w++) to[w] += each[w] * n;
  }
  for (int w = 0; w < WORK_N; w++) alone += to[w];
  for (int w = 0; w < WORK_N && alone > 0; w++) to[w] *= busy / alone;
}

/* ---- the step ---- */

/* Ranks beyond the cores add nothing to what a machine can do at most. */
static double devices(const Clock *k) {
  const CostTable *t = k->o->table;
  double world = k->c->mesh.world;
  return t && t->cores > 0 ? MIN(world, (double)t->cores / MAX(t->threads, 1)) : world;
}

/* How long a rank keeps from beginning the step again. */
static int64_t rank_period(const Clock *k, const RankTime *t, int pp) {
  if (!k->o->steps_overlap) return t[pp].end;
  return t[pp].end - MAX(k->first[pp], 0) - k->summing[pp];
}

void clock_report(Clock *k, const RankTime *t, SimReport *out) {
  const Mesh *m = &k->c->mesh;
  int npp = m->size[AXIS_PP];
  int64_t end = 0;
  *out = (SimReport){.npp = npp, .ranks = m->world, .rank = NEW_N(k->a, SimRank, npp)};
  for (int pp = 0; pp < npp; pp++) end = MAX(end, rank_period(k, t, pp));
  out->seconds = (double)end / SIM_TICKS;
  for (int pp = 0; pp < npp; pp++) {
    SimRank *r = &out->rank[pp];
    for (int x = 0; x < SIM_AXES; x++)
      r->exposed[x] = (double)k->exposed[pp][x] / SIM_TICKS;
    r->shared = (double)t[pp].shared / SIM_TICKS;
    r->bubble = (double)(k->stalled[pp] + end - t[pp].end) / SIM_TICKS;
    sum_kernels(k, pp, (double)t[pp].busy / SIM_TICKS, r->kernels);
    out->flops += k->c->prog[pp].flops * m->world / npp;
    out->recomputed += k->c->prog[pp].recomputed * m->world / npp;
  }
  out->peak = cluster_rate(&k->plan->cluster, k->plan->dtype) * devices(k);
  out->tokens = k->plan->batch.global * k->plan->batch.seq;
  sum_waits(k, out);
  sum_ops(k, out);
}
