/* passes.c - the order of passes; see passes.h. */
#include "passes.h"

#include "graph_passes.h"

/* ---- each pass ---- */

/* One token at a time there is nothing but a forward, which no check of steps knows. */
static bool can_run(const Passes *p, ReadySchedule *r, PassResult *x) {
  if (p->in.context)
    return timeline_run(&r->s, TIMELINE_UNIT, x->keep, &r->when, x->e) == WEFT_OK;
  return schedule_ready(&r->s, x->d, x->keep, &r->when);
}

static void make_schedule(Passes *p, PassResult *x) {
  ReadySchedule *r = x->value = NEW(x->keep, ReadySchedule);
  r->s = *p->in.schedule;
  r->splits = schedule_splits(&r->s);
  x->st = can_run(p, r, x) ? WEFT_OK : WEFT_EPLAN;
}

static void make_units(Passes *p, PassResult *x) {
  BuiltUnits *b = x->value = NEW(x->keep, BuiltUnits);
  x->st = compile_units(&p->in, !p->costs_only, x->keep, &b->u, x->d, x->e);
  if (x->st == WEFT_OK && p->costs_only) buffer_sizes(b->u, x->keep, &b->sizes);
}

static void make_stages(Passes *p, PassResult *x) {
  RankCosts *c = x->value = NEW(x->keep, RankCosts);
  const BuiltUnits *b = p->units;
  x->st = stages(b->u, &p->in.plan->pp, &p->schedule->s, x->keep, &c->st, x->d)
              ? WEFT_OK
              : WEFT_EPLAN;
  if (x->st == WEFT_OK && p->costs_only)
    rank_costs(p->in.plan, &p->mesh, &b->sizes, p->in.arena, x->keep, c);
}

/* Of all ranks under a schedule that can run. */
static weft_status make_program(Passes *p, const Schedule *s, const Timeline *when,
                                bool eval, PassResult *x) {
  Transfers t;
  /* requires stages and the schedule; establishes the order of sends of all ranks */
  transfers(&p->costs->st, s, when, p->microbatches, p->in.arena, &t);
  return p->ranks(p, &t, eval, x);
}

static void make_ranks(Passes *p, PassResult *x) {
  const ReadySchedule *r = p->schedule;
  Timeline when;
  if (!microbatches_in_order(&p->costs->st, &r->s, x->d)) {
    x->st = WEFT_EPLAN;
    return;
  }
  x->st = make_program(p, &r->s, &r->when, false, x);
  if (x->st != WEFT_OK || !p->in.plan->eval_every) return;
  Schedule forward = schedule_forward(&r->s, p->in.arena);
  x->st = timeline_run(&forward, TIMELINE_UNIT, p->in.arena, &when, x->e);
  if (x->st == WEFT_OK) x->st = make_program(p, &forward, &when, true, x);
}

PassMake *const pass_make[PASS_N] = {make_schedule, make_units, make_stages, make_ranks};

/* ---- their order ---- */

static weft_status pass(Passes *p, Pass which, const void **value) {
  if (p->find) return p->find(p, which, value);
  PassResult x = {.keep = p->in.arena, .d = p->d, .e = p->e};
  pass_make[which](p, &x);
  *value = x.value;
  return x.st;
}

/* Axes that are cut further, as the model and the strategy need it. */
static void split_axes(const Plan *plan, const Units *u, Mesh *m) {
  mesh_split_tp(m, u->tp_copies);
  mesh_split_cp(m, plan_cp_heads(plan, m));
  mesh_split_dp(m, plan_reshard_group(plan, m));
}

weft_status passes_stages(Passes *p) {
  const void *value;
  /* requires the schedule of a step; establishes that it can run, and when */
  TRY(pass(p, PASS_SCHEDULE, &value));
  p->schedule = value;
  p->in.schedule = &p->schedule->s;
  p->microbatches = p->schedule->s.microbatches * (int)MAX(p->in.plan->batch.rounds, 1);
  /* requires the logical graph; establishes bodies with storage */
  TRY(pass(p, PASS_UNITS, &value));
  p->units = value;
  split_axes(p->in.plan, p->units->u, &p->mesh);
  /* requires units; establishes a stage for each and what crosses between them */
  TRY(pass(p, PASS_STAGES, &value));
  p->costs = value;
  return WEFT_OK;
}

weft_status passes_ranks(Passes *p) { return pass(p, PASS_RANKS, &p->made); }
