/* job_verify.c - compiles a shrunk plan for one rank and for all of them, and verifies.
 */
#include "job_rounding.h"
#include "bindings/schedule/schedule_facts.h"
#include "vm/compile/compile.h"

#include <math.h>

weft_status job_twin(const Job *many, Job *one) {
  *one = *many;
  one->device = NULL;
  one->dumped = (Text){0};
  Plan *p = &one->plan;
  p->mesh = (MeshSpec){.world = 1};
  p->batch.micro *= mesh_size(&many->mesh, AXES_DP);
  p->fp8.groups = mesh_size(&many->mesh, AXES_DP); /* whose scales are their own */
  p->dtype = p->grad = p->reduce = p->master = DT_F32;
  p->opt.post_validation = false;
  p->opt.state = DT_F32;
  p->recompute = (Recompute){0};
  p->strategy.kind = STRATEGY_ZERO;
  p->strategy.sequence_parallel = false;
  p->pp = (PpPlan){.virtual_stages = 1};
  p->schedule = "gpipe";
  if (!mesh_resolve(&p->mesh, 1, &one->mesh, &one->d)) return WEFT_EPLAN;
  TRY(job_graph(one));
  TRY(lang_schedule_named(one->lp, p->schedule, &one->mesh, one->microbatches,
                          &one->schedule, &one->d, &one->e));
  CompileInput in = {.plan = p,
                     .mesh = &one->mesh,
                     .graph = one->graph,
                     .schedule = &one->schedule,
                     .arena = one->arena};
  return compile(&in, &one->compiled, &one->d, &one->e);
}

/* Whether the plan needs no shrinking: a step takes seconds at most, and little memory.
 */
static bool small_enough(const Job *j) {
  enum { GIGA = 1000000000 };
  const Compiled *c = j->compiled;
  int pp = c->mesh.size[AXIS_PP];
  double flops = 0, bytes = 0;
  for (int r = 0; r < pp; r++) {
    flops += c->prog[r].flops;
    bytes += (double)c->prog[r].arena_bytes;
  }
  double copies = (double)c->mesh.world / pp;
  return flops * copies < 30.0 * GIGA && bytes * copies < 2.0 * GIGA;
}

/* What adding up n gradients in this type may differ from their sum, relative to it: each
 * addition rounds by half a unit at most, upwards as often as downwards. */
static double added_up(DType t, int n) {
  double half_unit = t == DT_BF16 ? 0x1p-9 : t == DT_F16 ? 0x1p-12 : 0;
  return half_unit * sqrt(n);
}

/* For differences of norms: bf16 has 8 significant bits, f16 has 11. A device other than
 * the CPU sums in another order and has other functions. */
double job_tolerance(const Job *j) {
  const Plan *p = &j->plan;
  double sums = added_up(p->grad, j->microbatches);
  if (p->fp8.recipe) return 5e-2 + sums;
  if (p->dtype == DT_BF16 || p->opt.state == DT_BF16 || p->reduce == DT_BF16 ||
      p->grad == DT_BF16)
    return 2e-2 + sums;
  if (p->dtype != DT_F32) return 5e-3 + sums;
  return j->device && !j->device->host ? 1e-4 : 1e-5;
}

static bool routes(const Graph *g) {
  for (int i = 0; i < g->op.n; i++)
    if (g->op.at[i].code == OP_route) return true;
  return false;
}

static void tell(Job *j, LangShrunk *shrunk, const char *text) {
  const char **what = NEW_N(j->arena, const char *, shrunk->n + 1);
  if (shrunk->n) memcpy(what, shrunk->what, sizeof *what * (size_t)shrunk->n);
  what[shrunk->n++] = text;
  shrunk->what = what;
}

/* Which tokens are beyond a limit of experts depends on how ranks share the batch, so it
 * cannot be compared. */
static bool limits(const MoePlan *m) { return m->most > 0 || m->capacity > 0; }

static void without_limits(Job *j, LangShrunk *shrunk) {
  MoePlan *m = &j->plan.moe;
  double given[] = {m->most, m->capacity};
  static const char *const name[] = {"max_tokens_factor", "capacity_factor"};
  for (int i = 0; i < LEN(given); i++)
    if (given[i] > 0)
      tell(j, shrunk, arena_printf(j->arena, "moe.%s %g -> none", name[i], given[i]));
  m->most = m->capacity = 0;
  m->drops = false, m->drop = DROP_NONE;
}

/* The reference computes in f32. A router whose input is rounded chooses other experts
 * for some tokens, on any number of ranks; so a plan with routers is compared in f32 and
 * without limits. Gradients in bf16 stay so: no step sees the roundings of another. */
static weft_status as_one_rank_routes(Job *j, const Diags *before, LangShrunk *shrunk) {
  Plan *p = &j->plan;
  if (!routes(j->graph) || (p->dtype == DT_F32 && !limits(&p->moe))) return WEFT_OK;
  if (p->dtype != DT_F32)
    tell(j, shrunk, arena_printf(j->arena, "precision %s -> f32", dtype_name(p->dtype)));
  without_limits(j, shrunk);
  if (p->grad == DT_F16) p->grad = DT_F32;
  p->dtype = p->master = p->opt.state = DT_F32;
  p->reduce = p->grad;
  j->d = *before;
  return job_compile(j);
}

static weft_status compile_small(Job *j, int ranks, LangShrunk *shrunk) {
  TRY(job_mesh(j, 0));
  if (j->mesh.world <= ranks) {
    Diags before = j->d;
    TRY(job_compile(j));
    if (small_enough(j)) return WEFT_OK;
    j->d = before; /* the shrunk plan gives the same warnings again */
  }
  int library = j->plan.attention_library; /* of the machine, not of the plan's file */
  TRY(lang_shrink(j->lp, ranks, &j->plan, shrunk, &j->d, &j->e));
  j->plan.attention_library = library;
  TRY(job_mesh(j, j->plan.mesh.world));
  return job_compile(j);
}

/* Codes of 8 bits turn the last bits of a gradient into steps of a hundredth: states are
 * compared in f32. Where flat cuts fall, blocks are the same on all meshes. */
static weft_status without_codes(Job *j, const Diags *before, LangShrunk *shrunk) {
  if (dtype_elements(j->plan.opt.state) == 1) return WEFT_OK;
  tell(j, shrunk, "states of the optimizer in 8 bits -> f32");
  j->plan.opt.state = DT_F32;
  j->d = *before;
  return job_compile(j);
}

/* What is next to a tie rounds up on one mesh and down on another, and is then as far
 * from itself as fp8 rounds; so are later layers. In f32, with scales that the last bit
 * of a magnitude does not change, next to nothing is. */
static weft_status with_exact_scales(Job *j, const Diags *before, LangShrunk *shrunk) {
  Plan *p = &j->plan;
  if (!p->fp8.recipe || (p->dtype == DT_F32 && p->fp8.powers)) return WEFT_OK;
  if (p->dtype != DT_F32)
    tell(j, shrunk,
         arena_printf(j->arena, "precision beside fp8 %s -> f32", dtype_name(p->dtype)));
  if (!p->fp8.powers) tell(j, shrunk, "scales of fp8 -> powers of two");
  p->dtype = p->master = DT_F32;
  if (dtype_elements(p->opt.state) == 1) p->opt.state = DT_F32;
  p->fp8.powers = true;
  j->d = *before;
  return job_compile(j);
}

weft_status job_compile_small(Job *j, int ranks, LangShrunk *shrunk) {
  Diags before = j->d;
  TRY(compile_small(j, ranks, shrunk));
  TRY(without_codes(j, &before, shrunk));
  TRY(with_exact_scales(j, &before, shrunk));
  return as_one_rank_routes(j, &before, shrunk);
}

weft_status job_verify(Job *j, JobVerify *v) {
  Job one;
  int steps = v->steps > 0 ? v->steps : 3;
  TRY(job_compile_small(j, v->ranks > 0 ? v->ranks : 32, &v->shrunk));
  weft_status st = job_twin(j, &one);
  if (st != WEFT_OK) {
    /* The one-rank job has a copy of the list; what it added is to be reported. */
    j->d = one.d;
    j->e = one.e;
    return st;
  }
  bool asked = v->tolerance > 0; /* then for all numbers */
  if (!asked) v->tolerance = job_tolerance(j);
  TRY(job_compare(j, &one, steps, !asked, v));
  if (v->report.ok) return WEFT_OK;
  return err_set(&j->e, WEFT_EPLAN, "%s", v->report.first_bad);
}
