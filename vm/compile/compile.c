/* compile.c - the list of passes.
 *
 *   graph --units--> units --stages--> stages --transfers--> order of sends; for each pp rank
 *     --layout--> static memory --actions--> main list --unshard--> with gathers
 *     --lower--> program; all --prove-->
 *
 * A sweep takes the same passes but the last two, one by one: see share.h. Everything
 * temporary lives in arenas of the compile; the result in the arena of the caller. */
#include "compile.h"
#include "vm/base/budget.h"
#include "vm/lower/held.h"

static void describe_params(const Stages *st, Compiled *c) {
  const Units *u = st->u;
  c->nparam = u->nparam;
  c->param = NEW_N(c->arena, CompiledParam, u->nparam);
  for (int i = 0; i < u->nparam; i++) {
    const UnitParam *from = &u->param[i];
    const Holders *h = &st->holders[i];
    CompiledParam *p = &c->param[i];
    *p = (CompiledParam){
        .name = arena_str(c->arena, from->name),
        .ndim = from->ndim,
        .init = from->init,
        .std = from->std,
        .decay = from->decay,
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

static weft_status passes(const CompileInput *in, const Timeline *when, Compiled *c,
                          Diags *d, weft_error *e) {
  Arena *a = in->arena;
  Units *u;
  Stages st;
  Transfers tr;
  Comms comms = {.arena = a, .mesh = &c->mesh};
  TRY(compile_units(in, true, a, &u, d, e));
  mesh_split_tp(&c->mesh, u->tp_copies);
  c->seq = u->seq, c->vocab = u->vocab;
  for (int i = 0; i < u->ncomm; i++)
    comm_for(&comms, u->comm[i], NULL, 0);
  budget_part(a, "the programs");
  /* requires units; establishes a stage for each and what crosses between them */
  if (!stages(u, &in->plan->pp, in->schedule, a, &st, d)) return WEFT_EPLAN;
  describe_params(&st, c);
  /* requires stages and the schedule; establishes the order of sends of all ranks */
  transfers(&st, in->schedule, when, c->microbatches, a, &tr);
  int ranks = in->mesh->size[AXIS_PP];
  bool gathers = false;
  c->prog = NEW_N(c->arena, Program, ranks);
  ActionsInput list = {.tr = &tr,
                       .scratch = in->scratch,
                       .d = d,
                       .overlap = in->plan->strategy.overlap_grad_reduce};
  for (int r = 0; r < ranks; r++) {
    Layout l;
    Held held;
    arena_reset(in->scratch);
    layout(&st, in->plan, &c->mesh, r, c->microbatches, c->arena, in->scratch, &l);
    held_of(&st, &l, r, in->scratch, &held);
    gathers |= held.bytes[HELD_COPY] > 0;
    MainList t = {.steps = held.n > 0};
    actions(&list, r, &l, &t);
    /* requires the main list; establishes when blocks are gathered, freed and reduced */
    unshard(&in->plan->strategy, ranks > 1, &held, in->scratch, &t);
    /* requires bodies, layout and main list; establishes the program */
    Emit emit = {.plan = in->plan,
                 .mesh = &c->mesh,
                 .st = &st,
                 .u = u,
                 .microbatches = c->microbatches,
                 .comms = &comms,
                 .scratch = in->scratch,
                 .p = &c->prog[r],
                 .l = &l,
                 .held = &held};
    c->prog[r].pp = r;
    lower(&emit, &t, c);
  }
  if (!gathers) schedule_warn_of_parameters(in->schedule, d);
  CommDesc *comm = NEW_N(c->arena, CommDesc, comms.list.n);
  for (int i = 0; i < comms.list.n; i++) {
    comm[i] = comms.list.at[i];
    comm[i].name = arena_str(c->arena, comm[i].name);
    comm[i].pp = comm[i].npp ? arena_copy(c->arena, comm[i].pp,
                                          sizeof(int) * (size_t)comm[i].npp)
                             : NULL;
  }
  for (int r = 0; r < ranks; r++)
    c->prog[r].comm = comm, c->prog[r].ncomm = comms.list.n;
  c->flow = NEW_N(c->arena, Flow, flow_room(c)); /* what prove() fills */
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
                  .device = compile_device(in)};
  bool ready = schedule_ready(in->schedule, w->d, in->arena, &when);
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
  if (st == WEFT_EPLAN) {
    Diag *x = diag_error(d, "deadlock", "schedule", "%s", why.text);
    if (why.line > 0) x->file = in->schedule->file, x->line = why.line;
  } else if (st != WEFT_OK && e) {
    *e = why;
  }
  if (st == WEFT_OK) *out = w.c;
  return st;
}
