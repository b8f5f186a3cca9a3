/* step_clock.c - costs of instructions for the abstract machine, and what comes of its
 * walk; see step_clock.h. */
#include "step_clock.h"

#include <stdlib.h>

const char *const sim_axis_name[SIM_AXES] = {"tp", "cp", "ep", "dp", "pp"};

typedef struct Known {
  bool has;
  double seconds;
  CostFrom from;
  LinkLoad load;
} Known;

typedef struct Clock {
  const Compiled *c;
  const Plan *plan;
  const SimOptions *o;
  CostSource source;
  Arena *a;
  EvenList *even, *busiest;               /* [pp] rows of experts: the mean, and on the
                                             rank with most */
  Known **known;                          /* [pp][pc] */
  int64_t (*exposed)[SIM_AXES], *stalled; /* [pp] */
  int64_t *first,
      *summing; /* [pp]: its first unit, -1 before; waits for sums over pp since */
  VEC(SimWait) wait;
  VEC(SimOp) op;
} Clock;

/* ---- links ---- */

static AxisSet comm_axes(const Clock *k, const CommDesc *d) {
  return comm_spans_pp(&k->c->mesh, d) ? d->axes | AXIS_BIT(AXIS_PP) : d->axes;
}

/* Of exchanges of experts whole buffers, where GPUs send these. */
static double bytes_moved(const Clock *k, int pp, const Instr *in, const Operand *o) {
  double room = (double)coll_bytes(in, o), rows = move_bytes(in, o, &k->busiest[pp]);
  double mean = move_bytes(in, o, &k->even[pp]);
  bool gpus = !k->source.table && mean < room;
  return gpus && !moe_sends_rows(k->plan->moe.exchange, mean / room) ? room : rows;
}

static MoveWork move_of(const Clock *k, int pp, const Instr *in) {
  const Mesh *m = &k->c->mesh;
  const Cluster *cluster = &k->plan->cluster;
  const Operand *o = &k->c->prog[pp].operand[in->operand];
  if (instr_is[in->code] & INSTR_PAIR) {
    return (MoveWork){.kind = COLL_SEND,
                      .link = link_kind_pair(m, cluster, pp, in->peer),
                      .over = link_pair(m, cluster, pp, in->peer),
                      .bytes = (double)operand_bytes(o)};
  }
  const CommDesc *d = &k->c->prog[pp].comm[in->comm];
  AxisSet axes = comm_axes(k, d);
  MoveWork w = {.kind = (CollKind)in->coll,
                .link = link_kind(m, cluster, axes),
                .over = link_of(m, cluster, axes),
                .bytes = bytes_moved(k, pp, in, o)};
  w.over.n = comm_size(m, d);
  return w;
}

/* ---- costs ---- */

static void know_kernel(Clock *k, int pp, const Instr *in, Known *out) {
  const Program *p = &k->c->prog[pp];
  KernelWork w = kernel_work(p, in, &k->busiest[pp]);
  Cost c = cost_of_kernel(&k->source, p, in, &w, instr_uses_host(p, in));
  out->seconds = c.seconds, out->from = c.from;
  /* Of as many matrices as there are ranks each takes its own. */
  if (in->op == OP_matrix_take)
    out->seconds /= mesh_size(&k->c->mesh, p->attr[in->attr].cut);
  if (k->o->skew.slow > 0 && k->o->skew.pp == pp) out->seconds *= k->o->skew.slow;
}

static void know_move(const Clock *k, int pp, const Instr *in, Known *out) {
  MoveWork w = move_of(k, pp, in);
  const Operand *o = &k->c->prog[pp].operand[in->operand];
  MoveCost c = cost_of_move(&k->source, &w, (DType)o->dtype);
  out->seconds = c.seconds, out->from = c.from;
  if (!(c.full > 0)) return;
  out->load.link[w.link] = MIN(c.full / c.seconds, 1);
  if (w.link == LINK_NETWORK && k->plan->cluster.spine > 0)
    out->load.spine = out->load.link[w.link];
}

static const Known *know(Clock *k, int pp, const Instr *in) {
  Known *x = &k->known[pp][in - k->c->prog[pp].code];
  if (x->has) return x;
  if (instr_is[in->code] & INSTR_STARTS)
    know_move(k, pp, in, x);
  else if (in->code == I_KERNEL)
    know_kernel(k, pp, in, x);
  x->has = true;
  return x;
}

static int64_t cost(void *ud, int pp, const Instr *in) {
  return (int64_t)(know(ud, pp, in)->seconds * SIM_TICKS + 0.5);
}

static void load(void *ud, int pp, const Instr *in, LinkLoad *out) {
  *out = know(ud, pp, in)->load;
}

static void ran(void *ud, int pp, const Instr *in, int64_t from, int64_t to) {
  const Clock *k = ud;
  if (in->code == I_CALL && k->first[pp] < 0) k->first[pp] = from;
  if (k->o->ran) k->o->ran(k->o->ud, pp, in, from, to);
}

/* ---- waits ---- */

static SimAxis axis_of(const Clock *k, int pp, const Instr *in) {
  if (instr_is[in->code] & INSTR_PAIR) return SIM_PP;
  AxisSet axes = axes_whole(comm_axes(k, &k->c->prog[pp].comm[in->comm]));
  if (axes & AXIS_BIT(AXIS_PP)) return SIM_PP;
  if (axes & (AXES_DP | AXIS_BIT(AXIS_EP_SHARD))) return SIM_DP;
  if (axes & AXIS_BIT(AXIS_CP)) return SIM_CP;
  return axes & (AXIS_BIT(AXIS_EP) | AXIS_BIT(AXIS_ETP)) ? SIM_EP : SIM_TP;
}

/* "layers.3.mlp" -> "layers.*.mlp"; a body is shared by its layers and names none. */
static const char *like(const Clock *k, const char *what) {
  char *out = arena_str(k->a, what), *to = out;
  for (const char *s = what; *s; s++) {
    bool digit = *s >= '0' && *s <= '9';
    if (!digit)
      *to++ = *s;
    else if (to == out || to[-1] != '*')
      *to++ = '*';
  }
  *to = 0;
  return out;
}

/* The norm, or the loss, of all pipeline ranks. */
static bool sums_scalar(const Clock *k, int pp, const Instr *in) {
  return !(instr_is[in->code] & INSTR_PAIR) &&
         k->c->prog[pp].operand[in->operand].dtype == DT_F64;
}

static void waited(void *ud, int pp, const RankWait *w) {
  Clock *k = ud;
  SimAxis axis = axis_of(k, pp, w->what);
  /* A queue behind other transfers is their axis's time, but between pipeline ranks what
   * came before was another rank's work. */
  if (k->o->waited) k->o->waited(k->o->ud, pp, w);
  if (w->ended <= w->came) return;
  if (axis == SIM_PP && k->first[pp] >= 0 && sums_scalar(k, pp, w->what))
    k->summing[pp] += w->ended - w->came;
  int64_t moving = axis == SIM_PP ? MAX(w->came, w->began) : w->came;
  k->stalled[pp] += (moving - w->came) * w->times;
  k->exposed[pp][axis] += (w->ended - moving) * w->times;
  const char *what = axis == SIM_PP && instr_is[w->what->code] & INSTR_PAIR
                         ? ""
                         : k->c->prog[pp].what[w->what->what];
  if (w->ended == moving) return;
  *VEC_PUSH(k->a, k->wait) =
      (SimWait){.pp = pp,
                .axis = axis,
                .what = like(k, what),
                .seconds = (double)(w->ended - moving) * (double)w->times / SIM_TICKS,
                .count = w->times};
}

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
    const Known *x = know(k, pp, in);
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

/* Of instructions that run once; returns the arithmetic of rows of experts that nobody
 * has.
 */
static double add_kernels(Clock *k, int pp, uint32_t first, uint32_t n, double *to) {
  double room = 0;
  const Program *p = &k->c->prog[pp];
  for (uint32_t i = first; i < first + n; i++) {
    const Instr *in = &p->code[i];
    if (in->code != I_KERNEL) continue;
    KernelWork w = kernel_work(p, in, &k->even[pp]);
    /* Products of Muon's step are the optimizer's. */
    to[i < p->nmain ? WORK_STEP : w.kind] += know(k, pp, in)->seconds;
    room += w.room;
  }
  return room;
}

/* Classes of kernels of a pipeline rank; returns the arithmetic that its programs count
 * for rows of experts that no rank has. */
static double sum_kernels(Clock *k, int pp, double busy, double *to) {
  const Program *p = &k->c->prog[pp];
  int64_t *calls = body_calls(k, p);
  double alone = 0, room = 0;
  add_kernels(k, pp, 0, p->nmain, to);
  for (int b = 0; b < p->nbody; b++) {
    double each[WORK_N] = {0}, n = (double)calls[b];
    room += n * add_kernels(k, pp, p->body[b].first, p->body[b].n, each);
    for (int w = 0; w < WORK_N; w++) to[w] += each[w] * n;
  }
  for (int w = 0; w < WORK_N; w++) alone += to[w];
  for (int w = 0; w < WORK_N && alone > 0; w++) to[w] *= busy / alone;
  return room;
}

/* Arithmetic of a pipeline rank, of that the recomputed part: in the same proportion for
 * rows that nobody has. */
static void add_flops(const Program *p, double room, double ranks, SimReport *out) {
  double real = p->flops > 0 ? 1 - room / p->flops : 1;
  out->flops += p->flops * real * ranks;
  out->recomputed += p->recomputed * real * ranks;
}

/* ---- the step ---- */

/* No more rows than buffers have room for: others are dropped, or end the run. */
static EvenList busiest_rows(const Clock *k, int pp) {
  double skew = k->o->skew.experts > 0 ? k->o->skew.experts : 1;
  EvenList out = {0};
  for (int i = 0; i < k->even[pp].n; i++) {
    EvenRows r = k->even[pp].at[i];
    r.even = MIN(r.even * skew, 1);
    *VEC_PUSH(k->a, out) = r;
  }
  return out;
}

static void begin(Clock *k) {
  int npp = k->c->mesh.size[AXIS_PP];
  k->even = NEW_N(k->a, EvenList, npp);
  k->busiest = NEW_N(k->a, EvenList, npp);
  k->known = NEW_N(k->a, Known *, npp);
  k->exposed = (void *)arena_alloc(k->a, sizeof *k->exposed * (size_t)npp);
  k->stalled = NEW_N(k->a, int64_t, npp);
  k->first = NEW_N(k->a, int64_t, npp);
  k->summing = NEW_N(k->a, int64_t, npp);
  for (int pp = 0; pp < npp; pp++) k->first[pp] = -1;
  for (int pp = 0; pp < npp; pp++) {
    even_rows(&k->c->prog[pp], k->a, &k->even[pp]);
    k->busiest[pp] = busiest_rows(k, pp);
    k->known[pp] = NEW_N(k->a, Known, k->c->prog[pp].ncode);
  }
}

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

static void report(Clock *k, const RankTime *t, SimReport *out) {
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
    double room = sum_kernels(k, pp, (double)t[pp].busy / SIM_TICKS, r->kernels);
    add_flops(&k->c->prog[pp], room, (double)m->world / npp, out);
  }
  out->peak = cluster_rate(&k->plan->cluster, k->plan->dtype) * devices(k);
  out->tokens = k->plan->batch.global * k->plan->batch.seq;
  sum_waits(k, out);
  sum_ops(k, out);
}

const char *sim_lacks(const Plan *plan, const Mesh *m, const char **why) {
  const char *lacks = cluster_lacks(plan, m);
  bool all = lacks && strcmp(lacks, "cluster") == 0;
  *why = all ? "the clock needs the machines, with their GPU: cluster = \"h100-sxm\", or "
               "figures of your own"
             : "the clock needs this figure of the plan's machines";
  return lacks;
}

/* Whether the stack stands still for what it starts. */
static bool stands(void *ud, int pp, const Instr *in) {
  const Clock *k = ud;
  const Program *p = &k->c->prog[pp];
  if (in->code != I_COLL) return k->o->sends_block;
  return k->o->tp_blocks && in >= p->code + p->nmain &&
         p->comm[in->comm].axes == AXIS_BIT(AXIS_TP);
}

weft_status simulate(const Compiled *c, const Plan *plan, const SimOptions *o, Arena *a,
                     SimReport *out, weft_error *e) {
  const char *why, *lacks = sim_lacks(plan, &c->mesh, &why);
  if (lacks) return err_set(e, WEFT_EPLAN, "plan.%s: %s", lacks, why);
  Clock k = {.c = c, .plan = plan, .o = o, .a = a};
  k.source = (CostSource){&plan->cluster, o->rates, o->table};
  RankTime *t = NEW_N(a, RankTime, c->mesh.size[AXIS_PP]);
  begin(&k);
  RunCosts costs = {.ud = &k,
                    .cost = cost,
                    .load = load,
                    .ran = ran,
                    .waited = waited,
                    .stands = stands};
  if (o->table && o->table->cores > 0) {
    costs.cores = o->table->cores;
    costs.rank_cores = o->table->threads * c->mesh.world / (double)c->mesh.size[AXIS_PP];
  }
  TRY(run_costs(c, &costs, t, e));
  report(&k, t, out);
  return WEFT_OK;
}
