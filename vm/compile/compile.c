/* compile.c - the list of passes from a graph and a schedule to proven programs:
 *
 *   graph --compile_units--> Units --stages--> Stages --transfers--> order of sends;
 *   for each pp rank
 *     --layout--> arena with parameters --actions--> main list --unshard--> with gathers
 *     --lower--> Program; all of them --prove-->
 *
 * A sweep takes the same passes except the last two (rank_cost.h). Temporaries live in
 * arenas of the compile, the result in the caller's arena. */
#include "compile.h"

#include "build_units.h"
#include "vm/base/budget.h"
#include "vm/lower/unsharded_buckets.h"

static void describe_params(const Stages *st, Compiled *c) {
  const Units *u = st->u;
  c->nparam = u->nparam;
  c->param = NEW_N(c->arena, CompiledParam, u->nparam);
  for (int i = 0; i < u->nparam; i++) {
    const UnitParam *from = &u->param[i];
    const Holders *h = &st->holders[i];
    CompiledParam *p = &c->param[i];
    *p = (CompiledParam){.name = arena_str(c->arena, from->name),
                         .ndim = from->ndim,
                         .init = from->init,
                         .std = from->std,
                         .decay = from->decay,
                         .share = from->share,
                         .place = from->place,
                         .npp = h->npp,
                         .pp = arena_copy(c->arena, h->pp, sizeof(int) * (size_t)h->npp)};
    uint64_t n = 1;
    for (int d = 0; d < from->ndim; d++) {
      n *= (uint64_t)(p->dim[d] = from->dim[d].size);
      p->parts[d] = from->dim[d].parts;
    }
    c->params_total += n;
  }
}

typedef struct Passes {
  const CompileInput *in;
  const Stages *st;
  Comms *comms;
  Diags *d;
  weft_error *e;
  bool gathers; /* some rank gathers parameters */
} Passes;

/* requires units and stages; establishes the program of a pp rank in `c` */
static weft_status rank_program(Passes *p, const Transfers *tr, ActionsInput *list, int r,
                                Compiled *c) {
  const CompileInput *in = p->in;
  Layout l;
  UnshardedList held;
  arena_reset(in->scratch);
  layout(p->st, in->plan, &c->mesh, r, c->microbatches, c->arena, in->scratch, &l);
  TRY(layout_check(p->st, r, &l, p->e));
  unsharded_buckets(p->st, &l, r, in->scratch, &held);
  p->gathers |= held.bytes[FULL_PARAM] > 0;
  MainList t = {.steps = held.n > 0};
  actions(list, r, &l, &t);
  /* requires the main list; establishes when blocks are gathered, freed and reduced */
  unshard(&in->plan->strategy, tr->s->ranks > 1, &held, in->scratch, &t);
  /* requires bodies, layout and main list; establishes the program */
  Emit emit = {.plan = in->plan,
               .mesh = &c->mesh,
               .st = p->st,
               .u = p->st->u,
               .microbatches = c->microbatches,
               .comms = p->comms,
               .scratch = in->scratch,
               .p = &c->prog[r],
               .l = &l,
               .held = &held};
  c->prog[r].pp = r;
  lower(&emit, &t, c);
  return WEFT_OK;
}

/* The programs of all pp ranks under a schedule that can run. */
static weft_status programs(Passes *p, const Schedule *s, const Timeline *when,
                            Compiled *c) {
  Transfers tr;
  /* requires stages and the schedule; establishes the order of sends of all ranks */
  transfers(p->st, s, when, c->microbatches, p->in->arena, &tr);
  c->prog = NEW_N(c->arena, Program, s->ranks);
  ActionsInput list = {.tr = &tr,
                       .scratch = p->in->scratch,
                       .d = p->d,
                       .keep_frames = c->context > 0,
                       .overlap = p->in->plan->strategy.overlap_grad_reduce};
  for (int r = 0; r < s->ranks; r++) TRY(rank_program(p, &tr, &list, r, c));
  return WEFT_OK;
}

/* Both programs of a rank have one arena: the larger one's. */
static void share_arena(Arena *a, Program *p, Program *eval) {
  if (eval->arena_bytes > p->arena_bytes) {
    MemClass *mem = NEW_N(a, MemClass, p->nmem + 1);
    memcpy(mem, p->mem, sizeof *mem * (size_t)p->nmem);
    mem[p->nmem] = (MemClass){.name = "evaluation",
                              .bytes = eval->arena_bytes - p->arena_bytes,
                              .note = "beyond what training takes"};
    p->mem = mem, p->nmem++;
  }
  p->arena_bytes = eval->arena_bytes = MAX(p->arena_bytes, eval->arena_bytes);
  p->nhandle = eval->nhandle = MAX(p->nhandle, eval->nhandle);
  eval->mem = p->mem, eval->nmem = p->nmem;
}

/* requires the programs of a step; establishes those of an evaluation */
static weft_status evaluation(Passes *p, Compiled *c, weft_error *e) {
  Timeline when;
  Compiled *v = c->eval = NEW(c->arena, Compiled);
  *v = *c;
  v->eval = NULL;
  v->forward = true;
  v->schedule = schedule_forward(p->in->schedule, c->arena);
  TRY(timeline_run(&v->schedule, TIMELINE_UNIT, p->in->arena, &when, e));
  TRY(programs(p, &v->schedule, &when, v));
  for (int r = 0; r < v->schedule.ranks; r++)
    share_arena(c->arena, &c->prog[r], &v->prog[r]);
  return WEFT_OK;
}

/* All programs have the same list of communicators. */
static void share_comms(const Comms *comms, Compiled *c) {
  CommDesc *comm = NEW_N(c->arena, CommDesc, comms->list.n);
  for (int i = 0; i < comms->list.n; i++) {
    comm[i] = comms->list.at[i];
    comm[i].name = arena_str(c->arena, comm[i].name);
    comm[i].pp = comm[i].npp
                     ? arena_copy(c->arena, comm[i].pp, sizeof(int) * (size_t)comm[i].npp)
                     : NULL;
  }
  for (Compiled *x = c; x; x = x->eval) {
    for (int r = 0; r < c->mesh.size[AXIS_PP]; r++)
      x->prog[r].comm = comm, x->prog[r].ncomm = comms->list.n;
    x->flow = NEW_N(c->arena, Flow, flow_room(x)); /* what prove() fills */
  }
}

static weft_status passes(const CompileInput *in, const Timeline *when, Compiled *c,
                          Diags *d, weft_error *e) {
  Arena *a = in->arena;
  Units *u;
  Stages st;
  Comms comms = {.arena = a, .mesh = &c->mesh};
  TRY(compile_units(in, true, a, &u, d, e));
  mesh_split_tp(&c->mesh, u->tp_copies);
  mesh_split_cp(&c->mesh, plan_cp_heads(in->plan, &c->mesh));
  mesh_split_dp(&c->mesh, plan_reshard_group(in->plan, &c->mesh));
  c->seq = u->seq, c->tokens = u->tokens, c->vocab = u->vocab;
  c->zigzag = c->mesh.size[AXIS_CP] > 1 && !in->plan->cp.in_order;
  c->documents = plan_cuts_documents(in->plan, c->mesh.size[AXIS_CP]);
  c->logits = u->logits, c->logits_cut = u->logits_cut;
  for (int i = 0; i < u->ncomm; i++) comm_for(&comms, u->comm[i], NULL, 0);
  budget_part(a, "the programs");
  /* requires units; establishes a stage for each and what crosses between them */
  if (!stages(u, &in->plan->pp, in->schedule, a, &st, d)) return WEFT_EPLAN;
  describe_params(&st, c);
  Passes p = {.in = in, .st = &st, .comms = &comms, .d = d, .e = e};
  TRY(programs(&p, in->schedule, when, c));
  if (in->plan->eval_every) TRY(evaluation(&p, c, e));
  if (!p.gathers) schedule_warn_of_parameters(in->schedule, d);
  share_comms(&comms, c);
  return WEFT_OK;
}

typedef struct Work {
  CompileInput in; /* with arenas of its own */
  Arena *result;
  Compiled *c;
  Diags *d;
  weft_status st;
  weft_error *e;
} Work;

static void run_passes(void *ud) {
  Work *w = ud;
  const CompileInput *in = &w->in;
  Timeline when;
  int rounds = (int)MAX(in->plan->batch.rounds, 1);
  Compiled *c = w->c = NEW(w->result, Compiled);
  *c = (Compiled){.arena = w->result,
                  .mesh = *in->mesh,
                  .microbatches = in->schedule->microbatches * rounds,
                  .micro = (int)in->plan->batch.micro,
                  .dtype = in->plan->dtype,
                  .optimizer = in->plan->opt.kind,
                  .context = in->context,
                  .forward = in->context > 0,
                  .device = compile_device(in)};
  bool ready = in->context ? timeline_run(in->schedule, TIMELINE_UNIT, in->arena, &when,
                                          w->e) == WEFT_OK
                           : schedule_ready(in->schedule, w->d, in->arena, &when);
  w->st = ready ? passes(in, &when, c, w->d, w->e) : WEFT_EPLAN;
  if (w->st == WEFT_OK) c->schedule = schedule_copy(in->schedule, c->arena);
}

/* Any of the three arenas may run out, and none may be lost then. */
static void run_in_scratch(void *ud) {
  Work *w = ud;
  if (!arena_try(w->in.scratch, run_passes, w)) w->st = WEFT_ENOMEM;
}

static void run_guarded(void *ud) {
  Work *w = ud;
  if (!arena_try(w->in.arena, run_in_scratch, w)) w->st = WEFT_ENOMEM;
}

weft_status compile(const CompileInput *in, Compiled **out, Diags *d, weft_error *e) {
  const weft_alloc *alloc = arena_allocator(in->arena);
  Arena *temp = arena_new(alloc), *scratch = arena_new(alloc);
  Work w = {.in = *in, .result = in->arena, .d = d, .e = e};
  w.in.arena = temp, w.in.scratch = scratch;
  if (!temp || !scratch || !arena_try(in->arena, run_guarded, &w)) w.st = WEFT_ENOMEM;
  if (w.st == WEFT_ENOMEM) err_set(e, WEFT_ENOMEM, "out of memory while compiling");
  arena_free(scratch);
  arena_free(temp);
  if (w.st != WEFT_OK) return w.st;
  budget_part(w.c->arena, "the proof");
  /* requires all programs; establishes that they cannot block each other */
  weft_error why = {.rank = -1};
  weft_status st = prove(w.c, &w.c->proof, &why);
  if (st == WEFT_OK && w.c->eval) st = prove(w.c->eval, &w.c->eval->proof, &why);
  if (st == WEFT_EPLAN) {
    Diag *x = diag_error(d, "deadlock", "schedule", "%s", why.text);
    if (why.line > 0) x->file = in->schedule->file, x->line = why.line;
  } else if (st != WEFT_OK && e) {
    *e = why;
  }
  if (st == WEFT_OK) *out = w.c;
  return st;
}
