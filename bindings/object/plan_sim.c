/* plan_sim.c - plan:sim(): a step of a compiled plan on the clock, as a table. */
#include "plan_object.h"
#include "reasons.h"
#include "sim_figures.h"

#include "bindings/calibration/job_costs.h"
#include "vm/session/gpu_memory.h"

weft_status sim_figures(const Job *j, const SimStack *stack, Arena *a, SimFigures *out,
                        weft_error *e) {
  int pp;
  *out =
      (SimFigures){.plan = arena_str(a, j->plan.name),
                   .gpu = arena_str(a, j->plan.cluster.gpu),
                   .measured = j->costs != NULL,
                   .gpu_bytes = (double)gpu_memory_worst(a, &j->plan, j->compiled, &pp)};
  for (int i = RATES_N; i-- > RATES_USUAL;) {
    SimOptions o = {.rates = sheet_rates((RatesOf)i),
                    .table = j->costs,
                    .steps_overlap = stack->steps_overlap,
                    .sends_block = stack->sends_block,
                    .tp_blocks = stack->tp_blocks,
                    .skew = stack->skew};
    sheet_attention(&o.rates, stack->attention);
    TRY(simulate(j->compiled, &j->plan, &o, a, &out->r, e));
    out->seconds[i] = out->r.seconds;
  }
  return WEFT_OK;
}

static double sum(const double *x, int n) {
  double s = 0;
  for (int i = 0; i < n; i++) s += x[i];
  return s;
}

/* Adds the seconds of a pipeline rank as a table. */
static void push_rank(lua_State *L, const SimRank *r, int pp) {
  lua_createtable(L, 0, 5);
  set_integer(L, "pp", pp);
  lua_createtable(L, 0, WORK_N);
  for (int i = 0; i < WORK_N; i++)
    if (r->kernels[i] > 0) set_number(L, work_name[i], r->kernels[i]);
  lua_setfield(L, -2, "kernels");
  lua_createtable(L, 0, SIM_AXES);
  for (int i = 0; i < SIM_AXES; i++)
    if (r->exposed[i] > 0) set_number(L, sim_axis_name[i], r->exposed[i]);
  lua_setfield(L, -2, "exposed");
  set_number(L, "compute", sum(r->kernels, WORK_N));
  if (r->shared > 0) set_number(L, "shared", r->shared);
  set_number(L, "bubble", r->bubble);
}

static void push_waits(lua_State *L, const SimReport *r) {
  lua_createtable(L, r->nwait, 0);
  for (int i = 0; i < r->nwait; i++) {
    const SimWait *w = &r->wait[i];
    lua_createtable(L, 0, 5);
    set_integer(L, "pp", w->pp);
    set_text(L, "axis", sim_axis_name[w->axis]);
    set_text(L, "what", w->what);
    set_number(L, "seconds", w->seconds);
    set_integer(L, "count", w->count);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Shares of the time of kernels and transfers. */
static void push_sources(lua_State *L, const double *from) {
  double all = sum(from, COST_FROM_N);
  lua_createtable(L, 0, COST_FROM_N);
  for (int i = 0; i < COST_FROM_N; i++)
    set_number(L, cost_from_name[i], all > 0 ? from[i] / all : 0);
}

static void push_ops(lua_State *L, const SimReport *r) {
  lua_createtable(L, r->nop, 0);
  for (int i = 0; i < r->nop; i++) {
    const SimOp *op = &r->op[i];
    lua_createtable(L, 0, 5);
    set_text(L, "name", op->name);
    set_text(L, "dtype", dtype_name(op->dtype));
    set_integer(L, "count", op->count);
    set_number(L, "seconds", sum(op->seconds, COST_FROM_N));
    push_sources(L, op->seconds);
    lua_setfield(L, -2, "sources");
    lua_rawseti(L, -2, i + 1);
  }
}

void sim_figures_push(lua_State *L, const SimFigures *f) {
  const SimReport *r = &f->r;
  lua_newtable(L);
  set_text(L, "plan", f->plan);
  set_text(L, "gpu", f->gpu);
  set_integer(L, "ranks", r->ranks);
  set_number(L, "gpu_bytes", f->gpu_bytes);
  set_number(L, "seconds", r->seconds);
  set_number(L, "low", f->seconds[RATES_BETTER]);
  set_number(L, "high", f->seconds[RATES_WORSE]);
  set_integer(L, "tokens", r->tokens);
  set_number(L, "tokens_per_s_per_gpu", (double)r->tokens / r->seconds / r->ranks);
  set_number(L, "flops", r->flops);
  set_number(L, "mfu", (r->flops - r->recomputed) / r->seconds / r->peak);
  set_number(L, "hfu", r->flops / r->seconds / r->peak);
  lua_createtable(L, r->npp, 0);
  for (int pp = 0; pp < r->npp; pp++) {
    push_rank(L, &r->rank[pp], pp);
    lua_rawseti(L, -2, pp + 1);
  }
  lua_setfield(L, -2, "pipeline");
  push_waits(L, r);
  lua_setfield(L, -2, "waits");
  push_sources(L, r->from);
  lua_setfield(L, -2, "sources");
  if (!f->measured) return;
  push_ops(L, r);
  lua_setfield(L, -2, "ops");
}

typedef struct SimCall {
  const Job *j;
  Arena *arena;
  SimStack stack;
  const char *calibration;
  SimFigures f;
  Diags d; /* what the calibration does not fit */
  weft_status st;
  weft_error e;
} SimCall;

static void sim_call(void *ud) {
  SimCall *k = ud;
  Job j = *k->j;
  j.d = (Diags){.arena = k->arena};
  k->st = k->calibration ? job_costs(&j, k->calibration, k->arena, &k->e) : WEFT_OK;
  if (k->st == WEFT_EPLAN && j.d.errors) {
    const Diag *g = &j.d.list.at[j.d.list.n - 1];
    err_file(&k->e, k->st, g->file ? g->file : k->calibration, g->line, "%s", g->summary);
  }
  k->d = j.d;
  job_costs_machine(&j);
  if (k->st == WEFT_OK) k->st = sim_figures(&j, &k->stack, k->arena, &k->f, &k->e);
}

static bool has_experts(const Compiled *c) {
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++)
    for (uint32_t i = 0; i < c->prog[pp].ncode; i++) {
      const Instr *in = &c->prog[pp].code[i];
      if (in->code == I_KERNEL && in->op == OP_grouped_linear) return true;
    }
  return false;
}

/* Errors without the line of the library that called. */
static SimSkew skew_at(lua_State *L, int idx, const Job *j) {
  lua_Integer pp = luaL_optinteger(L, idx + 1, 0);
  if (pp < 0 || pp >= j->mesh.size[AXIS_PP]) {
    lua_pushfstring(L, "skew.pp is a pipeline rank, 0 to %d", j->mesh.size[AXIS_PP] - 1);
    lua_error(L);
  }
  if (!lua_isnoneornil(L, idx + 2) && !has_experts(j->compiled)) {
    lua_pushliteral(L, "skew.experts: the model has no experts");
    lua_error(L);
  }
  return (SimSkew){luaL_optnumber(L, idx, 0), (int)pp, luaL_optnumber(L, idx + 2, 0)};
}

/* plan:sim(what computes attention, whether steps overlap, whether sends block, whether
 * collectives of tp do, the file of a calibration or nil, how slow a rank is, its
 * pipeline rank, rows of the experts of the busiest rank over the mean) */
int plan_sim(lua_State *L) {
  int attention = sheet_attention_kind(luaL_checkstring(L, 2));
  luaL_argcheck(L, attention >= 0, 2, "no kind of attention");
  SimCall k = {.j = plan_object_compiled(L),
               .stack = {(AttentionKind)attention, lua_toboolean(L, 3),
                         lua_toboolean(L, 4), lua_toboolean(L, 5)},
               .calibration = lua_tostring(L, 6)};
  k.stack.skew = skew_at(L, 7, k.j);
  k.arena = script_push_arena(L);
  err_clear(&k.e);
  if (!arena_try(k.arena, sim_call, &k)) return luaL_error(L, "not enough memory");
  if (k.st != WEFT_OK) return plan_object_raise(L, plan_object_self(L), k.st, &k.e);
  sim_figures_push(L, &k.f);
  if (!k.d.list.n) return 1;
  reasons_list(L, &k.d);
  lua_setfield(L, -2, "warnings");
  return 1;
}
