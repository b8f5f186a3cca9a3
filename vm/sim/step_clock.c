/* step_clock.c - costs of instructions for the abstract machine, and what its walk tells
 * of waits; see step_clock.h. step_report.c sums up. */
#include "step_clock_int.h"

const char *const sim_axis_name[SIM_AXES] = {"tp", "cp", "ep", "dp", "pp"};

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

const Known *clock_know(Clock *k, int pp, const Instr *in) {
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
  return (int64_t)(clock_know(ud, pp, in)->seconds * SIM_TICKS + 0.5);
}

static void load(void *ud, int pp, const Instr *in, LinkLoad *out) {
  *out = clock_know(ud, pp, in)->load;
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

/* ---- steps that are too long ---- */

static double instr_seconds_of(Clock *k, int pp, const Instr *in) {
  return in->code == I_CALL ? 0 : clock_know(k, pp, in)->seconds;
}

/* All that a rank runs and starts, one after the other. */
static double rank_seconds(Clock *k, int pp) {
  const Program *p = &k->c->prog[pp];
  double s = 0, *body = NEW_N(k->a, double, p->nbody);
  for (int i = 0; i < p->nbody; i++)
    for (uint32_t j = 0; j < p->body[i].n; j++)
      body[i] += instr_seconds_of(k, pp, &p->code[p->body[i].first + j]);
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *in = &p->code[i];
    s += in->code == I_CALL ? body[p->call[in->call].body] : instr_seconds_of(k, pp, in);
  }
  return s;
}

/* A step takes no longer than all of its ranks one after the other. */
static weft_status check_length(Clock *k, weft_error *e) {
  enum { DAY = 24 * 3600 };
  double s = 0;
  for (int pp = 0; pp < k->c->mesh.size[AXIS_PP]; pp++) s += rank_seconds(k, pp);
  if (s / DAY <= SIM_DAYS) return WEFT_OK;
  return err_set(e, WEFT_EPLAN,
                 "plan.batch: a step is %.4g days of work for the ranks of a pipeline "
                 "together, and the clock has room for %.0f",
                 s / DAY, SIM_DAYS);
}

static weft_status prepare(Clock *k, const Compiled *c, const Plan *plan,
                           const SimOptions *o, Arena *a, weft_error *e) {
  const char *why, *lacks = sim_lacks(plan, &c->mesh, &why);
  if (lacks) return err_set(e, WEFT_EPLAN, "plan.%s: %s", lacks, why);
  *k = (Clock){.c = c, .plan = plan, .o = o, .a = a};
  k->source = (CostSource){&plan->cluster, o->rates, o->table};
  begin(k);
  return check_length(k, e);
}

weft_status sim_check(const Compiled *c, const Plan *plan, const SimOptions *o, Arena *a,
                      weft_error *e) {
  Clock k;
  return prepare(&k, c, plan, o, a, e);
}

weft_status simulate(const Compiled *c, const Plan *plan, const SimOptions *o, Arena *a,
                     SimReport *out, weft_error *e) {
  Clock k;
  RankTime *t = NEW_N(a, RankTime, c->mesh.size[AXIS_PP]);
  TRY(prepare(&k, c, plan, o, a, e));
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
  clock_report(&k, t, out);
  return WEFT_OK;
}
